//! Properties of whole models of any small shape, each type of weights and of keys and values: how tokens are fed, together with what, and in which memory, changes no bit.

use dmexp::format::arch::llama::{LlamaConfig, RopeLayout};
use dmexp::format::{DType, Dims, Error, KvDType, Planes, TensorView};
use dmexp::models::llama::Llama;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Batch, Model, Part, Sampler, Session};
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Mutex;

const CONTEXT: u32 = 24;

/// A configuration of the smallest sizes, with everything that it can be set to.
fn config() -> impl Strategy<Value = LlamaConfig> {
    let heads = select(vec![(1, 1), (2, 1), (4, 2), (3, 3), (6, 2)]);
    let layout = select(vec![RopeLayout::Interleaved, RopeLayout::Half]);
    let window = select(vec![0, 0, 1, 5, 9]);
    (heads, 1u32..5, 1u32..4, 1u32..40, 2u32..40, layout, any::<bool>(), any::<bool>(), window).prop_map(
        |((n_heads, n_kv_heads), half, n_layers, hidden_dim, vocab_size, rope_layout, tied_embeddings, qkv_bias, sliding_window)| {
            LlamaConfig {
                dim: n_heads * 2 * half,
                hidden_dim,
                n_layers,
                n_heads,
                n_kv_heads,
                head_dim: 2 * half,
                vocab_size,
                max_seq_len: CONTEXT,
                norm_eps: 1e-5,
                rope_layout,
                attention_factor: 1.0,
                tied_embeddings,
                qkv_bias,
                sliding_window,
            }
        },
    )
}

fn dtype() -> impl Strategy<Value = DType> {
    select(vec![DType::F32, DType::F16, DType::Bf16, DType::Q8, DType::Q4])
}

fn kv() -> impl Strategy<Value = KvDType> {
    select(vec![KvDType::F32, KvDType::F16, KvDType::Q8])
}

/// Numbers below one, the same for the same seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    fn float(&mut self) -> f32 {
        self.next() as f32 / (1u32 << 30) as f32 - 1.0
    }
}

/// The tensors of a model: type, dims, bytes.
fn tensors(config: &LlamaConfig, dtype: DType, seed: u64) -> Vec<(DType, Dims, Vec<u8>)> {
    let mut numbers = Numbers(seed);
    let weights = (0..config.weight_tensors()).map(|number| config.tensor(number).unwrap());
    let mut made: Vec<_> = weights
        .map(|spec| {
            let dtype = if spec.kind.is_matrix() { dtype } else { DType::F32 };
            let count = spec.dims.count() as usize;
            let bytes = match dtype {
                DType::F32 => (0..count).flat_map(|_| numbers.float().to_le_bytes()).collect(),
                DType::F16 => (0..count).flat_map(|_| half::f16::from_f32(numbers.float()).to_le_bytes()).collect(),
                DType::Bf16 => (0..count).flat_map(|_| half::bf16::from_f32(numbers.float()).to_le_bytes()).collect(),
                _ => integers(dtype, spec.dims, &mut numbers),
            };
            (dtype, spec.dims, bytes)
        })
        .collect();
    let frequencies = (0..config.head_dim / 2).flat_map(|i| (1.0 / (1 + 7 * i) as f32).to_le_bytes()).collect();
    made.push((DType::F32, Dims::vector(config.head_dim / 2), frequencies));
    made
}

/// Any codes, and scales with which values stay about one.
fn integers(dtype: DType, dims: Dims, numbers: &mut Numbers) -> Vec<u8> {
    let planes = Planes::new(0, dtype, dims, 0).unwrap();
    let mut bytes = vec![0; planes.bytes as usize];
    for byte in &mut bytes[..planes.scales as usize] {
        // -128 is no code of q8.
        *byte = if dtype == DType::Q8 { (numbers.next() % 255) as u8 } else { numbers.next() as u8 };
        *byte = if *byte == 128 { 127 } else { *byte };
    }
    for row in 0..dims.rows() as usize {
        let scale = if dtype == DType::Q8 { 1.0 / 128.0 } else { 1.0 / 8.0 };
        bytes[planes.scales as usize + 4 * row..][..4].copy_from_slice(&f32::to_le_bytes(scale));
    }
    // A row of q8 is one group without a multiplier.
    if dtype == DType::Q4 {
        bytes[planes.multipliers as usize..][..planes.multiplier_count as usize].fill(1);
        for offset in bytes[planes.offsets as usize..][..2 * planes.offset_count as usize].as_chunks_mut().0 {
            *offset = (-8i16).to_le_bytes();
        }
    }
    bytes
}

/// Runs `check` with a model of these tensors.
fn with_model<R>(config: LlamaConfig, dtype: DType, kv: KvDType, seed: u64, check: impl FnOnce(&Model<'_>) -> R) -> R {
    let made = tensors(&config, dtype, seed);
    let table: Vec<_> = made.iter().map(|(dtype, dims, bytes)| TensorView::new(0, *dtype, *dims, bytes).unwrap()).collect();
    check(&Model::from_parts(Llama::from_table(config, &table), Tokenizer::NONE, CONTEXT, kv))
}

/// Memory of a model, with numbers in it that are none.
fn memory(bytes: usize) -> Vec<u32> {
    vec![0x7fc0_0001; bytes / size_of::<u32>()]
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|logit| logit.to_bits()).collect()
}

/// The logits after each token, fed one at a time to a session of its own.
fn one_by_one(model: &Model<'_>, tokens: &[u32]) -> Vec<Vec<u32>> {
    let mut memory = memory(model.arena_len().unwrap());
    let mut session = Session::new(model, memory.as_mut_slice(), Sampler::greedy()).unwrap();
    tokens
        .iter()
        .map(|token| {
            session.push_tokens(&[*token]).unwrap();
            bits(session.logits().unwrap())
        })
        .collect()
}

/// As many tokens as fit a context, each below the size of a vocabulary when its remainder is taken.
fn texts() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 1..=CONTEXT as usize)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_of_any_size_and_cuts_have_the_bits_of_one_token_at_a_time(
        config in config(), dtype in dtype(), kv in kv(), seed: u64, block in 1u32..12, text in texts(),
        pieces in prop::collection::vec((1usize..9, 0u32..9), 1..9),
    ) {
        let text: Vec<u32> = text.iter().map(|token| token % config.vocab_size).collect();
        with_model(config, dtype, kv, seed, |model| {
            let wanted = one_by_one(model, &text);
            let model = model.with_block(block);
            let mut memory = memory(model.arena_len().unwrap());
            let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy()).unwrap();
            let mut at = 0;
            for (count, back) in pieces.into_iter().chain([(text.len(), 0)]) {
                let end = (at + count).min(text.len());
                if end > at {
                    session.push_tokens(&text[at..end]).unwrap();
                    prop_assert_eq!(&bits(session.logits().unwrap()), &wanted[end - 1], "{} to {}", at, end);
                }
                // What was cut off goes on as a text that never had more.
                at = end.saturating_sub(back as usize);
                session.truncate(at as u32);
            }
            Ok(())
        })?;
    }

    #[test]
    fn texts_fed_at_once_have_the_bits_of_each_alone(
        config in config(), dtype in dtype(), kv in kv(), seed: u64, positions in 1u32..40,
        texts in prop::collection::vec(texts(), 1..5),
    ) {
        let texts: Vec<Vec<u32>> = texts.iter().map(|text| text.iter().map(|token| token % config.vocab_size).collect()).collect();
        with_model(config, dtype, kv, seed, |model| {
            let mut arenas: Vec<_> = texts.iter().map(|_| memory(model.arena_len().unwrap())).collect();
            let mut sessions = Vec::new();
            for (text, arena) in texts.iter().zip(&mut arenas) {
                let mut session = Session::new(model, arena.as_mut_slice(), Sampler::greedy()).unwrap();
                session.push_tokens(text).unwrap();
                sessions.push(session);
            }
            let mut batch_memory = memory(Batch::arena_len(model, positions, 4).unwrap());
            let mut batch = Batch::new(model, positions, 4, batch_memory.as_mut_slice()).unwrap();
            let found: Vec<_> = texts.iter().map(|text| Mutex::new(vec![Vec::new(); text.len()])).collect();
            loop {
                let mut room = batch.positions();
                let (mut parts, mut owners) = (Vec::new(), Vec::new());
                for (number, session) in sessions.iter_mut().enumerate() {
                    let count = session.waiting().min(room);
                    if count > 0 {
                        room -= count;
                        parts.push(Part { session, count, every: true });
                        owners.push(number);
                    }
                }
                if parts.is_empty() {
                    break;
                }
                batch.feed(&mut parts, &|fed| found[owners[fed.part]].lock().unwrap()[fed.position as usize] = bits(fed.logits.unwrap())).unwrap();
            }
            for (text, found) in texts.iter().zip(found) {
                prop_assert_eq!(found.into_inner().unwrap(), one_by_one(model, text));
            }
            Ok(())
        })?;
    }

    /// Nothing of a session lies over something else, and nothing is read that was not written: neither other memory nor one word more or less than is asked for changes a bit, and a word less is refused.
    #[test]
    fn arenas_are_as_large_as_they_say_in_one_piece_and_in_two(
        config in config(), dtype in dtype(), kv in kv(), seed: u64, context in 1u32..=CONTEXT, text in texts(), rubbish: u32,
    ) {
        let text: Vec<u32> = text.iter().take(context as usize).map(|token| token % config.vocab_size).collect();
        with_model(config, dtype, kv, seed, |model| {
            let wanted = one_by_one(model, &text);
            let model = model.with_context(context);
            let (whole, (past, work)) = (model.arena_len().unwrap(), model.bank_lens().unwrap());
            prop_assert_eq!(past + work, whole);
            let (mut whole, mut past, mut work) = (vec![rubbish; whole / 4], vec![rubbish; past / 4], vec![rubbish; work / 4]);
            {
                let one = Session::new(&model, whole.as_mut_slice(), Sampler::greedy()).unwrap();
                let two = Session::new_in_banks(&model, past.as_mut_slice(), work.as_mut_slice(), Sampler::greedy()).unwrap();
                for mut session in [one, two] {
                    for (token, wanted) in text.iter().zip(&wanted) {
                        session.push_tokens(&[*token]).unwrap();
                        prop_assert_eq!(&bits(session.logits().unwrap()), wanted);
                    }
                    prop_assert_eq!(session.tokens(), text.as_slice());
                }
            }
            let refused = Session::new(&model, &mut whole[1..], Sampler::greedy()).map(drop);
            prop_assert!(matches!(refused, Err(Error::ArenaTooSmall { .. })), "{:?}", refused);
            Ok(())
        })?;
    }
}
