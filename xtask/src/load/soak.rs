//! Requests of every kind from many clients, for long.

use super::Load;
use super::client::Failed;
use super::requests::{Request, Said, Times, mixed, percentile};
use super::server::Server;
use crate::failure::{Failure, Outcome};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// After so many requests memory should not grow any more.
const SETTLED: usize = 1_000;

/// What a client saw.
#[derive(Debug, Default)]
struct Tally {
    times: Times,
    wrong: usize,
    lost: usize,
    stuck: usize,
    refused: usize,
    /// What the first of them was about.
    example: Option<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.times.first.extend(other.times.first);
        self.times.next.extend(other.times.next);
        self.wrong += other.wrong;
        self.lost += other.lost;
        self.stuck += other.stuck;
        self.refused += other.refused;
        self.example = self.example.take().or(other.example);
    }

    fn count(&mut self, request: &Request, alone: &Said, answer: Result<Said, Failed>) {
        let place = match &answer {
            Ok(said) if request.is_answered(said, alone) => return,
            Ok(_) => &mut self.wrong,
            Err(Failed::Refused(_)) => &mut self.refused,
            Err(Failed::Lost(_)) => &mut self.lost,
            Err(Failed::Stuck) => &mut self.stuck,
        };
        *place += 1;
        let answer = answer.map_or_else(|error| error.to_string(), |said| format!("{said:?}"));
        self.example.get_or_insert_with(|| format!("{request:?}\n  alone {alone:?}\n  now {answer}"));
    }
}

/// Asks until time and number are reached, and prints what came of it.
///
/// # Errors
/// Where a text was wrong, or a request had no answer.
pub(super) fn run(load: &Load, server: &Server) -> Outcome {
    let mut requests = Vec::new();
    for request in mixed() {
        let alone = request.whole().ask(server.client, &mut Times::default());
        let alone = alone.map_err(|error| Failure::found_wrong(format!("{request:?} has no answer: {error}")))?;
        requests.push((request, alone));
    }
    let clients = load.clients.iter().max().copied().unwrap_or(1);
    let (next, begun) = (AtomicUsize::new(0), Instant::now());
    let mut memory = vec![(0, server.memory())];
    let ask = |client: usize| {
        let (mut tally, mut state) = (Tally::default(), client as u64 + 1);
        while next.fetch_add(1, Ordering::Relaxed) < load.requests || begun.elapsed().as_secs() < load.seconds {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (request, alone) = &requests[(state >> 33) as usize % requests.len()];
            let answer = request.ask(server.client, &mut tally.times);
            tally.count(request, alone, answer);
        }
        tally
    };
    let mut all = Tally::default();
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..clients).map(|client| scope.spawn(move || ask(client))).collect();
        while !asking.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(LOOK);
            memory.push((next.load(Ordering::Relaxed), server.memory()));
        }
        for client in asking {
            all.add(client.join().map_err(|_| Failure::found_wrong("a client panicked"))?);
        }
        Ok::<_, Failure>(())
    })?;
    let (seconds, done) = (begun.elapsed().as_secs_f64(), next.load(Ordering::Relaxed) - clients);
    report(load, clients, (done, seconds), &mut all);
    print_memory(&memory);
    match all.example {
        Some(example) => Err(Failure::found_wrong(format!("not every request has the answer that it has alone: {example}"))),
        None => Ok(()),
    }
}

fn report(load: &Load, clients: usize, (done, seconds): (usize, f64), all: &mut Tally) {
    let Tally { times, wrong, lost, stuck, refused, .. } = all;
    let (subject, parallel) = (load.subject(), load.parallel);
    println!(
        "soak {subject}: {clients} clients, {parallel} texts at once: {done} requests in {seconds:.1} s, {lost} lost, {wrong} wrong, {stuck} stuck, {refused} refused"
    );
    for (name, times) in [("first token", &mut times.first), ("next token", &mut times.next)] {
        let [half, most, longest] = [50, 99, 100].map(|percent| percentile(times, percent));
        println!("soak {name}: {half:.2} ms p50, {most:.2} ms p99, {longest:.2} ms at most, of {} streamed", times.len());
    }
}

/// Memory at the start, when it should have settled, after ten times as many requests, and at the end.
fn print_memory(memory: &[(usize, Option<u64>)]) {
    let known: Vec<(usize, u64)> = memory.iter().filter_map(|(done, bytes)| Some((*done, (*bytes)?))).collect();
    let after = |wanted: usize| known.iter().find(|(done, _)| *done >= wanted);
    for (done, bytes) in [known.first(), after(SETTLED), after(10 * SETTLED), known.last()].into_iter().flatten() {
        println!("soak memory: {:.1} MB after {done} requests", *bytes as f64 / 1e6);
    }
    if let (Some((first, before)), Some((last, bytes))) = (after(SETTLED), known.last())
        && last > first
    {
        let growth = (*bytes as f64 - *before as f64) / (last - first) as f64;
        println!("soak memory: {growth:.1} bytes a request from {first} to {last}");
    }
}
