/* A firmware in C for QEMU's mps2-an386 (Cortex-M4F): the story of boards/qemu-an386, told through dmexp.h. `cargo xtask c` builds and runs it. */

#include "board.h"
#include "dmexp.h"

/* The model file, in flash: see model.S. */
extern const unsigned char model_file[], model_file_end[];

static DmexpModel model;
static DmexpSession session;

/* As `dmexp plan` says for this model; dmexp_session_new refuses too little with the number that it needs. */
static uint64_t arena[169520 / 8];

static void say(const char *text) {
    while (*text) {
        serial_send(*text++);
    }
}

static void say_number(uint64_t number) {
    char digits[21];
    char *first = digits + sizeof digits - 1;
    *first = 0;
    do {
        *--first = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    say(" ");
    say(first);
}

static size_t send(void *context, const char *text, size_t len) {
    (void)context;
    for (size_t i = 0; i < len; i++) {
        serial_send(text[i]);
    }
    return len;
}

/* Says what went wrong, with its numbers. */
static int refused(DmexpError error) {
    say("dmexp: refused: ");
    say(dmexp_error_text(error));
    say_number(error.found);
    say_number(error.allowed);
    say("\n");
    return 1;
}

int main(void) {
    static const char prompt[] = "Once upon a time";
    const size_t len = (size_t)(model_file_end - model_file);
    const DmexpSampling sampling = {.temperature = 0.8f, .top_p = 0.9f, .seed = 1};
    DmexpError error;

    serial_begin();
    /* Golden vectors first: does this chip compute what the exporting machine computed, to the bit? */
    if ((error = dmexp_self_test(model_file, len, arena, sizeof arena)).code != DMEXP_CODE_OK) {
        return refused(error);
    }
    if ((error = dmexp_open(&model, model_file, len)).code != DMEXP_CODE_OK) {
        return refused(error);
    }
    if ((error = dmexp_session_new(&session, &model, arena, sizeof arena, &sampling)).code != DMEXP_CODE_OK) {
        return refused(error);
    }
    say(prompt);
    if ((error = dmexp_generate(&session, prompt, sizeof prompt - 1, 240, send, 0, 0)).code != DMEXP_CODE_OK) {
        return refused(error);
    }
    say("\n");
    return 0;
}
