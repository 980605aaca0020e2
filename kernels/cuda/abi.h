// What the host hands to the kernels: `src/launch.rs` has the same, and the tests compare the two.
#pragma once

// Shared memory, as a GPU has it; what runs the kernels on a CPU defines these first.
#ifndef SHARED_ARRAY
#define SHARED_ARRAY(T, name, n) __shared__ T name[n]
#define DYN_SHARED(T, name) extern __shared__ __align__(16) unsigned char dynamic_shared_memory[]; T *name = (T *)dynamic_shared_memory
#endif

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define DEVICE __device__ __forceinline__
// The most threads of a block, and how many blocks a processor is to hold at least: the registers of a thread follow from it.
#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

enum { F32 = 0, F16 = 1, BF16 = 2, Q8 = 3, Q4 = 4, T2 = 5 };
enum { KV_F32 = 0, KV_F16 = 1, KV_Q8 = 2 };

// A packed matrix.
struct Matrix {
  const u8 *codes;       // rows of `stride` bytes
  const float *scales;   // q8, q4: one a row; t2: one
  const u8 *multipliers; // row x group; none where a row of q8 is one group
  const i16 *offsets;    // row x group of q4
  u32 rows, cols;
  u32 stride;
  u32 dtype;
  u32 groups; // in a row
  u32 units;  // of 8 elements in a group
};

// How heads and the cache lie.
struct Heads {
  u32 n_heads, n_kv_heads, head_dim;
  u32 halves; // rotated pairs: 0 (2i, 2i + 1), 1 (i, i + head_dim / 2)
  u32 window; // positions that attention looks back, the current one counted; 0: all
  u32 context;
  u32 kv;
  u32 shared_scores;
  u32 text_rows; // positions of all layers' keys and values: from a text's cache to the next one's
  float scale;   // 1 / sqrt(head_dim)
};

// A vector of each position, ready as the input of matrices; without floats: none.
struct Vector {
  float *floats; // position x padded_length(cols), in the order of `place`, zeros behind them
  int *codes;    // two of 16 bits each
  int *sums;     // of each unit of 8 codes
  float *scales; // one a position
  u32 cols;
  u32 integers; // whether a matrix takes codes
};

// A product of a matrix and a vector of each position, one of those that a launch of `dormouse_rows` does.
struct Job {
  Matrix m;
  Vector in;
  float *out;          // position x `stride`
  const float *factor; // one a row, or none: what the product is multiplied by
  const float *bias;   // one a row, or none: what is added then
  u32 first_row;       // among the rows of the launch
  u32 stride;
  u32 alone;   // the input is that of one position, whichever it is
  u32 ordered; // results lie in the order of `place`
  u32 active;  // whether silu is taken of them
  u32 unused;
};

// What does not change from one iteration of a dormouse model to the next.
struct Loop {
  u32 d_model, n_heads, head_dim, n_experts;
  u32 topk;    // experts that count; 0: all
  u32 context; // positions that everything has room for
  u32 attends; // whether there is a recurrence
  u32 recalls; // whether there is a memory
  u32 group;   // elements that share a scale where inputs are rounded
  float norm_eps, kda_scale, most_memory;
};

static_assert(sizeof(Vector) == 40 && sizeof(Job) == 144 && sizeof(Loop) == 48, "the sizes of src/launch.rs");
static_assert(sizeof(Matrix) == 56 && sizeof(Heads) == 40, "the sizes of src/launch.rs");

// Places in `state`.
enum { POSITION = 0, KNOWN = 1, NOT_FINITE_AT = 2, TEXT = 3 };
// The most positions of a block.
enum { COLUMNS = 8 };
