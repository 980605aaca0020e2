//! How dormouse names its tensors: paths of fields, with numbers for lists and the variant's name for a choice of layers.

use super::DormouseConfig;
use super::tensors::{Layer, Part, Role, TensorSpec};
use core::fmt;

impl DormouseConfig {
    /// The number of the tensor of this name, of those that the configuration calls for.
    pub fn find(&self, name: &str) -> Option<u32> {
        (0..self.num_tensors()).find(|number| self.role(*number).is_some_and(|role| role.is_named(name)))
    }
}

impl Role {
    /// Whether `name` is the name of the tensor for this.
    pub fn is_named(&self, name: &str) -> bool {
        let Name { before, number, after, leaf } = self.name();
        let Some(rest) = name.strip_prefix(before) else { return false };
        let rest = match number {
            // A number is written in one way only.
            Some(number) => digits(rest, number),
            None => Some(rest),
        };
        rest.and_then(|rest| rest.strip_prefix(after)) == Some(leaf)
    }
}

/// What follows `number` in `text`; `None` if it does not begin with it.
fn digits(text: &str, number: u32) -> Option<&str> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (found, rest) = text.split_at_checked(end)?;
    let leading_zero = found.len() > 1 && found.starts_with('0');
    if !leading_zero && found.parse() == Ok(number) { Some(rest) } else { None }
}

/// The pieces of a name.
struct Name {
    before: &'static str,
    number: Option<u32>,
    after: &'static str,
    leaf: &'static str,
}

impl Role {
    const fn name(self) -> Name {
        let (before, number, after, leaf) = match self {
            Self::Embedding => ("embedding.weight", None, "", ""),
            Self::Controller => ("loop_block.controller.weight", None, "", ""),
            Self::Qkv(0) => (KDA_NAME, None, "q_proj", ".weight"),
            Self::Qkv(1) => (KDA_NAME, None, "k_proj", ".weight"),
            Self::Qkv(_) => (KDA_NAME, None, "v_proj", ".weight"),
            Self::DecayUp => (KDA_NAME, None, "decay.w_up", ".weight"),
            Self::DecayDown => (KDA_NAME, None, "decay.w_down", ".weight"),
            Self::DecayBias => (KDA_NAME, None, "decay.b_alpha", ""),
            Self::DecayLog => (KDA_NAME, None, "decay.a_log", ""),
            Self::Beta => (KDA_NAME, None, "beta_proj", ".weight"),
            Self::OGate => (KDA_NAME, None, "o_gate", ".weight"),
            Self::ONorm => (KDA_NAME, None, "o_norm_w", ""),
            Self::OProj => (KDA_NAME, None, "o_proj", ".weight"),
            Self::Linear(layer, part) => {
                let (before, number, after) = layer.name();
                (before, number, after, part.name())
            }
            Self::Memory => ("loop_block.engram.memory.embedding", None, "", ".weight"),
            Self::MemoryKey => ("loop_block.engram.key_projs.0", None, "", ".weight"),
            Self::MemoryValue => ("loop_block.engram.value_proj", None, "", ".weight"),
            Self::MemDense => ("loop_block.mem_dense", None, "", ".weight"),
            Self::LoopNorm => ("loop_block.norm", None, "", ".weight"),
            Self::GrNorm(branch) => ("loop_block.gr.branch_norms.", Some(branch), "", ".weight"),
            Self::AttnResQuery(n) => ("loop_block.attnres.", Some(n), "", ".query"),
            Self::AttnResGain(n) => ("loop_block.attnres.", Some(n), "", ".gain"),
            Self::Mhc(0) => (MHC_NAME, None, "phi_pre", ""),
            Self::Mhc(1) => (MHC_NAME, None, "phi_post", ""),
            Self::Mhc(2) => (MHC_NAME, None, "phi_res", ""),
            Self::Mhc(3) => (MHC_NAME, None, "alpha_pre", ""),
            Self::Mhc(4) => (MHC_NAME, None, "alpha_post", ""),
            Self::Mhc(5) => (MHC_NAME, None, "alpha_res", ""),
            Self::Mhc(6) => (MHC_NAME, None, "b_pre", ""),
            Self::Mhc(7) => (MHC_NAME, None, "b_post", ""),
            Self::Mhc(_) => (MHC_NAME, None, "b_res", ""),
            Self::IterEmbed => ("loop_block.iter_embed", None, "", ""),
            Self::ResidualScale => ("loop_block.residual_scale", None, "", ""),
            Self::MorRouter(0) => ("loop_block.mor_router.proj", None, "", ".weight"),
            Self::MorRouter(_) => ("loop_block.mor_router.proj", None, "", ".bias"),
            Self::Norm => ("norm.weight", None, "", ""),
        };
        Name { before, number, after, leaf }
    }
}

const KDA_NAME: &str = "loop_block.shared_attn.gdn2.";
const MHC_NAME: &str = "loop_block.mhc.";

impl Layer {
    const fn name(self) -> (&'static str, Option<u32>, &'static str) {
        match self {
            Self::GateUp(expert) => ("loop_block.expert_ffns.", Some(expert), ".gate_up"),
            Self::Down(expert) => ("loop_block.expert_ffns.", Some(expert), ".down"),
            Self::OutProj => ("loop_block.out_proj", None, ""),
            Self::LmHead => ("lm_head", None, ""),
            Self::GrDown => ("loop_block.gr.wd", None, ""),
            Self::GrUp => ("loop_block.gr.wu", None, ""),
            Self::GrWrite => ("loop_block.gr.ww", None, ""),
            Self::Plain(0) => ("loop_block.plain_attn.wq", None, ""),
            Self::Plain(1) => ("loop_block.plain_attn.wk", None, ""),
            Self::Plain(2) => ("loop_block.plain_attn.wv", None, ""),
            Self::Plain(_) => ("loop_block.plain_attn.wo", None, ""),
        }
    }
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::U => ".inner.Tsct.u",
            Self::S => ".inner.Tsct.s",
            Self::V => ".inner.Tsct.v",
            Self::Weight => ".inner.Dense.weight",
            Self::Bias => ".inner.Dense.bias",
        }
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { before, number, after, leaf } = self.role.name();
        f.write_str(before)?;
        if let Some(number) = number {
            write!(f, "{number}")?;
        }
        f.write_str(after)?;
        f.write_str(leaf)
    }
}
