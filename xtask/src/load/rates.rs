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
                    let rate = rate(server.client, *clients, temperature, streamed)?;
                    // The first round is not counted: memory is used for the first time.
                    rates.extend((round > 0).then_some(rate));
                }
            }
            let alone = median(&rates[0]);
            for (rates, clients) in rates.iter().zip(&load.clients) {
                let (rate, times) = (median(rates), median(rates) / alone);
                let how = if streamed { "streamed" } else { "whole" };
                let subject = load.subject();
                println!("rates {subject}, {name}, {how}: {clients} clients {rate:.0} tokens/s, {times:.2} x {} clients", load.clients[0]);
            }
        }
    }
    Ok(())
}

fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Tokens a second of so many clients together.
fn rate(client: Client, clients: usize, temperature: f64, streamed: bool) -> Outcome<f64> {
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
    Ok(clients as f64 * TEXTS as f64 * f64::from(TOKENS) / start.elapsed().as_secs_f64())
}
