// The recurrence of dormouse models and what goes on around it at each position. runtime/src/models/dormouse/kda.rs, decode.rs, experts.rs.
#pragma once
#include "dormouse.h"

// The states behind the first positions are all kept, then one in so many.
enum { DENSE = 32 };

// Where the state behind `position` is kept; 0xffffffff: nowhere. runtime/format/src/arch/dormouse/layout.rs
DEVICE u32 saved_place(u32 position) {
  if (position < DENSE) return position;
  return position % DENSE == DENSE - 1u ? DENSE + position / DENSE - 1u : 0xffffffffu;
}

// One position of a row of the state, which is a value channel of a head: `own` are its key channels, eight threads a row, `blockDim.x` apart.
DEVICE float recur(float *own, const float *at, u32 width, u32 head, u32 head_dim, u32 row) {
  const u32 lane = threadIdx.x & 7u, mask = row_mask(), first = head * head_dim;
  const float *q = at + first, *k = q + width, *decay = q + 3u * width;
  float sum = 0.0f;
  u32 i = lane;
#pragma unroll 4
  for (float *s = own; i < head_dim; i += 8u, s += blockDim.x) {
    *s = mul(*s, decay[i]);
    sum = add(sum, mul(*s, k[i]));
  }
  const float change = mul(at[5u * width + head], sub(at[2u * width + row], tree(mask, sum)));
  sum = 0.0f;
  i = lane;
#pragma unroll 4
  for (float *s = own; i < head_dim; i += 8u, s += blockDim.x) {
    *s = add(*s, mul(k[i], change));
    sum = add(sum, mul(*s, q[i]));
  }
  return tree(mask, sum);
}

// Copies a row of the state between shared memory and where states are kept, (part of 8 key channels) x row x lane; says whether any bit of the row was another.
DEVICE bool keep_row(float *kept, const float *own, u32 width, u32 row, u32 head_dim) {
  u32 changed = 0;
  const float *s = own;
  u64 at = row * 8u + (threadIdx.x & 7u);
  for (u32 i = threadIdx.x & 7u; i < head_dim; i += 8u, at += 8u * width, s += blockDim.x) {
    changed |= pattern(kept[at]) ^ pattern(*s);
    kept[at] = *s;
  }
#pragma unroll
  for (int far = 4; far > 0; far >>= 1) changed |= __shfl_xor_sync(row_mask(), changed, far);
  return changed != 0;
}

DEVICE void load_row(float *own, const float *kept, u32 width, u32 row, u32 head_dim) {
  float *s = own;
  u64 at = row * 8u + (threadIdx.x & 7u);
  for (u32 i = threadIdx.x & 7u; i < head_dim; i += 8u, at += 8u * width, s += blockDim.x) *s = kept ? kept[at] : 0.0f;
}

// The recurrence of an iteration: the old positions, from the first, until a row of the state is what it was there before and no later input has changed (those before `changed` have), then
// the new ones. `stops` says how many old ones were computed again, a row. Each row goes its own way. `before` is the end of the iteration before, `saved` the states that are kept of this
// one; without them old positions stay as they are.
KERNEL(64, 8) dormouse_recur(float *results, float *ends, const float *before, float *saved, u32 *stops, const float *kda, u32 again, Loop loop, const u32 *state,
                          const u32 *changed, u32 count) {
  DYN_SHARED(float, memory);
  const u32 width = width_of(loop), row = blockIdx.x * (blockDim.x / 8u) + threadIdx.x / 8u, parts = (loop.head_dim + 7u) / 8u, stride = kda_stride(loop);
  if (row >= width) return;
  const u32 head = row / loop.head_dim, done = state[POSITION], first_same = changed ? *changed : 0u;
  const u64 of_state = (u64)parts * width * 8u;
  float *own = memory + threadIdx.x;
  load_row(own, done == 0 || again ? before : ends, width, row, loop.head_dim);
  if (again && done > 0) {
    u32 position = 0;
    for (bool same = false; position < done && !(same && position >= first_same); position++) {
      const float o = recur(own, kda + (u64)position * stride, width, head, loop.head_dim, row);
      if ((threadIdx.x & 7u) == 0) results[(u64)position * width + row] = o;
      const u32 kept = saved_place(position);
      same = kept != 0xffffffffu && !keep_row(saved + kept * of_state, own, width, row, loop.head_dim);
    }
    if ((threadIdx.x & 7u) == 0) stops[row] = position;
    if (position < done) load_row(own, ends, width, row, loop.head_dim);
  } else if ((threadIdx.x & 7u) == 0 && stops) {
    stops[row] = 0;
  }
  for (u32 position = done; position < done + count; position++) {
    const float o = recur(own, kda + (u64)position * stride, width, head, loop.head_dim, row);
    if ((threadIdx.x & 7u) == 0) results[(u64)position * width + row] = o;
    const u32 kept = saved_place(position);
    if (saved && kept != 0xffffffffu) keep_row(saved + kept * of_state, own, width, row, loop.head_dim);
  }
  keep_row(ends, own, width, row, loop.head_dim);
}

// Results of the recurrence, scaled, normed a head and gated: the input of the projection. Writes `limit`, the most of `stops`, where there are any: so many old positions have other results.
// One block a position.
KERNEL(256, 2) dormouse_gate(Vector attended, const float *results, const float *kda, const float *gain, const u32 *stops, u32 *limit, Loop loop, const u32 *state, u32 count) {
  const u32 width = width_of(loop), lane = threadIdx.x & 7u, dim = loop.head_dim;
  Positions all = positions_of(state, nullptr, count);
  if (stops) {
    u32 most = 0;
    for (u32 row = threadIdx.x; row < width; row += blockDim.x) most = stops[row] > most ? stops[row] : most;
    all.limit = block_largest(most);
    if (blockIdx.x == 0 && threadIdx.x == 0) *limit = all.limit;
  }
  for (u32 n = blockIdx.x; n < number_of(all); n += gridDim.x) {
    const u32 position = position_at(all, n);
    const float *o = results + (u64)position * width, *gate = kda + (u64)position * kda_stride(loop) + 4u * width;
    float *to = floats_of(attended, position);
    for (u32 head = threadIdx.x / 8u; head < loop.n_heads; head += blockDim.x / 8u) {
      float sum = 0.0f;
      for (u32 i = lane; i < dim; i += 8u) {
        const float value = mul(o[head * dim + i], loop.kda_scale);
        sum = add(sum, mul(value, value));
      }
      const float s = norm_of(tree(row_mask(), sum), dim, 1e-5f);
      for (u32 i = lane; i < dim; i += 8u) {
        const u32 at = head * dim + i;
        to[place(at)] = mul(mul(mul(mul(o[at], loop.kda_scale), s), gate[at]), gain[i]);
      }
    }
    make_ready(attended, position);
    __syncthreads();
  }
}

// Queries, keys, values, decays, gates and steps out of what the matrices gave. All threads of the block are there.
DEVICE void activate(float *own, const float *bias, const float *factors, const Loop &loop) {
  SHARED_ARRAY(float, norms, 2);
  const u32 width = width_of(loop), lane = threadIdx.x & 7u;
  for (u32 i = threadIdx.x; i < kda_stride(loop); i += blockDim.x) {
    const u32 which = i / width, of_width = i - which * width;
    float value = own[i];
    if (which < 3u) {
      value = silu(value);
    } else if (which == 3u) {
      value = exponential(mul(-5.0f, sigmoid(mul(factors[of_width / loop.head_dim], add(value, bias[of_width])))));
    } else {
      value = sigmoid(value);
    }
    own[i] = value;
  }
  __syncthreads();
  if (threadIdx.x < 16u) {
    const float *x = own + threadIdx.x / 8u * width;
    float sum = 0.0f;
#pragma unroll 4
    for (u32 i = lane; i < width; i += 8u) sum = add(sum, mul(x[i], x[i]));
    sum = tree(row_mask(), sum);
    if (lane == 0) norms[threadIdx.x / 8u] = div(1.0f, root(add(sum, 1e-6f)));
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < 2u * width; i += blockDim.x) own[i] = mul(own[i], norms[i / width]);
}

// weights /= their sum. All threads of the block are there.
DEVICE void divide_by_sum(float *weights, u32 count) {
  SHARED_ARRAY(float, total, 1);
  __syncthreads();
  if (threadIdx.x < 8u) {
    float sum = 0.0f;
    for (u32 e = threadIdx.x; e < count; e += 8u) sum = add(sum, weights[e]);
    sum = tree(0xffu, sum);
    if (threadIdx.x == 0) total[0] = sum;
  }
  __syncthreads();
  for (u32 e = threadIdx.x; e < count; e += blockDim.x) weights[e] = div(weights[e], total[0]);
}

// The experts' weights from their scores.
DEVICE void blend(float *own, const Loop &loop) {
  const float *scores = own + SCORES;
  float *weights = own + blend_place(loop), largest = -INFINITE;
  for (u32 e = 0; e < loop.n_experts; e++) largest = scores[e] > largest ? scores[e] : largest;
  for (u32 e = threadIdx.x; e < loop.n_experts; e += blockDim.x) weights[e] = exponential(sub(scores[e], largest));
  divide_by_sum(weights, loop.n_experts);
  if (loop.topk > 0) {
    for (u32 e = threadIdx.x; e < loop.n_experts; e += blockDim.x) weights[e] = rank_of(scores, 1u, loop.n_experts, e) < loop.topk ? weights[e] : 0.0f;
    divide_by_sum(weights, loop.n_experts);
  }
  __syncthreads();
}

// Everything that an iteration makes of the matrices' results before the recurrence: its inputs, and what memory and experts add to the result. `down` is expert x position x d_model. One
// block a position.
KERNEL(256, 2) dormouse_mix(float *kda, const float *decay_bias, const float *decay_factors, float *scalars, const float *values, const float *dense, const float *down,
                        float *terms, Loop loop, const u32 *state, const u32 *limit, u32 count) {
  const Positions all = positions_of(state, limit, count);
  const u32 d = loop.d_model;
  for (u32 n = blockIdx.x; n < number_of(all); n += gridDim.x) {
    const u32 position = position_at(all, n);
    const u64 at = (u64)position * d;
    float *own = scalars + (u64)position * scalars_of(loop);
    if (loop.attends) activate(kda + (u64)position * kda_stride(loop), decay_bias, decay_factors, loop);
    blend(own, loop);
    const float *weights = own + blend_place(loop);
    const float of_memory = sigmoid(own[1]), of_experts = sigmoid(own[2]), gate = own[fit_place(loop)];
    const float lambda = of_memory > loop.most_memory ? loop.most_memory : of_memory, rest = sub(1.0f, lambda);
    for (u32 j = threadIdx.x; j < d; j += blockDim.x) {
      float a[8];
#pragma unroll
      for (u32 lane = 0; lane < 8u; lane++) {
        a[lane] = 0.0f;
        // Of an expert of weight 0 nothing would be left.
        for (u32 e = lane; e < loop.n_experts; e += 8u)
          if (weights[e] != 0.0f) a[lane] = add(a[lane], mul(weights[e], down[(u64)e * loop.context * d + at + j]));
      }
      terms[2u * at + d + j] = mul(of_experts, tree_of(a));
      if (loop.recalls) terms[2u * at + j] = add(mul(lambda, mul(values[at + j], gate)), mul(rest, dense[at + j]));
    }
    __syncthreads();
  }
}

// The mean of the iterations' results at the last position, normed: the input of the classifier. With `kept` above 0 so many iterations count, those of the highest scores. One block.
KERNEL(256, 2) dormouse_mean(Vector normed, const float *results, const float *scalars, const float *gain, u32 iterations, u32 kept, Loop loop, const u32 *state, u32 count) {
  SHARED_ARRAY(float, norm, 1);
  SHARED_ARRAY(u8, counts, 256);
  const u32 d = loop.d_model;
  const u64 of_iteration = (u64)loop.context * scalars_of(loop);
  const float *scores = scalars + (u64)(state[POSITION] + count - 1u) * scalars_of(loop) + fit_place(loop) + 1u;
  for (u32 n = threadIdx.x; n < iterations; n += blockDim.x) counts[n] = kept == 0 || rank_of(scores, of_iteration, iterations, n) < kept;
  __syncthreads();
  for (u32 j = threadIdx.x; j < d; j += blockDim.x) {
    float a[8];
#pragma unroll
    for (u32 lane = 0; lane < 8u; lane++) {
      a[lane] = 0.0f;
      for (u32 n = lane; n < iterations; n += 8u)
        if (counts[n]) a[lane] = add(a[lane], results[(u64)n * d + j]);
    }
    normed.floats[place(j)] = div(tree_of(a), (float)(kept == 0 ? iterations : kept));
  }
  __syncthreads();
  if (threadIdx.x < 8u) {
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < d; i += 8u) sum = add(sum, mul(normed.floats[place(i)], normed.floats[place(i)]));
    sum = norm_scale(sum, d, loop.norm_eps);
    if (threadIdx.x == 0) norm[0] = sum;
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < d; i += blockDim.x) normed.floats[place(i)] = mul(mul(normed.floats[place(i)], norm[0]), gain[i]);
  make_ready(normed, 0);
}
