//! The lists of tensors against the figures that dormouse publishes, the record, and configurations that are refused.

use super::layout::{Decoding, DormouseLayout, saved_place, saved_states};
use super::tensors::Role;
use super::*;

const SMALL: DormouseConfig = DormouseConfig::DEFAULT;
const NANO: DormouseConfig = DormouseConfig { d_model: 512, n_heads: 8, rank: 96, ..SMALL };
const BASE: DormouseConfig = DormouseConfig { d_model: 1024, n_heads: 16, d_ffn: 2816, max_iter: 8, max_seq_len: 1024, ..SMALL };
const P150: DormouseConfig =
    DormouseConfig { d_model: 4096, n_heads: 64, d_ffn: 11_264, n_experts: 4, max_iter: 12, max_seq_len: 2048, ..SMALL };
const PLAIN9M: DormouseConfig = DormouseConfig {
    d_ffn: 3520,
    max_iter: 1,
    use_tsct: false,
    attention: Attention::Plain,
    use_engram: false,
    n_experts: 1,
    engram_rows: 1,
    ..SMALL
};

/// Every arm that adds tensors, and what turns others off.
fn every_kind() -> Vec<DormouseConfig> {
    let arms = [Residual::ReZero, Residual::Gr, Residual::AttnRes, Residual::Mhc];
    let mut all = vec![SMALL, NANO, BASE, P150, PLAIN9M];
    for residual in arms {
        for (use_tsct, attention, attnres_gain) in
            [(true, Attention::Kda, true), (false, Attention::Plain, false), (true, Attention::None, true)]
        {
            all.push(DormouseConfig { residual, use_tsct, attention, attnres_gain, use_situ: !use_tsct, n_experts: 12, ..SMALL });
        }
    }
    all
}

#[test]
fn the_presets_have_the_tensors_and_sizes_that_dormouse_publishes() {
    for (config, tensors, params) in
        [(SMALL, 54, 9_197_390), (NANO, 54, 7_192_906), (BASE, 54, 13_065_810), (P150, 60, 132_862_786), (PLAIN9M, 46, 13_358_510)]
    {
        // The heads for training alone, which are listed elsewhere: with the router of old in the first three.
        let (d, v, r) = (u64::from(config.d_model), u64::from(config.vocab), u64::from(config.rank));
        let conf = if matches!(config.max_iter, 1 | 12) { d + r } else { d };
        let aux = d * d + 2 * d + 2 * v * r + (2 * r + d) * 3 * r + conf;
        let own: u64 = (0..config.num_tensors()).map(|number| config.tensor(number).unwrap().dims.count()).sum();
        assert_eq!((config.num_tensors() + 7, own + aux), (tensors, params));
    }
}

#[test]
fn numbers_roles_and_names_agree() {
    for config in every_kind() {
        let mut names = std::collections::HashSet::new();
        for number in (0..config.num_tensors()).step_by(if cfg!(miri) { 37 } else { 1 }) {
            let spec = config.tensor(number).unwrap();
            assert_eq!(config.tensor_number(spec.role), number, "{config:?} {spec}");
            let name = spec.to_string();
            assert_eq!(config.find(&name), Some(number), "{name}");
            assert!(!name.contains("..") && name.len() < 128);
            assert!(names.insert(name), "{spec}");
        }
        assert!(config.tensor(config.num_tensors()).is_none());
        assert!(config.num_read() <= config.num_tensors());
    }
    assert_eq!(
        SMALL.find("loop_block.expert_ffns.1.down.inner.Tsct.v"),
        Some(SMALL.tensor_number(Role::Linear(super::tensors::Layer::Down(1), super::tensors::Part::V,)))
    );
    for other in [
        "loop_block.expert_ffns.01.down.inner.Tsct.v",
        "loop_block.expert_ffns.3.down.inner.Tsct.v",
        "lm_head.u.weight",
        "",
        "norm.weightx",
    ] {
        assert_eq!(SMALL.find(other), None, "{other}");
    }
}

#[test]
fn records_come_back() {
    for config in every_kind() {
        let config = DormouseConfig {
            kda_scale: Some(0.125),
            use_mor: true,
            mor_k: 1,
            moe_topk: 1,
            act_quant: ActQuant::Fp4,
            act_group: 16,
            ..config
        };
        let record = config.to_record();
        assert_eq!(DormouseConfig::parse(&record), Ok(config));
        assert!(DormouseConfig::parse(&record[4..]).is_err());
        for (at, value) in [(64, 32), (68, 3), (72, 4), (76, 4), (88, 1), (0, 0), (84, 0)] {
            let mut record = record;
            record[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
            assert!(DormouseConfig::parse(&record).is_err(), "{at}");
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused_by_its_key() {
    let wrong = |config: DormouseConfig| match config.validate() {
        Err(Error::Config { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    for (config, key) in [
        (DormouseConfig { d_model: 0, ..SMALL }, ConfigKey::DModel),
        (DormouseConfig { d_ffn: u32::MAX, ..SMALL }, ConfigKey::DFfn),
        (DormouseConfig { n_heads: 5, ..SMALL }, ConfigKey::NHeads),
        (DormouseConfig { n_heads: 768, head_dim: 1 << 20, ..SMALL }, ConfigKey::HeadDim),
        (DormouseConfig { attention: Attention::Plain, head_dim: 32, ..SMALL }, ConfigKey::HeadDim),
        (DormouseConfig { max_iter: 257, ..SMALL }, ConfigKey::MaxIter),
        (DormouseConfig { n_experts: 1000, ..SMALL }, ConfigKey::NExperts),
        (DormouseConfig { moe_topk: 4, ..SMALL }, ConfigKey::MoeTopk),
        (DormouseConfig { use_mor: true, mor_k: 5, ..SMALL }, ConfigKey::MorK),
        (DormouseConfig { engram_rows: 1, ..SMALL }, ConfigKey::EngramRows),
        (DormouseConfig { engram_rows: 0, ..SMALL }, ConfigKey::EngramRows),
        (DormouseConfig { norm_eps: 0.0, ..SMALL }, ConfigKey::NormEps),
        (DormouseConfig { norm_eps: f32::NAN, ..SMALL }, ConfigKey::NormEps),
        (DormouseConfig { engram_lam_max: 1.5, ..SMALL }, ConfigKey::EngramLamMax),
        (DormouseConfig { kda_scale: Some(-1.0), ..SMALL }, ConfigKey::KdaScale),
        (DormouseConfig { residual: Residual::Mhc, mhc_streams: 5, ..SMALL }, ConfigKey::MhcStreams),
        (DormouseConfig { act_quant: ActQuant::Int4, act_group: 7, ..SMALL }, ConfigKey::ActGroup),
    ] {
        assert_eq!(wrong(config), key, "{config:?}");
    }
    assert_eq!(DormouseConfig { use_engram: false, engram_rows: 0, ..SMALL }.validate(), Ok(()));
}

#[test]
fn arenas_are_sized_without_overflow() {
    for config in every_kind() {
        for decoding in [Decoding::Exact, Decoding::Full, Decoding::Fast] {
            let layout = DormouseLayout::new(&config, config.max_seq_len, decoding).unwrap();
            assert!(layout.total_bytes >= 4 * (layout.arm + layout.saved + layout.kv + layout.tokens));
        }
    }
    let most = DormouseConfig { max_seq_len: 1 << 24, max_iter: 256, d_model: 1 << 24, n_heads: 1, head_dim: 1 << 24, ..SMALL };
    assert!(matches!(DormouseLayout::new(&most, 1 << 24, Decoding::Exact), Err(Error::TooLargeForTarget { .. })));
    assert!(matches!(DormouseLayout::new(&SMALL, 513, Decoding::Exact), Err(Error::Context { found: 513, allowed: 512 })));
    let bytes = |decoding| DormouseLayout::new(&SMALL, 256, decoding).unwrap().total_bytes;
    assert!(bytes(Decoding::Fast) < bytes(Decoding::Full) && bytes(Decoding::Full) < bytes(Decoding::Exact));
}

#[test]
fn states_are_kept_densely_at_first() {
    for context in (1..300).step_by(if cfg!(miri) { 41 } else { 1 }) {
        let places: Vec<u32> = (0..context).filter_map(saved_place).collect();
        assert!(places.iter().copied().eq(0..saved_states(context)), "{context}");
    }
}
