//! `dmexp generate --logprobs`: how probable each new token was.

use dmexp::Session;
use dmexp::format::Error;
use dmexp::tokenizer::Tokenizer;
use dmexp_tools::logprobs::logprobs;
use serde_json::{Value, json};

/// For each of the new `tokens` behind those that the prompt is made of: its probability by the model's own logits, as a natural logarithm, and the `count` likeliest in its place.
///
/// All of them are fed again, which gives the same bits.
pub(super) fn of(session: &mut Session<'_>, known: &[u32], tokens: &[u32], count: u32) -> Result<Value, Error> {
    let mut all = [known, tokens].concat();
    // Nothing is asked of what comes after the last.
    all.pop();
    session.reset();
    session.push_tokens(&all)?;
    let tokenizer = *session.model().tokenizer();
    let first = known.len().saturating_sub(1);
    let mut entries = Vec::new();
    session.each_logits(|position, logits| {
        let place = position as usize;
        if let (Some(token), Some(before)) = (place.checked_sub(first).and_then(|new| tokens.get(new)), all.get(place)) {
            let (logprob, likeliest) = logprobs(logits, *token, count as usize);
            let mut told = entry(&tokenizer, *before, *token, logprob);
            told["likeliest"] = likeliest.into_iter().map(|(token, logprob)| entry(&tokenizer, *before, token, logprob)).collect();
            entries.push(told);
        }
        Ok::<(), Error>(())
    })?;
    Ok(Value::from(entries))
}

fn entry(tokenizer: &Tokenizer<'_>, before: u32, token: u32, logprob: f64) -> Value {
    json!({ "token": token, "text": String::from_utf8_lossy(tokenizer.decode(before, token).as_bytes()), "logprob": logprob })
}
