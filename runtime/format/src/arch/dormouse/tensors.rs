//! The tensors that a configuration calls for, in the order in which dormouse declares them. Heads that only train (`aux.*`) are not among them.
//!
//! A tensor is known by a number, so that a reader without a heap keeps one word a tensor to find it by.

use super::{Attention, DormouseConfig, Residual, padded};
use crate::Dims;

/// Where a projection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The first half of an expert: `d_model` to `d_ffn`, or to twice as many with `use_situ`.
    GateUp(u32),
    /// The second half of an expert: `d_ffn` to `d_model`.
    Down(u32),
    /// What an iteration gives to the mean: `d_model` to `d_model`.
    OutProj,
    /// The classifier: `d_model` to `vocab`.
    LmHead,
    /// Gated residual, down: 4 `d_model` to its inner width.
    GrDown,
    /// Gated residual, up: the inner width to 4 `d_model`.
    GrUp,
    /// Gated residual, write: 4 `d_model` to 4.
    GrWrite,
    /// Plain attention: queries (0), keys (1), values (2), output (3).
    Plain(u32),
}

/// Which of a model's tensors, by what it is for. Dims as in format 1; those marked (in, out) are stored (out, in) in format 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Bytes, (`vocab`, `d_model`).
    Embedding,
    /// Gates of the three arms and weights of the experts, (in, out).
    Controller,
    /// Queries, keys, values (0, 1, 2) of the recurrence, (in, out).
    Qkv(u32),
    /// Decay, first half, (in, out).
    DecayUp,
    /// Decay, second half, (in, out).
    DecayDown,
    /// Bias of the decay, one a channel.
    DecayBias,
    /// Logarithm of the decay's factor, (`n_heads`, 1).
    DecayLog,
    /// Step size, one a head, (in, out).
    Beta,
    /// Gate of the results, (in, out).
    OGate,
    /// Gain of the results, one a channel of a head.
    ONorm,
    /// Output projection, (in, out).
    OProj,
    /// A part of a projection: see [`Part`].
    Linear(Layer, Part),
    /// The three tables of the memory, one after the other.
    Memory,
    /// Key of the memory, (in, out).
    MemoryKey,
    /// Value of the memory, (in, out).
    MemoryValue,
    /// What stands in for the memory, (in, out).
    MemDense,
    /// Gain of the loop's norm.
    LoopNorm,
    /// Gated residual: gain of a branch.
    GrNorm(u32),
    /// Attention over results: the query of an iteration.
    AttnResQuery(u32),
    /// Attention over results: the gain of an iteration's query.
    AttnResGain(u32),
    /// Streams: one of `phi_pre`, `phi_post`, `phi_res`, `alpha_pre`, `alpha_post`, `alpha_res`, `b_pre`, `b_post`, `b_res` (0 to 8).
    Mhc(u32),
    /// What is added before each iteration, (`max_iter`, `d_model`).
    IterEmbed,
    /// The factor of every result.
    ResidualScale,
    /// Scores of iterations: weight (0) and bias (1).
    MorRouter(u32),
    /// Gain of the last norm.
    Norm,
}

/// A part of a projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Ternary, first factor, (in, out): inputs by rank.
    U,
    /// Ternary: a factor a rank.
    S,
    /// Ternary, second factor: outputs by rank.
    V,
    /// Dense, (in, out).
    Weight,
    /// Dense: one an output.
    Bias,
}

/// How a tensor is used, and so how it may be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Single numbers, always f32 in format 2.
    Plain,
    /// A row at a time is read.
    Table,
    /// A matrix with its inputs first in format 1 and last in format 2.
    InputFirst,
    /// A ternary factor with its inputs first in format 1 and last in format 2; codes in format 2.
    FactorFirst,
    /// A ternary factor with its inputs last; codes in format 2.
    FactorLast,
}

impl Form {
    /// Whether format 2 stores the array the other way round.
    pub const fn is_turned(self) -> bool {
        matches!(self, Self::InputFirst | Self::FactorFirst)
    }

    /// Whether it is a ternary factor.
    pub const fn is_factor(self) -> bool {
        matches!(self, Self::FactorFirst | Self::FactorLast)
    }
}

/// A tensor that the configuration calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// What it is for.
    pub role: Role,
    /// Its dims as in format 1.
    pub dims: Dims,
    /// How it is used.
    pub form: Form,
    /// Whether inference reads it: an arm that is off has its tensors all the same.
    pub is_read: bool,
}

/// Tensors of the recurrence.
const KDA: u32 = 11;
const FIRST_EXPERT: u32 = 2 + KDA;

impl DormouseConfig {
    const fn parts(&self) -> u32 {
        if self.use_tsct { 3 } else { 2 }
    }

    const fn after_experts(&self) -> u32 {
        FIRST_EXPERT + 2 * self.n_experts.wrapping_mul(self.parts())
    }

    const fn first_residual(&self) -> u32 {
        self.after_experts() + 5
    }

    const fn attnres_parts(&self) -> u32 {
        if self.attnres_gain { 2 } else { 1 }
    }

    const fn after_residual(&self) -> u32 {
        self.first_residual()
            + match self.residual {
                Residual::ReZero => 0,
                Residual::Gr => 4 + 3 * 3,
                Residual::AttnRes => self.max_iter * self.attnres_parts(),
                Residual::Mhc => 9,
            }
    }

    const fn first_router(&self) -> u32 {
        self.after_residual() + 2 + self.parts()
    }

    const fn last_norm(&self) -> u32 {
        self.first_router() + 2 + if matches!(self.attention, Attention::Plain) { 8 } else { 0 }
    }

    /// How many tensors the configuration calls for, read or not.
    pub const fn num_tensors(&self) -> u32 {
        self.last_norm() + 1 + self.parts()
    }

    /// The number of a tensor that the configuration calls for.
    pub const fn tensor_number(&self, role: Role) -> u32 {
        match role {
            Role::Embedding => 0,
            Role::Controller => 1,
            Role::Qkv(which) => 2 + which,
            Role::DecayUp => 5,
            Role::DecayDown => 6,
            Role::DecayBias => 7,
            Role::DecayLog => 8,
            Role::Beta => 9,
            Role::OGate => 10,
            Role::ONorm => 11,
            Role::OProj => 12,
            Role::Linear(layer, part) => self.first_of(layer).wrapping_add(match part {
                Part::U | Part::Weight => 0,
                Part::S | Part::Bias => 1,
                Part::V => 2,
            }),
            Role::Memory => self.after_experts(),
            Role::MemoryKey => self.after_experts() + 1,
            Role::MemoryValue => self.after_experts() + 2,
            Role::MemDense => self.after_experts() + 3,
            Role::LoopNorm => self.after_experts() + 4,
            Role::GrNorm(which) | Role::Mhc(which) => self.first_residual().wrapping_add(which),
            Role::AttnResQuery(n) => self.first_residual().wrapping_add(n.wrapping_mul(self.attnres_parts())),
            Role::AttnResGain(n) => self.first_residual().wrapping_add(n.wrapping_mul(self.attnres_parts())).wrapping_add(1),
            Role::IterEmbed => self.after_residual(),
            Role::ResidualScale => self.after_residual() + 1,
            Role::MorRouter(which) => self.first_router().wrapping_add(which),
            Role::Norm => self.last_norm(),
        }
    }

    const fn first_of(&self, layer: Layer) -> u32 {
        let parts = self.parts();
        match layer {
            Layer::GateUp(expert) => expert.wrapping_mul(2).wrapping_mul(parts).wrapping_add(FIRST_EXPERT),
            Layer::Down(expert) => expert.wrapping_mul(2).wrapping_add(1).wrapping_mul(parts).wrapping_add(FIRST_EXPERT),
            Layer::OutProj => self.after_residual() + 2,
            Layer::LmHead => self.last_norm() + 1,
            Layer::GrDown => self.first_residual() + 4,
            Layer::GrUp => self.first_residual() + 7,
            Layer::GrWrite => self.first_residual() + 10,
            Layer::Plain(which) => which.wrapping_mul(2).wrapping_add(self.first_router() + 2),
        }
    }

    /// What the tensor of this number is for; `None` past the last.
    pub const fn role(&self, number: u32) -> Option<Role> {
        let experts = self.after_experts();
        Some(match number {
            0 => Role::Embedding,
            1 => Role::Controller,
            2..=4 => Role::Qkv(number - 2),
            5 => Role::DecayUp,
            6 => Role::DecayDown,
            7 => Role::DecayBias,
            8 => Role::DecayLog,
            9 => Role::Beta,
            10 => Role::OGate,
            11 => Role::ONorm,
            12 => Role::OProj,
            _ if number < experts => {
                let place = number - FIRST_EXPERT;
                let (Some(layer), Some(part)) = (place.checked_div(self.parts()), place.checked_rem(self.parts())) else { return None };
                self.part(if layer & 1 == 0 { Layer::GateUp(layer / 2) } else { Layer::Down(layer / 2) }, part)
            }
            _ if number < self.first_residual() => match number - experts {
                0 => Role::Memory,
                1 => Role::MemoryKey,
                2 => Role::MemoryValue,
                3 => Role::MemDense,
                _ => Role::LoopNorm,
            },
            _ if number < self.after_residual() => self.residual_role(number - self.first_residual()),
            _ if number < self.first_router() => match number - self.after_residual() {
                0 => Role::IterEmbed,
                1 => Role::ResidualScale,
                place => self.part(Layer::OutProj, place - 2),
            },
            _ if number < self.last_norm() => match number - self.first_router() {
                which @ 0..=1 => Role::MorRouter(which),
                place => {
                    let part = if place & 1 == 0 { Part::Weight } else { Part::Bias };
                    Role::Linear(Layer::Plain((place - 2) / 2), part)
                }
            },
            _ if number == self.last_norm() => Role::Norm,
            _ if number < self.num_tensors() => self.part(Layer::LmHead, number - self.last_norm() - 1),
            _ => return None,
        })
    }

    const fn residual_role(&self, place: u32) -> Role {
        match self.residual {
            Residual::Gr => match place {
                0..=3 => Role::GrNorm(place),
                4..=6 => Role::Linear(Layer::GrDown, ternary_part(place - 4)),
                7..=9 => Role::Linear(Layer::GrUp, ternary_part(place - 7)),
                _ => Role::Linear(Layer::GrWrite, ternary_part(place.wrapping_sub(10))),
            },
            Residual::AttnRes if !self.attnres_gain => Role::AttnResQuery(place),
            Residual::AttnRes if place & 1 == 0 => Role::AttnResQuery(place / 2),
            Residual::AttnRes => Role::AttnResGain(place / 2),
            Residual::ReZero | Residual::Mhc => Role::Mhc(place),
        }
    }

    const fn part(&self, layer: Layer, place: u32) -> Role {
        let part = match place {
            _ if self.use_tsct => ternary_part(place),
            0 => Part::Weight,
            _ => Part::Bias,
        };
        Role::Linear(layer, part)
    }

    /// Inputs and outputs of a projection.
    pub const fn sizes(&self, layer: Layer) -> (u64, u64) {
        let (d, ffn) = (self.d_model as u64, self.d_ffn as u64);
        let inner = if d / 8 > 4 { d / 8 } else { 4 };
        match layer {
            Layer::GateUp(_) => (d, if self.use_situ { 2 * ffn } else { ffn }),
            Layer::Down(_) => (ffn, d),
            Layer::OutProj => (d, d),
            Layer::LmHead => (d, self.vocab as u64),
            Layer::GrDown => (4 * d, inner),
            Layer::GrUp => (inner, 4 * d),
            Layer::GrWrite => (4 * d, 4),
            Layer::Plain(3) => (self.width(), d),
            Layer::Plain(_) => (d, self.width()),
        }
    }

    /// Whether a projection is made of ternary factors.
    pub const fn is_ternary(&self, layer: Layer) -> bool {
        match layer {
            Layer::GrDown | Layer::GrUp | Layer::GrWrite => true,
            Layer::Plain(_) => false,
            _ => self.use_tsct,
        }
    }

    /// The rank of a ternary projection.
    pub const fn rank_of(&self, layer: Layer) -> u64 {
        let (inputs, outputs) = self.sizes(layer);
        let rank = match layer {
            Layer::GrDown | Layer::GrUp => self.sizes(Layer::GrDown).1,
            Layer::GrWrite => 4,
            Layer::LmHead => min(self.rank as u64, min(inputs, outputs)),
            _ => self.rank as u64,
        };
        let rank = min(rank, min(inputs, padded(outputs)));
        if rank == 0 { 1 } else { rank }
    }

    /// The tensor of this number; `None` past the last, or where its dims are larger than any tensor's may be.
    pub const fn tensor(&self, number: u32) -> Option<TensorSpec> {
        match self.role(number) {
            Some(role) => self.spec(role),
            None => None,
        }
    }

    /// The tensor of this role, which the configuration calls for; `None` where its dims are larger than any tensor's may be.
    pub const fn spec(&self, role: Role) -> Option<TensorSpec> {
        let (sizes, form) = self.shape(role);
        let dims = match sizes {
            Sizes::One(n) => fit([n, 1], 1),
            Sizes::Two(rows, cols) => fit([rows, cols], 2),
        };
        let Some(dims) = dims else { return None };
        Some(TensorSpec { role, dims, form, is_read: self.is_read(role) })
    }

    const fn shape(&self, role: Role) -> (Sizes, Form) {
        use Sizes::{One, Two};
        let (d, width, memory) = (self.d_model as u64, self.width(), self.engram_dim as u64);
        let (heads, head) = (self.n_heads as u64, self.head_dim as u64);
        let streams = self.mhc_streams as u64;
        match role {
            Role::Embedding => (Two(self.vocab as u64, d), Form::Table),
            Role::Controller => (Two(2 * d, padded(3 + self.n_experts as u64)), Form::InputFirst),
            Role::Qkv(_) | Role::OGate => (Two(d, width), Form::InputFirst),
            Role::DecayUp => (Two(d, head), Form::InputFirst),
            Role::DecayDown => (Two(head, width), Form::InputFirst),
            Role::DecayBias => (One(width), Form::Plain),
            Role::DecayLog => (Two(heads, 1), Form::Plain),
            Role::Beta => (Two(d, heads), Form::InputFirst),
            Role::ONorm => (One(head), Form::Plain),
            Role::OProj => (Two(width, d), Form::InputFirst),
            Role::Linear(layer, part) => self.linear_shape(layer, part),
            Role::Memory => (Two(3 * self.engram_table() as u64, memory), Form::Table),
            Role::MemoryKey | Role::MemoryValue => (Two(3 * memory, d), Form::InputFirst),
            Role::MemDense => (Two(d, d), Form::InputFirst),
            Role::LoopNorm | Role::GrNorm(_) | Role::AttnResQuery(_) | Role::AttnResGain(_) | Role::Norm => (One(d), Form::Plain),
            Role::Mhc(0 | 1) => (Two(d, streams), Form::InputFirst),
            Role::Mhc(2) => (Two(d, streams * streams), Form::InputFirst),
            Role::Mhc(3..=5) | Role::ResidualScale | Role::MorRouter(1..) => (One(1), Form::Plain),
            Role::Mhc(6 | 7) => (One(streams), Form::Plain),
            Role::Mhc(_) => (Two(streams, streams), Form::Plain),
            Role::IterEmbed => (Two(self.max_iter as u64, d), Form::Plain),
            Role::MorRouter(0) => (Two(d, 1), Form::Plain),
        }
    }

    const fn linear_shape(&self, layer: Layer, part: Part) -> (Sizes, Form) {
        let ((inputs, outputs), rank) = (self.sizes(layer), self.rank_of(layer));
        match part {
            Part::U => (Sizes::Two(inputs, rank), Form::FactorFirst),
            Part::S => (Sizes::One(rank), Form::Plain),
            Part::V => (Sizes::Two(padded(outputs), rank), Form::FactorLast),
            Part::Weight => (Sizes::Two(inputs, padded(outputs)), Form::InputFirst),
            Part::Bias => (Sizes::One(padded(outputs)), Form::Plain),
        }
    }

    const fn is_read(&self, role: Role) -> bool {
        match role {
            Role::Qkv(_)
            | Role::DecayUp
            | Role::DecayDown
            | Role::DecayBias
            | Role::DecayLog
            | Role::Beta
            | Role::OGate
            | Role::ONorm
            | Role::OProj => matches!(self.attention, Attention::Kda),
            Role::Memory | Role::MemoryKey | Role::MemoryValue | Role::MemDense => self.use_engram,
            Role::LoopNorm => !matches!(self.residual, Residual::Gr),
            Role::ResidualScale => matches!(self.residual, Residual::ReZero),
            Role::MorRouter(_) => self.use_mor,
            Role::Mhc(which) => !matches!(which, 0 | 3 | 6),
            _ => true,
        }
    }

    /// How many tensors inference reads.
    pub fn num_read(&self) -> u32 {
        (0..self.num_tensors()).filter(|number| self.role(*number).is_some_and(|role| self.is_read(role))).count() as u32
    }
}

enum Sizes {
    One(u64),
    Two(u64, u64),
}

const fn fit([rows, cols]: [u64; 2], rank: u32) -> Option<Dims> {
    if rows > u32::MAX as u64 || cols > u32::MAX as u64 {
        return None;
    }
    match Dims::new(0, rank, [rows as u32, cols as u32, 1, 1]) {
        Ok(dims) => Some(dims),
        Err(_) => None,
    }
}

const fn ternary_part(place: u32) -> Part {
    match place {
        0 => Part::U,
        1 => Part::S,
        _ => Part::V,
    }
}

const fn min(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

impl TensorSpec {
    /// Its dims as format 2 stores it: the input axis last.
    pub const fn turned_dims(&self) -> Dims {
        let [rows, cols, ..] = self.dims.padded();
        if self.form.is_turned() { Dims::matrix(cols, rows) } else { self.dims }
    }
}
