// Heads: rotated, stored, attended. runtime/src/ops/rope.rs, kv.rs, kv_integer.rs and attention.rs, one block a head.
#pragma once
#include "arithmetic.h"

// Keys or values of a layer, as they are stored, and in q8 their scales.
struct Rows {
  void *codes;
  u16 *scales;
};

// The keys or the values of text number `text` in a cache of several.
DEVICE Rows rows_of(void *codes, u16 *scales, u32 text, const Heads &h) {
  const u64 before = (u64)text * h.text_rows * h.n_kv_heads, bytes = h.kv == KV_F32 ? 4u : h.kv == KV_F16 ? 2u : 1u;
  return Rows{(u8 *)codes + before * h.head_dim * bytes, scales ? scales + before : nullptr};
}

// A column of a block: where in which text it is.
struct Column {
  u32 position, text;
};

// What `rows` says of the column, token, position and text; without it the column is the step's.
DEVICE Column column_of(const u32 *state, const uint4 *rows, u32 column) {
  if (rows) return Column{rows[column].y, rows[column].z};
  return Column{state[POSITION], state[TEXT]};
}

// Streams of positions whose weighted values are added up side by side in q8, where any order gives the same.
enum { INTEGER_STREAMS = 4 };

// What a block of attention has in shared memory.
struct HeadMemory {
  float *q, *k, *v;
  float *lanes; // lane x head_dim; in q8 `INTEGER_STREAMS` x head_dim sums of 64 bits
  int *codes;   // of the query
  float *scores;
};

DEVICE HeadMemory head_memory(float *memory, const Heads &h, float *scores, u32 row) {
  const u32 n = h.head_dim;
  float *own = h.shared_scores ? memory + 12u * n : scores + (u64)row * h.context;
  return HeadMemory{memory, memory + n, memory + 2u * n, memory + 3u * n, (int *)(memory + 11u * n), own};
}

// `to` = `from` rotated by the angles of a position.
DEVICE void rotate(float *to, const float *from, const float *cos, const float *sin, const Heads &h) {
  const u32 half = h.head_dim / 2u;
  for (u32 i = threadIdx.x; i < half; i += blockDim.x) {
    const u32 first = h.halves ? i : 2u * i, second = h.halves ? i + half : 2u * i + 1u;
    const float a = from[first], b = from[second], c = cos[i], s = sin[i];
    to[first] = sub(mul(a, c), mul(b, s));
    to[second] = add(mul(a, s), mul(b, c));
  }
}

DEVICE float block_largest_magnitude(const float *x, u32 n) {
  u32 order = 0;
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) {
    const u32 of_this = magnitude_order(x[i]);
    order = of_this > order ? of_this : order;
  }
  return of_magnitude_order(block_largest(order));
}

// Narrows a head of a key or value in its place, to what is read when it is read back: in q8 to codes, whose scale is returned. Stores it as row `at` of heads, if it is to. All threads are there;
// what they wrote is there for all.
DEVICE float keep(float *x, const Rows &rows, u64 at, bool stored, const Heads &h) {
  float scale = 1.0f, inverse = 1.0f;
  if (h.kv == KV_Q8) {
    const u16 narrow = narrow_f16(div(block_largest_magnitude(x, h.head_dim), (float)CACHE_LIMIT));
    scale = widen_f16(narrow);
    inverse = narrow == 0 ? 0.0f : div(1.0f, scale);
    if (stored && threadIdx.x == 0) rows.scales[at] = narrow;
  }
  for (u32 i = threadIdx.x; i < h.head_dim; i += blockDim.x) {
    const u64 place = at * h.head_dim + i;
    if (h.kv == KV_F32) {
      if (stored) ((float *)rows.codes)[place] = x[i];
    } else if (h.kv == KV_F16) {
      const u16 narrow = narrow_f16(x[i]);
      if (stored) ((u16 *)rows.codes)[place] = narrow;
      x[i] = widen_f16(narrow);
    } else {
      const int code = rounded(mul(x[i], inverse), CACHE_LIMIT);
      if (stored) ((i8 *)rows.codes)[place] = (i8)code;
      x[i] = (float)(i8)code;
    }
  }
  __syncthreads();
  return scale;
}

// Where attention of one head reads: positions first..=last, of which those from `cached` on (the last or none) are in `HeadMemory`, with these scales in q8.
struct Span {
  u32 first, last, cached;
  float key_scale, value_scale;
};

DEVICE Span span_of(const Heads &h, u32 position, bool current_apart) {
  Span span;
  span.first = h.window && position + 1u > h.window ? position + 1u - h.window : 0u;
  span.last = position;
  span.cached = current_apart ? position : position + 1u;
  span.key_scale = span.value_scale = 1.0f;
  return span;
}

template <u32 KV> DEVICE float stored_value(const void *codes, u64 at) {
  if (KV == KV_F32) return ((const float *)codes)[at];
  if (KV == KV_F16) return widen_f16(((const u16 *)codes)[at]);
  return (float)((const i8 *)codes)[at];
}

// Scores of floats: eight threads a position. The largest that this thread saw is returned.
template <u32 KV> DEVICE float float_scores(const HeadMemory &m, const Rows &keys, u32 kv_head, const Span &span, const Heads &h) {
  const u32 lane = threadIdx.x & 7u, mask = row_mask();
  float largest = -INFINITE;
  for (u32 t = span.first + threadIdx.x / 8u; t <= span.last; t += blockDim.x / 8u) {
    float sum = 0.0f;
    if (t < span.cached) {
      const u64 row = ((u64)t * h.n_kv_heads + kv_head) * h.head_dim;
#pragma unroll 4
      for (u32 i = lane; i < h.head_dim; i += 8u) sum = add(sum, mul(stored_value<KV>(keys.codes, row + i), m.q[i]));
    } else {
      for (u32 i = lane; i < h.head_dim; i += 8u) sum = add(sum, mul(m.k[i], m.q[i]));
    }
    const float score = mul(tree(mask, sum), h.scale);
    if (lane == 0) m.scores[t - span.first] = score;
    largest = score > largest ? score : largest;
  }
  return largest;
}

DEVICE float integer_scores(const HeadMemory &m, const Rows &keys, u32 kv_head, const Span &span, const Heads &h) {
  const u32 lane = threadIdx.x & 7u, mask = row_mask();
  const float magnitude = block_largest_magnitude(m.q, h.head_dim);
  const float inverse = div((float)ACTIVATION_LIMIT, magnitude), worth = div(magnitude, (float)ACTIVATION_LIMIT);
  for (u32 i = threadIdx.x; i < h.head_dim; i += blockDim.x) m.codes[i] = activation_code(m.q[i], inverse);
  __syncthreads();
  float largest = -INFINITE;
  for (u32 t = span.first + threadIdx.x / 8u; t <= span.last; t += blockDim.x / 8u) {
    const u64 row = (u64)t * h.n_kv_heads + kv_head;
    const bool cached = t < span.cached;
    i64 sum = 0;
    for (u32 i = lane; i < h.head_dim; i += 8u) {
      const int code = cached ? (int)((const i8 *)keys.codes)[row * h.head_dim + i] : (int)m.k[i];
      sum += (i64)m.codes[i] * code;
    }
    const float scale = cached ? widen_f16(keys.scales[row]) : span.key_scale;
    const float score = mul(mul((float)total(mask, sum), mul(worth, scale)), h.scale);
    if (lane == 0) m.scores[t - span.first] = score;
    largest = score > largest ? score : largest;
  }
  return largest;
}

// The first position from span.first on that belongs to stream `n` of `streams` (a power of two).
DEVICE u32 first_of_stream(const Span &span, u32 n, u32 streams) { return span.first + ((n - span.first) & (streams - 1u)); }

// Scores become weights.
DEVICE void softmax(const HeadMemory &m, const Span &span, float largest) {
  SHARED_ARRAY(float, divisor, 1);
  const u32 count = span.last + 1u - span.first;
  largest = block_largest(largest);
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) m.scores[i] = exponential(sub(m.scores[i], largest));
  __syncthreads();
  if (threadIdx.x < 8u) {
    float sum = 0.0f;
#pragma unroll 8
    for (u32 t = first_of_stream(span, threadIdx.x, 8u); t <= span.last; t += 8u) sum = add(sum, m.scores[t - span.first]);
    sum = tree(0xffu, sum);
    if (threadIdx.x == 0) divisor[0] = sum;
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) m.scores[i] = div(m.scores[i], divisor[0]);
  __syncthreads();
}

// The eight lanes of a sum that are `n` apart, added up.
DEVICE float lanes_total(const float *a, u32 n, float) {
  const float even = add(add(a[0], a[4u * n]), add(a[2u * n], a[6u * n])), odd = add(add(a[n], a[5u * n]), add(a[3u * n], a[7u * n]));
  return add(even, odd);
}

template <u32 KV> DEVICE void float_mix(float *out, const HeadMemory &m, const Rows &values, u32 kv_head, const Span &span, const Heads &h) {
  const u32 n = h.head_dim;
  for (u32 item = threadIdx.x; item < 8u * n; item += blockDim.x) {
    const u32 lane = item / n, j = item % n;
    float sum = 0.0f;
    u32 t = first_of_stream(span, lane, 8u);
#pragma unroll 8
    for (; t < span.cached; t += 8u) sum = add(sum, mul(m.scores[t - span.first], stored_value<KV>(values.codes, ((u64)t * h.n_kv_heads + kv_head) * n + j)));
    if (t == span.last) sum = add(sum, mul(m.scores[t - span.first], m.v[j]));
    m.lanes[item] = sum;
  }
  __syncthreads();
  for (u32 j = threadIdx.x; j < n; j += blockDim.x) out[j] = lanes_total(m.lanes + j, n, 1.0f);
}

DEVICE void integer_mix(float *out, const HeadMemory &m, const Rows &values, u32 kv_head, const Span &span, const Heads &h) {
  const u32 n = h.head_dim, count = span.last + 1u - span.first;
  u32 order = 0;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
    const u32 t = span.first + i;
    const float scale = t < span.cached ? widen_f16(values.scales[(u64)t * h.n_kv_heads + kv_head]) : span.value_scale;
    m.scores[i] = mul(m.scores[i], scale);
    const u32 of_this = magnitude_order(m.scores[i]);
    order = of_this > order ? of_this : order;
  }
  const float largest = of_magnitude_order(block_largest(order));
  const float inverse = div((float)ACTIVATION_LIMIT, largest), worth = div(largest, (float)ACTIVATION_LIMIT);
  // Each weight makes room for its code.
  int *codes = (int *)m.scores;
  for (u32 i = threadIdx.x; i < count; i += blockDim.x) codes[i] = activation_code(m.scores[i], inverse);
  __syncthreads();
  i64 *sums = (i64 *)m.lanes;
  for (u32 item = threadIdx.x; item < INTEGER_STREAMS * n; item += blockDim.x) {
    const u32 stream = item / n, j = item % n;
    i64 sum = 0;
    u32 t = first_of_stream(span, stream, INTEGER_STREAMS);
#pragma unroll 4
    for (; t < span.cached; t += INTEGER_STREAMS) sum += (i64)codes[t - span.first] * ((const i8 *)values.codes)[((u64)t * h.n_kv_heads + kv_head) * n + j];
    if (t == span.last) sum += (i64)codes[t - span.first] * (int)m.v[j];
    sums[item] = sum;
  }
  __syncthreads();
  for (u32 j = threadIdx.x; j < n; j += blockDim.x) {
    i64 sum = 0;
    for (u32 stream = 0; stream < INTEGER_STREAMS; stream++) sum += sums[stream * n + j];
    out[j] = mul((float)sum, worth);
  }
}

// Attention of the head whose query is in `m.q`. All threads are there.
DEVICE void attend_head(float *out, const HeadMemory &m, const Rows &keys, const Rows &values, u32 kv_head, const Span &span, const Heads &h) {
  if (h.kv == KV_Q8) {
    softmax(m, span, integer_scores(m, keys, kv_head, span, h));
    integer_mix(out, m, values, kv_head, span, h);
  } else if (h.kv == KV_F16) {
    softmax(m, span, float_scores<KV_F16>(m, keys, kv_head, span, h));
    float_mix<KV_F16>(out, m, values, kv_head, span, h);
  } else {
    softmax(m, span, float_scores<KV_F32>(m, keys, kv_head, span, h));
    float_mix<KV_F32>(out, m, values, kv_head, span, h);
  }
}
