// As much of CUDA C++ as the kernels use, on top of machine.h. Included before them.
#pragma once
#include "machine.h"
#include <cmath>

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

#define threadIdx (machine::thread_index())
#define blockIdx (machine::block_index())
#define blockDim (machine::the.size)
#define gridDim (machine::the.grid)
#define SHARED_ARRAY(T, name, n) \
  static const char key_of_##name = 0; \
  T *name = (T *)machine::array(&key_of_##name, sizeof(T) * (n))
#define DYN_SHARED(T, name) T *name = (T *)machine::dynamic()

static inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static inline unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits;
}
// The compiler is told not to contract: each of these is one rounded operation.
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
// Two products of halves of `a` and bytes of `b`, the lower two or the upper two, added to `c`.
static inline int __dp2a_lo(int a, int b, int c) {
  return (int)((unsigned)c + (unsigned)((short)a * (signed char)b) + (unsigned)((short)(a >> 16) * (signed char)(b >> 8)));
}
static inline int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
template <class T> static inline T __ldg(const T *at) { return *at; }

static inline void __syncthreads(int line = __builtin_LINE()) { machine::barrier(line); }
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int far, int line = __builtin_LINE()) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = machine::exchange(mask, bits, (machine::the.running->number & 31) ^ (unsigned)far, line);
  memcpy(&value, &bits, sizeof(T));
  return value;
}
