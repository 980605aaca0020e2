//! Tokens a second of one client and of several.

use super::Load;
use super::client::{Client, Failed};
use super::requests::{Times, completion};
use super::server::Server;
use crate::failure::{Failure, Outcome};
use std::time::Instant;

/// New tokens of a text.
const TOKENS: u32 = 128;
/// Texts that a client asks for, one after the other.
const TEXTS: u64 = 2;

/// Measures each number of clients once a round, in turn, and prints medians: what else the machine does meets all alike.
pub(super) fn measure(load: &Load, server: &Server) -> Outcome {
    for (name, temperature) in [("greedy", 0.0), ("drawn", 1.0)] {
        for streamed in [false, true] {
            let mut rates = vec![Vec::new(); load.clients.len()];
            for round in 0..=load.rounds {
                for (rates, clients) in rates.iter_mut().zip(&load.clients) {
                    let before = server.processor_seconds();
                    let (tokens, seconds) = texts(server.client, *clients, temperature, streamed)?;
                    let worked = before.zip(server.processor_seconds()).map_or(f64::NAN, |(before, after)| after - before);
                    // The first round is not counted: memory is used for the first time.
                    rates.extend((round > 0).then_some((tokens / seconds, tokens / worked)));
                }
            }
            let medians: Vec<(f64, f64)> = rates.iter().map(|rates| (median(rates, |rate| rate.0), median(rates, |rate| rate.1))).collect();
            let ((alone, alone_worked), first) = (medians[0], load.clients[0]);
            for ((rate, worked), clients) in medians.iter().zip(&load.clients) {
                let how = if streamed { "streamed" } else { "whole" };
                let (subject, times, times_worked) = (load.subject(), rate / alone, worked / alone_worked);
                println!(
                    "rates {subject}, {name}, {how}: {clients} clients {rate:.0} tokens/s, {times:.2} x {first} clients; \
                     {worked:.0} a second of its processor time, {times_worked:.2} x"
                );
            }
        }
    }
    Ok(())
}

fn median(rates: &[(f64, f64)], of: impl Fn(&(f64, f64)) -> f64) -> f64 {
    let mut sorted: Vec<f64> = rates.iter().map(of).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// How many tokens so many clients together are given, and in how many seconds.
fn texts(client: Client, clients: usize, temperature: f64, streamed: bool) -> Outcome<(f64, f64)> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let ask = |number: usize| {
            for text in 0..TEXTS {
                let request = completion("Once", TOKENS, 1 + number as u64 * TEXTS + text, temperature);
                let request = if streamed { request.streamed() } else { request };
                request.ask(client, &mut Times::default())?;
            }
            Ok::<_, Failed>(())
        };
        let asking: Vec<_> = (0..clients).map(|number| scope.spawn(move || ask(number))).collect();
        for client in asking {
            match client.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(Failure::found_wrong(format!("a request has no answer: {error}"))),
                Err(_) => return Err(Failure::found_wrong("a client panicked")),
            }
        }
        Ok(())
    })?;
    Ok((clients as f64 * TEXTS as f64 * f64::from(TOKENS), start.elapsed().as_secs_f64()))
}
