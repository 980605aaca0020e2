//! The story: one layer of the model at a time, with the executor's other tasks in between.

use core::fmt;
use dmexp::format::Error;
use dmexp::sampler::Settings;
use dmexp::{Arena, Sampler, Session, Step, include_model};
use embassy_futures::yield_now;
use static_cell::ConstStaticCell;

// Checked while this compiles: a damaged file does not build, nor one for which Cargo.toml lacks a feature of dmexp.
include_model!(Story = "model.dmexp", context = 256, kv = f16);

/// The memory that a session of this model needs, to the byte.
static ARENA: ConstStaticCell<Arena<{ Story::ARENA_LEN }>> = ConstStaticCell::new(Arena::new());

/// What the text begins with.
const PROMPT: &str = "Once upon a time";

/// New tokens at most.
const TOKENS: u32 = 240;

/// Writes a story, or one line that says why there is none. `write` sends bytes and is false where that failed. Called once.
pub(crate) async fn tell(mut write: impl FnMut(&[u8]) -> bool) {
    if let Err(error) = attempt(&mut write).await {
        let _ = fmt::write(&mut Line(write), format_args!("dmexp: {error}\n"));
    }
}

async fn attempt(write: &mut impl FnMut(&[u8]) -> bool) -> Result<(), Error> {
    let mut send = |bytes: &[u8]| if write(bytes) { Ok(()) } else { Err(Error::Output) };
    let sampler = Sampler::new(Settings { temperature: 0.8, top_p: 0.9, seed: 1, ..Settings::GREEDY })?;
    let mut session = Session::new(Story::bind(), ARENA.take(), sampler)?;
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

/// Formatted text to a function that sends bytes.
struct Line<W>(W);

impl<W: FnMut(&[u8]) -> bool> fmt::Write for Line<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if (self.0)(text.as_bytes()) { Ok(()) } else { Err(fmt::Error) }
    }
}
