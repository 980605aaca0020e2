//! Whole models: no vector instructions, no number of threads and no number of tokens fed at once change a bit.

use super::*;
use crate::export::tests::bits;
use dmexp::simd::Level;
use dmexp_format::crc32;
use std::fmt::Write as _;

/// Large enough for its matrices to be shared, with rows that fill no register.
const SHAPE: Shape =
    Shape { dim: 180, hidden_dim: 300, n_layers: 2, n_heads: 6, n_kv_heads: 2, vocab_size: 300, tied: true, max_seq_len: 80 };

/// Numbers of threads, and of tokens that are fed one by one before the others are fed at once.
const WAYS: [(&str, usize, usize); 5] = [
    ("prefill, 1 thread", 1, 0),
    ("decode, 1 thread", 1, usize::MAX),
    ("prefill, 2 threads", 2, 0),
    ("decode, 2 threads", 2, usize::MAX),
    ("both, 3 threads", 3, 3),
];

/// The logits after each token, of which the first `alone` are fed one by one and the others as the session likes.
fn logits(loaded: &Loaded, tokens: &[u32], kv: KvDType, threads: usize, alone: usize) -> Vec<u32> {
    let options = CpuOptions { context: Some(tokens.len() as u32), kv, tokenizer: None };
    let mut cpu = Cpu::on_threads(loaded, &options, threads).unwrap();
    let mut rows = Vec::new();
    let mut session = cpu.session(Sampler::greedy()).unwrap();
    let (first, others) = tokens.split_at(alone);
    for token in first {
        rows.push(session.feed(&[*token]).unwrap().to_vec());
    }
    Decoder::logits(&mut session, others, &mut |position, row| {
        assert_eq!(position as usize, rows.len());
        rows.push(row.to_vec());
        Ok(())
    })
    .unwrap();
    bits(&rows)
}

#[test]
fn levels_threads_and_blocks_change_no_bit_of_a_model_of_any_type() {
    // Read by people too, with --nocapture: checksums of all logits.
    println!("type  cache level    {}", WAYS.map(|(way, ..)| format!("{way:>20}")).concat());
    let checkpoint = open(SHAPE.random());
    let tokens: Vec<u32> = (0..74).map(|i| 3 + 13 * i % 290).collect();
    let kinds = [DType::F32, DType::F16, DType::Bf16, DType::Q8, DType::Q4].map(|dtype| (dtype, KvDType::F16));
    for (dtype, kv) in kinds.into_iter().chain([(DType::Q8, KvDType::F32), (DType::Bf16, KvDType::Q8)]) {
        let folder = TempDir::new().unwrap();
        let out = export(&checkpoint, &options(&folder, dtype, Format::V2)).unwrap().out;
        let loaded = Loaded::open(&out).unwrap();
        Level::Baseline.choose().unwrap();
        let expected = logits(&loaded, &tokens, kv, 1, tokens.len());
        for level in Level::ALL.into_iter().filter(|level| level.choose().is_ok()) {
            level.choose().unwrap();
            let mut row = format!("{:<5} {:<5} {:<9}", dtype.name(), kv.name(), level.name());
            for (way, threads, alone) in WAYS {
                let found = logits(&loaded, &tokens, kv, threads, alone.min(tokens.len()));
                let bytes: Vec<u8> = found.iter().flat_map(|bits| bits.to_le_bytes()).collect();
                let _ = write!(row, "{:>20}", format!("{:08x}", crc32::checksum(&[&bytes])));
                assert!(found == expected, "{dtype}, kv {kv:?}, {}, {way}", level.name());
            }
            println!("{row}");
        }
        // A text that is continued: what was fed at once goes on one by one.
        let mut cpu = Cpu::new(&loaded, &CpuOptions { context: None, kv, tokenizer: None }).unwrap();
        let mut session = cpu.session(Sampler::greedy()).unwrap();
        session.push_tokens(&tokens).unwrap();
        assert_eq!(session.feed_blocks() as usize, tokens.len() - 1);
        let last: Vec<u32> = Session::logits(&mut session).unwrap().iter().map(|logit| logit.to_bits()).collect();
        assert!(expected.ends_with(&last));
        session.reset();
        session.push_tokens(&tokens).unwrap();
        assert!(matches!(session.step(), Ok(Step::Prompt { .. })));
        session.feed_blocks();
        assert!(matches!(session.step(), Ok(Step::Token { .. })));
        assert_eq!(session.position() as usize, tokens.len());
    }
}

#[test]
fn a_sliding_window_is_the_same_at_once() {
    let checkpoint = open(SHAPE.random());
    let checkpoint::Config::Llama(source) = &checkpoint.config else { panic!("it is a Llama") };
    let le = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut arrays: Vec<_> = checkpoint.arrays().map(|array| (array.dims(), le(&array.to_vec().unwrap()))).collect();
    arrays.push((dmexp_format::Dims::vector(source.config.head_dim / 2), le(&source.inv_freq)));
    let table: Vec<_> = arrays.iter().map(|(dims, bytes)| dmexp_format::TensorView::new(0, DType::F32, *dims, bytes).unwrap()).collect();
    let tokens: Vec<u32> = (0..70).map(|i| 3 + 13 * i % 290).collect();
    for window in [1, 5, 8, 100] {
        let config = LlamaConfig { sliding_window: window, ..source.config };
        let model = dmexp::Model::from_parts(
            dmexp::models::llama::Llama::from_table(config, &table),
            dmexp::tokenizer::Tokenizer::NONE,
            70,
            KvDType::F32,
        );
        let run = |model: &dmexp::Model<'_>| {
            let mut arena = vec![0u32; model.arena_len().unwrap().div_ceil(4)];
            let mut session = Session::new(model, arena.as_mut_slice(), Sampler::greedy()).unwrap();
            let mut rows = Vec::new();
            Decoder::logits(&mut session, &tokens, &mut |_, row| {
                rows.push(row.to_vec());
                Ok(())
            })
            .unwrap();
            bits(&rows)
        };
        assert!(run(&model) == run(&model.with_block(13)), "{window}");
    }
}
