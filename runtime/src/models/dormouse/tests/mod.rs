//! The model against dormouse's own files, against what a second implementation computes for made models, and its ways of decoding against each other.
#![cfg(feature = "toml")]

mod decoding;
mod made;
mod references;
mod refusals;
mod sessions;

use super::{Dormouse, State};
use crate::format::arch::dormouse::layout::{Decoding, DormouseLayout};

/// The logits after each of `ends` tokens, fed in pieces that end there.
fn logits_after(model: &Dormouse<'_>, tokens: &[u32], decoding: Decoding, ends: &[usize]) -> Vec<Vec<f32>> {
    with_state(model, tokens, decoding, |state| ends.iter().map(|end| after(model, state, *end)).collect())
}

fn with_state<R>(model: &Dormouse<'_>, tokens: &[u32], decoding: Decoding, run: impl FnOnce(&mut State<'_>) -> R) -> R {
    let context = (tokens.len() as u32).min(model.config().max_seq_len);
    let layout = DormouseLayout::new(model.config(), context, decoding).unwrap();
    let mut memory = vec![0x7fc0_0001; layout.total_bytes / 4];
    let mut state = State::new(model, &layout, (context, decoding), &mut memory, None).unwrap();
    state.tokens.copy_from_slice(tokens);
    run(&mut state)
}

fn after(model: &Dormouse<'_>, state: &mut State<'_>, known: usize) -> Vec<f32> {
    model.advance(state, known as u32);
    model.logits(state, known as u32 - 1).unwrap();
    state.logits[..model.config().vocab as usize].to_vec()
}

/// The logits of every position of a window.
fn window(model: &Dormouse<'_>, tokens: &[u32]) -> Vec<Vec<f32>> {
    with_state(model, tokens, Decoding::Full, |state| {
        model.advance(state, tokens.len() as u32);
        (0..tokens.len())
            .map(|position| {
                model.logits(state, position as u32).unwrap();
                state.logits[..model.config().vocab as usize].to_vec()
            })
            .collect()
    })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn largest_difference(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).abs()).fold(0.0, f64::max)
}
