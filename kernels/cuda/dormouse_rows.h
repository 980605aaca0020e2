// Matrices of dormouse models: all products of a stage in one launch, eight threads a row, each matrix read once for up to `COLUMNS` positions.
#pragma once
#include "dormouse.h"

template <int C> DEVICE void job_row(const Job &job, const Matrix &m, u32 row, u32 first, u32 count, uint4 *partials) {
  const u64 padded = padded_length(m.cols), at = job.alone ? 0u : first;
  Input in = {job.in.floats + at * padded, nullptr, nullptr, nullptr, (u32)padded};
  if (job.in.integers) in.codes = job.in.codes + at * (padded / 2u), in.sums = job.in.sums + at * (padded / 8u), in.scales = job.in.scales + at;
  float y[C];
  row_times<C>(y, m, row, in);
  if ((threadIdx.x & 7u) != 0) return;
#pragma unroll
  for (u32 c = 0; c < C; c++) {
    if (c >= count) continue;
    float value = job.factor ? mul(y[c], job.factor[row]) : y[c];
    value = job.bias ? add(value, job.bias[row]) : value;
    value = job.active ? silu(value) : value;
    job.out[(u64)(first + c) * job.stride + (job.ordered ? place(row) : row)] = value;
    if (partials) partials[row] = uint4{pattern(value), row, (pattern(value) & 0x7f800000u) == 0x7f800000u, 0};
  }
}

// The jobs of a table for all positions: those from `skip` new ones on.
KERNEL(128, 2) dormouse_rows(const Job *jobs, u32 number, u32 rows, uint4 *partials, const u32 *state, const u32 *limit, u32 skip, u32 count) {
  const u32 row = blockIdx.x * (blockDim.x / 8u) + threadIdx.x / 8u;
  if (row >= rows) return;
  while (number > 1 && row >= jobs[1].first_row) jobs++, number--;
  const Job &job = *jobs;
  const Matrix m = job.m;
  const u32 own = row - job.first_row, old = limit ? *limit : 0u, old_groups = (old + COLUMNS - 1u) / COLUMNS, from = state[POSITION] + skip;
  const u32 groups = old_groups + (count + COLUMNS - 1u) / COLUMNS;
  for (u32 group = blockIdx.y; group < groups; group += gridDim.y) {
    const bool is_old = group < old_groups;
    const u32 offset = (is_old ? group : group - old_groups) * COLUMNS, left = (is_old ? old : count) - offset;
    const u32 first = is_old ? offset : from + offset;
    if (left == 1u) {
      job_row<1>(job, m, own, first, 1u, partials);
    } else {
      job_row<COLUMNS>(job, m, own, first, left, partials);
    }
  }
}

// Vectors whose floats came from rows, as integers too.
KERNEL(256, 4) dormouse_quantise(Vector v, const u32 *state, const u32 *limit, u32 count) {
  const Positions all = positions_of(state, limit, count);
  for (u32 n = blockIdx.x; n < number_of(all); n += gridDim.x) {
    make_ready(v, position_at(all, n));
    __syncthreads();
  }
}
