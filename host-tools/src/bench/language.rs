//! Reading and continuing texts.

use super::machine::Start;
use super::{Job, Rates, Request, Row, Setting, Test};
use crate::decode::{Cpu, CpuOptions, Loaded};
use crate::error::Result;
use crate::plan::Facts;
use dmexp::{Sampler, Session};
use dmexp_format::KvDType;
use dmexp_format::arch::Architecture;
use dmexp_format::layout::LlamaLayout;

/// Adds what is to be measured of a language model.
pub(super) fn jobs<'a>(request: &Request<'a>, export: usize, loaded: &'a Loaded, jobs: &mut Vec<Job<'a>>) -> Result<()> {
    let llama = (loaded.file()?.architecture() == Architecture::Llama).then(|| Facts::of(loaded)).transpose()?;
    let room = loaded.model()?.context();
    let kinds: Vec<Option<KvDType>> = if llama.is_some() { request.wanted.kv.iter().copied().map(Some).collect() } else { vec![None] };
    for (kv, level) in kinds.iter().flat_map(|kv| request.levels.iter().map(move |level| (*kv, *level))) {
        for threads in request.threads {
            let setting = Setting { kv, threads: *threads, level };
            let mut rows = Vec::new();
            for test in request.wanted.tests() {
                let needed = test.positions();
                rows.push(Row {
                    export,
                    setting,
                    test,
                    no_room: (needed > u64::from(room)).then_some((needed, room)),
                    rates: Vec::new(),
                    cpu_rates: Vec::new(),
                    session_bytes: 0,
                    read_bytes: llama.as_ref().and_then(|facts| read_bytes(facts, test, kv?)),
                    bandwidths: Vec::new(),
                });
            }
            let context = rows.iter().filter(|row| row.no_room.is_none()).map(|row| row.test.positions()).max().unwrap_or(0) as u32;
            jobs.push(Job {
                loaded,
                dormouse: request.dormouse,
                setting,
                context,
                weight_bytes: llama.as_ref().map(Facts::bytes_per_token),
                bandwidths: Vec::new(),
                session_bytes: 0,
                rows,
            });
        }
    }
    Ok(())
}

/// Bytes that decoding reads for the token in the middle of the test. Prefill reads the weights once for many.
fn read_bytes(facts: &Facts, test: Test, kv: KvDType) -> Option<u64> {
    let Test::Decode { tokens, context } = test else { return None };
    let kept = LlamaLayout::new(&facts.config, context.checked_add(tokens.div_ceil(2))?, kv).ok()?.kv_bytes;
    Some(facts.bytes_per_token() + kept as u64)
}

/// Measures each of `tests` once.
pub(super) fn rates(job: &mut Job<'_>, tests: &[Test]) -> Result<Vec<Rates>> {
    let options = CpuOptions { context: Some(job.context), kv: job.setting.kv.unwrap_or_default(), tokenizer: None };
    let mut cpu = Cpu::with_dormouse(job.loaded, &options, &job.dormouse, job.setting.threads)?;
    job.session_bytes = cpu.arena_bytes();
    let vocab_size = cpu.model().network().vocab_size();
    let tokens = any_tokens(vocab_size, job.context);
    let mut session = cpu.session(Sampler::greedy())?;
    let rates = tests.iter().map(|test| rate(&mut session, *test, &tokens));
    rates.collect::<Result<Vec<Rates>, _>>().map_err(|error| job.loaded.explain(error))
}

fn rate(session: &mut Session<'_>, test: Test, tokens: &[u32]) -> Result<Rates, dmexp_format::Error> {
    let (timed, context) = test.tokens().unwrap_or_default();
    let (before, rest) = tokens.split_at_checked(context as usize).unwrap_or((tokens, &[]));
    let rest = rest.get(..timed as usize).unwrap_or(rest);
    session.reset();
    if !before.is_empty() {
        session.push_tokens(before)?;
        session.logits()?;
    }
    let start = Start::now();
    let at_once = if matches!(test, Test::Decode { .. }) { 1 } else { rest.len().max(1) };
    for tokens in rest.chunks(at_once) {
        session.push_tokens(tokens)?;
        session.logits()?;
    }
    Ok(start.rates(f64::from(timed)))
}

/// The same tokens in every run, from all over the vocabulary.
fn any_tokens(vocab_size: u32, count: u32) -> Vec<u32> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((u64::from(state) * u64::from(vocab_size)) >> 32) as u32
    };
    (0..count).map(next).collect()
}
