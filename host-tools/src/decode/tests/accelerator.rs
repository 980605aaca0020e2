//! Sessions whose network is computed elsewhere: here by another session, which stands for a GPU. Whatever a session does, its bits are those of one without.

use super::*;
use crate::export::tests::bits;
use dmexp::accelerator::{Accelerator, Row};
use dmexp::format::Error as FormatError;
use dmexp::sampler::Settings;
use dmexp::{Batch, Part};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Another session that computes what is asked for, each time from the beginning of the text.
struct Elsewhere<'a> {
    sessions: AtomicU64,
    /// Sessions that there is room for.
    room: u64,
    work: Mutex<Work<'a>>,
    chooses: bool,
}

struct Work<'a> {
    session: Session<'a>,
    texts: BTreeMap<u64, Vec<u32>>,
    /// What was fed last, and the logits after each row.
    fed: Vec<(u64, u32)>,
    rows: Vec<Vec<f32>>,
    /// Which calls came.
    calls: Vec<&'static str>,
    /// From this call on everything fails.
    fails_from: usize,
}

impl<'a> Elsewhere<'a> {
    fn new(session: Session<'a>, room: u64, chooses: bool, fails_from: usize) -> Self {
        let work = Work { session, texts: BTreeMap::new(), fed: Vec::new(), rows: Vec::new(), calls: Vec::new(), fails_from };
        Self { sessions: AtomicU64::new(0), room, work: Mutex::new(work), chooses }
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
    fn feed(&mut self, rows: &[Row]) {
        self.fed.clear();
        self.rows.clear();
        for row in rows {
            let text = self.texts.entry(row.session).or_default();
            assert!(row.position as usize <= text.len(), "a hole in the text");
            text.truncate(row.position as usize);
            text.push(row.token);
            self.session.reset();
            self.session.push_tokens(text).unwrap();
            self.rows.push(Session::logits(&mut self.session).unwrap().to_vec());
            self.fed.push((row.session, row.position));
        }
    }
}

impl Accelerator for Elsewhere<'_> {
    fn begin(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn has(&self, session: u64) -> bool {
        session + self.room > self.sessions.load(Ordering::Acquire)
    }

    fn block(&self) -> u32 {
        5
    }

    fn feed(&self, rows: &[Row]) -> Result<(), FormatError> {
        assert!(!rows.is_empty() && rows.len() <= 5);
        self.work("feed", |work| work.feed(rows))
    }

    fn logits(&self, session: u64, position: u32, logits: &mut [f32]) -> Result<bool, FormatError> {
        self.work("logits", |work| {
            let Some(first) = work.fed.iter().position(|fed| *fed == (session, position)) else { return false };
            let mut rows = work.rows.iter().skip(first);
            logits.chunks_exact_mut(work.rows[0].len()).for_each(|to| to.copy_from_slice(rows.next().unwrap()));
            true
        })
    }

    fn step(&self, row: Row, logits: &mut [f32]) -> Result<(), FormatError> {
        self.work("step", |work| {
            work.feed(&[row]);
            logits.copy_from_slice(&work.rows[0]);
        })
    }

    fn choose(&self, row: Row) -> Result<Option<u32>, FormatError> {
        if !self.chooses {
            return Ok(None);
        }
        self.work("choose", |work| {
            work.feed(&[row]);
            work.rows.last().and_then(|row| golden::top5(row).first().copied())
        })
    }

    fn part(&self, part: u32, row: Row, residual: &mut [f32]) -> Result<(), FormatError> {
        self.work("part", |work| {
            let layers = SMALL.n_layers as u32;
            if part == layers {
                work.feed(&[row]);
            } else {
                work.fed.clear();
            }
            work.session.reset();
            let before = work.texts.get(&row.session).map_or(&[][..], |text| &text[..row.position as usize]);
            work.session.push_tokens(before).unwrap();
            work.session.feed_blocks();
            work.session.push_tokens(&[row.token]).unwrap();
            while work.session.position() < row.position || work.session.layers_done() != Some(part) {
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
    let elsewhere = Elsewhere::new(there.session(Sampler::greedy()).unwrap(), 1, chooses, fails_from);
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
    let elsewhere = Elsewhere::new(there.session(Sampler::greedy()).unwrap(), 1, false, 0);
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

#[test]
fn several_sessions_elsewhere_do_not_disturb_one_another() {
    let (_folder, loaded) = exported(Format::V2);
    let mut cpu = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    let mut there = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    let elsewhere = Elsewhere::new(there.session(Sampler::greedy()).unwrap(), 2, true, usize::MAX);
    let model = loaded.model().unwrap().with_block(64).with_accelerator(&elsewhere);
    let mut arenas = [(); 3].map(|()| vec![0u32; model.arena_len().unwrap() / 4]);
    let [one, other, late] = &mut arenas;
    let mut sessions = [one, other].map(|arena| Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap());
    // Both begun in every way before either goes on: blocks, parts, and a token alone.
    let texts = [&TEXT[..9], &TEXT[3..]];
    let mut expected = cpu.session(Sampler::greedy()).unwrap();
    for begins in 0..4 {
        for (session, text) in sessions.iter_mut().zip(texts) {
            session.reset();
            session.push_tokens(text).unwrap();
            if begins > 0 {
                session.feed_blocks();
            }
        }
        for session in &mut sessions {
            if begins == 2 {
                session.push_tokens(&[8]).unwrap();
                session.advance().unwrap();
            } else if begins == 3 {
                session.step().unwrap();
            }
        }
        for session in &mut sessions {
            let (tokens, waits) = (session.tokens().to_vec(), session.waiting() > 0);
            assert!(waits, "{begins}");
            expected.reset();
            expected.push_tokens(&tokens).unwrap();
            assert_eq!(bits(&[Session::logits(session).unwrap().to_vec()]), bits(&[expected.logits().unwrap().to_vec()]), "{begins}");
        }
    }
    let third = Session::new(&model, late.as_mut_slice(), Sampler::greedy());
    assert!(third.is_ok());
    let [first, second] = &mut sessions;
    first.reset();
    first.push_tokens(&TEXT).unwrap();
    assert_eq!(first.logits().map(drop), Err(FormatError::AcceleratorBusy));
    second.reset();
    second.push_tokens(&TEXT).unwrap();
    assert!(second.logits().is_ok());
}

#[test]
fn a_prompt_as_long_as_the_context_is_taken_by_a_session_elsewhere() {
    let folder = TempDir::new().unwrap();
    let mut source = open(Shape { max_seq_len: 200, ..SMALL }.random());
    source.tokenizer = Some(tokenizer(300));
    let loaded = Loaded::open(&export(&source, &options(&folder, DType::F32, Format::V2)).unwrap().out).unwrap();
    with_elsewhere(&loaded, false, usize::MAX, |session, _| {
        // 8 bytes a position can be merged, and are then found to be too many tokens: one a byte, the space before them and the begin.
        let text = vec![b'z'; 1600];
        assert_eq!(session.prompt(&text), Err(FormatError::PromptTooLong { tokens: 1602, room: 200 }));
        assert_eq!(session.prompt(&text[..198]), Ok(200));
    });
}

#[test]
fn a_batch_that_is_computed_elsewhere_gives_each_text_what_it_gets_alone() {
    let folder = TempDir::new().unwrap();
    let loaded = Loaded::open(&export(&open(batch::SHAPE.random()), &options(&folder, DType::F32, Format::V2)).unwrap().out).unwrap();
    let expected = batch::at_once(&loaded.model().unwrap(), 64);
    let mut there = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    for positions in [64, 3] {
        let elsewhere = Elsewhere::new(there.session(Sampler::greedy()).unwrap(), batch::TEXTS.into(), false, usize::MAX);
        let model = loaded.model().unwrap().with_accelerator(&elsewhere);
        let found = batch::at_once(&model, positions);
        for (text, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.0, expected.0, "text {text}");
            assert!(bits(&found.1) == bits(&expected.1), "text {text}");
        }
        // Rows of several texts came together, most of them.
        let rows: usize = expected.iter().map(|(tokens, _)| tokens.len()).sum();
        assert!(elsewhere.calls("feed") + elsewhere.calls("step") < rows / 2, "{rows}");
    }
}

#[test]
fn what_fails_elsewhere_is_told_to_every_text_of_a_batch() {
    let (_folder, loaded) = exported(Format::V2);
    let mut there = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    for (room, fails_from) in [(3, 0), (3, 1), (3, 2), (2, usize::MAX)] {
        let elsewhere = Elsewhere::new(there.session(Sampler::greedy()).unwrap(), room, false, fails_from);
        let model = loaded.model().unwrap().with_accelerator(&elsewhere);
        let mut arenas = [(); 3].map(|()| vec![0u32; model.arena_len().unwrap() / 4]);
        let mut memory = vec![0u32; Batch::arena_len(&model, 64, 3).unwrap() / 4];
        let mut batch = Batch::new(&model, 64, 3, memory.as_mut_slice()).unwrap();
        let mut sessions = arenas.each_mut().map(|arena| Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap());
        for session in &mut sessions {
            session.push_tokens(&TEXT[..4]).unwrap();
        }
        let mut parts: Vec<Part<'_, '_>> = sessions.iter_mut().map(|session| Part { session, count: 4, every: false }).collect();
        let told = Mutex::new([None; 3]);
        batch.feed(&mut parts, &|fed| told.lock().unwrap()[fed.part] = Some(fed.logits.map(drop))).unwrap();
        let told = told.into_inner().unwrap();
        let failed = Some(Err(FormatError::Accelerator { code: 719 }));
        // Five rows at a time: the first text's logits are there after two calls.
        let expected = match (room, fails_from) {
            (2, _) => [Some(Err(FormatError::AcceleratorBusy)), Some(Ok(())), Some(Ok(()))],
            (_, 2) => [Some(Ok(())), failed, failed],
            _ => [failed; 3],
        };
        assert_eq!(told, expected, "{room}, {fails_from}");
    }
}
