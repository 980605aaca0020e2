// A machine that runs CUDA kernels on one thread of a CPU, for tests: a fiber a CUDA thread, block after block. It looks for what a GPU lets pass:
//  - a barrier or an exchange that part of the threads reach, or that threads reach at different places: a message and the end, not a hang
//  - an exchange with a lane outside the mask or with one that has left
//  - shared memory begins as NaN; every array of it is an allocation of its own, so that the address sanitizer sees what runs over
//  - threads run forwards, backwards or in an order made of a seed: results must not change
//  - under the thread sanitizer barriers order memory and nothing else does: a missing barrier, and two blocks that touch one word, show in one run
// It knows no memory order weaker than barriers, no atomics, and no time.
#pragma once
#include "fibers.h"
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <utility>

namespace machine {

struct Index {
  unsigned x, y, z;
};

enum class State : uint8_t { READY, AT_BARRIER, AT_EXCHANGE, DONE };

struct Block;

struct Thread {
  fibers::Fiber fiber;
  Block *block = nullptr;
  Index index;
  unsigned number = 0; // in its block
  State state = State::READY;
  int line = 0;      // where it waits
  unsigned mask = 0; // whom it waits for
  unsigned source = 0;           // the lane that it takes from
  uint64_t given = 0, taken = 0; // in an exchange
};

struct Shared {
  const void *key = nullptr;
  char *memory = nullptr;
};

#ifdef FIBERS_TSAN
// Mapped before the kernel and used once each, so that no allocation looks like a write of another thread.
constexpr size_t ARENA = 256 << 20;
inline char *arena = nullptr;
inline size_t arena_used = 0;
#endif

constexpr int MOST_ARRAYS = 16;
constexpr unsigned MOST_THREADS = 1024;

struct Block {
  Index index;
  Thread *threads = nullptr; // as many as a block may have
  Shared arrays[MOST_ARRAYS];
  char *dynamic = nullptr;
  char *barrier = nullptr; // what stands for the barriers of this block, and of no other of its launch
};

struct Machine {
  Block block;
  Thread *running = nullptr;
  fibers::Fiber main;
  Index grid, size;
  unsigned count = 0; // threads of a block
  size_t dynamic_bytes = 0;
  unsigned turns[MOST_THREADS]; // threads in the order in which they run
  unsigned turn = 0;           // the place of the one that comes next
  unsigned done = 0, at_barrier = 0;
  void (*entry)(void *) = nullptr;
  void *arguments = nullptr;
  const char *kernel = "";
  char launched, ended;
};
inline Machine the;
// 0: forwards, 1: backwards, else the seed of an order.
inline unsigned order = 0;
// The fault that a test has seeded into the kernels, by its number; 0: none.
inline unsigned fault = 0;

[[noreturn]] inline void stop(const char *what, const Thread *thread) {
  const Index block = thread ? thread->block->index : Index{0, 0, 0};
  fprintf(stderr, "kernels on the CPU: %s: kernel %s, block (%u, %u), thread %u, line %d\n", what, the.kernel, block.x, block.y,
          thread ? thread->number : 0, thread ? thread->line : 0);
  abort();
}

UNWATCHED inline char *new_shared(size_t bytes) {
#ifdef FIBERS_TSAN
  if (arena_used + bytes + 64 > ARENA) stop("the grid is too large for the thread sanitizer's arena", nullptr);
  char *memory = arena + arena_used;
  arena_used += (bytes + 127) / 64 * 64;
  for (size_t i = 0; i < bytes; i++) {
    memory[i] = (char)0xff;
    asm volatile("" ::: "memory"); // or it becomes a memset that is watched
  }
#else
  char *memory = (char *)aligned_alloc(16, (bytes + 15) / 16 * 16);
  memset(memory, 0xff, bytes);
#endif
  return memory;
}

inline void free_shared([[maybe_unused]] char *memory) {
#ifndef FIBERS_TSAN
  free(memory);
#endif
}

// The next thread of the block, after the one whose turn it is, that can go on; the launcher if there is none.
UNWATCHED inline fibers::Fiber &next() {
  while (the.turn < the.count) {
    Thread &thread = the.block.threads[the.turns[the.turn++]];
    if (thread.state != State::READY) continue;
    the.running = &thread;
    return thread.fiber;
  }
  return the.main;
}

UNWATCHED inline void wait() {
  Thread &waiting = *the.running;
  fibers::Fiber &to = next();
  if (&to != &waiting.fiber) fibers::change(waiting.fiber, to, false);
}

UNWATCHED inline void thread_main() {
  fibers::begun();
  fibers::acquire(&the.launched);
  the.entry(the.arguments);
  fibers::release(&the.ended);
  Thread &thread = *the.running;
  thread.state = State::DONE;
  the.done++;
  fibers::change(thread.fiber, next(), true);
  abort();
}

// If all lanes that the last of them waits for are there: hands over what they gave one another, and lets them go on.
UNWATCHED inline bool release_lanes(Thread &last) {
  Thread *lanes = &the.block.threads[last.number & ~31u];
  // From the highest on: where threads run forwards, that one is missing longest.
  for (unsigned rest = last.mask; rest;) {
    const unsigned lane = 31u - (unsigned)__builtin_clz(rest);
    rest ^= 1u << lane;
    if ((last.number & ~31u) + lane >= the.count) stop("an exchange's mask names a lane that the block does not have", &last);
    const Thread &other = lanes[lane];
    if (other.state != State::AT_EXCHANGE || other.mask != last.mask || other.line != last.line) return false;
  }
  for (unsigned rest = last.mask; rest; rest &= rest - 1) {
    Thread &thread = lanes[__builtin_ctz(rest)];
    thread.taken = lanes[thread.source].given;
    thread.state = State::READY;
  }
  return true;
}

// Lets the block go on if all its threads are at one barrier.
UNWATCHED inline bool release_block() {
  if (the.at_barrier != the.count) return false;
  const int line = the.block.threads[0].line;
  for (unsigned i = 0; i < the.count; i++) {
    Thread &thread = the.block.threads[i];
    if (thread.line != line) stop("threads meet at different barriers", &thread);
    thread.state = State::READY;
  }
  the.at_barrier = 0;
  return true;
}

// Says why no thread of the block goes on.
[[noreturn]] UNWATCHED inline void explain() {
  for (unsigned i = 0; i < the.count; i++) {
    Thread &thread = the.block.threads[i];
    if (thread.state != State::AT_EXCHANGE) continue;
    for (unsigned lane = 0; lane < 32; lane++) {
      if (!(thread.mask >> lane & 1)) continue;
      const Thread &other = the.block.threads[(thread.number & ~31u) + lane];
      if (other.state == State::DONE) stop("an exchange waits for a lane that has left", &thread);
      if (other.state == State::AT_EXCHANGE && (other.mask != thread.mask || other.line != thread.line)) stop("lanes meet at different exchanges", &other);
    }
  }
  for (unsigned i = 0; i < the.count; i++) {
    Thread &thread = the.block.threads[i];
    if (thread.state == State::DONE) continue;
    stop(the.done ? "threads of the block have left, and others wait for them" : "part of the threads wait at a barrier or an exchange that the others never reach", &thread);
  }
  abort();
}

// The threads of a block in the order in which they run.
UNWATCHED inline void arrange(unsigned block_number) {
  for (unsigned i = 0; i < the.count; i++) the.turns[i] = order == 1 ? the.count - 1 - i : i;
  uint64_t random = order * 0x9e3779b97f4a7c15ull + block_number + 1;
  for (unsigned i = the.count - 1; order > 1 && i > 0; i--) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    std::swap(the.turns[i], the.turns[(random >> 33) % (i + 1)]);
  }
}

UNWATCHED inline void run_block(unsigned number) {
  Block &block = the.block;
  block.index = {number % the.grid.x, number / the.grid.x % the.grid.y, number / the.grid.x / the.grid.y};
  block.dynamic = the.dynamic_bytes ? new_shared(the.dynamic_bytes) : nullptr;
  static char barriers[1 << 13];
  block.barrier = &barriers[number % sizeof barriers];
  if (!block.threads) block.threads = new Thread[MOST_THREADS];
  for (unsigned i = 0; i < the.count; i++) {
    Thread &thread = block.threads[i];
    thread.block = &block;
    thread.number = i;
    thread.index = {i % the.size.x, i / the.size.x % the.size.y, i / the.size.x / the.size.y};
    thread.state = State::READY;
    fibers::make(thread.fiber, thread_main);
    if (!fibers::watch(thread.fiber, (size_t)number * the.count + i)) stop("the grid has more threads than the thread sanitizer takes", nullptr);
  }
  arrange(number);
  the.done = the.at_barrier = 0;
  while (the.done < the.count) {
    the.turn = 0;
    fibers::Fiber &first = next();
    if (&first != &the.main) {
      fibers::change(the.main, first, false);
    } else if (!release_block()) {
      explain();
    }
  }
  for (Shared &array : block.arrays) free_shared(array.memory), array = Shared{};
  free_shared(block.dynamic);
}

UNWATCHED inline void barrier(int line) {
  Thread &thread = *the.running;
  thread.line = line;
  thread.state = State::AT_BARRIER;
  the.at_barrier++;
  fibers::release(thread.block->barrier);
  wait();
  fibers::acquire(thread.block->barrier);
}

// Hands `bits` to the lanes of `mask` and takes those of lane `source`. It orders no memory.
UNWATCHED inline uint64_t exchange(unsigned mask, uint64_t bits, unsigned source, int line) {
  Thread &thread = *the.running;
  const unsigned lane = thread.number & 31;
  thread.line = line;
  thread.mask = mask;
  if (!(mask >> lane & 1)) stop("a lane takes part in an exchange whose mask does not name it", &thread);
  if (!(mask >> source & 1)) stop("a lane takes from one outside the mask", &thread);
  thread.given = bits;
  thread.source = source;
  thread.state = State::AT_EXCHANGE;
  if (!release_lanes(thread)) wait();
  return thread.taken;
}

// The block's array that `key` stands for.
UNWATCHED inline char *array(const void *key, size_t bytes) {
  for (Shared &array : the.running->block->arrays) {
    if (!array.key) array = {key, new_shared(bytes)};
    if (array.key == key) return array.memory;
  }
  stop("more arrays in shared memory than this machine has room for", the.running);
}

UNWATCHED inline const Index &thread_index() { return the.running->index; }
UNWATCHED inline const Index &block_index() { return the.running->block->index; }
UNWATCHED inline char *dynamic() { return the.running->block->dynamic; }

// Runs a kernel whose arguments `entry` makes of `arguments`.
UNWATCHED inline void launch(const char *kernel, void (*entry)(void *), void *arguments, Index grid, Index size, size_t dynamic_bytes) {
  the.kernel = kernel;
  the.grid = grid;
  the.size = size;
  the.count = size.x * size.y * size.z;
  the.dynamic_bytes = dynamic_bytes;
  the.entry = entry;
  the.arguments = arguments;
  if (the.count == 0 || the.count > MOST_THREADS) stop("a block has 1 to 1024 threads", nullptr);
#ifdef FIBERS_TSAN
  if (!arena) arena = (char *)mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena_used) {
    munmap(arena, ARENA);
    arena = (char *)mmap(nullptr, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    arena_used = 0;
  }
#endif
  fibers::adopt_thread(the.main);
  fibers::release(&the.launched);
  const unsigned blocks = grid.x * grid.y * grid.z;
  for (unsigned i = 0; i < blocks; i++) run_block(order == 1 ? blocks - 1 - i : i);
  fibers::acquire(&the.ended);
}

} // namespace machine
