// The canonical arithmetic: runtime/src/ops/math.rs, convert.rs, sum.rs and quantise.rs again, operation by operation.
#pragma once
#include "abi.h"

DEVICE float mul(float a, float b) { return __fmul_rn(a, b); }
DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
DEVICE float sub(float a, float b) { return __fsub_rn(a, b); }
DEVICE float div(float a, float b) { return __fdiv_rn(a, b); }
DEVICE float root(float a) { return __fsqrt_rn(a); }
DEVICE float bits(u32 pattern) { return __uint_as_float(pattern); }
DEVICE u32 pattern(float value) { return __float_as_uint(value); }

#define MAGIC bits(0x4b400000u)
#define INFINITE bits(0x7f800000u)
#define ACTIVATION_LIMIT 32767
#define CACHE_LIMIT 127

DEVICE float exponential(float x) {
  const float shifted = add(mul(x, bits(0x3fb8aa3bu)), MAGIC);
  const float n = sub(shifted, MAGIC);
  float r = sub(x, mul(n, bits(0x3f317200u)));
  r = sub(r, mul(n, bits(0x35bfbe8eu)));
  float p = add(mul(bits(0x3ab66f79u), r), bits(0x3c08eca9u));
  p = add(mul(p, r), bits(0x3d2aaa9fu));
  p = add(mul(p, r), bits(0x3e2aaa93u));
  p = add(mul(p, r), 0.5f);
  p = add(mul(p, r), 1.0f);
  p = add(mul(p, r), 1.0f);
  const float scaled = bits(pattern(p) + (pattern(shifted) << 23));
  float result = x > bits(0x42b17217u) ? INFINITE : scaled;
  result = x < bits(0xc2aeac4fu) ? 0.0f : result;
  return x != x ? x : result;
}

DEVICE float sigmoid(float z) { return div(1.0f, add(1.0f, exponential(-z))); }
DEVICE float silu(float z) { return div(z, add(1.0f, exponential(-z))); }

DEVICE float widen_bf16(u32 half) { return bits(half << 16); }

DEVICE u16 narrow_f16(float value) {
  const u32 all = pattern(value), sign = (all >> 16) & 0x8000u, magnitude = all & 0x7fffffffu;
  u32 half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 143u << 23) {
    half = 0x7c00u;
  } else if (magnitude >= 113u << 23) {
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {
    half = pattern(add(bits(magnitude), 0.5f)) - pattern(0.5f);
  }
  return (u16)(half | sign);
}

// Exact, subnormals included, as the integer form of the runtime.
DEVICE float widen_f16(u32 half) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)half));
  return value;
#else
  const u32 sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu, shifted = magnitude << 13;
  if (magnitude < 0x400u) return bits(pattern(sub(bits(shifted + (113u << 23)), bits(113u << 23))) | sign);
  return bits((shifted + (magnitude < 0x7c00u ? 112u << 23 : 224u << 23)) | sign);
#endif
}

// The threads of the caller's row, as a mask of its warp.
DEVICE u32 row_mask() { return 0xffu << (threadIdx.x & 24u); }

// The lanes of eight threads added up: every one of them gets ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7)).
DEVICE float tree(u32 mask, float a) {
  a = add(a, __shfl_xor_sync(mask, a, 4));
  a = add(a, __shfl_xor_sync(mask, a, 2));
  return add(a, __shfl_xor_sync(mask, a, 1));
}

DEVICE i64 total(u32 mask, i64 a) {
  a += __shfl_xor_sync(mask, a, 4);
  a += __shfl_xor_sync(mask, a, 2);
  return a + __shfl_xor_sync(mask, a, 1);
}

// clamp(round(value), +-limit), for values that are no NaN.
DEVICE int rounded(float value, int limit) {
  const int code = (int)(pattern(add(value, MAGIC)) - pattern(MAGIC));
  return code > limit ? limit : code < -limit ? -limit : code;
}

// The code of `x` where `inverse` is 32767 / the largest magnitude.
DEVICE int activation_code(float x, float inverse) {
  if (inverse < INFINITE) return rounded(mul(x, inverse), ACTIVATION_LIMIT);
  return x < 0.0f ? -ACTIVATION_LIMIT : x > 0.0f ? ACTIVATION_LIMIT : 0;
}

DEVICE u32 warps() { return blockDim.x / 32u; }

// The largest of all threads' numbers, for all threads of the block, whose size is a multiple of 32; among floats a NaN may be passed over. A barrier must come before the next call of the type.
template <class T> DEVICE T block_largest(T value) {
  SHARED_ARRAY(T, of_warp, 32);
#pragma unroll
  for (int far = 16; far > 0; far >>= 1) {
    const T other = __shfl_xor_sync(0xffffffffu, value, far);
    value = other > value ? other : value;
  }
  if ((threadIdx.x & 31u) == 0) of_warp[threadIdx.x / 32u] = value;
  __syncthreads();
  for (u32 warp = 0; warp < warps(); warp++) value = of_warp[warp] > value ? of_warp[warp] : value;
  return value;
}

// Patterns without their signs, shifted by one, are in the order of the magnitudes, NaN above all.
DEVICE u32 magnitude_order(float x) { return pattern(x) << 1; }
DEVICE float of_magnitude_order(u32 order) { return bits(order >> 1); }
