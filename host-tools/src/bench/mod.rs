//! How fast models run on this machine. Called by `dmexp bench`.
//!
//! Each repetition measures everything once, one thing after the other, so that what else the machine does meets all alike; a pass before them is not counted.

mod language;
mod machine;
mod network;
#[cfg(test)]
mod tests;

pub use machine::{peak_memory, processor};

use crate::decode::{DormouseOptions, Loaded};
use crate::error::{Class, Error, Result};
use dmexp::simd::Level;
use dmexp_format::KvDType;
use dmexp_format::arch::Architecture;
use machine::Yardstick;
use std::fmt;

/// What is measured on any machine. Every list is gone through for every export.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The files.
    pub exports: &'a [Loaded],
    /// Lengths of texts that are read at once.
    pub prefill: &'a [u32],
    /// Numbers of tokens that are fed one by one.
    pub decode: &'a [u32],
    /// How many tokens come before them.
    pub contexts: &'a [u32],
    /// How keys and values are kept, of models that have them.
    pub kv: &'a [KvDType],
    /// How often everything is measured; at least once.
    pub repetitions: u32,
}

impl Wanted<'_> {
    /// The tests of a language model, those of one number of tokens before them together.
    pub(crate) fn tests(&self) -> impl Iterator<Item = Test> {
        let tests = self.contexts.iter().flat_map(|context| {
            let context = *context;
            let prefill = self.prefill.iter().map(move |tokens| Test::Prefill { tokens: *tokens, context });
            prefill.chain(self.decode.iter().map(move |tokens| Test::Decode { tokens: *tokens, context }))
        });
        tests.filter(|test| test.tokens().is_some_and(|(tokens, _)| tokens > 0))
    }
}

/// What is measured on this machine's processor.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What is measured.
    pub wanted: Wanted<'a>,
    /// Numbers of threads, of models that use them.
    pub threads: &'a [usize],
    /// Vector instructions.
    pub levels: &'a [Level],
    /// For models of dormouse.
    pub dormouse: DormouseOptions,
}

/// How a model is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// How keys and values are kept; `None` where there are none, or no choice.
    pub kv: Option<KvDType>,
    /// How many threads share the work.
    pub threads: usize,
    /// Vector instructions.
    pub level: Level,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Reading `tokens` tokens at once behind `context` others, and the logits after the last.
    Prefill {
        /// How many are read.
        tokens: u32,
        /// How many come before them.
        context: u32,
    },
    /// Feeding `tokens` tokens one by one behind `context` others, with the logits after each.
    Decode {
        /// How many are fed.
        tokens: u32,
        /// How many come before them.
        context: u32,
    },
    /// One sample through a small network.
    Predict,
}

impl Test {
    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prefill { .. } => "prefill",
            Self::Decode { .. } => "decode",
            Self::Predict => "predict",
        }
    }

    /// Tokens that are timed, and tokens before them.
    pub const fn tokens(self) -> Option<(u32, u32)> {
        match self {
            Self::Prefill { tokens, context } | Self::Decode { tokens, context } => Some((tokens, context)),
            Self::Predict => None,
        }
    }

    /// Positions that it takes.
    pub(crate) fn positions(self) -> u64 {
        self.tokens().map_or(0, |(tokens, context)| u64::from(tokens) + u64::from(context))
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tokens() {
            None => f.write_str(self.name()),
            Some((tokens, 0)) => write!(f, "{} {tokens}", self.name()),
            Some((tokens, context)) => write!(f, "{} {tokens} at {context}", self.name()),
        }
    }
}

/// What came out of one test of one model in one setting.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which of the exports.
    pub export: usize,
    /// How it was run.
    pub setting: Setting,
    /// What was timed.
    pub test: Test,
    /// Positions that the test takes and those that the model has, where it has not enough: then there are no rates.
    pub no_room: Option<(u64, u32)>,
    /// Tokens, bytes or samples a second, one of each repetition.
    pub rates: Vec<f64>,
    /// The same by the processor time of all threads, where the system says it: what else the machine does changes it less.
    pub cpu_rates: Vec<f64>,
    /// Bytes of memory that a session works in.
    pub session_bytes: usize,
    /// Bytes of weights, keys and values that are read for a token, in the middle of the test; `None` where they are not all read once for each.
    pub read_bytes: Option<u64>,
    /// Bytes a second that as many threads read of memory of their own which is as large as the weights that are read for a token: one of each repetition.
    pub bandwidths: Vec<f64>,
}

impl Row {
    /// The rate in the middle; `None` where there is none.
    pub fn rate(&self) -> Option<f64> {
        median(&self.rates)
    }

    /// The rate in the middle for a second of processor time.
    pub fn cpu_rate(&self) -> Option<f64> {
        median(&self.cpu_rates)
    }

    /// The lowest and the highest rate.
    pub fn range(&self) -> Option<(f64, f64)> {
        let lowest = self.rates.iter().copied().min_by(f64::total_cmp)?;
        Some((lowest, self.rates.iter().copied().max_by(f64::total_cmp)?))
    }

    /// Bytes a second that memory gives: the figure in the middle.
    pub fn bandwidth(&self) -> Option<f64> {
        median(&self.bandwidths)
    }

    /// Which part of the bandwidth decoding used.
    pub fn share(&self) -> Option<f64> {
        Some(self.rate()? * self.read_bytes? as f64 / self.bandwidth()?)
    }
}

/// All rows, those of one setting together.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of the request: exports, keys and values, vector instructions, threads, tests.
    pub rows: Vec<Row>,
    /// The most memory that the process had before the memory was taken that the bandwidth is measured with; `None` where the system does not say.
    pub peak_memory: Option<u64>,
}

/// The value in the middle of a list, or half way between the two that are; `None` of none.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// How many a second, and how many a second of processor time.
type Rates = (f64, Option<f64>);

/// One model in one setting, with its rows.
struct Job<'a> {
    loaded: &'a Loaded,
    dormouse: DormouseOptions,
    setting: Setting,
    /// Positions that the tests take at most.
    context: u32,
    /// Bytes of weights that are read for a token, where they all are once for each.
    weight_bytes: Option<u64>,
    bandwidths: Vec<f64>,
    session_bytes: usize,
    rows: Vec<Row>,
}

/// Measures; `progress` hears how much of how much is done.
///
/// # Errors
/// [`Class::Request`] where nothing is asked for, where the model has room for none of it, or where the machine has not the instructions; those of binding and running a model.
pub fn run(request: &Request<'_>, progress: &mut dyn FnMut(u64, u64)) -> Result<Report> {
    let mut jobs = Vec::new();
    for (number, loaded) in request.wanted.exports.iter().enumerate() {
        let before = jobs.len();
        if loaded.file()?.architecture() == Architecture::Sequential {
            network::jobs(request, number, loaded, &mut jobs)?;
        } else {
            language::jobs(request, number, loaded, &mut jobs)?;
        }
        refuse_without_room(loaded, jobs.get(before..).unwrap_or_default())?;
    }
    let passes = u64::from(request.wanted.repetitions.max(1)) + 1;
    let total = passes * jobs.len() as u64;
    let (mut done, mut peak, mut yardstick) = (0, None, None);
    for pass in 0..passes {
        if pass == 1 {
            peak = peak_memory();
            yardstick = jobs.iter().filter_map(|job| job.weight_bytes).max().and_then(Yardstick::new);
        }
        for job in &mut jobs {
            job.pass(pass > 0)?;
            if let (Some(yardstick), Some(bytes)) = (&yardstick, job.weight_bytes) {
                job.bandwidths.push(yardstick.bytes_per_s(bytes, job.setting.threads));
            }
            done += 1;
            progress(done, total);
        }
    }
    let rows = jobs.into_iter().flat_map(|job| {
        let (bandwidths, session_bytes) = (job.bandwidths, job.session_bytes);
        job.rows.into_iter().map(move |row| Row { bandwidths: bandwidths.clone(), session_bytes, ..row })
    });
    Ok(Report { rows: rows.collect(), peak_memory: peak })
}

/// Nothing is asked for.
pub(crate) fn nothing() -> Error {
    let what = "there is nothing to measure: no prefill and no decoding is asked for";
    Error::new(Class::Request, what).advise("give --pp or --tg a number above 0")
}

/// Refuses a model of which nothing can be measured.
fn refuse_without_room(loaded: &Loaded, jobs: &[Job<'_>]) -> Result<()> {
    let mut tests = jobs.iter().flat_map(|job| &job.rows);
    let Some(first) = tests.next() else { return Err(nothing().in_file(loaded.path())) };
    match first.no_room {
        Some((needed, room)) if tests.all(|row| row.no_room.is_some()) => {
            let what = format!("{} takes {needed} positions, the model has {room}", first.test);
            Err(Error::new(Class::Request, what).advise("give smaller numbers to --pp, --tg and --context").in_file(loaded.path()))
        }
        _ => Ok(()),
    }
}

impl Job<'_> {
    /// Measures every row once.
    fn pass(&mut self, counted: bool) -> Result<()> {
        self.setting.level.choose().map_err(|best| {
            let what = format!("this machine has no {}; the most it has is {}", self.setting.level.name(), best.name());
            Error::new(Class::Request, what)
        })?;
        let tests: Vec<Test> = self.rows.iter().filter(|row| row.no_room.is_none()).map(|row| row.test).collect();
        let rates = if tests == [Test::Predict] { network::rates(self)? } else { language::rates(self, &tests)? };
        if counted {
            let measured = self.rows.iter_mut().filter(|row| row.no_room.is_none());
            for (row, (rate, cpu_rate)) in measured.zip(rates) {
                row.rates.push(rate);
                row.cpu_rates.extend(cpu_rate);
            }
        }
        Ok(())
    }
}
