//! The CUDA kernels and everything about them that does not need a driver: how weights lie on a device, what memory a model takes there, and which kernels a step launches, in which order, with
//! which arguments.
//!
//! A host that has a driver allocates the [`Piece`]s of a [`Plan`], fills them with what [`Contents`] says, and launches the lists that [`Plan::step`] and [`Plan::block`] give. The tests
//! launch the same lists on a CPU. README.md of this folder has the layouts.

/// The kernels in PTX, for every GPU from compute capability 7.5 on and drivers from CUDA 10 on.
pub const PTX: &str = include_str!("../kernels.ptx");

pub mod dormouse;
pub mod launch;
pub mod pack;
pub mod plan;
mod refusal;

pub use launch::{Arg, Heads, Kernel, Launch, Matrix};
pub use pack::Layout;
pub use plan::{COLUMNS, Contents, Piece, Plan, Step};
pub use refusal::Refusal;
