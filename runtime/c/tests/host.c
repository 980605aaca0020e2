/* The C interface on a host: a story, logits, and refusals. `cargo test -p dmexp-tests --test c_interface` compiles and runs it.
 *
 *     host MODEL.dmexp LOGITS.f32: writes the story of seed 1 to stdout and the logits of tokens 1, 403, 407 to LOGITS.f32 */

#include "dmexp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int right, const char *what, int line) {
    if (!right) {
        fprintf(stderr, "host.c:%d: %s\n", line, what);
        exit(1);
    }
}
#define EXPECT(right) expect((right) != 0, #right, __LINE__)

static void done(DmexpError error, int line) {
    if (error.code != DMEXP_CODE_OK) {
        fprintf(stderr, "host.c:%d: %s (%llu, %llu at %u)\n", line, dmexp_error_text(error), (unsigned long long)error.found,
                (unsigned long long)error.allowed, error.place);
        exit(1);
    }
}
#define DONE(call) done((call), __LINE__)

static size_t print(void *context, const char *text, size_t len) {
    return fwrite(text, 1, len, context);
}

static size_t refuse(void *context, const char *text, size_t len) {
    (void)context, (void)text, (void)len;
    return 0;
}

static unsigned char *read_all(const char *path, size_t *len) {
    FILE *file = fopen(path, "rb");
    EXPECT(file);
    EXPECT(fseek(file, 0, SEEK_END) == 0);
    *len = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*len);
    EXPECT(bytes && fread(bytes, 1, *len, file) == *len);
    fclose(file);
    return bytes;
}

/* A machine whose floats are not IEEE 754's is refused, by the operation that showed it. */
static void wrong_floats(const DmexpModel *model, void *arena, size_t arena_len) {
#if defined(__SSE__)
    static const struct {
        unsigned bits, place;
    } modes[] = {{0x8000, 2}, {0x0040, 3}, {0x6000, 0}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const unsigned before = __builtin_ia32_stmxcsr();
        DmexpSession session;
        __builtin_ia32_ldmxcsr(before | modes[i].bits);
        const DmexpError error = dmexp_session_new(&session, model, arena, arena_len, NULL);
        __builtin_ia32_ldmxcsr(before);
        EXPECT(error.code == DMEXP_CODE_ARITHMETIC && error.place == modes[i].place && error.found != error.allowed);
    }
#else
    (void)model, (void)arena, (void)arena_len;
#endif
}

/* Outcomes that have no place to go are refused before anything is done. */
static void wrong_places(const DmexpModel *model, void *arena, size_t arena_len) {
    static const char text[] = "Once";
    static DmexpSession session;
    union {
        unsigned char bytes[sizeof(DmexpStep) + 8];
        uint64_t aligned;
    } memory;
    void *odd = memory.bytes + 1;
    size_t kv = 7, work = 7;
    EXPECT(dmexp_arena_len(model, NULL).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_arena_len(model, odd).code == DMEXP_CODE_ALIGNMENT);
    EXPECT(dmexp_bank_lens(model, &kv, NULL).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_bank_lens(model, NULL, &work).code == DMEXP_CODE_NULL);
    EXPECT(kv == 7 && work == 7);
    EXPECT(dmexp_session_new(NULL, model, arena, arena_len, NULL).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_session_new(odd, model, arena, arena_len, NULL).code == DMEXP_CODE_ALIGNMENT);
    EXPECT(dmexp_session_new(&session, model, NULL, arena_len, NULL).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_session_new(&session, model, NULL, 0, NULL).code == DMEXP_CODE_ARENA_TOO_SMALL);
    EXPECT(dmexp_prompt(&session, text, 4, NULL).code == DMEXP_CODE_NOT_MADE);

    DmexpStep step;
    const float *logits;
    DONE(dmexp_session_new(&session, model, arena, arena_len, NULL));
    EXPECT(dmexp_prompt(&session, text, 4, odd).code == DMEXP_CODE_ALIGNMENT);
    EXPECT(dmexp_prompt(&session, NULL, 4, NULL).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_generate(&session, text, 4, 1, print, stdout, odd).code == DMEXP_CODE_ALIGNMENT);
    EXPECT(dmexp_generate(&session, text, 4, 1, NULL, NULL, NULL).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_step(&session, &step).code == DMEXP_CODE_NO_PROMPT);
    DONE(dmexp_prompt(&session, text, 4, NULL));
    EXPECT(dmexp_step(&session, NULL).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_step(&session, odd).code == DMEXP_CODE_ALIGNMENT);
    EXPECT(dmexp_logits(&session, NULL, NULL).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_logits(&session, odd, NULL).code == DMEXP_CODE_ALIGNMENT);
    EXPECT(dmexp_logits(&session, &logits, odd).code == DMEXP_CODE_ALIGNMENT);
    EXPECT(dmexp_position(&session) == 0);

    /* A callback that takes no more ends a text; the session can go on. */
    EXPECT(dmexp_generate(&session, NULL, 0, 9, refuse, NULL, NULL).code == DMEXP_CODE_OUTPUT);
    EXPECT(dmexp_position(&session) > 0);
    DONE(dmexp_step(&session, &step));
    EXPECT(step.kind == DMEXP_KIND_TOKEN);
}

/* A layer at a time makes the tokens of whole steps, and whole steps may finish what it began. */
static void by_layers(const DmexpModel *model, void *arena, size_t arena_len) {
    static DmexpSession session;
    DmexpStep step;
    uint32_t tokens[12], busy = 0;
    for (int by_layer = 0; by_layer < 2; by_layer++) {
        DONE(dmexp_session_new(&session, model, arena, arena_len, NULL));
        EXPECT(dmexp_poll(&session, &step).code == DMEXP_CODE_NO_PROMPT);
        DONE(dmexp_prompt(&session, "Once", 4, NULL));
        EXPECT(dmexp_poll(&session, NULL).code == DMEXP_CODE_NULL);
        for (size_t made = 0; made < 12;) {
            DONE((by_layer ? dmexp_poll : dmexp_step)(&session, &step));
            if (step.kind == DMEXP_KIND_BUSY) {
                busy++;
                EXPECT(by_layer && step.text_len == 0);
            } else if (by_layer) {
                EXPECT(step.token == tokens[made++]);
            } else {
                tokens[made++] = step.token;
            }
        }
    }
    EXPECT(busy >= 5 * 12);
    DONE(dmexp_poll(&session, &step));
    EXPECT(step.kind == DMEXP_KIND_BUSY);
    DONE(dmexp_step(&session, &step));
    EXPECT(step.kind == DMEXP_KIND_TOKEN);
}

struct text {
    char bytes[4096];
    size_t len;
};

static size_t keep(void *context, const char *text, size_t len) {
    struct text *kept = context;
    EXPECT(kept->len + len < sizeof kept->bytes);
    memcpy(kept->bytes + kept->len, text, len);
    kept->len += len;
    return len;
}

/* A text ends at a stop string, of which nothing is shown. */
static void stops(const DmexpModel *model, void *arena, size_t arena_len) {
    static DmexpSession session;
    static DmexpStops stops;
    static struct text whole, cut;
    static const char prompt[] = "Once upon a time";
    static const DmexpString empty = {"", 0}, latin = {"\xe9", 1};
    static char many[65], part[6];
    static const DmexpString wanted[] = {{"never to be seen", 16}, {part, 5}};
    static const DmexpString too_long = {many, sizeof many};
    DmexpString nine[9];
    DmexpGenerated generated;
    DONE(dmexp_session_new(&session, model, arena, arena_len, NULL));
    DONE(dmexp_generate(&session, prompt, sizeof prompt - 1, 60, keep, &whole, NULL));
    EXPECT(whole.len > 60);
    memcpy(part, whole.bytes + 50, 5);
    const char *there = strstr(whole.bytes, part);
    EXPECT(there);

    memset(many, 'x', sizeof many);
    for (size_t i = 0; i < 9; i++) nine[i] = wanted[0];
    EXPECT(dmexp_set_stops(&session, NULL, wanted, 2).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_set_stops(&session, &stops, NULL, 2).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_set_stops(&session, &stops, &empty, 1).code == DMEXP_CODE_STOP);
    EXPECT(dmexp_set_stops(&session, &stops, &latin, 1).code == DMEXP_CODE_STOP);
    DmexpError error = dmexp_set_stops(&session, &stops, &too_long, 1);
    EXPECT(error.code == DMEXP_CODE_STOP && error.found == 65 && error.allowed == 64);
    error = dmexp_set_stops(&session, &stops, nine, 9);
    EXPECT(error.code == DMEXP_CODE_STOP && error.found == 9 && error.allowed == 8);

    DONE(dmexp_session_new(&session, model, arena, arena_len, NULL));
    DONE(dmexp_set_stops(&session, &stops, wanted, 2));
    DONE(dmexp_generate(&session, prompt, sizeof prompt - 1, 60, keep, &cut, &generated));
    EXPECT(generated.reason == DMEXP_REASON_STOP_STRING);
    EXPECT(cut.len == (size_t)(there - whole.bytes) && memcmp(cut.bytes, whole.bytes, cut.len) == 0);

    DONE(dmexp_session_new(&session, model, arena, arena_len, NULL));
    DONE(dmexp_set_stops(&session, &stops, wanted, 2));
    DONE(dmexp_set_stops(&session, NULL, NULL, 0));
    cut.len = 0;
    DONE(dmexp_generate(&session, prompt, sizeof prompt - 1, 60, keep, &cut, &generated));
    EXPECT(cut.len == whole.len && memcmp(cut.bytes, whole.bytes, cut.len) == 0);
}

int main(int count, char **words) {
    static const char prompt[] = "Once upon a time";
    static DmexpModel model;
    static DmexpSession session;
    size_t len, arena_len, kv_len, work_len;
    EXPECT(count == 3);
    unsigned char *bytes = read_all(words[1], &len);

    /* What is not there, or no file, is refused. */
    EXPECT(dmexp_arena_len(&model, &arena_len).code == DMEXP_CODE_NOT_MADE);
    EXPECT(dmexp_reset(&session).code == DMEXP_CODE_NOT_MADE);
    EXPECT(dmexp_open(NULL, bytes, len).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_open(&model, NULL, len).code == DMEXP_CODE_NULL);
    EXPECT(dmexp_open(&model, prompt, sizeof prompt).code == DMEXP_CODE_NOT_DMEXP);
    EXPECT(dmexp_open(&model, bytes, len - 1).code == DMEXP_CODE_DAMAGED);
    EXPECT(dmexp_vocab_size(&model) == 0 && dmexp_vocab_size(NULL) == 0 && dmexp_position(&session) == 0);

    DONE(dmexp_open(&model, bytes, len));
    EXPECT(dmexp_vocab_size(&model) == 512);
    EXPECT(dmexp_set_context(&model, 0).code == DMEXP_CODE_CONTEXT);
    EXPECT(dmexp_set_context(&model, 100000).code == DMEXP_CODE_CONTEXT);
    EXPECT(dmexp_set_kv(&model, 3).code == DMEXP_CODE_NOT_BUILT);
    DONE(dmexp_set_kv(&model, DMEXP_KV_F16));
    DONE(dmexp_arena_len(&model, &arena_len));
    DONE(dmexp_bank_lens(&model, &kv_len, &work_len));
    EXPECT(kv_len + work_len == arena_len);
    unsigned char *arena = malloc(arena_len + 4);
    EXPECT(arena);
    wrong_floats(&model, arena, arena_len);

    DmexpError error = dmexp_session_new(&session, &model, arena, arena_len - 4, NULL);
    EXPECT(error.code == DMEXP_CODE_ARENA_TOO_SMALL && error.allowed == arena_len && error.found == arena_len - 4);
    EXPECT(strstr(dmexp_error_text(error), "arena"));
    EXPECT(dmexp_session_new(&session, &model, arena + 1, arena_len, NULL).code == DMEXP_CODE_ALIGNMENT);
    error = dmexp_session_new_in_banks(&session, &model, arena, kv_len - 4, arena + kv_len, work_len, NULL);
    EXPECT(error.code == DMEXP_CODE_KV_BANK_TOO_SMALL && error.allowed == kv_len);
    error = dmexp_session_new_in_banks(&session, &model, arena, kv_len, arena + kv_len, work_len - 4, NULL);
    EXPECT(error.code == DMEXP_CODE_WORK_BANK_TOO_SMALL && error.allowed == work_len);

    error = dmexp_session_new_in_banks(&session, &model, arena, kv_len, arena + kv_len - 8, work_len, NULL);
    EXPECT(error.code == DMEXP_CODE_OVERLAP && error.found == 8);
    EXPECT(dmexp_session_new_in_banks(&session, &model, arena, arena_len, arena, arena_len, NULL).code == DMEXP_CODE_OVERLAP);
    EXPECT(dmexp_session_new(&session, &model, &session, sizeof session, NULL).code == DMEXP_CODE_OVERLAP);
    EXPECT(dmexp_session_new(&session, &model, &model, sizeof model, NULL).code == DMEXP_CODE_OVERLAP);

    wrong_places(&model, arena, arena_len);
    by_layers(&model, arena, arena_len);
    stops(&model, arena, arena_len);

    /* The file's golden vectors, then a story, in one piece of memory and step by step in two. */
    DONE(dmexp_self_test(bytes, len, arena, arena_len));
    const DmexpSampling sampling = {.temperature = 0.8f, .top_p = 0.9f, .seed = 1};
    DONE(dmexp_session_new(&session, &model, arena, arena_len, &sampling));
    EXPECT(dmexp_generate(&session, prompt, sizeof prompt - 1, 3, refuse, NULL, NULL).code == DMEXP_CODE_OUTPUT);
    DONE(dmexp_session_new(&session, &model, arena, arena_len, &sampling));
    DmexpGenerated generated;
    DONE(dmexp_generate(&session, prompt, sizeof prompt - 1, 240, print, stdout, &generated));
    EXPECT(generated.tokens > 0 && generated.prompt_tokens > 0 && generated.reason != DMEXP_REASON_NONE);

    char *told = calloc(1, 4096);
    EXPECT(told);
    DONE(dmexp_session_new_in_banks(&session, &model, arena + work_len, kv_len, arena, work_len, &sampling));
    DONE(dmexp_prompt(&session, prompt, sizeof prompt - 1, NULL));
    DmexpStep step;
    uint32_t tokens = 0;
    do {
        DONE(dmexp_step(&session, &step));
        if (step.kind == DMEXP_KIND_TOKEN) {
            tokens++;
            EXPECT(strlen(told) + step.text_len < 4096);
            strncat(told, step.text, step.text_len);
        }
    } while (step.kind != DMEXP_KIND_STOP && tokens < 240);
    EXPECT(tokens == generated.tokens);
    printf("\n%s", told);

    DONE(dmexp_reset(&session));
    EXPECT(dmexp_step(&session, &step).code == DMEXP_CODE_NO_PROMPT);
    const uint32_t list[] = {1, 403, 407}, wrong = 512;
    FILE *out = fopen(words[2], "wb");
    EXPECT(out);
    EXPECT(dmexp_push_tokens(&session, &wrong, 1).code == DMEXP_CODE_TOKEN);
    for (size_t i = 0; i < 3; i++) {
        const float *logits;
        size_t n;
        DONE(dmexp_push_tokens(&session, list + i, 1));
        DONE(dmexp_logits(&session, &logits, &n));
        EXPECT(n == 512 && fwrite(logits, sizeof *logits, n, out) == n);
    }
    EXPECT(dmexp_position(&session) == 3);
    EXPECT(fclose(out) == 0);

    /* A flipped bit in the file is found by the golden vectors, or before. */
    bytes[len - len / 4] ^= 1;
    EXPECT(dmexp_self_test(bytes, len, arena, arena_len).code != DMEXP_CODE_OK);
    free(told);
    free(arena);
    free(bytes);
    return 0;
}
