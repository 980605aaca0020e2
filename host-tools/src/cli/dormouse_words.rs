//! A dormouse model in words, for `dmexp export info`.

use super::output::grouped;
use dmexp_format::arch::dormouse::check::{Age, Checked, KdaScale, TRAINING_ONLY, check_tensors};
use dmexp_format::arch::dormouse::tensors::{Layer, Role};
use dmexp_format::arch::dormouse::{ActQuant, Attention, DormouseConfig, Residual};
use dmexp_format::file::ModelFile;
use dmexp_format::layout::{Decoding, DormouseLayout};

/// Lines of facts; none for another model, or one that is not what its configuration calls for.
pub(crate) fn lines(file: &ModelFile<'_>) -> Vec<(&'static str, String)> {
    let Ok(checked) = check_tensors(file) else { return Vec::new() };
    let config = &checked.config;
    let mut lines = vec![
        (
            "loop",
            format!(
                "{} iterations of one block, {} numbers wide, over at most {} bytes",
                config.max_iter, config.d_model, config.max_seq_len
            ),
        ),
        ("attention", attention(&checked)),
        ("experts", experts(config)),
        ("memory", memory(config)),
        ("layers", layers(config)),
        ("residual", residual(config)),
    ];
    if config.use_mor {
        lines.push(("iterations", format!("the best {} of {} count at each position (use_mor)", config.mor_k, config.max_iter)));
    }
    if config.act_quant != ActQuant::None {
        lines.push(("inputs", format!("rounded before attention and experts ({:?}, {})", config.act_quant, group(config.act_group))));
    }
    lines.push(("parameters by part", parts(config, file)));
    if let Some(what) = room(config) {
        lines.push(("memory to run", what));
    }
    lines
}

fn attention(checked: &Checked) -> String {
    let DormouseConfig { n_heads, head_dim, attention, .. } = checked.config;
    let heads = format!("{n_heads} heads of {head_dim}");
    match attention {
        Attention::None => "none (use_kda = false)".to_owned(),
        Attention::Plain => format!("causal softmax with rotary positions, {heads}"),
        Attention::Kda => {
            let scale = match (checked.kda_scale(), checked.age) {
                (KdaScale::Given(scale), _) => format!("scale {scale}"),
                (KdaScale::One, _) => "scale 1, as before 2026-10-02 (the file does not say: its confidence head is of old)".to_owned(),
                (_, Age::After) => {
                    "scale 1 / sqrt(head_dim), as since 2026-10-02 (the file does not say: its confidence head is the later one)".to_owned()
                }
                _ => "scale 1 / sqrt(head_dim), as since 2026-10-02 (the file does not say)".to_owned(),
            };
            format!("delta-rule recurrence (KDA), {heads}, a state that goes on from one iteration to the next; {scale}")
        }
    }
}

fn experts(config: &DormouseConfig) -> String {
    let blend = match config.moe_topk {
        0 => "all blended".to_owned(),
        top => format!("the best {top} blended"),
    };
    let gate = if config.use_situ { ", gated by capped tangents (use_situ)" } else { "" };
    format!("{} of {} hidden numbers, {blend}{gate}", config.n_experts, config.d_ffn)
}

fn memory(config: &DormouseConfig) -> String {
    if !config.use_engram {
        return "none (use_engram = false)".to_owned();
    }
    let rows = config.engram_table();
    format!("n-grams of 2, 3 and 4 bytes, {rows} rows of {} numbers each; weighs {} at most", config.engram_dim, config.engram_lam_max)
}

fn layers(config: &DormouseConfig) -> String {
    if config.use_tsct { format!("ternary factors of rank {}", config.rank) } else { "dense (use_tsct = false)".to_owned() }
}

fn residual(config: &DormouseConfig) -> String {
    match config.residual {
        Residual::ReZero => "one learned factor (ReZero)".to_owned(),
        Residual::Gr => "four gated branches (use_gr)".to_owned(),
        Residual::AttnRes if config.attnres_gain => "attention over the results so far (use_attnres)".to_owned(),
        Residual::AttnRes => "attention over the results so far, without gains (use_attnres)".to_owned(),
        Residual::Mhc => format!("{} mixed streams (use_mhc)", config.mhc_streams),
    }
}

fn group(len: u32) -> String {
    if len == 0 { "one scale a row".to_owned() } else { format!("a scale for {len} numbers") }
}

/// How many parameters each part has, read or not.
fn parts(config: &DormouseConfig, file: &ModelFile<'_>) -> String {
    let mut counts = [("bytes", 0u64), ("attention", 0), ("experts", 0), ("memory", 0), ("classifier", 0), ("other", 0), ("not read", 0)];
    for tensor in file.tensors() {
        let spec = config.find(tensor.name).and_then(|number| config.tensor(number));
        let place = match spec.map(|spec| (spec.role, spec.is_read)) {
            Some((_, false)) | None => 6,
            Some((Role::Embedding, _)) => 0,
            Some((Role::Linear(Layer::Plain(_), _), _)) => 1,
            Some((role, _))
                if (config.tensor_number(Role::Qkv(0))..=config.tensor_number(Role::OProj)).contains(&config.tensor_number(role)) =>
            {
                1
            }
            Some((Role::Linear(Layer::GateUp(_) | Layer::Down(_), _), _)) => 2,
            Some((Role::Memory | Role::MemoryKey | Role::MemoryValue, _)) => 3,
            Some((Role::Linear(Layer::LmHead, _), _)) => 4,
            Some(_) => 5,
        };
        if let Some((_, count)) = counts.get_mut(place) {
            *count += tensor.view.dims().count();
        }
    }
    let listed = counts.iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {}", grouped(*count)));
    let note = if file.tensors().any(|tensor| tensor.name.starts_with(TRAINING_ONLY)) { " (aux.* only trains)" } else { "" };
    format!("{}{note}", listed.collect::<Vec<_>>().join(", "))
}

/// What a session of the longest context takes.
fn room(config: &DormouseConfig) -> Option<String> {
    let of = |decoding| {
        DormouseLayout::new(config, config.max_seq_len, decoding).ok().map(|layout| super::output::bytes(layout.total_bytes as u64))
    };
    let fast = of(Decoding::Fast)?;
    if config.is_causal() {
        return Some(format!("{fast} for {} bytes", config.max_seq_len));
    }
    Some(format!(
        "{} for {} bytes; {} with --decoding full, {fast} with fast",
        of(Decoding::Exact)?,
        config.max_seq_len,
        of(Decoding::Full)?
    ))
}
