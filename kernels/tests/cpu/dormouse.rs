//! dormouse models: the kernels' logits are the runtime's, for every type of weights, step by step and at once, in several orders of threads.

mod decoder;
mod faults;
mod made;

use crate::device::{Build, Outcome};
use crate::equality::likeliest;
use crate::models::Kind;
use decoder::Decoder;
use dmexp::format::DType;
use dmexp::format::arch::dormouse::layout::Decoding;
use dmexp::format::arch::dormouse::{ActQuant, Attention, DormouseConfig, Residual};
use dmexp_kernels::dormouse::{Plan, Settings};
use dmexp_kernels::plan::NOT_FINITE;
use dmexp_kernels::{Launch, Refusal};
pub(crate) use faults::FAULTS;
use made::{Made, ODD};
use std::path::Path;

/// Steps of `made` against the runtime for so many positions, then the first `at_once` of them at once and the others too; the first difference is described.
fn compare(decoder: &mut Decoder, made: &Made, decoding: Decoding, positions: u32, at_once: u32) -> Outcome<()> {
    let tokens = made.tokens(positions);
    let expected = made.expected(decoding, &tokens);
    let differs = |what: &str, position: usize, found: &[u32]| {
        let at = found.iter().zip(&expected[position]).position(|(found, expected)| found != expected);
        at.map_or(Ok(()), |at| {
            let (found, expected) = (f32::from_bits(found[at]), f32::from_bits(expected[position][at]));
            Err(format!("{what}, position {position}, logit {at}: {found} of the kernels, {expected} of the runtime"))
        })
    };
    decoder.begin(&tokens, positions)?;
    for position in 0..tokens.len() {
        differs("a step", position, &decoder.step()?)?;
    }
    let (state, picks) = (decoder.plan().state(), decoder.plan().picks());
    let state = decoder.words(state, 3)?;
    if state != [positions, positions, 0] {
        return Err(format!("the state after {positions} steps: {state:?}"));
    }
    let picks = decoder.words(picks, tokens.len())?;
    let likeliest: Vec<_> = expected.iter().map(|logits| likeliest(logits)).collect();
    if picks != likeliest {
        return Err(format!("{picks:?} were chosen, not {likeliest:?}"));
    }
    if decoding == Decoding::Fast {
        return Ok(());
    }
    decoder.begin(&tokens, positions)?;
    for (first, count) in [(0, at_once), (at_once, positions - at_once)] {
        differs("at once", (first + count) as usize - 1, &decoder.at_once(first, count)?)?;
    }
    Ok(())
}

fn check(order: u32, made: &Made, decoding: Decoding, (positions, context): (u32, u32)) {
    let mut decoder = Decoder::new(Build::Plain.program(), order, made, decoding, context).unwrap();
    compare(&mut decoder, made, decoding, positions, positions / 2).unwrap_or_else(|said| panic!("{:?}: {said}", made.config));
    decoder.end().unwrap();
}

const KINDS: [Kind; 9] = [
    (DType::F32, 0),
    (DType::F16, 0),
    (DType::Bf16, 0),
    (DType::Q8, 0),
    (DType::Q8, 8),
    (DType::Q4, 0),
    (DType::Q4, 16),
    (DType::T2, 0),
    (DType::Q8, 24),
];

#[test]
fn every_type_at_odd_sizes_gives_the_bits_of_the_runtime() {
    for (n, kind) in (0..).zip(KINDS) {
        check(n, &Made::new(ODD, |_, _| kind), Decoding::Exact, (11, 13));
        // Layers that are not factors.
        check(n + 1, &Made::new(DormouseConfig { use_tsct: false, ..ODD }, |_, _| kind), Decoding::Exact, (5, 13));
    }
}

/// Each matrix of another type than the one before.
fn mixed(number: u32, factor: bool) -> Kind {
    if factor { [(DType::T2, 0), (DType::F32, 0), (DType::Bf16, 0)][number as usize % 3] } else { KINDS[number as usize % KINDS.len()] }
}

#[test]
fn all_that_a_configuration_may_change_gives_the_bits_of_the_runtime() {
    let configs = [
        DormouseConfig { use_engram: false, ..ODD },
        DormouseConfig { attention: Attention::None, ..ODD },
        DormouseConfig { attention: Attention::None, use_engram: false, use_tsct: false, max_iter: 2, ..ODD },
        DormouseConfig { max_iter: 1, ..ODD },
        DormouseConfig { n_experts: 11, moe_topk: 3, ..ODD },
        DormouseConfig { n_experts: 1, engram_rows: 2, rank: 1, ..ODD },
        DormouseConfig { use_mor: true, mor_k: 2, ..ODD },
        DormouseConfig { act_quant: ActQuant::Fp4, act_group: 4, ..ODD },
        DormouseConfig { act_quant: ActQuant::Int4, ..ODD },
        DormouseConfig { act_quant: ActQuant::Int8, attention: Attention::None, ..ODD },
        DormouseConfig { n_heads: 1, head_dim: 24, max_iter: 5, vocab: 259, ..ODD },
    ];
    for (n, config) in (0..).zip(configs) {
        check(n, &Made::new(config, mixed), Decoding::Exact, (6, 10));
    }
}

#[test]
fn long_texts_stop_where_nothing_changes_and_fast_ones_never_go_back() {
    // Past the positions whose states are all kept, with decays that forget at once, late and never.
    for (n, bias) in [2.0, -1.0, -30.0].into_iter().enumerate() {
        let made = Made::new(
            DormouseConfig { d_model: 12, n_heads: 2, head_dim: 4, d_ffn: 9, n_experts: 1, rank: 3, max_iter: 3, ..ODD },
            |_, _| (DType::F32, 0),
        );
        let made = made.with_decay_bias(bias);
        let mut decoder = Decoder::new(Build::Plain.program(), n as u32, &made, Decoding::Exact, 72).unwrap();
        compare(&mut decoder, &made, Decoding::Exact, 70, 33).unwrap();
        let again = decoder.words(decoder.plan().computed_again(), 3).unwrap()[2];
        match n {
            0 => assert!((1..32).contains(&again), "{again}"),
            2 => assert_eq!(again, 33),
            _ => (),
        }
        decoder.end().unwrap();
        check(n as u32, &made, Decoding::Fast, (40, 40));
    }
}

#[test]
fn tokens_that_are_not_given_are_the_likeliest_and_what_is_no_number_is_said() {
    let made = Made::new(ODD, |_, _| (DType::Bf16, 0));
    let mut decoder = Decoder::new(Build::Plain.program(), 0, &made, Decoding::Exact, 12).unwrap();
    let mut tokens = made.tokens(4);
    decoder.begin(&tokens, 4).unwrap();
    for position in 0..12 {
        let logits = decoder.step().unwrap();
        if position >= 3 && tokens.len() < 12 {
            tokens.push(likeliest(&logits));
        }
    }
    let piece = decoder.plan().tokens();
    assert_eq!(decoder.words(piece, 12).unwrap(), tokens);
    let made = made.with_norm(f32::INFINITY);
    let mut decoder = Decoder::new(Build::Plain.program(), 0, &made, Decoding::Exact, 4).unwrap();
    decoder.begin(&tokens[..2], 2).unwrap();
    decoder.step().unwrap();
    let (picks, state) = (decoder.plan().picks(), decoder.plan().state());
    assert_eq!(decoder.words(picks, 1).unwrap(), [NOT_FINITE]);
    assert_eq!(decoder.words(state, 3).unwrap(), [1, 2, 1]);
}

#[test]
fn what_the_kernels_do_not_have_is_refused_by_name() {
    let refused = |config: DormouseConfig, context: u32| {
        let settings = Settings { kda_scale: 1.0, exact: true, context };
        Plan::new(config, settings, |_| None).unwrap_err()
    };
    for (config, what) in [
        (DormouseConfig { attention: Attention::Plain, ..ODD }, "use_plain_attn"),
        (DormouseConfig { residual: Residual::Gr, ..ODD }, "use_gr"),
        (DormouseConfig { residual: Residual::AttnRes, ..ODD }, "use_attnres"),
        (DormouseConfig { residual: Residual::Mhc, ..ODD }, "use_mhc"),
        (DormouseConfig { use_situ: true, ..ODD }, "use_situ"),
    ] {
        assert_eq!(refused(config, 8), Refusal::Option { what });
        assert_eq!(refused(config, 8).to_string(), format!("the kernels do not have {what}"));
    }
    assert_eq!(refused(ODD, 0), Refusal::Context { found: 0, allowed: ODD.max_seq_len });
    assert_eq!(refused(ODD, 8), Refusal::Missing { tensor: 0 });
    let wide = DormouseConfig { head_dim: 2000, ..ODD };
    assert!(matches!(refused(wide, 8), Refusal::HeadTooWide { needed: 64_000, .. }));
}

/// Launches of every kernel for these models.
pub(crate) fn launches() -> Vec<Launch> {
    let made = Made::new(ODD, |_, factor| if factor { (DType::T2, 0) } else { (DType::Q8, 0) });
    let plan = Plan::new(ODD, Settings { kda_scale: 1.0, exact: true, context: 8 }, |role| made.view(role)).unwrap();
    plan.step(&vec![0; plan.pieces().len()], 2).launches().cloned().collect()
}

/// A model with a matrix of each type.
pub(crate) fn small() -> Made {
    Made::new(DormouseConfig { max_iter: 3, n_experts: 2, d_ffn: 11, vocab: 19, ..ODD }, mixed)
}

/// A few steps, and a few at once, where `fault` is on.
pub(crate) fn few_steps(program: &Path, order: u32, fault: u32, made: &Made) -> Outcome<()> {
    let mut decoder = Decoder::new(program, order, made, Decoding::Exact, 6)?;
    decoder.fault(fault)?;
    let compared = compare(&mut decoder, made, Decoding::Exact, 5, 3);
    // What a sanitizer says comes before what is wrong in the results.
    decoder.end()?;
    compared
}

#[test]
fn no_access_is_out_of_bounds_and_nothing_is_undefined() {
    for order in [0, 1] {
        few_steps(Build::Address.program(), order, 0, &small()).unwrap();
    }
}

#[test]
fn no_two_threads_touch_a_word_without_an_order() {
    few_steps(Build::Thread.program(), 0, 0, &small()).unwrap();
}
