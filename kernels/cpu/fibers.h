// Fibers: stacks that are switched between by hand, with the sanitizers told.
//
// Under the thread sanitizer each fiber is a thread of its own to it, and a switch orders nothing: what orders memory says so by `acquire` and `release`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBERS_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define FIBERS_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBERS_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define FIBERS_ASAN 1
#endif

#ifdef FIBERS_TSAN
#define UNWATCHED __attribute__((noinline, no_sanitize("thread")))
extern "C" {
void *__tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void *, unsigned);
void *__tsan_get_current_fiber(void);
void __tsan_acquire(void *);
void __tsan_release(void *);
}
#else
#define UNWATCHED
#endif
#ifdef FIBERS_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void **, const void *, size_t);
void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
void __asan_unpoison_memory_region(const volatile void *, size_t);
}
#endif

namespace fibers {

constexpr size_t STACK = 64 << 10;

inline void acquire([[maybe_unused]] void *object) {
#ifdef FIBERS_TSAN
  __tsan_acquire(object);
#endif
}

inline void release([[maybe_unused]] void *object) {
#ifdef FIBERS_TSAN
  __tsan_release(object);
#endif
}

struct Fiber {
  char *stack = nullptr; // none: the thread's own
#if defined(__x86_64__)
  void *top = nullptr;
#else
  ucontext_t context;
#endif
#ifdef FIBERS_TSAN
  void *watched = nullptr;
#endif
};

#ifdef FIBERS_ASAN
inline const void *thread_stack = nullptr;
inline size_t thread_stack_size = 0;
inline bool from_thread = false; // whether the last switch was from the thread's own stack

inline void finish_switch(void *kept) {
  const void *stack;
  size_t size;
  __sanitizer_finish_switch_fiber(kept, &stack, &size);
  if (from_thread) thread_stack = stack, thread_stack_size = size;
}
#endif

#if defined(__x86_64__)
// Saves what a callee keeps, changes stacks, and brings back what the other one kept.
__attribute__((naked, noinline)) inline void exchange_stacks(void **, void *) {
  asm volatile("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
               "movq %rsp,(%rdi)\n movq %rsi,%rsp\n"
               "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
#endif

// Goes on with `to` until something switches back; never, if `last`.
UNWATCHED inline void change(Fiber &from, Fiber &to, [[maybe_unused]] bool last) {
#ifdef FIBERS_TSAN
  __tsan_switch_to_fiber(to.watched, 1); // 1: without an order
#endif
#ifdef FIBERS_ASAN
  void *kept = nullptr;
  from_thread = from.stack == nullptr;
  __sanitizer_start_switch_fiber(last ? nullptr : &kept, to.stack ? to.stack : thread_stack, to.stack ? STACK : thread_stack_size);
#endif
#if defined(__x86_64__)
  exchange_stacks(&from.top, to.top);
#else
  swapcontext(&from.context, &to.context);
#endif
#ifdef FIBERS_ASAN
  finish_switch(kept);
#endif
}

// What a fiber runs first.
inline void begun() {
#ifdef FIBERS_ASAN
  finish_switch(nullptr);
#endif
}

UNWATCHED inline void make(Fiber &fiber, void (*entry)()) {
  if (!fiber.stack) fiber.stack = (char *)aligned_alloc(64, STACK);
  char *stack = fiber.stack;
#ifdef FIBERS_ASAN
  __asan_unpoison_memory_region(stack, STACK); // the fiber before did not return
#endif
#if defined(__x86_64__)
  void **top = (void **)(stack + STACK);
  *--top = nullptr; // the stack is aligned at the entry, and backtraces end
  *--top = (void *)entry;
  for (int kept = 0; kept < 6; kept++) *--top = nullptr;
  fiber.top = top;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = STACK;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#endif
}

#ifdef FIBERS_TSAN
// What the sanitizer takes for threads. They are dear, so they are kept: fiber `number` of a launch is the same thread in the next one, which comes after the first anyway.
constexpr size_t MOST_WATCHED = 8000;
inline void *watched[MOST_WATCHED];
#endif

// Makes the fiber the thread of this number of its launch; whether there may be so many.
UNWATCHED inline bool watch([[maybe_unused]] Fiber &fiber, [[maybe_unused]] size_t number) {
#ifdef FIBERS_TSAN
  if (number >= MOST_WATCHED) return false;
  if (!watched[number]) watched[number] = __tsan_create_fiber(0);
  fiber.watched = watched[number];
#endif
  return true;
}

inline void adopt_thread([[maybe_unused]] Fiber &fiber) {
#ifdef FIBERS_TSAN
  fiber.watched = __tsan_get_current_fiber();
#endif
}

} // namespace fibers
