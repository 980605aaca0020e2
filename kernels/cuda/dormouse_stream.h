// The stream of dormouse models: how a position begins, what an iteration reads of it and writes to it. runtime/src/models/dormouse/block.rs, memory.rs, act_quant.rs and residual.rs.
#pragma once
#include "dormouse.h"

// The hash of the tokens up to `position`, the last `order` of them, or all where there are fewer: 31 bits.
DEVICE u32 memory_key(const u32 *tokens, u32 position, u32 order) {
  u64 hash = 1469598103934665603ull;
  for (u32 t = position + 1u < order ? 0u : position + 1u - order; t <= position; t++) hash = (hash ^ (u64)tokens[t]) * 1099511628211ull;
  return (u32)hash & 0x7fffffffu;
}

// New positions: the embedding, and the rows of the memory. One block a position.
KERNEL(256, 4) dormouse_begin(Vector stream, Vector recalled, Matrix embedding, Matrix memory, const u32 *tokens, Loop loop, const u32 *state, u32 count) {
  const Positions all = positions_of(state, nullptr, count);
  for (u32 n = blockIdx.x; n < count; n += gridDim.x) {
    const u32 position = position_at(all, n), token = tokens[position];
    float *floats = floats_of(stream, position);
    for (u32 i = threadIdx.x; i < loop.d_model; i += blockDim.x) floats[place(i)] = element(embedding, token, i);
    if (loop.recalls) {
      const u32 table = memory.rows / 3u, mask = table - 1u;
      const u32 two = memory_key(tokens, position, 2u) & mask, three = memory_key(tokens, position, 3u) & mask, four = memory_key(tokens, position, 4u) & mask;
      float *rows = floats_of(recalled, position);
      for (u32 i = threadIdx.x; i < recalled.cols; i += blockDim.x) {
        const u32 which = i / memory.cols, of_table = which == 0 ? two : which == 1u ? three : four;
        rows[place(i)] = element(memory, which * table + of_table, i % memory.cols);
      }
      make_ready(recalled, position);
    }
    __syncthreads();
  }
}

// The nearest value of the grid E2M1; a middle goes to the one with the even code.
DEVICE float nearest_e2m1(float value) {
  const float size = bits(pattern(value) & 0x7fffffffu);
  float found = 0.0f;
  found = size > 0.25f ? 0.5f : found;
  found = size >= 0.75f ? 1.0f : found;
  found = size > 1.25f ? 1.5f : found;
  found = size >= 1.75f ? 2.0f : found;
  found = size > 2.5f ? 3.0f : found;
  found = size >= 3.5f ? 4.0f : found;
  found = size > 5.0f ? 6.0f : found;
  return value < 0.0f ? -found : found;
}

DEVICE float nearest_whole(float value, float limit) {
  float whole = sub(add(value, MAGIC), MAGIC);
  whole = whole > limit ? limit : whole;
  return whole < -limit ? -limit : whole;
}

// `to` = `from` rounded, `group` elements to a scale; `limit` is the largest value of the grid: 6 of E2M1, else whole numbers. Eight threads a group.
DEVICE void round_to(float *to, const float *from, u32 cols, u32 group, float limit) {
  const u32 lane = threadIdx.x & 7u, mask = row_mask();
  for (u32 g = threadIdx.x / 8u; g < cols / group; g += blockDim.x / 8u) {
    float largest = 1e-8f;
    for (u32 i = g * group + lane; i < (g + 1u) * group; i += 8u) {
      const float size = bits(pattern(from[place(i)]) & 0x7fffffffu);
      largest = size > largest ? size : largest;
    }
#pragma unroll
    for (int far = 4; far > 0; far >>= 1) {
      const float other = __shfl_xor_sync(mask, largest, far);
      largest = other > largest ? other : largest;
    }
    const float scale = div(largest, limit);
    for (u32 i = g * group + lane; i < (g + 1u) * group; i += 8u) {
      const float value = div(from[place(i)], scale);
      to[place(i)] = mul(limit == 6.0f ? nearest_e2m1(value) : nearest_whole(value, limit), scale);
    }
  }
}

// How well a memory's key fits the stream, as the gate of its value. Called by the eight threads of a row.
DEVICE float memory_gate(const float *key, float of_key, const float *context, float of_context, u32 d) {
  float sum = 0.0f;
  for (u32 i = threadIdx.x & 7u; i < d; i += 8u) sum = add(sum, mul(mul(key[i], of_key), mul(context[place(i)], of_context)));
  const float fit = div(tree(row_mask(), sum), root((float)d)), size = bits(pattern(fit) & 0x7fffffffu);
  const float sign = fit > 0.0f ? 1.0f : fit < 0.0f ? -1.0f : fit;
  return sigmoid(mul(root(size > 1e-6f ? size : 1e-6f), sign));
}

// What an iteration reads: the stream with the iteration's embedding, beside the byte's (`both`); the same normed (`x`), and rounded for attention and experts where there are vectors for
// them; the memory's gate; the iteration's score. One block a position.
KERNEL(256, 2) dormouse_read(Vector x, Vector for_attention, Vector for_experts, Vector both, float *scalars, const float *stream, const float *embedding,
                         const float *added, const float *gain, const float *keys, const float *router, const float *router_bias, float attention_limit,
                         float experts_limit, Loop loop, const u32 *state, const u32 *limit, u32 count) {
  SHARED_ARRAY(float, squares, 2);
  const Positions all = positions_of(state, limit, count);
  const u32 d = loop.d_model, lane = threadIdx.x & 7u;
  for (u32 n = blockIdx.x; n < number_of(all); n += gridDim.x) {
    const u32 position = position_at(all, n);
    const u64 at = (u64)position * padded_length(d);
    const float *key = keys + (u64)position * d;
    float *context = floats_of(both, position), *normed = floats_of(x, position), *own = scalars + (u64)position * scalars_of(loop);
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
      context[place(i)] = add(stream[at + place(i)], added[i]);
      context[place(d + i)] = embedding[at + place(i)];
    }
    __syncthreads();
    if (threadIdx.x < 16u) {
      const bool of_key = threadIdx.x >= 8u;
      float sum = 0.0f;
      if (!of_key || loop.recalls) {
        for (u32 i = lane; i < d; i += 8u) {
          const float value = of_key ? key[i] : context[place(i)];
          sum = add(sum, mul(value, value));
        }
      }
      sum = tree(row_mask(), sum);
      if (lane == 0) squares[threadIdx.x / 8u] = sum;
    }
    __syncthreads();
    const float s = norm_of(squares[0], d, loop.norm_eps);
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) normed[place(i)] = mul(mul(context[place(i)], s), gain[i]);
    if (threadIdx.x < 8u && loop.recalls) {
      const float gate = memory_gate(key, norm_of(squares[1], d, 1e-5f), context, norm_of(squares[0], d, 1e-5f), d);
      if (lane == 0) own[fit_place(loop)] = gate;
    }
    if (threadIdx.x >= 8u && threadIdx.x < 16u && router) {
      float sum = 0.0f;
      for (u32 i = lane; i < d; i += 8u) sum = add(sum, mul(router[i], context[place(i)]));
      sum = tree(row_mask(), sum);
      if (lane == 0) own[fit_place(loop) + 1u] = add(sum, router_bias[0]);
    }
    __syncthreads();
    if (attention_limit > 0.0f) round_to(floats_of(for_attention, position), normed, d, loop.group, attention_limit);
    if (experts_limit > 0.0f) round_to(floats_of(for_experts, position), normed, d, loop.group, experts_limit);
    make_ready(x, position);
    if (attention_limit > 0.0f) make_ready(for_attention, position);
    if (experts_limit > 0.0f) make_ready(for_experts, position);
    make_ready(both, position);
    __syncthreads();
  }
}

// The stream after an iteration: what it read, and its result times a factor. `terms` are what memory and experts add to the result. One block a position.
KERNEL(256, 4) dormouse_write(Vector next, const float *stream, const float *added, const float *factor, const float *attended, const float *terms, const float *scalars,
                          Loop loop, const u32 *state, const u32 *limit, u32 count) {
  const Positions all = positions_of(state, limit, count);
  const u32 d = loop.d_model;
  for (u32 n = blockIdx.x; n < number_of(all); n += gridDim.x) {
    const u32 position = position_at(all, n);
    const u64 at = (u64)position * d, padded = (u64)position * padded_length(d);
    const float weight = sigmoid(scalars[(u64)position * scalars_of(loop)]);
    float *to = floats_of(next, position);
    for (u32 i = threadIdx.x; i < d; i += blockDim.x) {
      float y = 0.0f;
      if (loop.attends) y = add(y, mul(weight, attended[at + i]));
      if (loop.recalls) y = add(y, terms[2u * at + i]);
      y = add(y, terms[2u * at + d + i]);
      to[place(i)] = add(add(stream[padded + place(i)], added[i]), mul(factor[0], y));
    }
    make_ready(next, position);
    __syncthreads();
  }
}
