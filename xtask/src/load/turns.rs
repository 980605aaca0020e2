//! Conversations: what is not computed again, and what happens where there are more than there is memory for.

use super::Load;
use super::client::{Client, Failed};
use super::requests::{Said, Times, chat, percentile};
use super::server::Server;
use crate::failure::{Failure, Outcome};
use serde_json::{Value, json};
use std::time::Duration;

/// Turns of a conversation; the last is measured.
const TURNS: usize = 5;
/// New tokens of an answer.
const TOKENS: u32 = 2;

/// What the user says: few bytes, since a made tokenizer makes a token of each.
fn user(conversation: usize, turn: usize) -> String {
    format!("{conversation}: say {turn}")
}

/// Measures the last turn of conversations.
pub(super) fn measure(load: &Load, server: &Server) -> Outcome {
    let (mut kept, mut anew) = (Vec::new(), Vec::new());
    for round in 0..2 * load.rounds {
        let mut messages = Vec::new();
        for turn in 0..TURNS {
            messages.push(json!({ "role": "user", "content": user(round, turn) }));
            let (said, first) = answer(server.client, &messages)?;
            if turn + 1 == TURNS {
                kept.push(first);
                // As long, and different from its first words on.
                messages[0]["content"] = Value::from(user(round, 0).replace(": ", "; "));
                anew.push(answer(server.client, &messages)?.1);
            }
            messages.push(json!({ "role": "assistant", "content": text(&said) }));
        }
    }
    let subject = load.subject();
    let [kept, anew] = [&mut kept, &mut anew].map(|times| percentile(times, 50));
    println!("turns {subject}: first token of turn {TURNS} after {kept:.2} ms, {anew:.2} ms where nothing of it was computed before");
    evicted(load, server)
}

/// Twice as many conversations as there is memory for, a turn of each in turn; then each turn once more, with other texts between.
fn evicted(load: &Load, server: &Server) -> Outcome {
    let conversations = 2 * load.parallel;
    let mut held = vec![(Vec::new(), Vec::new()); conversations];
    for turn in 0..TURNS {
        for (number, (messages, answers)) in held.iter_mut().enumerate() {
            messages.push(json!({ "role": "user", "content": user(number, turn) }));
            let (said, _) = answer(server.client, messages)?;
            messages.push(json!({ "role": "assistant", "content": text(&said) }));
            answers.push(said);
        }
    }
    let mut compared = 0;
    for turn in (0..TURNS).rev() {
        for (messages, answers) in &held {
            let (said, _) = answer(server.client, &messages[..=2 * turn])?;
            if said != answers[turn] {
                return Err(Failure::found_wrong(format!("{messages:?}, turn {turn}: {said:?} is not {:?}", answers[turn])));
            }
            compared += 1;
        }
    }
    println!(
        "turns {}: {conversations} conversations in memory for {}: {compared} texts are the same again",
        load.subject(),
        load.parallel
    );
    Ok(())
}

/// What is said to `messages`, and how long its first token took.
fn answer(client: Client, messages: &[Value]) -> Outcome<(Said, Duration)> {
    let mut times = Times::default();
    let request = chat(&Value::from(messages), TOKENS, 1).with("temperature", json!(0)).with("ignore_eos", json!(true)).streamed();
    let said = request.ask(client, &mut times);
    let said = said.map_err(|error: Failed| Failure::found_wrong(format!("{request:?} has no answer: {error}")))?;
    Ok((said, times.first.first().copied().unwrap_or_default()))
}

fn text(said: &Said) -> &str {
    said.texts().next().unwrap_or_default()
}
