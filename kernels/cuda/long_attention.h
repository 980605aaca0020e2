// Attention over many positions: the bits of attention.h's, with what is independent spread over blocks. Scores go by positions. The sum of their exponentials, whose order is fixed, goes through one
// block a head, which makes exponentials ahead of the sum. The weighted sums go by elements of the head; products are made ahead of the eight chains of each element.
#pragma once
#include "attention.h"

// Positions of a block of scores, and of what a head's block makes ahead.
enum { SCORED = 256, SUMMED = 2048 };
// Elements of a head that a block of weighted sums has; its first threads are their chains, the others make products, eight each of a tile.
enum { SLICE = 8, CHAINS = 8 * SLICE, MAKERS = 448, WEIGHTED = 8 * MAKERS / SLICE };

// Parts of the longest context's scores.
DEVICE u32 parts_of(const Heads &h) { return (h.context + SCORED - 1u) / SCORED; }

// Scores of a part of the positions, and the largest of them: one block a part, query head and column. Those behind the last position leave at once.
KERNEL(256, 4) attend_scores(float *scores, float *largest, const float *qkv, void *keys, u16 *key_scales, Heads h, const u32 *state, const uint4 *rows) {
  DYN_SHARED(float, memory);
  const u32 head = blockIdx.y, n = h.head_dim, kv_head = head / (h.n_heads / h.n_kv_heads), row = blockIdx.z * h.n_heads + head, from = blockIdx.x * SCORED;
  const Column column = column_of(state, rows, blockIdx.z);
  Span span = span_of(h, column.position, false);
  if (from > span.last - span.first) return;
  span.first += from;
  if (span.last - span.first >= SCORED) span.last = span.first + SCORED - 1u;
  const HeadMemory m = {memory, nullptr, nullptr, nullptr, (int *)(memory + n), scores + (u64)row * h.context + from};
  const float *q = qkv + ((u64)blockIdx.z * (h.n_heads + 2u * h.n_kv_heads) + head) * n;
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) m.q[i] = q[i];
  __syncthreads();
  const Rows key_rows = rows_of(keys, key_scales, column.text, h);
  float most;
  if (h.kv == KV_Q8) {
    most = integer_scores(m, key_rows, kv_head, span, h);
  } else if (h.kv == KV_F16) {
    most = float_scores<KV_F16>(m, key_rows, kv_head, span, h);
  } else {
    most = float_scores<KV_F32>(m, key_rows, kv_head, span, h);
  }
  most = block_largest(most);
  if (threadIdx.x == 0) largest[(u64)row * parts_of(h) + blockIdx.x] = most;
}

// Scores become weights, in q8 codes of weights, and what a code of 1 is worth. One block a query head and column, whose first warp sums.
KERNEL(512, 2) attend_weights(float *scores, float *worths, const float *largest, const u16 *value_scales, Heads h, const u32 *state, const uint4 *rows) {
  DYN_SHARED(float, memory); // two tiles of SUMMED
  SHARED_ARRAY(float, divisor, 1);
  const u32 head = blockIdx.x, row = blockIdx.y * h.n_heads + head;
  const Column column = column_of(state, rows, blockIdx.y);
  const Span span = span_of(h, column.position, false);
  const u32 count = span.last + 1u - span.first, tiles = (count + SUMMED - 1u) / SUMMED;
  float *own = scores + (u64)row * h.context;
  float most = -INFINITE;
  for (u32 part = threadIdx.x; part * SCORED < count; part += blockDim.x) {
    const float of_part = largest[(u64)row * parts_of(h) + part];
    most = of_part > most ? of_part : most;
  }
  most = block_largest(most);
  float sum = 0.0f;
  for (u32 tile = 0; tile <= tiles; tile++) {
    const u32 from = tile * SUMMED;
    if (threadIdx.x >= 32u) {
      float *made = memory + (tile & 1u) * SUMMED;
#pragma unroll 4
      for (u32 i = threadIdx.x - 32u; i < SUMMED && from + i < count; i += blockDim.x - 32u) {
        const float e = exponential(sub(own[from + i], most));
        made[i] = e;
        own[from + i] = e;
      }
    } else if (threadIdx.x < 8u && tile > 0) {
      const float *kept = memory + ((tile + 1u) & 1u) * SUMMED;
      const u32 before = from - SUMMED, there = count - before < SUMMED ? count - before : (u32)SUMMED;
      // A tile begins at a multiple of 8 positions from the first one.
#pragma unroll 8
      for (u32 i = (threadIdx.x - span.first) & 7u; i < there; i += 8u) sum = add(sum, kept[i]);
    }
    __syncthreads();
  }
  if (threadIdx.x < 8u) {
    sum = tree(0xffu, sum);
    if (threadIdx.x == 0) divisor[0] = sum;
  }
  __syncthreads();
  if (h.kv != KV_Q8) {
#pragma unroll 4
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) own[i] = div(own[i], divisor[0]);
    return;
  }
  const u16 *scales = value_scales + (u64)column.text * h.text_rows * h.n_kv_heads + head / (h.n_heads / h.n_kv_heads);
  u32 order = 0;
#pragma unroll 4
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    const float weight = mul(div(own[i], divisor[0]), widen_f16(scales[(u64)(span.first + i) * h.n_kv_heads]));
    own[i] = weight;
    const u32 of_this = magnitude_order(weight);
    order = of_this > order ? of_this : order;
  }
  const float magnitude = of_magnitude_order(block_largest(order));
  const float inverse = div((float)ACTIVATION_LIMIT, magnitude);
  // Each weight makes room for its code.
  int *codes = (int *)own;
#pragma unroll 4
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) codes[i] = activation_code(own[i], inverse);
  if (threadIdx.x == 0) worths[row] = div(magnitude, (float)ACTIVATION_LIMIT);
}

template <u32 KV> DEVICE void weigh(float &product, const float *weights, u32 i, const void *values, u64 at) { product = mul(weights[i], stored_value<KV>(values, at)); }
template <u32 KV> DEVICE void weigh(int &product, const float *weights, u32 i, const void *values, u64 at) {
  product = ((const int *)weights)[i] * (int)((const i8 *)values)[at];
}
DEVICE void sum_up(float &sum, float product) { sum = add(sum, product); }
DEVICE void sum_up(i64 &sum, int product) { sum += product; }
DEVICE float lanes_total(const i64 *a, u32 n, float worth) {
  i64 sum = 0;
  for (u32 lane = 0; lane < 8u; lane++) sum += a[lane * n];
  return mul((float)sum, worth);
}

// Weighted sums of the elements of a head from `slice` on, SLICE of them or what is left.
template <u32 KV, class Product, class Sum>
DEVICE void mix_slice(float *out, float *memory, const float *weights, float worth, const void *values, u32 kv_head, u32 slice, const Span &span, const Heads &h) {
  const u32 n = h.head_dim, count = span.last + 1u - span.first, tiles = (count + WEIGHTED - 1u) / WEIGHTED, width = n - slice < SLICE ? n - slice : (u32)SLICE;
  const u32 lane = threadIdx.x / SLICE, element = threadIdx.x % SLICE;
  Product *products = (Product *)memory; // two tiles of WEIGHTED x SLICE
  Sum sum = 0;
  for (u32 tile = 0; tile <= tiles; tile++) {
    const u32 from = tile * WEIGHTED;
    if (threadIdx.x >= CHAINS) {
      Product *made = products + (tile & 1u) * (WEIGHTED * SLICE);
#pragma unroll
      for (u32 turn = 0; turn < WEIGHTED * SLICE / MAKERS; turn++) {
        const u32 item = threadIdx.x - CHAINS + turn * MAKERS, i = from + item / SLICE, j = item % SLICE;
        if (i < count && j < width) weigh<KV>(made[item], weights, i, values, ((u64)(span.first + i) * h.n_kv_heads + kv_head) * n + slice + j);
      }
    } else if (tile > 0 && element < width) {
      const Product *kept = products + ((tile + 1u) & 1u) * (WEIGHTED * SLICE);
      const u32 before = from - WEIGHTED, there = count - before < WEIGHTED ? count - before : (u32)WEIGHTED;
#pragma unroll 8
      for (u32 i = (lane - span.first) & 7u; i < there; i += 8u) sum_up(sum, kept[i * SLICE + element]);
    }
    __syncthreads();
  }
  Sum *sums = (Sum *)memory;
  if (threadIdx.x < CHAINS) sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < width) out[slice + threadIdx.x] = lanes_total(sums + threadIdx.x, SLICE, worth);
}

// Values times weights, or times their codes: one block a slice of a head's elements, query head and column.
KERNEL(512, 2) attend_mix(float *attended, const float *weights, const float *worths, void *values, Heads h, const u32 *state, const uint4 *rows) {
  DYN_SHARED(float, memory);
  const u32 slice = blockIdx.x * SLICE, head = blockIdx.y, row = blockIdx.z * h.n_heads + head, kv_head = head / (h.n_heads / h.n_kv_heads);
  const Column column = column_of(state, rows, blockIdx.z);
  const Span span = span_of(h, column.position, false);
  const void *codes = rows_of(values, nullptr, column.text, h).codes;
  const float *own = weights + (u64)row * h.context;
  float *out = attended + (u64)row * h.head_dim;
  if (h.kv == KV_Q8) {
    mix_slice<KV_Q8, int, i64>(out, memory, own, worths[row], codes, kv_head, slice, span, h);
  } else if (h.kv == KV_F16) {
    mix_slice<KV_F16, float, float>(out, memory, own, 1.0f, codes, kv_head, slice, span, h);
  } else {
    mix_slice<KV_F32, float, float>(out, memory, own, 1.0f, codes, kv_head, slice, span, h);
  }
}
