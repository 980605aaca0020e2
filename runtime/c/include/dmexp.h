/* The C interface of dmexp: language models on microcontrollers, without a heap.
 *
 * Made of runtime/c by its test `header`; do not edit. docs/c.md says how to build and link the library.
 *
 * Models and sessions live in memory of yours: zero it, or fill it with dmexp_open and dmexp_session_new before you pass it on.
 * No function may be called for one session from two threads at once. */
#ifndef DMEXP_H
#define DMEXP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong. */
typedef enum DmexpCode {
    /* Nothing. */
    DMEXP_CODE_OK = 0,
    /* A pointer is null that must not be. */
    DMEXP_CODE_NULL = 1,
    /* A pointer is no multiple of the alignment that it must have: found the address, allowed the alignment. */
    DMEXP_CODE_ALIGNMENT = 2,
    /* The memory does not hold a model or a session that was made. */
    DMEXP_CODE_NOT_MADE = 3,
    /* The bytes are no .dmexp file. */
    DMEXP_CODE_NOT_DMEXP = 4,
    /* Another version of the format, the arithmetic or an architecture that this library does not read: found, allowed. */
    DMEXP_CODE_VERSION = 5,
    /* The file is damaged or cut: found, allowed; place is the tensor or the offset, where it is about one. */
    DMEXP_CODE_DAMAGED = 6,
    /* The parts of the file do not belong together, or its configuration is not possible: found, allowed; place is the tensor, where it is about one. */
    DMEXP_CODE_MISMATCH = 7,
    /* What the file or the call needs was left out of this library when it was built (a type of weights, of keys and values, a tokenizer, format 1): found is its code. */
    DMEXP_CODE_NOT_BUILT = 8,
    /* The arena is too small: found and needed (allowed) bytes. */
    DMEXP_CODE_ARENA_TOO_SMALL = 9,
    /* The memory for keys and values is too small: found and needed (allowed) bytes. */
    DMEXP_CODE_KV_BANK_TOO_SMALL = 10,
    /* The memory for everything but keys and values is too small: found and needed (allowed) bytes. */
    DMEXP_CODE_WORK_BANK_TOO_SMALL = 11,
    /* The context asked for is 0 or longer than the model was trained for: found, allowed. */
    DMEXP_CODE_CONTEXT = 12,
    /* The prompt does not fit what is left of the context: found tokens, allowed positions. */
    DMEXP_CODE_PROMPT_TOO_LONG = 13,
    /* There is nothing to go on from. */
    DMEXP_CODE_NO_PROMPT = 14,
    /* A token that the vocabulary does not have: found, allowed. */
    DMEXP_CODE_TOKEN = 15,
    /* A byte of the text has no token: found the byte, place where in the text. */
    DMEXP_CODE_NO_TOKEN = 16,
    /* The text is too long to be merged in the arena: found and needed (allowed) words. */
    DMEXP_CODE_SCRATCH_TOO_SMALL = 17,
    /* A logit is not finite, so the weights are damaged: place is the position. */
    DMEXP_CODE_NON_FINITE = 18,
    /* This machine's floats do not behave as IEEE 754 says (rounding, subnormals flushed, other routines linked): place is the check, found and allowed are bits. */
    DMEXP_CODE_ARITHMETIC = 19,
    /* A setting of the sampler is out of its range: found is its bits. */
    DMEXP_CODE_SAMPLING = 20,
    /* The callback did not take the text. */
    DMEXP_CODE_OUTPUT = 21,
    /* The golden vectors of the file do not come out on this machine: place is the position, found and allowed are checksums. */
    DMEXP_CODE_GOLDEN = 22,
    /* The file has no golden vectors to test with. */
    DMEXP_CODE_NO_GOLDEN = 23,
    /* Another error, which this version of the interface has no code for. */
    DMEXP_CODE_OTHER = 24,
    /* Two pieces of memory that must be apart overlap: found is how many bytes they share. */
    DMEXP_CODE_OVERLAP = 25,
    /* A stop string is empty or too long, or is no text in UTF-8, or there are too many: found bytes or strings, and how many may be. */
    DMEXP_CODE_STOP = 26,
} DmexpCode;

/* What a function found: a code, and numbers by which the cause is found. Numbers that a code does not speak of are 0. */
typedef struct DmexpError {
    /* What went wrong; DMEXP_CODE_OK where nothing did. */
    DmexpCode code;
    /* Where. */
    uint32_t place;
    /* What is there. */
    uint64_t found;
    /* What may be there, or is needed. */
    uint64_t allowed;
} DmexpError;

/* An opened model: memory that the caller gives, which dmexp_open fills. It must stay where it is while sessions of it are used. */
typedef struct DmexpModel {
    /* Nothing to look at: it gives the memory its alignment. */
    uint64_t aligned;
    size_t opaque[126];
} DmexpModel;

/* How keys and values are kept. */
typedef enum DmexpKv {
    /* Single precision. */
    DMEXP_KV_F32 = 0,
    /* Half precision. */
    DMEXP_KV_F16 = 1,
    /* Eight bits and a scale a head. */
    DMEXP_KV_Q8 = 2,
} DmexpKv;

/* One text being continued: memory that the caller gives, which dmexp_session_new fills. It may not be moved. */
typedef struct DmexpSession {
    /* Nothing to look at: it gives the memory its alignment. */
    uint64_t aligned;
    size_t opaque[126];
} DmexpSession;

/* How the next token is chosen. All zero but the temperature and the seed is plain sampling; a null pointer in its place always takes the likeliest. */
typedef struct DmexpSampling {
    /* Divides the logits; 0 always takes the likeliest. */
    float temperature;
    /* Keeps the likeliest that together have more than this part of the probability; 0 or 1 is off. */
    float top_p;
    /* Keeps this many of the likeliest; 0 is off. */
    uint32_t top_k;
    /* Keeps tokens that have at least this part of the best one's probability; 0 is off. */
    float min_p;
    /* Divides positive logits of tokens that came up before; 0 or 1 is off. */
    float repeat_penalty;
    /* How many of the newest tokens the penalty looks at. */
    uint32_t repeat_last_n;
    /* Where the random numbers begin; 0 is 1. */
    uint64_t seed;
} DmexpSampling;

/* Bytes of text, without a zero byte behind them. */
typedef struct DmexpString {
    /* The first. */
    const char *text;
    /* How many. */
    size_t len;
} DmexpString;

/* Room for stop strings: memory that the caller gives, which dmexp_set_stops fills. It may not be moved. */
typedef struct DmexpStops {
    /* Nothing to look at: it gives the memory its alignment. */
    uint64_t aligned;
    size_t opaque[16];
} DmexpStops;

/* What a step did. */
typedef enum DmexpKind {
    /* A token of the prompt was fed; more of the prompt follows. */
    DMEXP_KIND_PROMPT = 0,
    /* A new token was chosen. */
    DMEXP_KIND_TOKEN = 1,
    /* Nothing more comes. */
    DMEXP_KIND_STOP = 2,
    /* A part of a step is done, by dmexp_poll: call it again. */
    DMEXP_KIND_BUSY = 3,
} DmexpKind;

/* Why nothing more comes. */
typedef enum DmexpReason {
    /* Something comes. */
    DMEXP_REASON_NONE = 0,
    /* The model said so. */
    DMEXP_REASON_END_OF_TEXT = 1,
    /* As many tokens as were asked for. */
    DMEXP_REASON_MAX_TOKENS = 2,
    /* Every position of the context is used. */
    DMEXP_REASON_CONTEXT_FULL = 3,
    /* Something else. */
    DMEXP_REASON_OTHER = 4,
    /* One of the strings of dmexp_set_stops came. */
    DMEXP_REASON_STOP_STRING = 5,
} DmexpReason;

/* One step. */
typedef struct DmexpStep {
    /* What it did. */
    DmexpKind kind;
    /* Why nothing more comes, after DMEXP_KIND_STOP. */
    DmexpReason reason;
    /* The token that was fed or chosen. */
    uint32_t token;
    /* The bytes of a chosen token, which need not be whole characters; they lie in the file or in this library, without a zero byte behind them. */
    const char *text;
    /* How many there are. */
    size_t text_len;
} DmexpStep;

/* What dmexp_generate did. */
typedef struct DmexpGenerated {
    /* Tokens of the prompt, begin-of-text included. */
    uint32_t prompt_tokens;
    /* New tokens. */
    uint32_t tokens;
    /* Why it ended. */
    DmexpReason reason;
} DmexpGenerated;

/* Takes len bytes of text, whole characters at a time; returns how many of them it took, 0 where it takes no more. context is what was given with the callback. */
typedef size_t (*DmexpWrite)(void *context, const char *text, size_t len);

/* What a code means, in one line that ends with a zero byte and never goes away. */
const char *dmexp_error_text(DmexpError error);

/* Opens the .dmexp file at bytes, len bytes that may lie at any address (flash, say) and must stay there: nothing is copied. The model has the context that it was trained for, and
 * keeps keys and values in f16.
 *
 * What the caller answers for:
 * model points to memory of its type; bytes to len bytes that nobody changes while the model is used. */
DmexpError dmexp_open(DmexpModel *model, const void *bytes, size_t len);

/* Gives the model room for context positions. Call it before sessions are made.
 *
 * What the caller answers for:
 * model points to memory of its type, and no session of it is used any more. */
DmexpError dmexp_set_context(DmexpModel *model, uint32_t context);

/* Has the model keep keys and values as kv. Call it before sessions are made.
 *
 * What the caller answers for:
 * model points to memory of its type, and no session of it is used any more. */
DmexpError dmexp_set_kv(DmexpModel *model, uint32_t kv);

/* Bytes of arena that a session of the model needs.
 *
 * What the caller answers for:
 * model points to memory of its type; len to a number. */
DmexpError dmexp_arena_len(const DmexpModel *model, size_t *len);

/* Bytes that a session of the model needs where its memory is given in two banks: for keys and values, and for everything else.
 *
 * What the caller answers for:
 * model points to memory of its type; kv and work to numbers. */
DmexpError dmexp_bank_lens(const DmexpModel *model, size_t *kv, size_t *work);

/* How many tokens the vocabulary has, which is how many logits there are; 0 where no model is there.
 *
 * What the caller answers for:
 * model is null or points to memory of its type. */
uint32_t dmexp_vocab_size(const DmexpModel *model);

/* Makes a session of model in arena, arena_len bytes at an address that is a multiple of 4 (dmexp_arena_len says how many there must be). What the arena held does not matter.
 * sampling may be null.
 *
 * What the caller answers for:
 * session points to memory of its type, model to an opened model that stays where it is, arena to so many bytes, which are the session's alone while it is used. */
DmexpError dmexp_session_new(DmexpSession *session, const DmexpModel *model, void *arena, size_t arena_len, const DmexpSampling *sampling);

/* dmexp_session_new with memory in two pieces, for chips whose RAM is split: keys and values in kv, everything else in work (dmexp_bank_lens says how much).
 *
 * What the caller answers for:
 * That of dmexp_session_new, for both pieces. */
DmexpError dmexp_session_new_in_banks(DmexpSession *session, const DmexpModel *model, void *kv, size_t kv_len, void *work, size_t work_len, const DmexpSampling *sampling);

/* Puts len bytes of text behind what is known; at the beginning of a text the begin-of-text token goes before it, if the tokenizer wants one. added (may be null) gets the number of
 * tokens.
 *
 * What the caller answers for:
 * session points to memory of its type; text to len bytes. */
DmexpError dmexp_prompt(DmexpSession *session, const char *text, size_t len, uint32_t *added);

/* Puts count tokens behind what is known.
 *
 * What the caller answers for:
 * session points to memory of its type; tokens to count numbers. */
DmexpError dmexp_push_tokens(DmexpSession *session, const uint32_t *tokens, size_t count);

/* Feeds all known tokens, and lets logits point to the logits after the last and count (may be null) be how many there are. They lie in the arena, until the session is used again.
 *
 * What the caller answers for:
 * session points to memory of its type, logits to a pointer, count is null or points to a number. */
DmexpError dmexp_logits(DmexpSession *session, const float **logits, size_t *count);

/* Tokens fed so far; 0 where no session is there.
 *
 * What the caller answers for:
 * session is null or points to memory of its type. */
uint32_t dmexp_position(DmexpSession *session);

/* Forgets everything: the next prompt begins a new text. The sampler goes on with its random numbers.
 *
 * What the caller answers for:
 * session points to memory of its type. */
DmexpError dmexp_reset(DmexpSession *session);

/* Lets dmexp_generate(crate::dmexp_generate) end a text at any of count strings (at most 8, each of 1 to 64 bytes of UTF-8), of which it shows no part; of none where count is 0, and stops
 * may be null then. stops and the strings' bytes stay where they are while the session is used, and one session has stops to itself.
 *
 * What the caller answers for:
 * session points to memory of its type, stops to memory of its type that no other session uses, strings to so many strings, whose bytes are there while the session is used. */
DmexpError dmexp_set_stops(DmexpSession *session, DmexpStops *stops, const DmexpString *strings, size_t count);

/* Feeds the next known token. When it was the last one known, the next is chosen.
 *
 * What the caller answers for:
 * session points to memory of its type, step to a step. */
DmexpError dmexp_step(DmexpSession *session, DmexpStep *step);

/* Does a part of a dmexp_step, so that a watchdog can be fed and other work done in between: the embedding, one layer, or logits and choice. The kind is DMEXP_KIND_BUSY until the step is
 * done. The bits are those of whole steps, which may also finish what this began.
 *
 * What the caller answers for:
 * session points to memory of its type, step to a step. */
DmexpError dmexp_poll(DmexpSession *session, DmexpStep *step);

/* Continues the prompt (len bytes, which may be none where something is known already) by at most max_tokens tokens and gives the new text to write, whole characters at a time.
 * generated may be null. Where write takes no more, the code is DMEXP_CODE_OUTPUT, and the session has gone on as far as it came: it can be continued behind the text that was not taken.
 *
 * What the caller answers for:
 * session points to memory of its type, prompt to len bytes, generated is null or points to memory of its type; write may be called with write_context. */
DmexpError dmexp_generate(DmexpSession *session, const char *prompt, size_t len, uint32_t max_tokens, DmexpWrite write, void *write_context, DmexpGenerated *generated);

/* Computes every golden vector of the .dmexp file at bytes in arena and compares the logits, bit for bit, with what the machine that exported the file computed. An arena that suffices
 * for a session suffices here, unless its context or its keys and values are smaller than a vector's: then the error says how many bytes are needed.
 *
 * What the caller answers for:
 * bytes points to len bytes that nobody changes meanwhile; arena to arena_len bytes at a multiple of 4, used by no session. */
DmexpError dmexp_self_test(const void *bytes, size_t len, void *arena, size_t arena_len);

#ifdef __cplusplus
}
#endif

#endif
