//! The tensors that a configuration calls for, in the order in which burn's modules declare them and files list them. Weights of linear layers are [in, out].

use super::config::DormouseConfig;
use crate::error::{Error, Result};
use dmexp_format::Dims;
use dmexp_format::host::TENSOR_LIMIT;

/// What the source's tensors show of the version that trained it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// The confidence head sees the Markov state too (since about 2026-10-01).
    pub(super) conf_markov: bool,
    /// Attention over residuals has a gain (since 2026-10-02).
    pub(super) attnres_gain: bool,
}

/// The list, names and dims.
///
/// # Errors
/// [`Class::Mismatch`](crate::error::Class::Mismatch) for a configuration that calls for more or larger tensors than a file can hold.
pub(super) fn list(config: &DormouseConfig, variant: Variant) -> Result<Vec<(String, Dims)>> {
    let (experts, loops) = (config.size("n_experts"), config.size("max_iter"));
    if experts.saturating_mul(6).saturating_add(loops.saturating_mul(2)) > TENSOR_LIMIT as u64 / 2 {
        return Err(Error::mismatch(format!("the configuration's n_experts = {experts} and max_iter = {loops} call for too many tensors")));
    }
    let mut list = List { entries: Vec::new(), low_rank: config.flag("use_tsct") };
    list.fill(config, variant, experts, loops);
    let dims = |(name, sizes): (String, Vec<u64>)| {
        let mut padded = [1; 4];
        let mut fits = true;
        for (place, size) in padded.iter_mut().zip(&sizes) {
            fits &= u32::try_from(*size).map(|size| *place = size).is_ok();
        }
        match Dims::new(0, sizes.len() as u32, padded) {
            Ok(dims) if fits => Ok((name, dims)),
            _ => Err(Error::mismatch(format!("the configuration calls for {name} {sizes:?}: too large"))),
        }
    };
    list.entries.into_iter().map(dims).collect()
}

struct List {
    entries: Vec<(String, Vec<u64>)>,
    low_rank: bool,
}

/// Columns are padded to a multiple of 4, but for one.
fn padded(columns: u64) -> u64 {
    if columns == 1 { 1 } else { columns.next_multiple_of(4) }
}

impl List {
    fn add(&mut self, name: impl Into<String>, dims: &[u64]) {
        self.entries.push((name.into(), dims.to_vec()));
    }

    fn dense(&mut self, name: &str, inputs: u64, outputs: u64) {
        self.add(format!("{name}.inner.Dense.weight"), &[inputs, padded(outputs)]);
        self.add(format!("{name}.inner.Dense.bias"), &[padded(outputs)]);
    }

    fn ternary(&mut self, name: &str, inputs: u64, outputs: u64, rank: u64) {
        let rank = rank.min(inputs).min(padded(outputs)).max(1);
        self.add(format!("{name}.inner.Tsct.u"), &[inputs, rank]);
        self.add(format!("{name}.inner.Tsct.s"), &[rank]);
        self.add(format!("{name}.inner.Tsct.v"), &[padded(outputs), rank]);
    }

    fn linear(&mut self, name: &str, inputs: u64, outputs: u64, rank: u64) {
        if self.low_rank { self.ternary(name, inputs, outputs, rank) } else { self.dense(name, inputs, outputs) }
    }

    fn fill(&mut self, config: &DormouseConfig, variant: Variant, experts: u64, loops: u64) {
        let [d, ffn, vocab, rank] = ["d_model", "d_ffn", "vocab", "rank"].map(|key| config.size(key));
        let (heads, head) = (config.size("n_heads"), config.size("head_dim"));
        let width = heads * head;
        self.add("embedding.weight", &[vocab, d]);
        self.add("loop_block.controller.weight", &[2 * d, padded(3 + experts)]);
        let kda = |name: &str| format!("loop_block.shared_attn.gdn2.{name}");
        for name in ["q_proj", "k_proj", "v_proj"] {
            self.add(kda(name) + ".weight", &[d, width]);
        }
        self.add(kda("decay.w_up.weight"), &[d, head]);
        self.add(kda("decay.w_down.weight"), &[head, width]);
        self.add(kda("decay.b_alpha"), &[width]);
        self.add(kda("decay.a_log"), &[heads, 1]);
        self.add(kda("beta_proj.weight"), &[d, heads]);
        self.add(kda("o_gate.weight"), &[d, width]);
        self.add(kda("o_norm_w"), &[head]);
        self.add(kda("o_proj.weight"), &[width, d]);
        let gated = if config.flag("use_situ") { 2 * ffn } else { ffn };
        for expert in 0..experts {
            self.linear(&format!("loop_block.expert_ffns.{expert}.gate_up"), d, gated, rank);
            self.linear(&format!("loop_block.expert_ffns.{expert}.down"), ffn, d, rank);
        }
        let (orders, memory) = (config.orders().len() as u64, config.size("engram_dim"));
        self.add("loop_block.engram.memory.embedding.weight", &[orders * config.engram_table(), memory]);
        self.add("loop_block.engram.key_projs.0.weight", &[orders * memory, d]);
        self.add("loop_block.engram.value_proj.weight", &[orders * memory, d]);
        self.add("loop_block.mem_dense.weight", &[d, d]);
        self.add("loop_block.norm.weight", &[d]);
        self.residual(config, variant, loops, d);
        self.add("loop_block.iter_embed", &[loops, d]);
        self.add("loop_block.residual_scale", &[1]);
        self.linear("loop_block.out_proj", d, d, rank);
        self.add("loop_block.mor_router.proj.weight", &[d, 1]);
        self.add("loop_block.mor_router.proj.bias", &[1]);
        if config.flag("use_plain_attn") {
            for name in ["wq", "wk", "wv"] {
                self.dense(&format!("loop_block.plain_attn.{name}"), d, width);
            }
            self.dense("loop_block.plain_attn.wo", width, d);
        }
        self.add("norm.weight", &[d]);
        self.linear("lm_head", d, vocab, rank.min(d).min(vocab));
        self.add("aux.jepa_pred.proj.weight", &[d, d]);
        self.add("aux.jepa_pred.norm.gamma", &[d]);
        self.add("aux.jepa_pred.norm.beta", &[d]);
        self.add("aux.dspark.inner.w1.weight", &[vocab, rank]);
        self.add("aux.dspark.inner.w2.weight", &[rank, vocab]);
        self.add("aux.dspark.joint_proj.weight", &[2 * rank + d, 3 * rank]);
        self.add("aux.conf.proj.weight", &[if variant.conf_markov { d + rank } else { d }, 1]);
        if config.number("aux_fb_weight") > 0.0 {
            self.dense("aux.fb", d, vocab);
        }
    }

    fn residual(&mut self, config: &DormouseConfig, variant: Variant, loops: u64, d: u64) {
        if config.flag("use_gr") {
            for branch in 0..4 {
                self.add(format!("loop_block.gr.branch_norms.{branch}.weight"), &[d]);
            }
            let inner = (d / 8).max(4);
            self.ternary("loop_block.gr.wd", 4 * d, inner, inner);
            self.ternary("loop_block.gr.wu", inner, 4 * d, inner);
            self.ternary("loop_block.gr.ww", 4 * d, 4, 4);
        }
        if config.flag("use_attnres") {
            for number in 0..loops {
                self.add(format!("loop_block.attnres.{number}.query"), &[d]);
                if variant.attnres_gain {
                    self.add(format!("loop_block.attnres.{number}.gain"), &[d]);
                }
            }
        }
        if config.flag("use_mhc") {
            let streams = config.size("mhc_streams");
            self.add("loop_block.mhc.phi_pre", &[d, streams]);
            self.add("loop_block.mhc.phi_post", &[d, streams]);
            self.add("loop_block.mhc.phi_res", &[d, streams * streams]);
            for name in ["pre", "post", "res"] {
                self.add(format!("loop_block.mhc.alpha_{name}"), &[1]);
            }
            self.add("loop_block.mhc.b_pre", &[streams]);
            self.add("loop_block.mhc.b_post", &[streams]);
            self.add("loop_block.mhc.b_res", &[streams, streams]);
        }
    }
}

/// Whether inference reads the tensor: heads that only train, and what belongs to an arm that is off, are never looked at.
pub(super) fn is_read(config: &DormouseConfig, name: &str) -> bool {
    let unread: [(bool, &[&str]); 6] = [
        (true, &["aux."]),
        (!config.flag("use_kda"), &["loop_block.shared_attn."]),
        (!config.flag("use_engram"), &["loop_block.engram.", "loop_block.mem_dense."]),
        (!config.flag("use_mor"), &["loop_block.mor_router."]),
        (config.flag("use_attnres"), &["loop_block.residual_scale"]),
        (true, &["loop_block.mhc.phi_pre", "loop_block.mhc.alpha_pre", "loop_block.mhc.b_pre"]),
    ];
    !unread.iter().any(|(off, prefixes)| *off && prefixes.iter().any(|prefix| name.starts_with(prefix)))
}
