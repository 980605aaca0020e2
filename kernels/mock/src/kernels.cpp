// The kernels on the CPU, as the stand-in of the driver launches them. By themselves, for their source has many short names.
#include "../../cpu/kernels.h"
#include "entries.h"
#include <cstdlib>

const std::vector<Entry> &all_entries() {
    static const std::vector<Entry> entries = [] {
        std::vector<Entry> all;
        for (const kernels::Kernel &kernel : kernels::all()) {
            Entry entry = {kernel.name, {}, {}};
            for (const kernels::Parameter &parameter : kernel.parameters) {
                entry.sizes.push_back(parameter.bytes);
                entry.pointers.push_back(parameter.pointer);
            }
            all.push_back(entry);
        }
        return all;
    }();
    return entries;
}

void run_entry(const Entry &entry, const unsigned grid[3], const unsigned block[3], size_t shared, void **arguments) {
    const char *order = getenv("MOCKCUDA_ORDER");
    machine::order = order ? (unsigned)atoi(order) : 0;
    kernels::launch(*kernels::find(entry.name.c_str()), {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, arguments);
}

std::string where_threads_are() {
    const machine::Thread *thread = machine::the.running;
    if (!thread) return "no kernel";
    return std::string("kernel ") + machine::the.kernel + ", block " + std::to_string(thread->block->index.x) + ", thread " + std::to_string(thread->number);
}
