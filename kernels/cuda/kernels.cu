// The kernels: here those of a Llama-family decoder, included those of dormouse models. Which of them a step launches, and with what: src/plan and src/dormouse. Layouts: README.md.
//
// One source for nvcc and for a C++ compiler with what runs it on a CPU: no toolkit's headers, shared memory through the two macros of abi.h.
#include "dormouse_kda.h"
#include "dormouse_rows.h"
#include "dormouse_stream.h"
#include "input.h"
#include "long_attention.h"

// The row of the calling thread, eight threads a row.
DEVICE u32 own_row() { return blockIdx.x * (blockDim.x / 8u) + threadIdx.x / 8u; }

DEVICE float one_row(const Matrix &m, u32 r, const Input &in) {
  float y[1];
  row_times<1>(y, m, r, in);
  return y[0];
}

// One of two matrices, member by member, so that neither has to lie in memory.
DEVICE Matrix either(bool first, const Matrix &a, const Matrix &b) {
  return Matrix{first ? a.codes : b.codes, first ? a.scales : b.scales, first ? a.multipliers : b.multipliers, first ? a.offsets : b.offsets,
                first ? a.rows : b.rows, first ? a.cols : b.cols, first ? a.stride : b.stride, first ? a.dtype : b.dtype,
                first ? a.groups : b.groups, first ? a.units : b.units};
}

// x[b] = the embedding of the token of row b; without rows that of the token at the position.
KERNEL(256, 4) embed(float *x, Matrix table, const u32 *tokens, const u32 *state, const uint4 *rows) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
  if (i < table.cols) x[(u64)b * table.cols + i] = element(table, rows ? rows[b].x : tokens[state[POSITION]], i);
}

// qkv = the rows of all three matrices times the normed stream, and their biases.
KERNEL(256, 4) norm_qkv(float *qkv, const float *x, const float *gain, float eps, Matrix q, Matrix k, Matrix v, const float *bias) {
  DYN_SHARED(float, memory);
  const Input in = shared_input(memory, x, gain, eps, q.cols, takes_integers(q) || takes_integers(k) || takes_integers(v));
  const u32 row = own_row(), of_k = q.rows + k.rows;
  if (row >= of_k + v.rows) return;
  const Matrix m = either(row < q.rows, q, either(row < of_k, k, v));
  const float y = one_row(m, row < q.rows ? row : row < of_k ? row - q.rows : row - of_k, in);
  if ((threadIdx.x & 7u) == 0) qkv[row] = bias ? add(y, bias[row]) : y;
}

// One position: the query is rotated, key and value are rotated, narrowed and stored, and the head attends. The current key and value are not read back from the cache: another block stores them.
KERNEL(512, 2) rope_attend(float *attended, const float *qkv, void *keys, void *values, u16 *key_scales, u16 *value_scales, const float *cos, const float *sin,
                        float *scores, Heads h, const u32 *state) {
  DYN_SHARED(float, memory);
  const u32 head = blockIdx.x, group = h.n_heads / h.n_kv_heads, kv_head = head / group, position = state[POSITION], n = h.head_dim;
  const HeadMemory m = head_memory(memory, h, scores, head);
  const Rows key_rows = rows_of(keys, key_scales, state[TEXT], h), value_rows = rows_of(values, value_scales, state[TEXT], h);
  const float *angle_cos = cos + (u64)position * (n / 2u), *angle_sin = sin + (u64)position * (n / 2u);
  const float *k = qkv + (u64)h.n_heads * n + (u64)kv_head * n, *v = k + (u64)h.n_kv_heads * n;
  rotate(m.q, qkv + (u64)head * n, angle_cos, angle_sin, h);
  rotate(m.k, k, angle_cos, angle_sin, h);
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) m.v[i] = v[i];
  __syncthreads();
  const u64 at = (u64)position * h.n_kv_heads + kv_head;
  Span span = span_of(h, position, true);
  span.key_scale = keep(m.k, key_rows, at, head % group == 0, h);
  span.value_scale = keep(m.v, value_rows, at, head % group == 0, h);
  attend_head(attended + (u64)head * n, m, key_rows, value_rows, kv_head, span, h);
}

// x += the matrix times the input.
KERNEL(256, 4) project_add(float *x, const float *input, Matrix m) {
  DYN_SHARED(float, memory);
  const Input in = shared_input(memory, input, nullptr, 0.0f, m.cols, takes_integers(m));
  const u32 row = own_row();
  if (row >= m.rows) return;
  const float y = one_row(m, row, in);
  if ((threadIdx.x & 7u) == 0) x[row] = add(x[row], y);
}

// hidden = silu(gate times the normed stream) * (up times it).
KERNEL(256, 4) norm_gate_up(float *hidden, const float *x, const float *gain, float eps, Matrix gate, Matrix up) {
  DYN_SHARED(float, memory);
  const Input in = shared_input(memory, x, gain, eps, gate.cols, takes_integers(gate) || takes_integers(up));
  const u32 row = own_row();
  if (row >= gate.rows) return;
  // A loop, so that there is one copy of the rows' code.
  float g = 0.0f, u = 0.0f;
#pragma unroll 1
  for (u32 which = 0; which < 2; which++) {
    const float found = one_row(either(which == 0, gate, up), row, in);
    g = which == 0 ? found : g;
    u = found;
  }
  if ((threadIdx.x & 7u) == 0) hidden[row] = mul(silu(g), u);
}

DEVICE bool is_finite(float value) { return (pattern(value) & 0x7f800000u) != 0x7f800000u; }

// Whether (value, index) goes before (best, best_index): larger, or as large and lower.
DEVICE bool goes_before(float value, u32 index, float best, u32 best_index) { return value > best || (value == best && index < best_index); }

// The logits of the normed stream (of the prepared input where there is no gain), and of each block the best of them, its row and whether one was not finite.
KERNEL(256, 4) norm_head(float *logits, uint4 *partials, const float *x, const float *gain, float eps, Matrix m, const float *prepared, const int *codes, const int *sums,
                      const float *scales) {
  DYN_SHARED(float, memory);
  SHARED_ARRAY(float, best_of, 32);
  const Input in = gain ? shared_input(memory, x, gain, eps, m.cols, takes_integers(m)) : Input{prepared, codes, sums, scales, padded_length(m.cols)};
  const u32 row = own_row();
  if (row < m.rows) {
    const float y = one_row(m, row, in);
    if ((threadIdx.x & 7u) == 0) {
      logits[row] = y;
      best_of[threadIdx.x / 8u] = y;
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  const u32 rows = m.rows - row < blockDim.x / 8u ? m.rows - row : blockDim.x / 8u;
  u32 best = 0, not_finite = 0;
  for (u32 r = 0; r < rows; r++) {
    if (best_of[r] > best_of[best]) best = r;
    if (!is_finite(best_of[r])) not_finite = 1;
  }
  partials[blockIdx.x] = uint4{pattern(best_of[best]), row + best, not_finite, 0};
}

// The likeliest token, the lowest where several are: it becomes the next one, unless that is given, and the position goes on by one.
KERNEL(256, 4) choose(u32 *tokens, u32 *picks, u32 *state, const uint4 *partials, u32 count, u32 context) {
  SHARED_ARRAY(uint4, of_warp, 8);
  float best = -INFINITE;
  u32 index = 0xffffffffu, not_finite = 0;
  for (u32 p = threadIdx.x; p < count; p += blockDim.x) {
    const uint4 partial = partials[p];
    if (goes_before(bits(partial.x), partial.y, best, index)) best = bits(partial.x), index = partial.y;
    not_finite |= partial.z;
  }
#pragma unroll
  for (int far = 16; far > 0; far >>= 1) {
    const float other = __shfl_xor_sync(0xffffffffu, best, far);
    const u32 other_index = __shfl_xor_sync(0xffffffffu, index, far);
    not_finite |= __shfl_xor_sync(0xffffffffu, not_finite, far);
    if (goes_before(other, other_index, best, index)) best = other, index = other_index;
  }
  if ((threadIdx.x & 31u) == 0) of_warp[threadIdx.x / 32u] = uint4{pattern(best), index, not_finite, 0};
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (u32 warp = 1; warp < warps(); warp++) {
    const uint4 other = of_warp[warp];
    if (goes_before(bits(other.x), other.y, best, index)) best = bits(other.x), index = other.y;
    not_finite |= other.z;
  }
  const u32 position = state[POSITION];
  picks[position] = not_finite ? 0xffffffffu : index;
  if (not_finite && state[NOT_FINITE_AT] == 0) state[NOT_FINITE_AT] = position + 1u;
  // After logits that are no numbers any token would do; the host is told by the state.
  if (position + 1u < context && position + 1u >= state[KNOWN]) tokens[position + 1u] = not_finite ? 0u : index;
  state[POSITION] = position + 1u;
}

// One block a column: `input`, normed if there is a gain, ready for matrices in global memory.
KERNEL(256, 4) prepare(float *prepared, int *codes, int *sums, float *scales, const float *input, const float *gain, float eps, u32 cols, u32 integers) {
  SHARED_ARRAY(float, norm, 1);
  const u32 column = blockIdx.x, padded = padded_length(cols);
  const float *x = input + (u64)column * cols;
  float *floats = prepared + (u64)column * padded;
  if (gain) {
    if (threadIdx.x < 8u) {
      float sum = 0.0f;
#pragma unroll 8
      for (u32 i = threadIdx.x; i < cols; i += 8u) sum = add(sum, mul(x[i], x[i]));
      sum = norm_scale(sum, cols, eps);
      if (threadIdx.x == 0) norm[0] = sum;
    }
    __syncthreads();
  }
  for (u32 i = threadIdx.x; i < padded; i += blockDim.x) floats[place(i)] = i >= cols ? 0.0f : gain ? mul(mul(x[i], norm[0]), gain[i]) : x[i];
  __syncthreads();
  if (!integers) return;
  const float worth = quantise(codes + (u64)column * (padded / 2u), sums + (u64)column * (padded / 8u), floats, cols);
  if (threadIdx.x == 0) scales[column] = worth;
}

template <int C> DEVICE void project_columns(float *out, u32 stride, const Input &in, const Matrix &m, u32 row, const float *bias, u32 sum, u32 count) {
  float y[C];
  row_times<C>(y, m, row, in);
  if ((threadIdx.x & 7u) != 0) return;
#pragma unroll
  for (u32 c = 0; c < C; c++) {
    if (c >= count) continue;
    float *place = out + (u64)c * stride + row;
    const float with_bias = bias ? add(y[c], bias[row]) : y[c];
    *place = sum ? add(*place, with_bias) : with_bias;
  }
}

// Each column of `out`, `stride` apart, = (or +=) the matrix times a prepared input, and the bias.
KERNEL(256, 2) batch_project(float *out, u32 stride, const float *prepared, const int *codes, const int *sums, const float *scales, Matrix m, const float *bias, u32 sum,
                          u32 count) {
  const u32 row = own_row();
  if (row >= m.rows) return;
  const Input in = {prepared, codes, sums, scales, padded_length(m.cols)};
  if (count == 1) {
    project_columns<1>(out, stride, in, m, row, bias, sum, count);
  } else {
    project_columns<COLUMNS>(out, stride, in, m, row, bias, sum, count);
  }
}

// gate = silu(gate) * up.
KERNEL(256, 4) batch_gate(float *gate, const float *up, u32 count) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) gate[i] = mul(silu(gate[i]), up[i]);
}

// Several columns: queries are rotated where they are, keys rotated and stored, values stored. One block a head.
KERNEL(64, 16) rope_append(float *qkv, void *keys, void *values, u16 *key_scales, u16 *value_scales, const float *cos, const float *sin, Heads h, const u32 *state,
                           const uint4 *rows) {
  DYN_SHARED(float, memory);
  const Column column = column_of(state, rows, blockIdx.y);
  const u32 position = column.position, n = h.head_dim;
  const u32 kv_head = (blockIdx.x - h.n_heads) % h.n_kv_heads;
  float *own = qkv + ((u64)blockIdx.y * gridDim.x + blockIdx.x) * n;
  const float *angle_cos = cos + (u64)position * (n / 2u), *angle_sin = sin + (u64)position * (n / 2u);
  const u64 at = (u64)position * h.n_kv_heads + kv_head;
  if (blockIdx.x < h.n_heads) {
    rotate(own, own, angle_cos, angle_sin, h);
  } else if (blockIdx.x < h.n_heads + h.n_kv_heads) {
    rotate(memory, own, angle_cos, angle_sin, h);
    __syncthreads();
    keep(memory, rows_of(keys, key_scales, column.text, h), at, true, h);
  } else {
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) memory[i] = own[i];
    __syncthreads();
    keep(memory, rows_of(values, value_scales, column.text, h), at, true, h);
  }
}

// Several columns, whose keys and values are stored: one block a query head and column.
KERNEL(512, 2) attend(float *attended, const float *qkv, void *keys, void *values, u16 *key_scales, u16 *value_scales, float *scores, Heads h, const u32 *state,
                      const uint4 *rows) {
  DYN_SHARED(float, memory);
  const u32 head = blockIdx.x, n = h.head_dim, kv_head = head / (h.n_heads / h.n_kv_heads);
  const HeadMemory m = head_memory(memory, h, scores, blockIdx.y * h.n_heads + head);
  const float *q = qkv + ((u64)blockIdx.y * (h.n_heads + 2u * h.n_kv_heads) + head) * n;
  for (u32 i = threadIdx.x; i < n; i += blockDim.x) m.q[i] = q[i];
  __syncthreads();
  const Column column = column_of(state, rows, blockIdx.y);
  const Span span = span_of(h, column.position, false);
  attend_head(attended + ((u64)blockIdx.y * h.n_heads + head) * n, m, rows_of(keys, key_scales, column.text, h), rows_of(values, value_scales, column.text, h), kv_head,
              span, h);
}
