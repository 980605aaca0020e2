// A stand-in for the CUDA driver, for tests of what calls it on machines without a GPU.
//
// Memory ends at a page that nobody may touch and is never used twice, so that what goes past an end, or comes after a release, stops the program at once. Fresh memory is 0xFF: NaN. What is launched
// runs at once, on the thread that launches it; a stream that is being recorded keeps it. Kernels are those of the source; of the PTX, names and parameters are compared with them.
#include "entries.h"
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>

#define API extern "C" __attribute__((visibility("default"))) int
#define GUARD std::lock_guard<std::recursive_mutex> guard(everything)
#define ALIVE if (lost) return lost

typedef unsigned long long Address;
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NO_SUCH_DEVICE = 101, INVALID_PTX = 218, NOT_FOUND = 500, CAPTURE_UNSUPPORTED = 900 };

namespace {
struct Allocation { char *map; size_t mapped, bytes; };
typedef std::vector<std::function<void()>> Graph;
struct Stream { Graph *recording = nullptr; };

std::recursive_mutex everything;
std::map<Address, Allocation> memory;
size_t in_use = 0;
long launched = 0;
int lost = 0;
std::map<std::string, unsigned> most_threads; // of a block, as the PTX says
std::map<void *, unsigned> granted;           // dynamic shared memory that was asked for

long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, nullptr, 10) : otherwise;
}

size_t memory_limit() { return (size_t)setting("MOCKCUDA_MEMORY", 1L << 32); }

void fault(int, siginfo_t *info, void *) {
    char text[512];
    int length = snprintf(text, sizeof text, "mockcuda: address %p is nobody's, touched by %s\n", info->si_addr, where_threads_are().c_str());
    if (length > 0 && write(2, text, (size_t)length) < 0) {}
    _exit(77);
}

// Whether all these bytes lie in one allocation.
bool inside(Address start, size_t bytes) {
    auto found = memory.upper_bound(start);
    if (found == memory.begin()) return false;
    --found;
    return start - found->first <= found->second.bytes && bytes <= found->second.bytes - (start - found->first);
}

int do_or_record(void *stream, std::function<void()> act) {
    Stream *s = (Stream *)stream;
    if (s && s->recording) s->recording->push_back(act);
    else act();
    return OK;
}

// MOCKCUDA_LOST=N,CODE
void count_launch() {
    launched++;
    const char *text = getenv("MOCKCUDA_LOST");
    if (!text) return;
    char *rest;
    long after = strtol(text, &rest, 10);
    if (launched > after && *rest == ',') lost = (int)strtol(rest + 1, nullptr, 10);
}

// The sizes of an entry's parameters, as PTX declares them.
bool parameters(const std::string &ptx, const std::string &name, std::vector<size_t> &sizes) {
    size_t at = ptx.find(".entry " + name + "(");
    if (at == std::string::npos) return false;
    size_t end = ptx.find(')', at);
    while ((at = ptx.find(".param", at)) != std::string::npos && at < end) {
        size_t next = ptx.find(".param", at + 1), stop = next < end ? next : end;
        std::string line = ptx.substr(at, stop - at);
        size_t array = line.find('['), size = 0;
        if (array != std::string::npos) size = strtoul(line.c_str() + array + 1, nullptr, 10);
        else for (const char *type : {".u64", ".s64", ".b64", ".f64", ".u32", ".s32", ".b32", ".f32", ".u16", ".b16", ".u8", ".b8"})
            if (line.find(type) != std::string::npos) { size = strtoul(type + 2, nullptr, 10) / 8; break; }
        sizes.push_back(size);
        at++;
    }
    return true;
}

int check_ptx(const char *image, std::string &log) {
    if (long refused = setting("MOCKCUDA_PTX", 0)) {
        log = "ptxas application ptx input, line 9; fatal   : Unsupported .version\n(stand-in)";
        return (int)refused;
    }
    std::string ptx = image;
    for (const Entry &kernel : all_entries()) {
        std::vector<size_t> sizes;
        if (!parameters(ptx, kernel.name, sizes)) {
            log = "the PTX has no entry " + kernel.name;
            return INVALID_PTX;
        }
        if (sizes != kernel.sizes) {
            log = "the parameters of " + kernel.name + " are others in the PTX than in the source";
            return INVALID_PTX;
        }
        size_t bound = ptx.find(".maxntid ", ptx.find(".entry " + kernel.name + "("));
        most_threads[kernel.name] = bound == std::string::npos ? 1024 : (unsigned)strtoul(ptx.c_str() + bound + 9, nullptr, 10);
    }
    return OK;
}

int start() {
    struct sigaction action = {};
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    return (int)setting("MOCKCUDA_INIT", OK);
}

int device_count() {
    int there = (int)setting("MOCKCUDA_DEVICES", 1), shown = 0;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) return there;
    // As the driver does: numbers with commas between them, up to the first that is no device.
    for (const char *text = list; *text;) {
        char *rest;
        long number = strtol(text, &rest, 10);
        if (rest == text || number < 0 || number >= there) break;
        shown++;
        text = *rest == ',' ? rest + 1 : rest;
    }
    return shown;
}
} // namespace

API cuInit(unsigned) { GUARD; return start(); }
API cuDriverGetVersion(int *version) { *version = (int)setting("MOCKCUDA_VERSION", 13000); return OK; }
API cuDeviceGetCount(int *count) { *count = device_count(); return OK; }
API cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal >= 0 && ordinal < device_count() ? OK : NO_SUCH_DEVICE; }
API cuDeviceGetName(char *name, int room, int) { snprintf(name, (size_t)room, "mockcuda"); return OK; }
API cuDeviceGetUuid_v2(char *uuid, int device) { for (int i = 0; i < 16; i++) uuid[i] = (char)(i + device); return OK; }
API cuDeviceGetAttribute(int *value, int attribute, int) {
    int capability = (int)setting("MOCKCUDA_CAPABILITY", 90);
    switch (attribute) {
        case 75: *value = capability / 10; break;
        case 76: *value = capability % 10; break;
        case 97: *value = 227 * 1024; break; // shared memory that a block may ask for
        case 115: *value = 1; break;         // memory pools
        default: *value = 0;
    }
    return OK;
}
API cuDevicePrimaryCtxRetain(void **context, int) { static int the_context; *context = &the_context; return OK; }
API cuDevicePrimaryCtxRelease_v2(int) { return OK; }
API cuCtxGetCurrent(void **context) { return cuDevicePrimaryCtxRetain(context, 0); }
API cuCtxSetCurrent(void *) { return OK; }
API cuCtxSynchronize() { return lost; }
API cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { GUARD; *total = memory_limit(); *free_bytes = *total - in_use; return OK; }

API cuStreamCreate(void **stream, unsigned) { *stream = new Stream; return OK; }
API cuStreamDestroy_v2(void *stream) { delete (Stream *)stream; return OK; }
API cuStreamSynchronize(void *stream) { GUARD; ALIVE; return stream && ((Stream *)stream)->recording ? CAPTURE_UNSUPPORTED : OK; }

API cuMemAllocAsync(Address *address, size_t bytes, void *stream) {
    GUARD; ALIVE;
    if (!bytes) return INVALID;
    if (stream && ((Stream *)stream)->recording) return CAPTURE_UNSUPPORTED;
    if (bytes > memory_limit() - in_use) return OUT_OF_MEMORY;
    size_t page = 4096, mapped = (bytes + page - 1) / page * page + page;
    char *map = (char *)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return OUT_OF_MEMORY;
    mprotect(map + mapped - page, page, PROT_NONE);
    memset(map, 0xFF, mapped - page);
    *address = (Address)(map + ((mapped - page - bytes) & ~(size_t)15));
    memory[*address] = {map, mapped, bytes};
    in_use += bytes;
    return OK;
}
API cuMemAlloc_v2(Address *address, size_t bytes) { return cuMemAllocAsync(address, bytes, nullptr); }
API cuMemFreeAsync(Address address, void *) {
    GUARD;
    auto found = memory.find(address);
    if (found == memory.end()) return INVALID;
    in_use -= found->second.bytes;
    // The addresses stay taken, the memory does not.
    madvise(found->second.map, found->second.mapped, MADV_DONTNEED);
    mprotect(found->second.map, found->second.mapped, PROT_NONE);
    memory.erase(found);
    return OK;
}
API cuMemFree_v2(Address address) { return cuMemFreeAsync(address, nullptr); }
API cuMemsetD8Async(Address address, unsigned char value, size_t bytes, void *stream) {
    GUARD; ALIVE;
    if (!inside(address, bytes)) return INVALID;
    return do_or_record(stream, [=] { memset((void *)address, value, bytes); });
}
API cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, void *stream) {
    GUARD; ALIVE;
    if (stream && ((Stream *)stream)->recording) return CAPTURE_UNSUPPORTED;
    if (!inside(to, bytes)) return INVALID;
    memcpy((void *)to, from, bytes);
    return OK;
}
API cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, void *stream) {
    GUARD; ALIVE;
    if (stream && ((Stream *)stream)->recording) return CAPTURE_UNSUPPORTED;
    if (!inside(from, bytes)) return INVALID;
    memcpy(to, (const void *)from, bytes);
    return OK;
}

API cuModuleLoadDataEx(void **module, const void *image, unsigned count, const int *options, void **values) {
    GUARD; ALIVE;
    std::string log;
    int result = check_ptx((const char *)image, log);
    char *buffer = nullptr;
    size_t room = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == 5) buffer = (char *)values[i];
        if (options[i] == 6) room = (size_t)values[i];
    }
    if (buffer && room) snprintf(buffer, room, "%s", log.c_str());
    static int the_module;
    *module = &the_module;
    return result;
}
API cuModuleLoadData(void **module, const void *image) { return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr); }
API cuModuleUnload(void *) { return OK; }
API cuModuleGetFunction(void **function, void *, const char *name) {
    for (const Entry &kernel : all_entries())
        if (kernel.name == name) { *function = (void *)&kernel; return OK; }
    return NOT_FOUND;
}
API cuFuncSetAttribute(void *function, int attribute, int value) {
    GUARD;
    if (value < 0 || value > 227 * 1024) return INVALID;
    if (attribute == 8) granted[function] = (unsigned)value; // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    return OK;
}
API cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **args, void **) {
    GUARD; ALIVE;
    const Entry *kernel = (const Entry *)function;
    unsigned threads = bx * by * bz;
    auto asked = granted.find(function);
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || !threads || threads > most_threads[kernel->name]) return INVALID;
    if (shared > (asked == granted.end() ? 48u * 1024 : asked->second)) return INVALID;
    auto values = std::make_shared<std::vector<std::vector<char>>>();
    for (size_t i = 0; i < kernel->sizes.size(); i++) {
        values->emplace_back((char *)args[i], (char *)args[i] + kernel->sizes[i]);
        if (!kernel->pointers[i]) continue;
        Address address = *(Address *)args[i];
        if (address && !inside(address, 0)) {
            fprintf(stderr, "mockcuda: argument %zu of %s is no address of the device\n", i, kernel->name.c_str());
            return INVALID;
        }
    }
    return do_or_record(stream, [=] {
        if (lost) return;
        std::vector<void *> pointers;
        for (auto &value : *values) pointers.push_back(value.data());
        unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
        run_entry(*kernel, grid, block, shared, pointers.data());
        count_launch();
    });
}

API cuStreamBeginCapture_v2(void *stream, int) {
    GUARD; ALIVE;
    if (!stream || ((Stream *)stream)->recording) return CAPTURE_UNSUPPORTED;
    ((Stream *)stream)->recording = new Graph;
    return OK;
}
API cuStreamEndCapture(void *stream, void **graph) {
    GUARD;
    Stream *s = (Stream *)stream;
    if (!s || !s->recording) return CAPTURE_UNSUPPORTED;
    *graph = s->recording;
    s->recording = nullptr;
    return OK;
}
API cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) { *executable = new Graph(*(Graph *)graph); return OK; }
API cuGraphUpload(void *, void *) { return lost; }
API cuGraphLaunch(void *executable, void *) {
    GUARD; ALIVE;
    for (auto &act : *(Graph *)executable) act();
    return OK;
}
API cuGraphExecDestroy(void *executable) { delete (Graph *)executable; return OK; }
API cuGraphDestroy(void *graph) { delete (Graph *)graph; return OK; }
