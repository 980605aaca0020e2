// A row of a packed matrix times one or several inputs: runtime/src/ops/sum.rs (`dot_stored`) and integer.rs (`rows`, `matvec_t2`), eight threads a row.
#pragma once
#include "arithmetic.h"

// Inputs of matrices, one a column, ready for them: in shared or in global memory.
struct Input {
  const float *floats; // in the order of `place`, zeros behind them
  const int *codes;    // two of 16 bits each
  const int *sums;     // of each unit of 8 codes
  const float *scales; // one a column
  u32 padded;          // elements from one column to the next
};

// Inputs are padded with zeros to whole runs of every type.
DEVICE u32 padded_length(u32 cols) { return (cols + 127u) & ~127u; }

// Where element i of an input lies: lane l's elements l, l + 8, l + 16 and l + 24 of a run of 32 are side by side.
DEVICE u32 place(u32 i) { return (i & ~31u) | (i & 7u) << 2 | ((i >> 3) & 3u); }

DEVICE bool takes_integers(const Matrix &m) { return m.dtype == Q8 || m.dtype == Q4; }

DEVICE uint4 read16(const u8 *at) { return __ldg((const uint4 *)at); }

template <int C> DEVICE void add_products(float (&sum)[C], float w0, float w1, float w2, float w3, const Input &in, u32 four) {
#pragma unroll
  for (int c = 0; c < C; c++) {
    const float4 x = ((const float4 *)(in.floats + (u64)c * in.padded))[four];
    sum[c] = add(sum[c], mul(w0, x.x));
    sum[c] = add(sum[c], mul(w1, x.y));
    sum[c] = add(sum[c], mul(w2, x.z));
    sum[c] = add(sum[c], mul(w3, x.w));
  }
}

DEVICE float half_of(u32 dtype, u32 half) { return dtype == F16 ? widen_f16(half) : widen_bf16(half); }

template <int C> DEVICE void f32_row(float (&sum)[C], const u8 *row, u32 stride, u32 lane, const Input &in) {
  const u32 runs = stride / 128u;
#pragma unroll (C == 1 ? 4 : 1)
  for (u32 run = 0; run < runs; run++) {
    const u32 four = run * 8u + lane;
    const uint4 w = read16(row + four * 16u);
    add_products<C>(sum, bits(w.x), bits(w.y), bits(w.z), bits(w.w), in, four);
  }
}

template <int C, u32 TYPE> DEVICE void half_row(float (&sum)[C], const u8 *row, u32 stride, u32 lane, const Input &in) {
  const u32 runs = stride / 128u;
#pragma unroll (C == 1 ? 4 : 1)
  for (u32 run = 0; run < runs; run++) {
    const uint4 w = read16(row + (run * 8u + lane) * 16u);
    const u32 four = run * 16u + lane;
    add_products<C>(sum, half_of(TYPE, w.x & 0xffffu), half_of(TYPE, w.x >> 16), half_of(TYPE, w.y & 0xffffu), half_of(TYPE, w.y >> 16), in, four);
    add_products<C>(sum, half_of(TYPE, w.z & 0xffffu), half_of(TYPE, w.z >> 16), half_of(TYPE, w.w & 0xffffu), half_of(TYPE, w.w >> 16), in, four + 8u);
  }
}

// 1 for code 1, -1 for code 2, else 0.
DEVICE float ternary(u32 code) { return (float)((int)(code & 1u) - (int)(code >> 1 & 1u)); }

template <int C> DEVICE void t2_row(float (&sum)[C], const u8 *row, u32 stride, u32 lane, const Input &in) {
  const u32 runs = stride / 32u;
  for (u32 run = 0; run < runs; run++) {
    u32 w = __ldg((const u32 *)row + run * 8u + lane);
#pragma unroll (C == 1 ? 4 : 1)
    for (u32 part = 0; part < 4; part++, w >>= 8)
      add_products<C>(sum, ternary(w), ternary(w >> 2), ternary(w >> 4), ternary(w >> 6), in, (run * 4u + part) * 8u + lane);
  }
}

// The products of a unit of 8 codes, 4 in each word.
DEVICE int unit_products(u32 first, u32 second, const int *x) {
  int sum = __dp2a_lo(x[0], (int)first, 0);
  sum = __dp2a_hi(x[1], (int)first, sum);
  sum = __dp2a_lo(x[2], (int)second, sum);
  return __dp2a_hi(x[3], (int)second, sum);
}

// In which group a unit is. A quotient by the upper half of a product: exact, for a row has at most 8192 units.
struct Groups {
  u32 last, units, reciprocal;
};
DEVICE Groups groups_of(const Matrix &m) { return Groups{m.groups - 1u, m.units, 0xffffffffu / m.units + 1u}; }
DEVICE u32 group_of(const Groups &groups, u32 unit) {
  const u32 group = groups.units == 1u ? unit : __umulhi(unit, groups.reciprocal);
  return group < groups.last ? group : groups.last; // what pads the row is behind the last
}

template <int C> DEVICE void q8_row(i64 (&sum)[C], const Matrix &m, u32 r, u32 lane, const Input &in) {
  const u8 *row = m.codes + (u64)r * m.stride, *multipliers = m.multipliers + (u64)r * m.groups;
  const Groups groups = groups_of(m);
#pragma unroll (C == 1 ? 2 : 1)
  for (u32 run = lane; run < m.stride / 16u; run += 8u) {
    const uint4 w = read16(row + run * 16u);
    int low = 1, high = 1;
    if (m.multipliers) low = __ldg(multipliers + group_of(groups, run * 2u)), high = __ldg(multipliers + group_of(groups, run * 2u + 1u));
#pragma unroll
    for (int c = 0; c < C; c++) {
      const int *x = in.codes + ((u64)c * in.padded + run * 16u) / 2u;
      sum[c] += (i64)unit_products(w.x, w.y, x) * low;
      sum[c] += (i64)unit_products(w.z, w.w, x + 4) * high;
    }
  }
}

template <int C> DEVICE void q4_row(i64 (&sum)[C], const Matrix &m, u32 r, u32 lane, const Input &in) {
  const u8 *row = m.codes + (u64)r * m.stride, *multipliers = m.multipliers + (u64)r * m.groups;
  const i16 *offsets = m.offsets + (u64)r * m.groups;
  const Groups groups = groups_of(m);
  for (u32 run = lane; run < m.stride / 16u; run += 8u) {
    const uint4 all = read16(row + run * 16u);
#pragma unroll (C == 1 ? 4 : 1)
    for (u32 n = 0; n < 4; n++) {
      const u32 word = n < 2 ? (n == 0 ? all.x : all.y) : (n == 2 ? all.z : all.w);
      const u32 unit = run * 4u + n, group = group_of(groups, unit);
      const int multiplier = __ldg(multipliers + group), offset = __ldg(offsets + group);
      const u32 low = word & 0x0f0f0f0fu, high = word >> 4 & 0x0f0f0f0fu;
#pragma unroll
      for (int c = 0; c < C; c++) {
        const u64 at = (u64)c * in.padded / 8u + unit;
        sum[c] += (i64)unit_products(low, high, in.codes + at * 4u) * multiplier;
        sum[c] += (i64)in.sums[at] * offset;
      }
    }
  }
}

// Row r times each input, without a bias: the same result in all eight threads of the row, which must be there together.
template <int C> DEVICE void row_times(float (&y)[C], const Matrix &m, u32 r, const Input &in) {
  const u32 lane = threadIdx.x & 7u, mask = row_mask();
  if (takes_integers(m)) {
    i64 sum[C];
#pragma unroll
    for (int c = 0; c < C; c++) sum[c] = 0;
    if (m.dtype == Q8) {
      q8_row<C>(sum, m, r, lane, in);
    } else {
      q4_row<C>(sum, m, r, lane, in);
    }
    const float scale = __ldg(m.scales + r);
#pragma unroll
    for (int c = 0; c < C; c++) y[c] = mul((float)total(mask, sum[c]), mul(scale, in.scales[c]));
    return;
  }
  const u8 *row = m.codes + (u64)r * m.stride;
#pragma unroll
  for (int c = 0; c < C; c++) y[c] = 0.0f;
  switch (m.dtype) {
  case F32: f32_row<C>(y, row, m.stride, lane, in); break;
  case F16: half_row<C, F16>(y, row, m.stride, lane, in); break;
  case BF16: half_row<C, BF16>(y, row, m.stride, lane, in); break;
  default: t2_row<C>(y, row, m.stride, lane, in); break;
  }
  const float scale = m.dtype == T2 ? __ldg(m.scales) : 1.0f;
#pragma unroll
  for (int c = 0; c < C; c++) {
    y[c] = tree(mask, y[c]);
    if (m.dtype == T2) y[c] = mul(scale, y[c]);
  }
}

// Element i of row r, widened.
DEVICE float element(const Matrix &m, u32 r, u32 i) {
  const u8 *row = m.codes + (u64)r * m.stride;
  const u32 group = m.dtype == Q8 || m.dtype == Q4 ? r * m.groups + i / 8u / m.units : 0;
  switch (m.dtype) {
  case F32: return ((const float *)row)[place(i)];
  case F16:
  case BF16: {
    const u32 half = ((const u16 *)row)[(i & ~63u) | (i & 7u) << 3 | ((i >> 3) & 7u)];
    return half_of(m.dtype, half);
  }
  case Q8: return mul((float)((int)((const i8 *)row)[i] * (m.multipliers ? (int)m.multipliers[group] : 1)), m.scales[r]);
  case Q4: {
    const int code = row[i / 8u * 4u + i % 4u] >> (i / 4u % 2u * 4u) & 15;
    return mul((float)(code * (int)m.multipliers[group] + (int)m.offsets[group]), m.scales[r]);
  }
  default: {
    const u32 word = ((const u32 *)row)[i / 128u * 8u + i % 8u];
    return mul(ternary(word >> (i % 128u / 8u * 2u)), m.scales[0]);
  }
  }
}
