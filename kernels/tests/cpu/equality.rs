//! The kernels' logits are the runtime's: every type of weights and of keys and values, steps and blocks, several orders of threads.

use crate::decoder::Decoder;
use crate::device::{Build, Device, Outcome};
use crate::models::{Kind, Made, ODD};
use dmexp::format::arch::llama::{LlamaConfig, RopeLayout, TensorKind};
use dmexp::format::{DType, KvDType};
use dmexp_kernels::plan::{NOT_FINITE, SHARED_BY_DEFAULT};
use dmexp_kernels::{COLUMNS, Kernel};

/// The token that greedy choice takes after these logits.
pub(crate) fn likeliest(logits: &[u32]) -> u32 {
    let mut best = 0;
    for (i, logit) in logits.iter().enumerate() {
        if f32::from_bits(*logit) > f32::from_bits(logits[best]) {
            best = i;
        }
    }
    best as u32
}

/// Steps and blocks of `made` against the runtime for so many positions; the first difference is described.
pub(crate) fn compare(decoder: &mut Decoder, made: &Made, kv: KvDType, positions: u32, block: u32) -> Outcome<()> {
    let tokens = made.tokens(positions);
    let expected = made.expected(kv, &tokens);
    let differs = |what: &str, position: usize, found: &[u32]| {
        let at = found.iter().zip(&expected[position]).position(|(found, expected)| found != expected);
        at.map_or(Ok(()), |at| {
            let (found, expected) = (f32::from_bits(found[at]), f32::from_bits(expected[position][at]));
            Err(format!("{what}, position {position}, logit {at}: {found} of the kernels, {expected} of the runtime"))
        })
    };
    decoder.begin(&tokens)?;
    for position in 0..tokens.len() {
        differs("a step", position, &decoder.step()?)?;
    }
    let (state, picks) = (decoder.plan().state(), decoder.plan().picks());
    if decoder.words(state, 3)? != [positions, positions, 0] {
        return Err(format!("the state after {positions} steps: {:?}", decoder.words(state, 3)?));
    }
    let picks = decoder.words(picks, tokens.len())?;
    let likeliest: Vec<_> = expected.iter().map(|logits| likeliest(logits)).collect();
    if picks != likeliest {
        return Err(format!("{picks:?} were chosen, not {likeliest:?}"));
    }
    for (position, found) in decoder.blocks(&tokens, block)?.iter().enumerate() {
        differs("a block", position, found)?;
    }
    Ok(())
}

fn check(order: u32, made: &Made, kv: KvDType, (positions, context): (u32, u32), shared_limit: u32) {
    let mut decoder = Decoder::new(Build::Plain.program(), order, made, (context, kv), shared_limit).unwrap();
    compare(&mut decoder, made, kv, positions, COLUMNS - order % 3).unwrap();
    decoder.end().unwrap();
}

const KINDS: [Kind; 9] = [
    (DType::F32, 0),
    (DType::F16, 0),
    (DType::Bf16, 0),
    (DType::Q8, 0),
    (DType::Q8, 8),
    (DType::Q8, 24),
    (DType::Q4, 0),
    (DType::Q4, 16),
    (DType::T2, 0),
];

#[test]
fn every_type_at_odd_sizes_gives_the_bits_of_the_runtime() {
    let caches = [KvDType::F32, KvDType::F16, KvDType::Q8];
    for (n, kind) in KINDS.into_iter().enumerate() {
        let config = LlamaConfig {
            rope_layout: if n % 2 == 0 { RopeLayout::Half } else { RopeLayout::Interleaved },
            qkv_bias: n % 3 != 0,
            tied_embeddings: n % 4 != 1,
            sliding_window: if n % 2 == 0 { 0 } else { 11 },
            attention_factor: if n % 3 == 1 { 1.25 } else { 1.0 },
            ..ODD
        };
        check(n as u32, &Made::new(config, |_, _| kind), caches[n % 3], (21, 24), SHARED_BY_DEFAULT);
    }
}

/// Each matrix of another type than the one before: those that share an input do not share a type.
pub(crate) fn mixed(_: TensorKind, number: u32) -> Kind {
    KINDS[number as usize % KINDS.len()]
}

#[test]
fn matrices_of_one_layer_may_have_different_types() {
    let made = Made::new(LlamaConfig { qkv_bias: true, tied_embeddings: false, ..ODD }, mixed);
    for (order, kv) in [(0, KvDType::Q8), (1, KvDType::F32), (2, KvDType::F16)] {
        check(order, &made, kv, (11, 11), SHARED_BY_DEFAULT);
    }
}

#[test]
fn wide_rows_and_many_rows_too() {
    // Rows of several runs, with a rest; blocks of 64, 128 and 256 threads.
    let config = LlamaConfig { dim: 300, hidden_dim: 2600, vocab_size: 4300, n_layers: 1, n_heads: 2, head_dim: 70, n_kv_heads: 1, ..ODD };
    for (kind, kv) in [
        ((DType::F32, 0), KvDType::F16),
        ((DType::Bf16, 0), KvDType::F32),
        ((DType::F16, 0), KvDType::Q8),
        ((DType::Q8, 64), KvDType::F16),
        ((DType::Q4, 32), KvDType::Q8),
        ((DType::T2, 0), KvDType::F32),
    ] {
        check(3, &Made::new(config, |_, _| kind), kv, (3, 3), SHARED_BY_DEFAULT);
    }
}

#[test]
fn inputs_too_wide_for_shared_memory_are_read_from_global_memory() {
    let made = Made::new(ODD, mixed);
    check(1, &made, KvDType::F16, (5, 5), 0);
    // Some fit and some do not.
    check(0, &made, KvDType::F32, (5, 5), 600);
}

#[test]
fn scores_of_long_contexts_lie_in_global_memory() {
    let config = LlamaConfig { max_seq_len: 20_000, ..ODD };
    for kv in [KvDType::F32, KvDType::Q8] {
        check(2, &Made::new(config, |_, _| (DType::F32, 0)), kv, (9, 20_000), SHARED_BY_DEFAULT);
    }
}

#[test]
fn tokens_that_are_not_given_are_the_likeliest() {
    let made = Made::new(ODD, |_, _| (DType::Bf16, 0));
    let mut decoder = Decoder::new(Build::Plain.program(), 0, &made, (20, KvDType::F16), SHARED_BY_DEFAULT).unwrap();
    let mut tokens = made.tokens(4);
    decoder.begin_with(&tokens, 4).unwrap();
    for position in 0..20 {
        let logits = decoder.step().unwrap();
        if position >= 3 && tokens.len() < 20 {
            tokens.push(likeliest(&logits));
        }
    }
    let piece = decoder.plan().tokens();
    assert_eq!(decoder.words(piece, 20).unwrap(), tokens);
    assert_eq!(made.expected(KvDType::F16, &tokens).last(), Some(&decoder.words(decoder.plan().logits(), 101).unwrap()));
}

#[test]
fn of_equal_logits_the_lowest_token_is_chosen_and_what_is_no_number_is_said() {
    let config = LlamaConfig { tied_embeddings: false, vocab_size: 300, ..ODD };
    let made = || Made::new(config, |_, _| (DType::F32, 0));
    for (made, pick, state) in [
        (made().filled(TensorKind::Output, 0.0), 0, [2, 2, 0]),
        (made().filled(TensorKind::Norm, f32::INFINITY), NOT_FINITE, [2, 2, 1]),
        (made().filled(TensorKind::Output, f32::NAN), NOT_FINITE, [2, 2, 1]),
    ] {
        let mut decoder = Decoder::new(Build::Plain.program(), 0, &made, (4, KvDType::F32), SHARED_BY_DEFAULT).unwrap();
        decoder.begin(&made.tokens(2)).unwrap();
        for _ in 0..2 {
            decoder.step().unwrap();
        }
        let (of_picks, of_state, of_tokens) = (decoder.plan().picks(), decoder.plan().state(), decoder.plan().tokens());
        assert_eq!(decoder.words(of_picks, 2).unwrap(), [pick; 2]);
        assert_eq!(decoder.words(of_state, 3).unwrap(), state);
        assert_eq!(decoder.words(of_tokens, 3).unwrap()[2], 0);
    }
}

/// 64 positions, or what `DMEXP_KERNELS_POSITIONS` says: `cargo xtask test` takes the whole context, 256.
#[test]
fn stories260k_gives_the_bits_of_the_runtime() {
    let positions = std::env::var("DMEXP_KERNELS_POSITIONS").map_or(64, |number| number.parse().expect("a number of positions"));
    for (kind, kv) in [
        ((DType::F32, 0), KvDType::F16),
        ((DType::F16, 0), KvDType::F32),
        ((DType::Bf16, 0), KvDType::F16),
        ((DType::Q8, 32), KvDType::Q8),
        ((DType::Q4, 32), KvDType::F16),
        ((DType::T2, 0), KvDType::F32),
    ] {
        let Some(made) = Made::stories(kind) else { return };
        check(0, &made, kv, (positions, 256), SHARED_BY_DEFAULT);
    }
}

#[test]
fn both_sides_have_the_same_kernels_and_parameters() {
    let config = LlamaConfig { max_seq_len: 600, ..ODD };
    let made = Made::new(config, |_, _| (DType::F32, 0));
    let views = made.views();
    let plan = dmexp_kernels::Plan::new(config, |n| views.get(n as usize).copied(), (600, KvDType::F16), SHARED_BY_DEFAULT).unwrap();
    let addresses = vec![0; plan.pieces().len()];
    let mut launches = plan.block(&addresses, 2, 0);
    for reach in plan.reaches() {
        launches.extend(plan.step(&addresses, reach).launches().cloned());
    }
    launches.extend(crate::dormouse::launches());
    let theirs = Device::start(Build::Plain.program()).kernels().unwrap();
    let ours: Vec<_> = Kernel::ALL
        .into_iter()
        .map(|kernel| {
            let launch = launches.iter().find(|launch| launch.kernel == kernel).expect("a launch of every kernel");
            (kernel.name().to_owned(), launch.args.iter().map(|arg| arg.len() as u32).collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(ours, theirs);
}
