//! The story: one layer of the model at a time, with the executor's other tasks in between.

use crate::model::{ARENA, Line, Model};
use core::fmt;
use dmexp::format::Error;
use dmexp::sampler::Settings;
use dmexp::{Sampler, Session, Step};
use embassy_futures::yield_now;

/// What the text begins with.
const PROMPT: &str = "Once upon a time";

/// New tokens at most.
const TOKENS: u32 = 240;

/// Writes a story, or one line that says why there is none. `write` sends bytes and is false where that failed; nothing is read. Called once.
pub(crate) async fn run(mut write: impl FnMut(&[u8]) -> bool, _read: impl FnMut() -> Option<u8>) {
    if let Err(error) = tell(&mut write).await {
        let _ = fmt::write(&mut Line(write), format_args!("dmexp: {error}\n"));
    }
}

async fn tell(write: &mut impl FnMut(&[u8]) -> bool) -> Result<(), Error> {
    let mut send = |bytes: &[u8]| if write(bytes) { Ok(()) } else { Err(Error::Output) };
    let sampler = Sampler::new(Settings { temperature: 0.8, top_p: 0.9, seed: 1, ..Settings::GREEDY })?;
    let mut session = Session::new(Model::bind(), ARENA.take(), sampler)?;
    session.prompt(PROMPT.as_bytes())?;
    send(PROMPT.as_bytes())?;
    let mut tokens = 0;
    while tokens < TOKENS {
        match session.poll()? {
            None | Some(Step::Prompt { .. }) => {}
            Some(Step::Token { text, .. }) => {
                send(text.as_bytes())?;
                tokens += 1;
            }
            Some(_) => break,
        }
        yield_now().await;
    }
    send(b"\n")
}
