//! Kernels, their arguments, and a launch of one. `cuda/abi.h` has the same on the side of CUDA; the tests compare the two.

/// One of the kernels in `cuda/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Rows of the embedding become the residual streams.
    Embed,
    /// Norm, then queries, keys and values with their biases, of one position.
    NormQkv,
    /// Rotation, storing of key and value, attention, of one position.
    RopeAttend,
    /// A matrix times a vector, added to the residual stream.
    ProjectAdd,
    /// Norm, then gate and up projection and the activation.
    NormGateUp,
    /// Norm, then logits, and the best of each block of threads.
    NormHead,
    /// The best logit of all becomes the next token, and the position goes on.
    Choose,
    /// Vectors made ready as inputs of matrices: normed, re-ordered, quantised.
    Prepare,
    /// A matrix times several prepared vectors.
    BatchProject,
    /// `silu(gate) * up` of several positions.
    BatchGate,
    /// Rotation and storing of several positions.
    RopeAppend,
    /// Attention of several positions whose keys and values are stored.
    Attend,
    /// Scores of attention over many positions, and the largest of each part of them.
    AttendScores,
    /// Those scores become weights.
    AttendWeights,
    /// Values times those weights.
    AttendMix,
    /// dormouse: embeddings and rows of the memory of new positions.
    DormouseBegin,
    /// dormouse: all products of a stage, of a table of [`Job`]s.
    DormouseRows,
    /// dormouse: results of products as integers, for the next ones.
    DormouseQuantise,
    /// dormouse: what an iteration reads of the stream.
    DormouseRead,
    /// dormouse: inputs of the recurrence, and the results of memory and experts.
    DormouseMix,
    /// dormouse: the recurrence.
    DormouseRecur,
    /// dormouse: the recurrence's results, normed and gated.
    DormouseGate,
    /// dormouse: the stream after an iteration.
    DormouseWrite,
    /// dormouse: the mean of the iterations' results, normed.
    DormouseMean,
}

impl Kernel {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::Embed,
        Self::NormQkv,
        Self::RopeAttend,
        Self::ProjectAdd,
        Self::NormGateUp,
        Self::NormHead,
        Self::Choose,
        Self::Prepare,
        Self::BatchProject,
        Self::BatchGate,
        Self::RopeAppend,
        Self::Attend,
        Self::AttendScores,
        Self::AttendWeights,
        Self::AttendMix,
        Self::DormouseBegin,
        Self::DormouseRows,
        Self::DormouseQuantise,
        Self::DormouseRead,
        Self::DormouseMix,
        Self::DormouseRecur,
        Self::DormouseGate,
        Self::DormouseWrite,
        Self::DormouseMean,
    ];

    /// The entry's name in the PTX.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::NormQkv => "norm_qkv",
            Self::RopeAttend => "rope_attend",
            Self::ProjectAdd => "project_add",
            Self::NormGateUp => "norm_gate_up",
            Self::NormHead => "norm_head",
            Self::Choose => "choose",
            Self::Prepare => "prepare",
            Self::BatchProject => "batch_project",
            Self::BatchGate => "batch_gate",
            Self::RopeAppend => "rope_append",
            Self::Attend => "attend",
            Self::AttendScores => "attend_scores",
            Self::AttendWeights => "attend_weights",
            Self::AttendMix => "attend_mix",
            Self::DormouseBegin => "dormouse_begin",
            Self::DormouseRows => "dormouse_rows",
            Self::DormouseQuantise => "dormouse_quantise",
            Self::DormouseRead => "dormouse_read",
            Self::DormouseMix => "dormouse_mix",
            Self::DormouseRecur => "dormouse_recur",
            Self::DormouseGate => "dormouse_gate",
            Self::DormouseWrite => "dormouse_write",
            Self::DormouseMean => "dormouse_mean",
        }
    }
}

/// A packed matrix on the device: `struct Matrix` of `cuda/abi.h`. Addresses are 0 for planes that the type does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    /// The codes (or floats), row after row.
    pub codes: u64,
    /// `f32`: one a row of q8 and q4, one alone for t2.
    pub scales: u64,
    /// `u8`, row x group.
    pub multipliers: u64,
    /// `i16`, row x group.
    pub offsets: u64,
    /// Rows.
    pub rows: u32,
    /// Columns.
    pub cols: u32,
    /// Bytes from one row of codes to the next.
    pub stride: u32,
    /// [`DType::code`](dmexp_format::DType::code).
    pub dtype: u32,
    /// Groups in a row.
    pub groups: u32,
    /// Units of 8 elements in a group.
    pub units: u32,
}

/// How heads and the cache lie: `struct Heads` of `cuda/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heads {
    /// Query heads.
    pub n_heads: u32,
    /// Key/value heads.
    pub n_kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// 0: pairs (2i, 2i + 1) are rotated; 1: pairs (i, i + `head_dim` / 2).
    pub halves: u32,
    /// Positions that attention looks back, the current one counted; 0: all.
    pub window: u32,
    /// Positions of the cache.
    pub context: u32,
    /// 0: f32, 1: f16, 2: q8.
    pub kv: u32,
    /// Whether scores lie in shared memory.
    pub shared_scores: u32,
    /// Positions of all layers' keys and values: from the cache of one text to that of the next.
    pub text_rows: u32,
    /// `1 / sqrt(head_dim)`.
    pub scale: f32,
}

/// A vector of each position, ready as the input of matrices: `struct Vector` of `cuda/abi.h`. Addresses are 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vector {
    /// `f32`: position x elements, padded and re-ordered.
    pub floats: u64,
    /// `i16`: the same in their own order, where a matrix takes integers.
    pub codes: u64,
    /// `i32`: of each unit of 8 codes.
    pub sums: u64,
    /// `f32`: one a position.
    pub scales: u64,
    /// Elements.
    pub cols: u32,
    /// Whether a matrix takes integers.
    pub integers: u32,
}

/// What does not change from one iteration of a dormouse model to the next: `struct Loop` of `cuda/abi.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loop {
    /// Width of the stream.
    pub d_model: u32,
    /// Heads.
    pub n_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Experts.
    pub n_experts: u32,
    /// Experts that count; 0: all.
    pub topk: u32,
    /// Positions that everything has room for.
    pub context: u32,
    /// Whether there is a recurrence.
    pub attends: u32,
    /// Whether there is a memory.
    pub recalls: u32,
    /// Elements that share a scale where inputs are rounded.
    pub group: u32,
    /// Under the root of the norms.
    pub norm_eps: f32,
    /// What the recurrence's results are multiplied by.
    pub kda_scale: f32,
    /// The most that the memory weighs.
    pub most_memory: f32,
}

/// A product of a matrix and a vector of each position: `struct Job` of `cuda/abi.h`, which lies in the device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The matrix.
    pub matrix: Matrix,
    /// What it is multiplied with.
    pub input: Vector,
    /// `f32`: position x `stride`.
    pub out: u64,
    /// `f32`, one a row, or 0: what the product is multiplied by.
    pub factor: u64,
    /// `f32`, one a row, or 0: what is added then.
    pub bias: u64,
    /// The number of the first row among those of the launch.
    pub first_row: u32,
    /// Floats from one position's results to the next one's.
    pub stride: u32,
    /// Whether the input is that of one position, whichever it is.
    pub alone: bool,
    /// Whether results lie re-ordered, as an input.
    pub ordered: bool,
    /// Whether silu is taken of them.
    pub active: bool,
}

impl Job {
    /// Bytes of a job in the device's memory.
    pub const LEN: usize = 144;

    /// Appends it to a table.
    pub fn write(&self, table: &mut Vec<u8>) {
        let words = Arg::Matrix(self.matrix).words().into_iter().chain(Arg::Vector(self.input).words().into_iter().take(5));
        let flags = [self.alone, self.ordered, self.active].map(u32::from);
        let more = [self.out, self.factor, self.bias, pair(self.first_row, self.stride), pair(flags[0], flags[1]), pair(flags[2], 0)];
        table.extend(words.chain(more).flat_map(u64::to_le_bytes));
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A device address, or 0.
    Pointer(u64),
    /// An unsigned number.
    U32(u32),
    /// A float.
    F32(f32),
    /// A matrix, by value.
    Matrix(Matrix),
    /// Heads, by value.
    Heads(Heads),
    /// A vector of each position, by value.
    Vector(Vector),
    /// A dormouse model's loop, by value.
    Loop(Loop),
}

/// The most words that an argument takes.
pub const ARG_WORDS: usize = 7;

impl Arg {
    /// Bytes of the argument.
    pub const fn len(&self) -> usize {
        match self {
            Self::Pointer(_) => 8,
            Self::U32(_) | Self::F32(_) => 4,
            Self::Matrix(_) => 56,
            Self::Heads(_) | Self::Vector(_) => 40,
            Self::Loop(_) => 48,
        }
    }

    /// Never: every argument has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The argument as it lies in memory, little-endian: the first [`Arg::len`] bytes of these words.
    pub const fn words(&self) -> [u64; ARG_WORDS] {
        match self {
            Self::Pointer(address) => [*address, 0, 0, 0, 0, 0, 0],
            Self::U32(number) => [*number as u64, 0, 0, 0, 0, 0, 0],
            Self::F32(number) => [number.to_bits() as u64, 0, 0, 0, 0, 0, 0],
            Self::Matrix(m) => {
                [m.codes, m.scales, m.multipliers, m.offsets, pair(m.rows, m.cols), pair(m.stride, m.dtype), pair(m.groups, m.units)]
            }
            Self::Heads(h) => [
                pair(h.n_heads, h.n_kv_heads),
                pair(h.head_dim, h.halves),
                pair(h.window, h.context),
                pair(h.kv, h.shared_scores),
                pair(h.text_rows, h.scale.to_bits()),
                0,
                0,
            ],
            Self::Vector(v) => [v.floats, v.codes, v.sums, v.scales, pair(v.cols, v.integers), 0, 0],
            Self::Loop(l) => [
                pair(l.d_model, l.n_heads),
                pair(l.head_dim, l.n_experts),
                pair(l.topk, l.context),
                pair(l.attends, l.recalls),
                pair(l.group, l.norm_eps.to_bits()),
                pair(l.kda_scale.to_bits(), l.most_memory.to_bits()),
                0,
            ],
        }
    }
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// A kernel, how many threads of it, and what they are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Which kernel.
    pub kernel: Kernel,
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block, in one direction.
    pub block: u32,
    /// Bytes of dynamic shared memory a block.
    pub shared: u32,
    /// In the kernel's order.
    pub args: Vec<Arg>,
}
