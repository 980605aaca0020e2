//! The code that stands for a dormouse model.

use super::{Places, check_ram, finished, goldens_code};
use crate::parse::{Refusal, Request};
use dmexp_format::KvDType;
use dmexp_format::arch::dormouse::check::check_tensors;
use dmexp_format::arch::dormouse::{Attention, DormouseConfig};
use dmexp_format::file::ModelFile;
use dmexp_format::host::fit::CELL_BYTES;
use dmexp_format::layout::{Decoding, DormouseLayout};
use proc_macro::TokenStream;
use std::fmt::Write as _;

/// Checks what is a dormouse model's own and writes the type.
pub(super) fn model(request: &Request, bytes: &[u8], file: &ModelFile<'_>) -> Result<TokenStream, Refusal> {
    let shown = &request.shown;
    let refuse = |message: &str| Refusal::new(request.path_span, format!("{shown}: {message}"));
    let config = check_tensors(file).map_err(|error| refuse(&error.to_string()))?.config;
    // Format 1 never states it.
    let Some(scale) = config.kda_scale else {
        return Err(refuse("include_model! places dormouse models of format 2: dmexp export run --checkpoint FILE --format 2"));
    };
    if let Some((kv, span)) = request.kv.filter(|(kv, _)| *kv != KvDType::F32) {
        return Err(Refusal::new(span, format!("{shown}: kv = {}: a dormouse model keeps keys and values in f32 alone", kv.name())));
    }
    let context = request.context.unwrap_or(config.max_seq_len);
    let decoding = request.decoding.map_or(Decoding::Exact, |(decoding, _)| decoding);
    let layout =
        DormouseLayout::new(&config, context, decoding).map_err(|error| Refusal::new(request.context_span, format!("{shown}: {error}")))?;
    check_ram(request, file)?;
    let path = request.path.display().to_string();
    let places = Places { request, file, path: &path, file_len: bytes.len() };
    check_room(request, places.hot_bytes() as u64, &config, &layout, (context, decoding))?;
    finished(request, &code(request, bytes, &places, &config, (context, decoding, scale)))
}

/// That the arena, and the `hot` bytes of tensors that are copied, have room where the caller said what there is.
fn check_room(
    request: &Request,
    hot: u64,
    config: &DormouseConfig,
    layout: &DormouseLayout,
    (context, decoding): (u32, Decoding),
) -> Result<(), Refusal> {
    let Some(room) = &request.room else { return Ok(()) };
    let mut banks = room.banks.clone();
    if let Some(first) = banks.first_mut() {
        *first = first.saturating_sub(hot);
    }
    if fits(layout, &banks) {
        return Ok(());
    }
    let fitting = |decoding| {
        let fits = |context: &u32| DormouseLayout::new(config, *context, decoding).is_ok_and(|layout| fits(&layout, &banks));
        (1..=context).rev().find(fits)
    };
    let shorter = fitting(decoding).map(|context| format!("`context = {context}` fits"));
    let fast = fitting(Decoding::Fast)
        .filter(|_| decoding != Decoding::Fast && !config.is_causal())
        .map(|context| format!("`decoding = fast`, which gives other bits, fits with `context = {context}`"));
    let ways: Vec<String> = shorter.into_iter().chain(fast).collect();
    let next = if ways.is_empty() { "no context fits".to_owned() } else { ways.join("; ") };
    let free = banks.iter().map(u64::to_string).collect::<Vec<_>>().join(" and ");
    let message = format!(
        "{}: a session of {context} positions needs {} bytes of RAM, of which {} may lie in a bank of their own; {} has {free} free: {next}",
        request.shown,
        layout.total_bytes,
        layout.past_bytes(),
        room.place
    );
    Err(Refusal::new(room.span, message))
}

/// Whether a bank holds all, or two hold what is kept of the positions before and the rest.
fn fits(layout: &DormouseLayout, banks: &[u64]) -> bool {
    let (past, all) = (layout.past_bytes() as u64, layout.total_bytes as u64);
    let holds = |bytes: u64, bank: u64| bytes + CELL_BYTES <= bank;
    let numbered = || banks.iter().copied().enumerate();
    banks.iter().any(|bank| holds(all, *bank))
        || numbered()
            .any(|(one, bank)| holds(past, bank) && numbered().any(|(other, bank)| other != one && holds(all.saturating_sub(past), bank)))
}

fn code(
    request: &Request,
    bytes: &[u8],
    places: &Places<'_>,
    config: &DormouseConfig,
    (context, decoding, scale): (u32, Decoding, f32),
) -> String {
    let (name, file) = (&request.name, places.file);
    let section = request.section.as_ref().map(|section| format!("#[unsafe(link_section = {section:?})]")).unwrap_or_default();
    let (mut table, mut needed) = (String::new(), String::new());
    for number in 0..file.num_tensors() {
        let _ = writeln!(table, "{},", places.tensor(number));
        if let Some(view) = file.tensor(number).filter(|view| view.dims().rank() > 1 && view.dims().cols() > 1) {
            let _ = writeln!(needed, "::dmexp::__macro::require_dtype({});", view.dtype().code());
        }
    }
    if config.attention == Attention::Plain {
        needed += "::dmexp::__macro::require_kv(::dmexp::format::KvDType::F32);";
    }
    format!(
        "
        struct {name};
        impl {name} {{
            /// Positions of the context.
            pub const CONTEXT: u32 = {context};
            /// How keys and values are kept.
            pub const KV: ::dmexp::format::KvDType = ::dmexp::format::KvDType::F32;
            /// How old positions are treated.
            pub const DECODING: ::dmexp::format::layout::Decoding = ::dmexp::format::layout::Decoding::{decoding:?};
            /// The model's fingerprint: the same for every form of one file.
            pub const FINGERPRINT: u32 = {fingerprint};
            /// The model's configuration.
            pub const CONFIG: ::dmexp::format::arch::dormouse::DormouseConfig = {config};
            /// Bytes of weights that are copied to RAM.
            pub const RAM_LEN: usize = {ram_len};
            /// Bytes of arena that a session needs.
            pub const ARENA_LEN: usize = Self::LAYOUT.total_bytes;
            /// Those of them that hold what is kept of the positions before, where memory is given in two banks.
            pub const KV_LEN: usize = Self::LAYOUT.past_bytes();
            /// Those of them that hold everything else.
            pub const WORK_LEN: usize = Self::LAYOUT.total_bytes - Self::LAYOUT.past_bytes();
            const LAYOUT: ::dmexp::format::layout::DormouseLayout =
                ::dmexp::__macro::dormouse_layout(&Self::CONFIG, Self::CONTEXT, Self::DECODING);
            /// The model; nothing is left to check.
            pub fn bind() -> &'static ::dmexp::Model<'static> {{
                const _: () = {{ {needed} }};
                {statics}
                {section}
                static TENSORS: [::dmexp::format::TensorView<'static>; {count}] = [{table}];
                static MODEL: ::dmexp::Model<'static> = ::dmexp::Model::from_dormouse(
                    ::dmexp::models::dormouse::Dormouse::from_parts({name}::CONFIG, &TENSORS, f32::from_bits({scale})),
                ).with_context({name}::CONTEXT).with_decoding({name}::DECODING);
                &MODEL
            }}
            {goldens}
        }}
        ",
        goldens = goldens_code(places, bytes),
        fingerprint = file.fingerprint(),
        config = config_code(config),
        ram_len = places.hot_bytes(),
        statics = places.statics(&section),
        count = file.num_tensors(),
        scale = scale.to_bits(),
    )
}

fn config_code(config: &DormouseConfig) -> String {
    // Floats by their bits: no decimal in between.
    let float = |value: f32| format!("f32::from_bits({})", value.to_bits());
    let DormouseConfig { d_model, n_heads, head_dim, d_ffn, vocab, max_seq_len, max_iter, rank, mhc_streams, n_experts, .. } = config;
    let DormouseConfig { attention, residual, act_quant, act_group, moe_topk, engram_rows, engram_dim, mor_k, .. } = config;
    let DormouseConfig { use_tsct, use_engram, attnres_gain, use_situ, use_mor, .. } = config;
    format!(
        "::dmexp::format::arch::dormouse::DormouseConfig {{
            d_model: {d_model}, n_heads: {n_heads}, head_dim: {head_dim}, d_ffn: {d_ffn}, vocab: {vocab}, max_seq_len: {max_seq_len},
            max_iter: {max_iter}, rank: {rank}, norm_eps: {norm_eps}, attention: ::dmexp::format::arch::dormouse::Attention::{attention:?},
            use_tsct: {use_tsct}, use_engram: {use_engram}, residual: ::dmexp::format::arch::dormouse::Residual::{residual:?},
            attnres_gain: {attnres_gain}, mhc_streams: {mhc_streams}, use_situ: {use_situ}, n_experts: {n_experts}, moe_topk: {moe_topk},
            engram_rows: {engram_rows}, engram_dim: {engram_dim}, engram_lam_max: {lam_max}, use_mor: {use_mor}, mor_k: {mor_k},
            act_quant: ::dmexp::format::arch::dormouse::ActQuant::{act_quant:?}, act_group: {act_group}, kda_scale: {kda_scale},
        }}",
        norm_eps = float(config.norm_eps),
        lam_max = float(config.engram_lam_max),
        kda_scale = config.kda_scale.map_or_else(|| "None".to_owned(), |scale| format!("Some({})", float(scale))),
    )
}
