// What the kernels of dormouse models share: which positions a launch works on, vectors made ready, matrices of a table. Layouts and the order of launches: README.md.
#pragma once
#include "input.h"

// The positions of a launch: the old ones before `limit`, which are computed again, and the `count` new ones from `first` on.
struct Positions {
  u32 limit, first, count;
};
DEVICE Positions positions_of(const u32 *state, const u32 *limit, u32 count) { return Positions{limit ? *limit : 0u, state[POSITION], count}; }
DEVICE u32 number_of(const Positions &all) { return all.limit + all.count; }
DEVICE u32 position_at(const Positions &all, u32 n) { return n < all.limit ? n : all.first + (n - all.limit); }

// The floats of a position, in the order of `place`.
DEVICE float *floats_of(const Vector &v, u32 position) { return v.floats + (u64)position * padded_length(v.cols); }

// The vector of a position, whose floats all threads of the block have written, as integers too if a matrix takes them. What the threads write is there for all of them.
DEVICE void make_ready(const Vector &v, u32 position) {
  __syncthreads();
  if (!v.floats || !v.integers) return;
  const u32 padded = padded_length(v.cols);
  const float worth = quantise(v.codes + (u64)position * (padded / 2u), v.sums + (u64)position * (padded / 8u), floats_of(v, position), v.cols);
  if (threadIdx.x == 0) v.scales[position] = worth;
}

DEVICE float norm_of(float sum, u32 n, float eps) { return div(1.0f, root(add(div(sum, (float)n), eps))); }

// Lanes added up by one thread.
DEVICE float tree_of(const float (&a)[8]) { return add(add(add(a[0], a[4]), add(a[2], a[6])), add(add(a[1], a[5]), add(a[3], a[7]))); }

// How many of `count` scores, `stride` apart, come before the one at `place`: the larger ones, and the same ones with a lower place.
DEVICE u32 rank_of(const float *scores, u64 stride, u32 count, u32 place) {
  const float own = scores[place * stride];
  u32 before = 0;
  for (u32 other = 0; other < count; other++) {
    const float score = scores[other * stride];
    before += score > own || (score == own && other < place);
  }
  return before;
}

// Scalars of a position, in one iteration: the gates of attention, memory and experts and the experts' scores as the controller gives them, the memory's fit, the iteration's score, the
// experts' weights.
enum { SCORES = 3 };
DEVICE u32 fit_place(const Loop &loop) { return SCORES + loop.n_experts; }
DEVICE u32 blend_place(const Loop &loop) { return fit_place(loop) + 2u; }
DEVICE u32 scalars_of(const Loop &loop) { return blend_place(loop) + loop.n_experts; }

// Numbers of a position for the recurrence: queries, keys, values, decays, gates (`width` each), steps (one a head).
DEVICE u32 width_of(const Loop &loop) { return loop.n_heads * loop.head_dim; }
DEVICE u32 kda_stride(const Loop &loop) { return 5u * width_of(loop) + loop.n_heads; }
