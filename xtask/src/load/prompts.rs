//! How long the tokens of texts take while long prompts of others come in.

use super::Load;
use super::client::{Client, Failed};
use super::requests::{Times, completion, percentile};
use super::server::Server;
use crate::failure::{Failure, Outcome};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Texts whose tokens are measured.
const TEXTS: u64 = 4;
/// Their new tokens.
const TOKENS: u32 = 200;
/// Tokens of a prompt.
const PROMPT: u64 = 200;
/// Between two prompts.
const PAUSE: Duration = Duration::from_millis(100);

/// Measures texts alone, and beside a client that sends one prompt after the other.
pub(super) fn measure(load: &Load, server: &Server) -> Outcome {
    let wrong = |error: Failed| Failure::found_wrong(format!("a request has no answer: {error}"));
    let (mut alone, mut beside, mut prompts, mut number) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..load.rounds {
        alone.extend(texts(server.client).map_err(wrong)?);
        let over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut times = Times::default();
                while !over.load(Ordering::Relaxed) {
                    // Each begins with a token of its own, so that nothing of it is there.
                    let tokens: Vec<u64> = (0..PROMPT).map(|place| 3 + (number + place * (1 + number)) % 250).collect();
                    number += 1;
                    completion("", 1, 1, 0.0).with("prompt", json!(tokens)).streamed().ask(server.client, &mut times)?;
                    std::thread::sleep(PAUSE);
                }
                Ok::<_, Failed>(times.first)
            });
            let found = texts(server.client);
            over.store(true, Ordering::Relaxed);
            let came = asking.join().map_err(|_| Failed::Stuck)?;
            Ok::<_, Failed>((found?, came?))
        });
        let (found, came) = found.map_err(wrong)?;
        beside.extend(found);
        prompts.extend(came);
    }
    let subject = load.subject();
    for (name, times) in [("alone", &mut alone), ("beside prompts", &mut beside)] {
        let [half, most, longest] = [50, 99, 100].map(|percent| percentile(times, percent));
        println!("prompts {subject}: next token of {TEXTS} texts {name}: {half:.2} ms p50, {most:.2} ms p99, {longest:.2} ms at most");
    }
    let half = percentile(&mut prompts, 50);
    println!("prompts {subject}: first token after a prompt of {PROMPT} tokens beside them: {half:.2} ms p50 of {}", prompts.len());
    Ok(())
}

/// The times between the tokens of texts that are made at once.
fn texts(client: Client) -> Result<Vec<Duration>, Failed> {
    std::thread::scope(|scope| {
        let ask = |seed: u64| {
            let mut times = Times::default();
            completion("Once", TOKENS, seed, 0.0).streamed().ask(client, &mut times)?;
            Ok::<_, Failed>(times.next)
        };
        let asking: Vec<_> = (1..=TEXTS).map(|seed| scope.spawn(move || ask(seed))).collect();
        let mut all = Vec::new();
        for client in asking {
            all.extend(client.join().map_err(|_| Failed::Stuck)??);
        }
        Ok(all)
    })
}
