// A device for tests: a process that has memory, copies to and from it and runs the kernels, as it is told on its standard input. Numbers are little-endian; an answer follows where one is named.
//   'a' u64 bytes                -> u64 address    allocates; what it holds is NaN
//   'w' u64 address, u64 bytes, those              writes
//   'r' u64 address, u64 bytes   -> those          reads
//   'o' u32 order                                  of the threads of what follows
//   'f' u32 fault                                  of those that are seeded into the kernels
//   'k' u8 length, name, u32 grid x, y, z, u32 threads, u32 shared, u32 arguments, each u32 bytes, those
//                                -> u8 1           runs a kernel; arguments that are not as long as its parameters end the process
//   'q'                                            ends
//   'm' u32 unused               -> u32 count, each u8 length, name, u32 parameters, each u32 bytes
#include "kernels.h"
#include <unistd.h>

// It ends with the memory that it was told to have, and goes no further than the first report.
extern "C" const char *__asan_default_options() { return "detect_leaks=0"; }
extern "C" const char *__tsan_default_options() { return "halt_on_error=1"; }

static void take(void *to, size_t bytes) {
  for (char *at = (char *)to; bytes > 0;) {
    const ssize_t got = read(0, at, bytes);
    if (got <= 0) exit(0);
    at += got, bytes -= (size_t)got;
  }
}

static void give(const void *from, size_t bytes) {
  for (const char *at = (const char *)from; bytes > 0;) {
    const ssize_t gone = write(1, at, bytes);
    if (gone <= 0) exit(1);
    at += gone, bytes -= (size_t)gone;
  }
}

template <class T> static T number() {
  T value;
  take(&value, sizeof value);
  return value;
}

template <class T> static void answer(T value) { give(&value, sizeof value); }

// The sanitizers guard allocations of their own; without one, memory ends at a page that nothing may touch.
static char *allocate(size_t bytes) {
#if defined(FIBERS_ASAN) || defined(FIBERS_TSAN)
  char *memory = (char *)aligned_alloc(16, (bytes + 15) / 16 * 16);
#else
  const size_t page = 4096, kept = (bytes + 15) / 16 * 16, mapped = (kept + page - 1) / page * page;
  char *pages = (char *)mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(pages + mapped, page, PROT_NONE);
  char *memory = pages + mapped - kept;
#endif
  memset(memory, 0xff, bytes);
  return memory;
}

static void run() {
  char name[256];
  const uint8_t length = number<uint8_t>();
  take(name, length);
  name[length] = 0;
  const machine::Index grid{number<uint32_t>(), number<uint32_t>(), number<uint32_t>()};
  const uint32_t threads = number<uint32_t>(), shared = number<uint32_t>(), count = number<uint32_t>();
  const kernels::Kernel *kernel = kernels::find(name);
  if (!kernel || kernel->parameters.size() != count) {
    fprintf(stderr, "kernels on the CPU: no kernel %s with %u parameters\n", name, count);
    exit(2);
  }
  std::vector<std::vector<uint64_t>> values;
  std::vector<void *> arguments;
  for (const kernels::Parameter &parameter : kernel->parameters) {
    const uint32_t bytes = number<uint32_t>();
    if (bytes != parameter.bytes) {
      fprintf(stderr, "kernels on the CPU: kernel %s, argument %zu: %u bytes, not %zu\n", name, values.size(), bytes, parameter.bytes);
      exit(2);
    }
    values.emplace_back((bytes + 7) / 8);
    take(values.back().data(), bytes);
  }
  for (auto &value : values) arguments.push_back(value.data());
  kernels::launch(*kernel, grid, {threads, 1, 1}, shared, arguments.data());
  answer<uint8_t>(1);
}

static void list() {
  number<uint32_t>();
  answer((uint32_t)kernels::all().size());
  for (const kernels::Kernel &kernel : kernels::all()) {
    answer((uint8_t)strlen(kernel.name));
    give(kernel.name, strlen(kernel.name));
    answer((uint32_t)kernel.parameters.size());
    for (const kernels::Parameter &parameter : kernel.parameters) answer((uint32_t)parameter.bytes);
  }
}

int main() {
  for (;;) {
    switch (number<char>()) {
    case 'a': answer((uint64_t)allocate(number<uint64_t>())); break;
    case 'w': {
      char *to = (char *)number<uint64_t>();
      take(to, number<uint64_t>());
      break;
    }
    case 'r': {
      const char *from = (const char *)number<uint64_t>();
      give(from, number<uint64_t>());
      break;
    }
    case 'o': machine::order = number<uint32_t>(); break;
    case 'f': machine::fault = number<uint32_t>(); break;
    case 'k': run(); break;
    case 'm': list(); break;
    case 'q': return 0;
    default: return 3;
    }
  }
}
