//! Several texts at once, with one pass over the weights for all of them: `cargo run --example batch -- model.dmexp "The bird" "Tom"`
use dmexp::{Batch, Model, Part, Sampler, Session, format::Error, format::file::ModelFile};
use std::io::Write;
use std::sync::Mutex;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::read(std::env::args_os().nth(1).ok_or("name a .dmexp file, and how each text begins")?)?;
    let prompts: Vec<String> = std::env::args().skip(2).collect();
    let model = Model::bind(&ModelFile::open(&bytes)?)?;
    let mut memories = vec![vec![0; model.arena_len()?.div_ceil(4)]; prompts.len()];
    let mut sessions = Vec::new();
    for (memory, prompt) in memories.iter_mut().zip(&prompts) {
        let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy())?;
        session.prompt(prompt.as_bytes())?;
        sessions.push((session, prompt.clone().into_bytes()));
    }
    let texts = prompts.len() as u32;
    let mut memory = vec![0; Batch::arena_len(&model, texts, texts)?.div_ceil(4)];
    let mut batch = Batch::new(&model, texts, texts, memory.as_mut_slice())?;
    loop {
        // A token of each text; those that have ended have none that waits.
        let mut going: Vec<_> = sessions.iter_mut().filter(|(session, _)| session.waiting() > 0).collect();
        let mut parts: Vec<_> = going.iter_mut().map(|(session, _)| Part { session, count: 1, every: false }).collect();
        if parts.is_empty() {
            break;
        }
        // The logits after the last token of a text, on any of the model's threads.
        let chosen: Mutex<Vec<(usize, Result<u32, Error>)>> = Mutex::new(Vec::new());
        batch.feed(&mut parts, &|fed| {
            let token = fed.logits.and_then(|logits| Sampler::greedy().sample(logits, &mut [], fed.tokens));
            chosen.lock().unwrap().push((fed.part, token));
        })?;
        for (part, token) in chosen.into_inner()? {
            let (session, text) = &mut *going[part];
            let token = token?;
            let last = session.tokens().last().copied().unwrap_or_default();
            let tokenizer = model.tokenizer();
            // Models of stories say with the token that begins a text that theirs has ended, too.
            let ended = tokenizer.ends_text(token) || token == tokenizer.facts().bos;
            if !ended && session.position() < model.context() {
                text.extend(tokenizer.decode(last, token).as_bytes());
                session.push_tokens(&[token])?;
            }
        }
    }
    for (_, text) in &sessions {
        std::io::stdout().write_all(text)?;
        println!();
    }
    Ok(())
}
