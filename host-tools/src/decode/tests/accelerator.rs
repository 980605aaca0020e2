//! Sessions whose network is computed elsewhere: here by another session, which stands for a GPU. Whatever a session does, its bits are those of one without.

use super::*;
use crate::export::tests::bits;
use dmexp::accelerator::Accelerator;
use dmexp::format::Error as FormatError;
use dmexp::sampler::Settings;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Another session that computes what is asked for, each time from the beginning of the text.
struct Elsewhere<'a> {
    sessions: AtomicU64,
    work: Mutex<Work<'a>>,
    chooses: bool,
}

struct Work<'a> {
    session: Session<'a>,
    text: Vec<u32>,
    rows: Vec<Vec<f32>>,
    /// Which calls came.
    calls: Vec<&'static str>,
    /// From this call on everything fails.
    fails_from: usize,
}

impl<'a> Elsewhere<'a> {
    fn new(session: Session<'a>, chooses: bool, fails_from: usize) -> Self {
        Self {
            sessions: AtomicU64::new(0),
            work: Mutex::new(Work { session, text: Vec::new(), rows: Vec::new(), calls: Vec::new(), fails_from }),
            chooses,
        }
    }

    fn work<R>(&self, call: &'static str, act: impl FnOnce(&mut Work<'a>) -> R) -> Result<R, FormatError> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if work.calls.len() >= work.fails_from {
            return Err(FormatError::Accelerator { code: 719 });
        }
        work.calls.push(call);
        Ok(act(&mut work))
    }

    fn calls(&self, name: &str) -> usize {
        self.work.lock().unwrap().calls.iter().filter(|call| **call == name).count()
    }
}

impl Work<'_> {
    /// Rows of logits after each of `tokens` at `position`.
    fn feed(&mut self, tokens: &[u32], position: u32) {
        assert!(position as usize <= self.text.len(), "a hole in the text");
        self.text.truncate(position as usize);
        self.text.extend(tokens);
        self.session.reset();
        self.rows.clear();
        let rows = &mut self.rows;
        Decoder::logits(&mut self.session, &self.text, &mut |at, row| {
            if at >= position {
                rows.push(row.to_vec());
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(self.rows.len(), tokens.len());
    }
}

impl Accelerator for Elsewhere<'_> {
    fn begin(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn current(&self) -> u64 {
        self.sessions.load(Ordering::Acquire)
    }

    fn block(&self) -> u32 {
        5
    }

    fn feed(&self, tokens: &[u32], position: u32) -> Result<(), FormatError> {
        assert!(!tokens.is_empty() && tokens.len() <= 5);
        self.work("feed", |work| work.feed(tokens, position))
    }

    fn logits(&self, first: u32, logits: &mut [f32]) -> Result<(), FormatError> {
        self.work("logits", |work| {
            for (to, from) in logits.chunks_exact_mut(SMALL.vocab_size).zip(work.rows.iter().skip(first as usize)) {
                to.copy_from_slice(from);
            }
        })
    }

    fn choose(&self, token: u32, position: u32) -> Result<Option<u32>, FormatError> {
        if !self.chooses {
            return Ok(None);
        }
        self.work("choose", |work| {
            work.feed(&[token], position);
            work.rows.last().and_then(|row| golden::top5(row).first().copied())
        })
    }

    fn part(&self, part: u32, token: u32, position: u32, residual: &mut [f32]) -> Result<(), FormatError> {
        self.work("part", |work| {
            let layers = SMALL.n_layers as u32;
            if part == layers {
                work.feed(&[token], position);
            }
            work.session.reset();
            work.session.push_tokens(&work.text[..position as usize]).unwrap();
            work.session.feed_blocks();
            work.session.push_tokens(&[token]).unwrap();
            while work.session.position() < position || work.session.layers_done() != Some(part) {
                work.session.advance().unwrap();
            }
            residual.copy_from_slice(work.session.residual());
        })
    }
}

const TEXT: [u32; 13] = [1, 9, 77, 201, 14, 150, 33, 299, 4, 4, 60, 118, 7];

/// Everything that a session of a model like [`SMALL`] can be asked, as bits and tokens.
pub(crate) fn everything(session: &mut Session<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    // One by one, then at once, then both in one text.
    for alone in [TEXT.len(), 0, 3] {
        session.reset();
        let (first, others) = TEXT.split_at(alone);
        for token in first {
            found.extend(bits(&[session.feed(&[*token]).unwrap().to_vec()]));
        }
        Decoder::logits(session, others, &mut |position, row| {
            found.push(position);
            found.extend(bits(&[row.to_vec()]));
            Ok(())
        })
        .unwrap();
    }
    // Texts that are continued: greedily, with another token in the place of one that was chosen, and drawn.
    let drawn = Settings { temperature: 0.9, top_p: 0.9, seed: 7, ..Settings::GREEDY };
    for settings in [Settings::GREEDY, drawn, Settings { repeat_penalty: 1.3, ..Settings::GREEDY }] {
        session.reset();
        session.set_sampler(Sampler::new(settings).unwrap());
        session.push_tokens(&TEXT).unwrap();
        session.feed_blocks();
        for step in 0..16 {
            match session.step().unwrap() {
                Step::Token { token, .. } => found.push(token),
                Step::Stop(StopReason::EndOfText(token)) => {
                    found.push(token);
                    session.push_tokens(&[5]).unwrap();
                }
                other => panic!("{other:?}"),
            }
            if step == 6 {
                session.replace_last(42).unwrap();
            }
        }
    }
    // A prompt by steps, and layer by layer.
    session.reset();
    session.set_sampler(Sampler::greedy());
    session.push_tokens(&TEXT[..4]).unwrap();
    for _ in 0..3 {
        assert!(matches!(session.step(), Ok(Step::Prompt { .. })));
    }
    while session.layers_done() != Some(SMALL.n_layers as u32) {
        session.advance().unwrap();
        found.extend(bits(&[session.residual().to_vec()]));
    }
    found.extend(bits(&[Session::logits(session).unwrap().to_vec()]));
    // Begun layer by layer, ended at once.
    session.push_tokens(&TEXT[4..6]).unwrap();
    session.advance().unwrap();
    found.extend(bits(&[session.residual().to_vec()]));
    found.extend(bits(&[Session::logits(session).unwrap().to_vec()]));
    found
}

fn with_elsewhere<R>(loaded: &Loaded, chooses: bool, fails_from: usize, act: impl FnOnce(&mut Session<'_>, &Elsewhere<'_>) -> R) -> R {
    let mut there = Cpu::new(loaded, &CpuOptions::default()).unwrap();
    let elsewhere = Elsewhere::new(there.session(Sampler::greedy()).unwrap(), chooses, fails_from);
    let model = loaded.model().unwrap().with_accelerator(&elsewhere);
    let mut arena = vec![0u32; model.arena_len().unwrap() / 4];
    act(&mut Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap(), &elsewhere)
}

#[test]
fn a_session_computed_elsewhere_gives_the_bits_of_one_that_is_not() {
    let (_folder, loaded) = exported(Format::V2);
    let mut cpu = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    let expected = everything(&mut cpu.session(Sampler::greedy()).unwrap());
    for chooses in [false, true] {
        with_elsewhere(&loaded, chooses, usize::MAX, |session, elsewhere| {
            assert!(everything(session) == expected, "chooses: {chooses}");
            // The likeliest tokens were found there, but for the one after a prompt that was fed at once, and those behind a penalty were not.
            assert_eq!(elsewhere.calls("choose"), if chooses { 15 } else { 0 });
            assert!(elsewhere.calls("feed") > 0 && elsewhere.calls("logits") > 0 && elsewhere.calls("part") > 0);
        });
    }
}

#[test]
fn what_fails_elsewhere_is_an_error_here_once_and_at_every_place() {
    let (_folder, loaded) = exported(Format::V2);
    let failed = FormatError::Accelerator { code: 719 };
    for chooses in [false, true] {
        for fails_from in 0..8 {
            with_elsewhere(&loaded, chooses, fails_from, |session, _| {
                session.push_tokens(&TEXT).unwrap();
                session.feed_blocks();
                let error = (0..20).find_map(|_| session.step().err()).unwrap();
                assert_eq!(error, failed, "{chooses} {fails_from}");
                session.reset();
                session.push_tokens(&TEXT).unwrap();
                assert_eq!(session.each_logits(|_, _| Ok::<(), FormatError>(())), Err(failed));
                session.reset();
                session.push_tokens(&TEXT).unwrap();
                assert_eq!(session.advance(), Err(failed));
            });
        }
    }
}

#[test]
fn what_is_no_session_here_is_none_elsewhere_and_there_is_one_at_a_time() {
    let (_folder, loaded) = exported(Format::V2);
    let mut there = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    let elsewhere = Elsewhere::new(there.session(Sampler::greedy()).unwrap(), false, 0);
    for context in [0, 41] {
        let model = loaded.model().unwrap().with_context(context).with_accelerator(&elsewhere);
        let mut arena = vec![0u32; 100_000];
        let error = Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap_err();
        assert!(matches!(error, FormatError::Context { .. }), "{error}");
    }
    let model = loaded.model().unwrap().with_accelerator(&elsewhere);
    // Two sessions would write over one another's keys and values.
    let mut arenas = [(); 2].map(|()| vec![0u32; model.arena_len().unwrap() / 4]);
    let [one, other] = &mut arenas;
    let mut first = Session::new(&model, one.as_mut_slice(), Sampler::greedy()).unwrap();
    let _second = Session::new(&model, other.as_mut_slice(), Sampler::greedy()).unwrap();
    let busy = Err(FormatError::AcceleratorBusy);
    first.push_tokens(&TEXT).unwrap();
    assert_eq!(first.advance(), busy);
    assert_eq!(Session::logits(&mut first).map(drop), busy.map(drop));
    first.reset();
    first.push_tokens(&TEXT).unwrap();
    assert_eq!(first.each_logits(|_, _| Ok::<(), FormatError>(())), busy.map(drop));
    first.reset();
    first.push_tokens(&TEXT[..1]).unwrap();
    assert_eq!(first.step().map(drop), busy.map(drop));
    let needed = model.arena_len().unwrap();
    let mut small = vec![0u32; needed / 4 - 1];
    let error = Session::new(&model, small.as_mut_slice(), Sampler::greedy()).unwrap_err();
    assert_eq!(error, FormatError::ArenaTooSmall { needed: needed as u64, found: needed as u64 - 4 });
}
