// Inputs made ready for matrices: normed (runtime/src/ops/norm.rs), re-ordered, quantised (quantise.rs).
#pragma once
#include "rows.h"

// 1 / sqrt(sum8(x * x) / n + eps), for the eight threads that are given their lanes of the sum.
DEVICE float norm_scale(float lane, u32 n, float eps) { return div(1.0f, root(add(div(tree(0xffu, lane), (float)n), eps))); }

// The codes of a vector of floats in the order of `place`, the sums of their units, and what a code of 1 is worth. All threads of the block are there, and what they wrote is there for all.
DEVICE float quantise(int *codes, int *sums, const float *floats, u32 cols) {
  u32 order = 0;
  for (u32 i = threadIdx.x; i < cols; i += blockDim.x) {
    const u32 of_this = magnitude_order(floats[place(i)]);
    order = of_this > order ? of_this : order;
  }
  const float largest = of_magnitude_order(block_largest(order));
  const float inverse = div((float)ACTIVATION_LIMIT, largest);
  for (u32 unit = threadIdx.x; unit < padded_length(cols) / 8u; unit += blockDim.x) {
    int sum = 0;
#pragma unroll
    for (u32 pair = 0; pair < 4; pair++) {
      const u32 i = unit * 8u + pair * 2u;
      // What pads the vector is 0, and so is its code.
      const int even = activation_code(floats[place(i)], inverse), odd = activation_code(floats[place(i + 1u)], inverse);
      sum += even + odd;
      codes[unit * 4u + pair] = (int)(((u32)even & 0xffffu) | (u32)odd << 16);
    }
    sums[unit] = sum;
  }
  __syncthreads();
  return div(largest, (float)ACTIVATION_LIMIT);
}

// `x`, normed if there is a gain, in the block's shared memory.
DEVICE Input shared_input(float *floats, const float *x, const float *gain, float eps, u32 cols, bool integers) {
  SHARED_ARRAY(float, norm, 1);
  SHARED_ARRAY(float, scale, 1);
  const u32 padded = padded_length(cols);
  int *codes = (int *)(floats + padded), *sums = codes + padded / 2u;
  for (u32 i = threadIdx.x; i < padded; i += blockDim.x) floats[place(i)] = i < cols ? x[i] : 0.0f;
  __syncthreads();
  if (gain) {
    if (threadIdx.x < 8u) {
      float sum = 0.0f;
#pragma unroll 4
      for (u32 run = 0; run < padded / 32u; run++) {
        const float4 v = ((const float4 *)floats)[run * 8u + threadIdx.x];
        sum = add(sum, mul(v.x, v.x));
        sum = add(sum, mul(v.y, v.y));
        sum = add(sum, mul(v.z, v.z));
        sum = add(sum, mul(v.w, v.w));
      }
      sum = norm_scale(sum, cols, eps);
      if (threadIdx.x == 0) norm[0] = sum;
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < cols; i += blockDim.x) floats[place(i)] = mul(mul(floats[place(i)], norm[0]), gain[i]);
    __syncthreads();
  }
  if (integers) {
    const float worth = quantise(codes, sums, floats, cols);
    if (threadIdx.x == 0) scale[0] = worth;
    __syncthreads();
  }
  return Input{floats, codes, sums, scale, padded};
}
