//! The ways of decoding against each other, and settings that a file does not record.

use super::made::{Made, file, text};
use super::{Decoding, Dormouse, after, bits, logits_after, with_state};
use crate::format::arch::dormouse::layout::DormouseLayout;
use crate::format::arch::dormouse::tensors::{Layer, Part, Role};
use crate::format::arch::dormouse::{DormouseConfig, Residual};
use crate::format::file::ModelFile;
use crate::format::{ConfigKey, Error};
use crate::models::dormouse::{Factors, State};

/// A tiny model whose recurrence forgets as a fresh one does (`b_alpha` 1), or hardly at all (-5).
fn forgetting(made: &Made, bias: f32) -> Vec<u8> {
    let mut tensors = made.tensors();
    for (name, _, values) in &mut tensors {
        if *name == made.name(Role::DecayBias) {
            values.fill(bias);
        }
        if *name == made.name(Role::DecayLog) {
            values.fill(-3.0);
        }
    }
    file(&made.text, &tensors)
}

#[test]
fn exact_decoding_has_the_bits_of_full_recomputation_whatever_is_fed_at_a_time() {
    let arms = [
        Made::tiny("", |_| ()),
        Made::tiny("use_gr = true\n", |config| config.residual = Residual::Gr),
        Made::tiny("use_attnres = true\n", |config| config.residual = Residual::AttnRes),
        Made::tiny("use_mhc = true\n", |config| config.residual = Residual::Mhc),
    ];
    for made in arms {
        for bias in [1.0, -3.0, -5.0].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
            let bytes = forgetting(&made, bias);
            let model = Dormouse::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
            let ends: &[usize] = if cfg!(miri) { &[1, 3] } else { &[1, 2, 3, 9, 31, 32, 33, 34, 60, 63, 64, 65, 66, 80] };
            let tokens = text(ends[ends.len() - 1]);
            let exact = logits_after(&model, &tokens, Decoding::Exact, ends);
            let full = logits_after(&model, &tokens, Decoding::Full, ends);
            for (end, (exact, full)) in ends.iter().zip(exact.iter().zip(&full)) {
                assert_eq!(bits(exact), bits(full), "{:?}, bias {bias}, {end} bytes", model.config().residual);
            }
        }
    }
}

/// What the fast mode saves and what it costs, printed.
#[test]
fn fast_decoding_is_close_where_the_model_forgets() {
    let (len, left_out) = if cfg!(miri) { (3, 2) } else { (96, 0) };
    for (bias, allowed) in [(1.0, 1e-6), (-3.0, 1e-3), (-5.0, 1e-2)].into_iter().skip(left_out) {
        let bytes = forgetting(&Made::tiny("", |_| ()), bias);
        let model = Dormouse::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
        let tokens = text(len);
        let ends: Vec<usize> = (1..=len).collect();
        let exact = with_state(&model, &tokens, Decoding::Exact, |state| {
            let logits: Vec<_> = ends.iter().map(|end| after(&model, state, *end)).collect();
            (logits, state.computed_again())
        });
        let fast = logits_after(&model, &tokens, Decoding::Fast, &ends);
        let off = |from: usize| {
            let pairs = exact.0.iter().skip(from).flatten().zip(fast.iter().skip(from).flatten());
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        let (first, off) = (off(0), off(16));
        let all = 3 * ((len as u64 - 1) * len as u64) / 2;
        println!(
            "bias {bias}: fast is off by at most {first:.1e}, from the 17th position on {off:.1e}; exact computed {} of {all} old positions again",
            exact.1
        );
        assert!(off <= allowed, "bias {bias}: {off:e}");
        assert!(exact.1 <= all && (bias < 0.0 || exact.1 < all / 2));
    }
}

#[test]
fn a_new_text_is_computed_from_its_beginning() {
    let bytes = Made::tiny("", |_| ()).file();
    let model = Dormouse::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
    for decoding in [Decoding::Exact, Decoding::Full, Decoding::Fast] {
        let len = if cfg!(miri) { 2 } else { 24 };
        let tokens = text(len);
        with_state(&model, &tokens, decoding, |state| {
            let first = after(&model, state, len);
            state.reset();
            state.tokens.fill(7);
            after(&model, state, len);
            state.reset();
            state.tokens.copy_from_slice(&tokens);
            assert_eq!(bits(&after(&model, state, len)), bits(&first), "{decoding:?}");
        });
    }
}

/// Codes of experts in 8 bits on their own grid, and all other factors ternary already: `Fp8` is then the model with these weights and raw experts, which `Raw` computes once the scales of the
/// others are corrected for their means.
#[test]
fn factors_can_be_taken_in_three_ways() {
    let made = Made::tiny("", |_| ());
    let is_factor = |name: &str| name.ends_with(".Tsct.u") || name.ends_with(".Tsct.v");
    let mut tensors = made.tensors();
    let mut raw = tensors.clone();
    let mut means = std::collections::HashMap::new();
    for ((name, dims, values), (_, _, raw)) in tensors.iter_mut().zip(&mut raw).filter(|((name, _, _), _)| is_factor(name)) {
        let mean = values.iter().map(|v| v.abs()).sum::<f32>() / values.len() as f32;
        if !name.contains("expert") {
            for value in values.iter_mut() {
                *value = if value.abs() > 0.7 * mean { value.signum() } else { 0.0 };
            }
            means.insert(name.clone(), values.iter().map(|v| v.abs()).sum::<f32>() / values.len() as f32);
            raw.copy_from_slice(values);
            continue;
        }
        for row in raw.chunks_mut(dims[1] as usize) {
            let largest = row.iter().fold(0.0f32, |largest, v| largest.max(v.abs()));
            for v in row.iter_mut() {
                *v = (*v / largest * 127.0).round_ties_even() / 127.0 * largest;
            }
        }
    }
    for (name, _, values) in raw.iter_mut().filter(|(name, _, _)| name.ends_with(".Tsct.s") && !name.contains("expert")) {
        let [u, v] = ["u", "v"].map(|part| means[&name.replace(".Tsct.s", &format!(".Tsct.{part}"))]);
        for s in values.iter_mut() {
            *s *= u * v;
        }
    }
    let (given, expected) = (file(&made.text, &tensors), file(&made.text, &raw));
    let bind = |bytes| Dormouse::bind(&ModelFile::open(bytes).unwrap()).unwrap();
    let len = if cfg!(miri) { 3 } else { 30 };
    let logits = |model: Dormouse<'_>| logits_after(&model, &text(len), Decoding::Exact, &[len]).remove(0);
    let fp8 = logits(bind(&given).with_factors(Factors::Fp8).unwrap());
    let ternary = logits(bind(&given));
    let expected = logits(bind(&expected).with_factors(Factors::Raw).unwrap());
    let off = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off(&fp8, &expected) < 2e-6, "{:e}", off(&fp8, &expected));
    assert!(off(&fp8, &ternary) > 1e-3, "{:e}", off(&fp8, &ternary));
}

#[test]
fn the_scale_of_the_recurrence_is_guessed_and_can_be_given() {
    for (aux, scale) in [(32, 1.0), (40, 8f32.sqrt().recip())] {
        let made = Made { aux: vec![("aux.conf.proj.weight".into(), vec![aux, 1])], ..Made::tiny("", |_| ()) };
        let bytes = made.file();
        let model = Dormouse::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
        assert_eq!((model.kda_scale(), model.kda_scale_is_recorded()), (scale, false));
        assert_eq!(model.with_kda_scale(0.5).unwrap().kda_scale(), 0.5);
        for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(matches!(model.with_kda_scale(bad), Err(Error::Config { key: ConfigKey::KdaScale, .. })));
        }
    }
}

#[test]
fn too_little_memory_is_refused_with_both_sizes() {
    let bytes = Made::tiny("", |_| ()).file();
    let model = Dormouse::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
    let layout = DormouseLayout::new(model.config(), 16, Decoding::Exact).unwrap();
    let needed = layout.total_bytes as u64;
    let mut memory = vec![0; layout.total_bytes / 4 - 1];
    let found = State::new(&model, &layout, (16, Decoding::Exact), &mut memory, None).unwrap_err();
    assert_eq!(found, Error::ArenaTooSmall { needed, found: needed - 4 });
}

/// The layout gives every arm what it takes: with a layout for one more of everything the bits are the same.
#[test]
fn every_arm_has_the_room_it_needs() {
    let generous = |layout: DormouseLayout| {
        let more = 4096;
        DormouseLayout {
            arm: layout.arm + more,
            lanes: layout.lanes + 8 * 256,
            activation: layout.activation + more,
            total_bytes: layout.total_bytes + 4 * (2 * more + 8 * 256),
            ..layout
        }
    };
    let models = [
        Made::tiny("use_gr = true\n", |config| config.residual = Residual::Gr),
        Made::tiny("use_attnres = true\n", |config| config.residual = Residual::AttnRes),
        Made::tiny("use_mhc = true\nmhc_streams = 16\n", |config| (config.residual, config.mhc_streams) = (Residual::Mhc, 16)),
        Made::tiny("rank = 200\nd_ffn = 3\nn_experts = 20\n", |config| (config.rank, config.d_ffn, config.n_experts) = (200, 3, 20)),
        Made::tiny("engram_dim = 100\nuse_situ = true\n", |config| (config.engram_dim, config.use_situ) = (100, true)),
        Made::tiny("n_heads = 1\nhead_dim = 300\n", |config| (config.n_heads, config.head_dim) = (1, 300)),
    ];
    // Rank 200 where 8 stood: a key may be given once.
    for mut made in models.into_iter().step_by(if cfg!(miri) { 4 } else { 1 }) {
        made.text = last_of_each_key(&made.text);
        let bytes = made.file();
        let model = Dormouse::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
        let run = |layout: DormouseLayout| {
            let mut memory = vec![0x7fc0_0001; layout.total_bytes / 4];
            let mut state = State::new(&model, &layout, (12, Decoding::Exact), &mut memory, None).unwrap();
            state.tokens.copy_from_slice(&text(12));
            bits(&after(&model, &mut state, 12))
        };
        let layout = DormouseLayout::new(model.config(), 12, Decoding::Exact).unwrap();
        assert_eq!(run(layout), run(generous(layout)), "{}", made.text);
    }
}

fn last_of_each_key(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let key = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let kept = lines.iter().enumerate().filter(|(at, line)| !lines[at + 1..].iter().any(|later| key(later) == key(line)));
    kept.flat_map(|(_, line)| [*line, "\n"]).collect()
}

#[test]
fn roles_of_one_layer_lie_together() {
    let config = DormouseConfig::DEFAULT;
    let number = |part| config.tensor_number(Role::Linear(Layer::LmHead, part));
    assert_eq!((number(Part::S), number(Part::V)), (number(Part::U) + 1, number(Part::U) + 2));
}
