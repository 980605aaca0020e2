//! Sessions of dormouse models: a step in its parts, memory in two banks, and what they have not.

use super::bits;
use super::made::{Made, text};
use crate::format::Error;
use crate::format::arch::dormouse::layout::Decoding;
use crate::format::arch::dormouse::{Attention, Residual};
use crate::format::file::ModelFile;
use crate::{Model, Sampler, Session};

/// Under Miri, which is slow, one way and one model.
const DECODINGS: &[Decoding] = if cfg!(miri) { &[Decoding::Exact] } else { &[Decoding::Full, Decoding::Exact, Decoding::Fast] };

fn models() -> impl Iterator<Item = Made> {
    [
        Made::tiny("", |_| ()),
        Made::tiny("max_iter = 1\n", |config| config.max_iter = 1),
        Made::tiny("use_gr = true\n", |config| config.residual = Residual::Gr),
        Made::tiny("use_attnres = true\n", |config| config.residual = Residual::AttnRes),
        Made::tiny("use_mor = true\n", |config| config.use_mor = true),
        Made::tiny("use_kda = false\nuse_plain_attn = true\n", |config| config.attention = Attention::Plain),
    ]
    .into_iter()
    .take(if cfg!(miri) { 1 } else { 6 })
}

fn with_session<R>(model: &Model<'_>, run: impl FnOnce(&mut Session<'_>) -> R) -> R {
    let mut memory = vec![0x7fc0_0001; model.arena_len().unwrap() / 4];
    run(&mut Session::new(model, memory.as_mut_slice(), Sampler::greedy()).unwrap())
}

/// The logits after each token, fed one at a time.
fn one_by_one(model: &Model<'_>, tokens: &[u32]) -> Vec<Vec<u32>> {
    with_session(model, |session| {
        let after = |token: &u32| {
            session.push_tokens(&[*token]).unwrap();
            bits(session.logits().unwrap())
        };
        tokens.iter().map(after).collect()
    })
}

#[test]
fn a_step_goes_iteration_by_iteration_and_each_shows_its_stream() {
    let tokens = text(9);
    for made in models() {
        let bytes = made.file();
        let model = Model::bind(&ModelFile::open(&bytes).unwrap()).unwrap().with_context(9);
        for decoding in DECODINGS {
            let model = model.with_decoding(*decoding);
            let whole = one_by_one(&model, &tokens);
            with_session(&model, |session| {
                for (token, logits) in tokens.iter().zip(&whole) {
                    session.push_tokens(&[*token]).unwrap();
                    let mut streams = Vec::new();
                    for layers in 0..=made.config.max_iter {
                        assert_eq!(session.advance().unwrap(), layers);
                        assert_eq!(session.residual().len(), model.network().dim() as usize);
                        streams.push(bits(session.residual()));
                    }
                    assert_eq!(session.advance().unwrap_err(), Error::NoPrompt);
                    assert!(streams.windows(2).all(|pair| pair[0] != pair[1]), "{decoding:?} {}", made.text);
                    assert_eq!(bits(session.logits().unwrap()), *logits, "{decoding:?} {}", made.text);
                }
            });
        }
    }
}

#[test]
fn tokens_that_come_while_a_step_is_half_done_change_nothing() {
    let tokens = text(12);
    for made in models() {
        let bytes = made.file();
        let model = Model::bind(&ModelFile::open(&bytes).unwrap()).unwrap().with_context(12);
        for decoding in DECODINGS {
            let model = model.with_decoding(*decoding);
            let whole = one_by_one(&model, &tokens);
            for parts in (0..=made.config.max_iter + 1).skip(if cfg!(miri) { made.config.max_iter as usize } else { 0 }) {
                with_session(&model, |session| {
                    session.push_tokens(&tokens[..4]).unwrap();
                    session.logits().unwrap();
                    session.push_tokens(&tokens[4..7]).unwrap();
                    // Through the first two of them, and so many parts of the third.
                    for _ in 0..2 * (made.config.max_iter + 1) + parts {
                        session.advance().unwrap();
                    }
                    session.push_tokens(&tokens[7..]).unwrap();
                    assert_eq!(bits(session.logits().unwrap()), whole[11], "{decoding:?} {parts} {}", made.text);
                    // And a text that is broken off leaves nothing behind.
                    session.reset();
                    session.push_tokens(&tokens[3..5]).unwrap();
                    for _ in 0..made.config.max_iter + 1 + parts {
                        session.advance().unwrap();
                    }
                    session.reset();
                    session.push_tokens(&tokens).unwrap();
                    assert_eq!(bits(session.logits().unwrap()), whole[11], "{decoding:?} {parts} {}", made.text);
                });
            }
        }
    }
}

#[test]
fn two_banks_give_the_bits_of_one() {
    let tokens = text(11);
    for made in models() {
        let bytes = made.file();
        let model = Model::bind(&ModelFile::open(&bytes).unwrap()).unwrap().with_context(11);
        for decoding in DECODINGS {
            let model = model.with_decoding(*decoding);
            let (past, work) = model.bank_lens().unwrap();
            assert_eq!(past + work, model.arena_len().unwrap());
            let (mut past, mut work) = (vec![0x7fc0_0001; past / 4], vec![0x7fc0_0001; work / 4]);
            let mut session = Session::new_in_banks(&model, past.as_mut_slice(), work.as_mut_slice(), Sampler::greedy()).unwrap();
            session.push_tokens(&tokens).unwrap();
            assert_eq!(bits(session.logits().unwrap()), one_by_one(&model, &tokens)[10], "{decoding:?} {}", made.text);
            let (all_past, all_work) = (past.len(), work.len());
            for (less_past, less_work) in [(1, 0), (0, 1)] {
                let (past, work) = (&mut past[..all_past - less_past], &mut work[..all_work - less_work]);
                let found = Session::new_in_banks(&model, past, work, Sampler::greedy()).map(drop).unwrap_err();
                assert!(matches!(found, Error::BankTooSmall { .. }), "{decoding:?} {found:?}");
            }
        }
    }
}

#[test]
fn copies_in_ram_are_refused() {
    let bytes = Made::tiny("", |_| ()).file();
    let mut model = Model::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
    assert_eq!(model.ram_len(|_| true), 0);
    let mut memory = vec![0u32; 1024];
    let refused = model.copy_to_ram(|_| true, memory.as_mut_slice()).unwrap_err();
    assert!(matches!(refused, Error::OtherArchitecture { .. }), "{refused}");
}
