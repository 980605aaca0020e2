//! Runs the steps of `cargo xtask test`: those of one stream in their order, and two streams at a time, because linking firmware and emulating a board keep one core busy.

use super::Step;
use crate::failure::{Failure, Outcome};
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most streams at a time: each may want some GB of memory while it links.
const MOST: usize = 2;

/// Runs `steps` one after the other in this process, with what they print shown as it comes.
pub(super) fn in_order(steps: &[Step]) -> Outcome {
    let start = Instant::now();
    for (passed, step) in steps.iter().enumerate() {
        println!("==> {} ({} of {})", step.name, passed + 1, steps.len());
        let step_start = Instant::now();
        let outcome = (step.run)();
        let seconds = step_start.elapsed().as_secs_f64();
        if let Err(failure) = outcome {
            println!("==> {} FAILED after {seconds:.1} s: {failure}", step.name);
            println!("{passed} passed, 1 failed");
            return Err(failed(step));
        }
        println!("==> {} passed in {seconds:.1} s", step.name);
    }
    println!("all steps took {:.1} s", start.elapsed().as_secs_f64());
    println!("{} passed, 0 failed", steps.len());
    Ok(())
}

/// Runs every step in a process of its own: the first by itself, since it readies the machine for the others, which then go on stream by stream. What a step printed is shown when it ends;
/// when one fails, those that run are waited for and no other is begun.
pub(super) fn side_by_side(steps: &[Step]) -> Outcome {
    let start = Instant::now();
    let [first, rest @ ..] = steps else { return Ok(()) };
    let progress = Mutex::new(Progress { streams: streams_of(rest), passed: 0, all: steps.len(), failed: None });
    perform(first, &progress, None)?;
    let programs = crate::models::tested_programs()?;
    let work = || {
        while let Some(stream) = next_stream(&progress) {
            for step in stream {
                if locked(&progress).failed.is_some() || perform(step, &progress, Some(&programs)).is_err() {
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST) {
            scope.spawn(work);
        }
    });
    let Progress { passed, failed: found, .. } = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("all steps took {:.1} s", start.elapsed().as_secs_f64());
    match found {
        None => {
            println!("{passed} passed, 0 failed");
            Ok(())
        }
        Some(Found { step, count }) => {
            println!("{passed} passed, {count} failed");
            Err(failed(step))
        }
    }
}

struct Progress<'a> {
    /// Streams that nobody runs yet.
    streams: Vec<Vec<&'a Step>>,
    passed: usize,
    all: usize,
    failed: Option<Found<'a>>,
}

/// The step that failed first, and how many did: two at most.
struct Found<'a> {
    step: &'a Step,
    count: usize,
}

fn locked<'l, 'a>(progress: &'l Mutex<Progress<'a>>) -> MutexGuard<'l, Progress<'a>> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next_stream<'a>(progress: &Mutex<Progress<'a>>) -> Option<Vec<&'a Step>> {
    let mut progress = locked(progress);
    if progress.streams.is_empty() { None } else { Some(progress.streams.remove(0)) }
}

/// The steps by stream, in the order in which each stream comes first.
fn streams_of(steps: &[Step]) -> Vec<Vec<&Step>> {
    let mut streams: Vec<Vec<&Step>> = Vec::new();
    for step in steps {
        match streams.iter_mut().find(|stream| stream.iter().any(|other| other.stream == step.stream)) {
            Some(stream) => stream.push(step),
            None => streams.push(vec![step]),
        }
    }
    streams
}

/// Runs one step in a process of its own, which finds the programs that are built in `programs`, and shows what it printed.
fn perform<'a>(step: &'a Step, progress: &Mutex<Progress<'a>>, programs: Option<&Path>) -> Outcome {
    println!("==> {} begins", step.name);
    let start = Instant::now();
    let ended = std::env::current_exe()
        .and_then(|program| {
            let mut command = Command::new(program);
            command.args(["test", "--bare", "--only", &step.name]).stdin(Stdio::null());
            command.envs(programs.map(|folder| (crate::models::TESTED, folder))).output()
        })
        .map_err(|error| Failure::cannot_run(format!("cannot start the step `{}`: {error}", step.name)));
    let seconds = start.elapsed().as_secs_f64();
    let mut progress = locked(progress);
    let (said, passed) = match &ended {
        Ok(output) => (crate::process::said(output), output.status.success()),
        Err(failure) => (failure.to_string(), false),
    };
    print!("{said}");
    if passed {
        progress.passed += 1;
        println!("==> {} passed in {seconds:.1} s ({} of {})", step.name, progress.passed, progress.all);
        return Ok(());
    }
    println!("==> {} FAILED after {seconds:.1} s", step.name);
    match &mut progress.failed {
        Some(found) => found.count += 1,
        none => *none = Some(Found { step, count: 1 }),
    }
    Err(failed(step))
}

fn failed(step: &Step) -> Failure {
    Failure::found_wrong(format!("the step `{0}` failed; `cargo xtask test --only {0}` runs it alone", step.name))
}
