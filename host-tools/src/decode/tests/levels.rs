//! Whole models: no vector instructions and no number of threads change a bit.

use super::*;
use crate::export::tests::bits;
use dmexp::simd::Level;

/// Large enough for its matrices to be shared, with rows that no register fits.
const SHAPE: Shape =
    Shape { dim: 180, hidden_dim: 300, n_layers: 2, n_heads: 6, n_kv_heads: 2, vocab_size: 300, tied: true, max_seq_len: 48 };

fn logits(loaded: &Loaded, tokens: &[u32], kv: KvDType, threads: usize) -> Vec<u32> {
    let options = CpuOptions { context: Some(tokens.len() as u32), kv, tokenizer: None };
    let mut cpu = Cpu::on_threads(loaded, &options, threads).unwrap();
    let mut rows = Vec::new();
    let mut session = cpu.session(Sampler::greedy()).unwrap();
    Decoder::logits(&mut session, tokens, &mut |_, row| {
        rows.push(row.to_vec());
        Ok(())
    })
    .unwrap();
    bits(&rows)
}

#[test]
fn levels_and_threads_change_no_bit_of_a_model_of_any_type() {
    let checkpoint = open(SHAPE.random());
    let tokens: Vec<u32> = (0..19).map(|i| 3 + 13 * i % 290).collect();
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::Q8, DType::Q4] {
        let folder = TempDir::new().unwrap();
        let out = export(&checkpoint, &options(&folder, dtype, Format::V2)).unwrap().out;
        let loaded = Loaded::open(&out).unwrap();
        for kv in [KvDType::F32, KvDType::F16, KvDType::Q8] {
            Level::Baseline.choose().unwrap();
            let expected = logits(&loaded, &tokens, kv, 1);
            for level in Level::ALL.into_iter().filter(|level| level.choose().is_ok()) {
                level.choose().unwrap();
                for threads in [1, 2, 3] {
                    assert!(logits(&loaded, &tokens, kv, threads) == expected, "{dtype}, kv {kv:?}, {}, {threads} threads", level.name());
                }
            }
        }
    }
}
