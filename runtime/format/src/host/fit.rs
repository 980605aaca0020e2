//! Whether a session fits a chip's RAM, and what would where it does not: the sums and the words of `dmexp plan` and of `include_model!`.

use crate::KvDType;
use crate::arch::llama::LlamaConfig;
use crate::layout::LlamaLayout;
use std::fmt::Write as _;

/// What a static cell adds to an arena: its flag, and the rest of eight bytes.
pub const CELL_BYTES: u64 = 8;

/// Where a session's memory lies: numbers of banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In one arena.
    One(usize),
    /// In two: `Session::new_in_banks`.
    Two {
        /// Keys and values.
        kv: usize,
        /// Everything else.
        work: usize,
    },
}

/// Where a session of `layout` goes in banks with so many free bytes: one that holds all of it, the first of them, else two.
pub fn place(layout: &LlamaLayout, banks: &[u64]) -> Option<Placement> {
    let fits = |need: usize, bank: u64| need as u64 + CELL_BYTES <= bank;
    if let Some(bank) = banks.iter().position(|bank| fits(layout.total_bytes, *bank)) {
        return Some(Placement::One(bank));
    }
    for (kv, kv_bank) in banks.iter().enumerate() {
        for (work, work_bank) in banks.iter().enumerate() {
            if kv != work && fits(layout.kv_bytes, *kv_bank) && fits(layout.work_bytes(), *work_bank) {
                return Some(Placement::Two { kv, work });
            }
        }
    }
    None
}

/// The most positions that a session in these banks has room for; `None` where not even one fits, or the configuration is not valid.
pub fn largest_context(config: &LlamaConfig, kv: KvDType, banks: &[u64]) -> Option<u32> {
    let fits = |context| LlamaLayout::new(config, context, kv).is_ok_and(|layout| place(&layout, banks).is_some());
    // A longer context never needs less: the largest that fits is found by halving.
    let (mut fitting, mut beyond) = (0, config.max_seq_len.saturating_add(1));
    while beyond - fitting > 1 {
        let middle = fitting + (beyond - fitting) / 2;
        if fits(middle) { fitting = middle } else { beyond = middle }
    }
    (fitting > 0).then_some(fitting)
}

/// What fits where `context` positions with keys and values as `kv` do not: the longest context as it was asked for, then narrower types with as much of the context asked for as fits, each
/// with more positions than the one before.
pub fn alternatives(config: &LlamaConfig, context: u32, kv: KvDType, banks: &[u64]) -> Vec<(u32, KvDType)> {
    let mut found: Vec<(u32, KvDType)> = Vec::new();
    for kind in [KvDType::F32, KvDType::F16, KvDType::Q8].into_iter().skip_while(|kind| *kind != kv) {
        let fits = largest_context(config, kind, banks).map(|largest| largest.min(context));
        if let Some(fits) = fits.filter(|fits| found.last().is_none_or(|(before, _)| fits > before)) {
            found.push((fits, kind));
        }
    }
    found
}

/// How the caller writes a context and a type of keys and values.
pub trait Ask {
    /// As in `--context 100`.
    fn context(&self, context: u32) -> String;
    /// As in `--kv q8`.
    fn kv(&self, kv: KvDType) -> String;
}

/// Why a session of `layout` does not fit `banks`, which are those of `place`: what it needs, what there is, and what would fit.
pub fn refusal(
    config: &LlamaConfig,
    (context, kv): (u32, KvDType),
    layout: &LlamaLayout,
    banks: &[u64],
    place: &str,
    ask: &dyn Ask,
) -> String {
    let needed = layout.total_bytes as u64 + CELL_BYTES;
    let free: Vec<String> = banks.iter().map(u64::to_string).collect();
    let mut text = format!(
        "a session of {context} positions with keys and values in {} needs {needed} bytes of RAM, and {place} has {} free",
        kv.name(),
        free.join(" + ")
    );
    let alternatives = alternatives(config, context, kv, banks);
    if alternatives.is_empty() {
        let least = LlamaLayout::new(config, 1, KvDType::Q8).map_or(0, |layout| layout.total_bytes as u64 + CELL_BYTES);
        let _ = write!(text, "; even one position with keys and values in q8 needs {least}: take a larger chip or a smaller model");
        return text;
    }
    let words: Vec<String> = alternatives
        .iter()
        .map(|(fits, kind)| match (*fits == context, *kind == kv) {
            (false, true) => ask.context(*fits),
            (true, _) => ask.kv(*kind),
            (false, false) => format!("{} with {}", ask.context(*fits), ask.kv(*kind)),
        })
        .collect();
    let _ = write!(text, "; what fits: {}", words.join(", or "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::llama::RopeLayout;

    const MODEL: LlamaConfig = LlamaConfig {
        dim: 48,
        hidden_dim: 96,
        n_layers: 3,
        n_heads: 6,
        n_kv_heads: 3,
        head_dim: 8,
        vocab_size: 200,
        max_seq_len: 300,
        norm_eps: 1e-5,
        rope_layout: RopeLayout::Half,
        attention_factor: 1.0,
        tied_embeddings: true,
        qkv_bias: false,
        sliding_window: 0,
    };

    struct Words;

    impl Ask for Words {
        fn context(&self, context: u32) -> String {
            format!("context = {context}")
        }

        fn kv(&self, kv: KvDType) -> String {
            format!("kv = {}", kv.name())
        }
    }

    fn layout(context: u32, kv: KvDType) -> LlamaLayout {
        LlamaLayout::new(&MODEL, context, kv).unwrap()
    }

    #[test]
    fn the_largest_context_fits_and_one_more_does_not() {
        for kv in [KvDType::F32, KvDType::F16, KvDType::Q8] {
            for free in [3_000, 20_000, 40_000, 80_000, 5_000_000] {
                let found = largest_context(&MODEL, kv, &[free]);
                let needs = |context| layout(context, kv).total_bytes as u64 + CELL_BYTES;
                match found {
                    Some(context) => {
                        assert!(needs(context) <= free);
                        assert!(context == MODEL.max_seq_len || needs(context + 1) > free, "{kv:?} {free} {context}");
                    }
                    None => assert!(needs(1) > free),
                }
            }
        }
    }

    #[test]
    fn two_banks_hold_what_one_does_not() {
        let layout = layout(300, KvDType::F16);
        let (kv, work) = (layout.kv_bytes as u64 + CELL_BYTES, layout.work_bytes() as u64 + CELL_BYTES);
        assert_eq!(place(&layout, &[work, kv]), Some(Placement::Two { kv: 1, work: 0 }));
        assert_eq!(place(&layout, &[kv + work - CELL_BYTES, kv]), Some(Placement::One(0)));
        assert_eq!(place(&layout, &[work - 1, kv]), None);
        assert_eq!(place(&layout, &[work, kv - 1]), None);
        assert_eq!(place(&layout, &[]), None);
        assert_eq!(largest_context(&MODEL, KvDType::F16, &[work, kv]), Some(300));
    }

    #[test]
    fn a_refusal_says_both_sides_and_what_fits_and_that_does_fit() {
        let asked = layout(300, KvDType::F16);
        let banks = [asked.total_bytes as u64 + CELL_BYTES - 1];
        let text = refusal(&MODEL, (300, KvDType::F16), &asked, &banks, "the chip", &Words);
        let needed = asked.total_bytes as u64 + CELL_BYTES;
        assert_eq!(
            text,
            format!(
                "a session of 300 positions with keys and values in f16 needs {needed} bytes of RAM, and the chip has {} free; what fits: context = 299, or kv = q8",
                needed - 1
            )
        );
        let few = [layout(100, KvDType::F16).total_bytes as u64 + CELL_BYTES];
        let text = refusal(&MODEL, (300, KvDType::F16), &asked, &few, "the chip", &Words);
        let q8 = largest_context(&MODEL, KvDType::Q8, &few).unwrap();
        assert!(text.ends_with(&format!("what fits: context = 100, or context = {q8} with kv = q8")), "{text}");
        let text = refusal(&MODEL, (300, KvDType::F16), &asked, &[1000], "the chip", &Words);
        assert!(text.contains("even one position with keys and values in q8 needs"), "{text}");
    }
}
