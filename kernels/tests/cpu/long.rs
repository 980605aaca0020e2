//! Attention over many positions, which is spread over blocks of threads: the bits of one block a head, and of the runtime, at every length around a border. And several texts at once.

use crate::decoder::{Decoder, Row};
use crate::device::{Build, Outcome};
use crate::equality::mixed;
use crate::models::{Made, ODD};
use dmexp::format::arch::llama::{LlamaConfig, RopeLayout};
use dmexp::format::{DType, KvDType};
use dmexp_kernels::plan::SHARED_BY_DEFAULT;
use dmexp_kernels::{COLUMNS, Plan};
use std::path::Path;

/// Little but attention.
const SMALL: LlamaConfig = LlamaConfig { dim: 12, hidden_dim: 9, n_layers: 1, n_heads: 2, n_kv_heads: 1, vocab_size: 17, ..ODD };
const CACHES: [KvDType; 3] = [KvDType::F32, KvDType::F16, KvDType::Q8];

fn small(max_seq_len: u32, sliding_window: u32) -> Made {
    Made::new(LlamaConfig { max_seq_len, sliding_window, ..SMALL }, |_, _| (DType::F32, 0))
}

/// With keys and values of any kind, steps at `position`: by one block a head, and for the reach that is far enough and for the farthest.
pub(crate) fn one_and_many(
    program: &Path,
    (order, fault): (u32, u32),
    made: &Made,
    context: (u32, KvDType),
    positions: &[u32],
) -> Outcome<()> {
    let mut decoder = Decoder::new(program, order, made, context, SHARED_BY_DEFAULT)?;
    decoder.fill_cache(5)?;
    decoder.fault(fault)?;
    let compared = positions.iter().try_for_each(|position| {
        let row: Row = (position % made.config.vocab_size, *position, 0);
        let one = decoder.step_at(row, 0)?;
        let (needed, reaches) = (decoder.plan().reach(*position), decoder.plan().reaches());
        let mut farther = reaches.into_iter().filter(|reach| *reach > 0 && *reach >= needed);
        for reach in farther.clone().take(1).chain(farther.next_back()) {
            if decoder.step_at(row, reach)? != one {
                return Err(format!("{:?}, position {position}, reach {reach}: other logits than of one block", context.1));
            }
        }
        Ok(())
    });
    // What a sanitizer says comes before what is wrong in the results.
    decoder.end()?;
    compared
}

#[test]
fn many_blocks_have_the_bits_of_one_at_every_border() {
    // Of scores 256, of exponentials 2048, of weighted sums 448; and of the lengths that are launched for.
    let borders = [1, 8, 256, 448, 512, 896, 1024, 2048, 4096];
    let positions: Vec<u32> = borders.into_iter().flat_map(|border| [border - 1, border, border + 1]).collect();
    for (order, kv) in (0..).zip(CACHES) {
        one_and_many(Build::Plain.program(), (order, 0), &small(4100, 0), (4100, kv), &positions).unwrap();
        // A window that begins anywhere.
        one_and_many(Build::Plain.program(), (order + 1, 0), &small(2100, 1013), (2100, kv), &[600, 1012, 1013, 2047]).unwrap();
    }
    // One head over 32,768 positions.
    let made = Made::new(LlamaConfig { max_seq_len: 1 << 15, n_heads: 1, ..SMALL }, |_, _| (DType::F32, 0));
    one_and_many(Build::Plain.program(), (0, 0), &made, (1 << 15, KvDType::F16), &[0, (1 << 15) - 1]).unwrap();
}

#[test]
fn attention_over_many_positions_gives_the_bits_of_the_runtime() {
    for (order, (kv, count, window)) in
        (0..).zip([(KvDType::F32, 4104, 0), (KvDType::F16, 616, 0), (KvDType::Q8, 616, 0), (KvDType::Q8, 616, 530)])
    {
        let made = small(count, window);
        let (tokens, mut decoder) =
            (made.tokens(count), Decoder::new(Build::Plain.program(), order, &made, (count, kv), SHARED_BY_DEFAULT).unwrap());
        let expected = made.expected(kv, &tokens);
        let rows: Vec<Row> = tokens.iter().zip(0..).map(|(token, position)| (*token, position, 0)).collect();
        rows.chunks(COLUMNS as usize).for_each(|rows| decoder.store_rows(rows).unwrap());
        for position in [511, 512, 513, 600, 767, 768, 895, 896, 1023, 1024, 2047, 2048, 2049, 4095, 4096, 4103] {
            let Some(row) = rows.get(position) else { break };
            let reach = decoder.plan().reach(position as u32);
            assert_eq!(reach == 0, position < 512, "{position}");
            assert_eq!(decoder.step_at(*row, reach).unwrap(), expected[position], "{kv:?}, a step at {position}");
        }
        for first in [505, 508, 512, 600, 1020, 2044, 4096] {
            let Some(rows) = rows.get(first..first + COLUMNS as usize) else { break };
            let reach = decoder.plan().reach((first + rows.len()) as u32 - 1);
            assert_eq!(decoder.rows(rows, reach).unwrap(), expected[first..first + rows.len()], "{kv:?}, a block at {first}");
        }
        decoder.end().unwrap();
    }
}

#[test]
fn several_texts_at_once_have_the_bits_of_each_alone() {
    let config = LlamaConfig { qkv_bias: true, rope_layout: RopeLayout::Half, sliding_window: 5, ..ODD };
    let made = Made::new(config, mixed);
    for (order, kv) in (0..).zip(CACHES) {
        let mut decoder = Decoder::for_texts(3, Build::Plain.program(), order, &made, (12, kv), SHARED_BY_DEFAULT).unwrap();
        let all = made.tokens(36);
        let texts: Vec<&[u32]> = all.chunks(12).collect();
        let expected: Vec<_> = texts.iter().map(|text| made.expected(kv, text)).collect();
        // So many of each text at once; with a step alone in between.
        let mut fed = [0; 3];
        for (round, counts) in [[3, 1, 0], [1, 1, 1], [0, 5, 3], [0, 0, 1], [4, 2, 2], [1, 1, 2], [3, 2, 3]].into_iter().enumerate() {
            let mut rows = Vec::new();
            for (text, count) in counts.into_iter().enumerate() {
                rows.extend((fed[text]..fed[text] + count).map(|position| (texts[text][position], position as u32, text as u32)));
                fed[text] += count;
            }
            let found = if rows.len() == 1 { vec![decoder.step_at(rows[0], 0).unwrap()] } else { decoder.rows(&rows, 0).unwrap() };
            for ((_, position, text), found) in rows.iter().zip(found) {
                assert_eq!(found, expected[*text as usize][*position as usize], "{kv:?}, round {round}, text {text}, position {position}");
            }
        }
        assert_eq!(fed, [12, 12, 12]);
        decoder.end().unwrap();
    }
}

#[test]
fn reaches_are_few_and_far_enough() {
    let plan = |context: u32, sliding_window: u32| {
        let made = small(context, sliding_window);
        let views = made.views();
        Plan::new(made.config, |n| views.get(n as usize).copied(), (context, KvDType::F16), SHARED_BY_DEFAULT).unwrap()
    };
    assert_eq!(plan(512, 0).reaches(), [0]);
    assert_eq!(plan(513, 0).reaches(), [0, 513]);
    assert_eq!(plan(5000, 0).reaches(), [0, 1024, 2048, 4096, 5000]);
    assert_eq!(plan(5000, 512).reaches(), [0]);
    assert_eq!(plan(5000, 1500).reaches(), [0, 1024, 1500]);
    for (context, window) in [(512, 0), (513, 0), (1024, 0), (1025, 0), (5000, 0), (5000, 1500), (5000, 513)] {
        let plan = plan(context, window);
        for position in 0..context {
            let (reach, seen) = (plan.reach(position), if window == 0 { position + 1 } else { window.min(position + 1) });
            assert!(
                plan.reaches().contains(&reach) && if seen <= 512 { reach == 0 } else { reach >= seen && reach < 2 * seen },
                "{position}"
            );
        }
    }
}
