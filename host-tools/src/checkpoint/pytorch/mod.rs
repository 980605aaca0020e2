//! Reader of `PyTorch` checkpoints: llama2.c's `ckpt.pt`, Meta's folders, and state dicts for other readers. The pickle is data only ([`pickle`]); what it may name is a closed list
//! ([`globals`]); weights stay in the mapped file.

mod args;
mod assemble;
mod call;
mod container;
mod globals;
mod llama2c;
mod meta;
mod pickle;
mod state;
mod value;

pub(super) use llama2c::open;
pub(super) use meta::open as open_meta;
pub(super) use state::tensors;
