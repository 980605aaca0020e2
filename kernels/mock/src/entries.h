// What the stand-in of the driver knows of the kernels.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

struct Entry {
    std::string name;
    // Bytes of each parameter, and whether it is an address by itself.
    std::vector<size_t> sizes;
    std::vector<bool> pointers;
};

const std::vector<Entry> &all_entries();
// arguments[i] points at the i-th argument of the entry.
void run_entry(const Entry &entry, const unsigned grid[3], const unsigned block[3], size_t shared, void **arguments);
// Where the thread is that runs.
std::string where_threads_are();
