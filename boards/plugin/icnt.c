/* A QEMU plugin that counts what a firmware executes: instructions, loads, stores and, by a table of costs, cycles.
 *
 * The firmware brackets what it wants counted with two architectural no-operations:
 *     Arm Thumb   .inst.n 0xbf60 begins,  .inst.n 0xbf70 ends
 *     RISC-V      addi x0, x0, 1 begins,  addi x0, x0, 2 ends
 * The markers themselves are not counted. Every region becomes a line of the report, in the order of execution:
 *     region INDEX insns=N loads=N stores=N cycles=N
 * and at the end, over the whole run, inside regions and out:
 *     total insns=N loads=N stores=N cycles=N
 * With profile=on, one line a symbol, counted inside regions only, the most expensive first:
 *     symbol NAME insns=N cycles=N
 *
 * Arguments: out=FILE (default: standard error), costs=FILE (without it every instruction costs one cycle), profile=on.
 *
 * Counting happens in a callback before each instruction, so the figures are exact and the same on every run and machine.
 * Instructions and cycles are the same on every version of QEMU too; loads and stores are counted as QEMU reports them, and
 * versions differ in whether a 64-bit access is one or two.
 * No QEMU header is needed: the few declarations below are the plugin interface. QEMU_PLUGIN_API is the interface's version
 * (1 up to QEMU 8.2, 2 for 9.0, 3 from 9.1), which the one who compiles this passes with -D.
 */

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- QEMU's plugin interface ---- */

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
typedef struct {
    const char *target_name;
    struct { int min, cur; } version;
    bool system_emulation;
    int smp_vcpus, max_vcpus;
} qemu_info_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

enum { CALLBACK_READS_NO_REGISTERS = 0 };
enum { MEMORY_READS_AND_WRITES = 3 };

typedef void (*translate_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*execute_cb)(unsigned int vcpu, void *data);
typedef void (*memory_cb)(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);
typedef void (*exit_cb)(qemu_plugin_id_t, void *data);

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translate_cb);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, execute_cb, int flags, void *data);
extern void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, memory_cb, int flags, int which, void *data);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, exit_cb, void *data);
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
#if QEMU_PLUGIN_API >= 3
extern size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *to, size_t len);
#else
extern const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
#endif
extern size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
extern char *qemu_plugin_insn_disas(const struct qemu_plugin_insn *);
extern const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *);
extern bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = QEMU_PLUGIN_API;

/* ---- What is counted ---- */

struct counts { uint64_t insns, loads, stores, cycles; };

struct symbol {
    char *name;
    uint64_t insns, cycles;
    struct symbol *next;
};

/* What is known of an instruction once it is translated; its address travels with the callback. Never freed: a firmware has few. */
struct site {
    uint32_t cycles;
    struct symbol *symbol;
};

static struct counts total, at_begin;
static bool inside;
static unsigned region_count;
static bool riscv, profile;
static FILE *out;
static struct symbol *symbols;

static void report(const char *what, struct counts c)
{
    fprintf(out, "%s insns=%" PRIu64 " loads=%" PRIu64 " stores=%" PRIu64 " cycles=%" PRIu64 "\n", what, c.insns, c.loads,
            c.stores, c.cycles);
}

static void on_begin(unsigned int vcpu, void *data)
{
    (void)vcpu, (void)data;
    at_begin = total;
    inside = true;
}

static void on_end(unsigned int vcpu, void *data)
{
    (void)vcpu, (void)data;
    if (!inside)
        return;
    inside = false;
    struct counts c = { total.insns - at_begin.insns, total.loads - at_begin.loads, total.stores - at_begin.stores,
                        total.cycles - at_begin.cycles };
    char what[32];
    snprintf(what, sizeof what, "region %u", region_count++);
    report(what, c);
}

static void on_instruction(unsigned int vcpu, void *data)
{
    (void)vcpu;
    const struct site *site = data;
    total.insns++;
    total.cycles += site->cycles;
    if (inside && site->symbol) {
        site->symbol->insns++;
        site->symbol->cycles += site->cycles;
    }
}

static void on_memory(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
    (void)vcpu, (void)address, (void)data;
    if (qemu_plugin_mem_is_store(info))
        total.stores++;
    else
        total.loads++;
}

/* ---- The table of costs ---- */

static struct rule {
    char mnemonic[16];
    uint32_t base, per_register;
} rules[128];
static unsigned rule_count;

static bool read_costs(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "icnt: cannot open the table of costs %s\n", path);
        return false;
    }
    char line[256];
    for (unsigned number = 1; fgets(line, sizeof line, file); number++) {
        line[strcspn(line, "#\r\n")] = 0;
        if (line[strspn(line, " \t")] == 0)
            continue;
        struct rule rule;
        char rest;
        int fields = sscanf(line, "%15s %" SCNu32 " %" SCNu32 " %c", rule.mnemonic, &rule.base, &rule.per_register, &rest);
        if (fields != 3 || rule_count == sizeof rules / sizeof *rules) {
            fprintf(stderr, "icnt: %s, line %u: want a mnemonic and two numbers, at most %zu rules\n", path, number,
                    sizeof rules / sizeof *rules);
            fclose(file);
            return false;
        }
        rules[rule_count++] = rule;
    }
    fclose(file);
    return true;
}

/* Registers named between the braces of a disassembly, ranges spelled out: {r4-r7, lr} is 5. */
static uint32_t registers_in_braces(const char *text)
{
    const char *at = strchr(text, '{');
    uint32_t count = 0;
    int number = -1, range_from = -1;
    if (!at)
        return 0;
    for (at++;; at++) {
        if (*at >= '0' && *at <= '9') {
            number = (number < 0 ? 0 : number * 10) + (*at - '0');
        } else if (*at == '-') {
            range_from = number;
            number = -1;
        } else if (*at == ',' || *at == '}' || *at == 0) {
            count += range_from >= 0 && number >= range_from ? (uint32_t)(number - range_from + 1) : 1;
            number = range_from = -1;
            if (*at != ',')
                return count;
        }
    }
}

static uint32_t cost(const char *disassembly)
{
    char mnemonic[16];
    size_t len = strcspn(disassembly, " \t.");
    if (len >= sizeof mnemonic)
        len = sizeof mnemonic - 1;
    memcpy(mnemonic, disassembly, len);
    mnemonic[len] = 0;
    for (unsigned i = 0; i < rule_count; i++) {
        const struct rule *rule = &rules[i];
        size_t stem = strcspn(rule->mnemonic, "*");
        bool fits = rule->mnemonic[stem] ? !strncmp(mnemonic, rule->mnemonic, stem) : !strcmp(mnemonic, rule->mnemonic);
        if (fits)
            return rule->base + rule->per_register * registers_in_braces(disassembly);
    }
    return 1;
}

/* ---- Translation: what each instruction is, once ---- */

enum marker { NONE, BEGIN, END };

static enum marker marker_of(const struct qemu_plugin_insn *insn)
{
    size_t size = qemu_plugin_insn_size(insn);
    uint32_t word = 0;
    if (size > sizeof word)
        return NONE;
#if QEMU_PLUGIN_API >= 3
    qemu_plugin_insn_data(insn, &word, size);
#else
    memcpy(&word, qemu_plugin_insn_data(insn), size);
#endif
    if (riscv)
        return size != 4 ? NONE : word == 0x00100013 ? BEGIN : word == 0x00200013 ? END : NONE;
    return size != 2 ? NONE : word == 0xbf60 ? BEGIN : word == 0xbf70 ? END : NONE;
}

static struct symbol *symbol_of(const struct qemu_plugin_insn *insn)
{
    const char *name = qemu_plugin_insn_symbol(insn);
    if (!name)
        name = "(no symbol)";
    for (struct symbol *s = symbols; s; s = s->next)
        if (!strcmp(s->name, name))
            return s;
    struct symbol *fresh = calloc(1, sizeof *fresh);
    if (!fresh || !(fresh->name = strdup(name)))
        abort();
    fresh->next = symbols;
    return symbols = fresh;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    size_t n = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(block, i);
        enum marker marker = marker_of(insn);
        if (marker != NONE) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, marker == BEGIN ? on_begin : on_end, CALLBACK_READS_NO_REGISTERS, NULL);
            continue;
        }
        struct site *site = calloc(1, sizeof *site);
        if (!site)
            abort();
        char *text = qemu_plugin_insn_disas(insn);
        site->cycles = text ? cost(text) : 1;
        free(text);
        site->symbol = profile ? symbol_of(insn) : NULL;
        qemu_plugin_register_vcpu_insn_exec_cb(insn, on_instruction, CALLBACK_READS_NO_REGISTERS, site);
        qemu_plugin_register_vcpu_mem_cb(insn, on_memory, CALLBACK_READS_NO_REGISTERS, MEMORY_READS_AND_WRITES, NULL);
    }
}

/* ---- Start and end ---- */

static int by_cycles(const void *a, const void *b)
{
    const struct symbol *x = *(struct symbol *const *)a, *y = *(struct symbol *const *)b;
    return (x->cycles < y->cycles) - (x->cycles > y->cycles);
}

static void report_symbols(void)
{
    size_t n = 0;
    for (struct symbol *s = symbols; s; s = s->next)
        n += s->insns != 0;
    struct symbol **sorted = calloc(n + 1, sizeof *sorted);
    if (!sorted)
        abort();
    n = 0;
    for (struct symbol *s = symbols; s; s = s->next)
        if (s->insns)
            sorted[n++] = s;
    qsort(sorted, n, sizeof *sorted, by_cycles);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "symbol %s insns=%" PRIu64 " cycles=%" PRIu64 "\n", sorted[i]->name, sorted[i]->insns, sorted[i]->cycles);
    free(sorted);
}

static void on_exit_of_qemu(qemu_plugin_id_t id, void *data)
{
    (void)id, (void)data;
    report_symbols();
    report("total", total);
    fflush(out);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    out = stderr;
    riscv = !strncmp(info->target_name, "riscv", 5);
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4)) {
            out = fopen(argv[i] + 4, "w");
            if (!out) {
                fprintf(stderr, "icnt: cannot write %s\n", argv[i] + 4);
                return 1;
            }
        } else if (!strncmp(argv[i], "costs=", 6)) {
            if (!read_costs(argv[i] + 6))
                return 1;
        } else if (!strcmp(argv[i], "profile=on")) {
            profile = true;
        } else {
            fprintf(stderr, "icnt: unknown argument %s; known: out=FILE, costs=FILE, profile=on\n", argv[i]);
            return 1;
        }
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_atexit_cb(id, on_exit_of_qemu, NULL);
    return 0;
}
