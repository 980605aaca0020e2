//! What a user's firmware looks like: a model that was checked while this compiled, an arena of exactly the size it needs, and a story.

use dmexp::sampler::Settings;
use dmexp::{Arena, Sampler, Session, include_model};
use embedded_io::Write;
use static_cell::StaticCell;

include_model!(pub(crate) Story = "$DMEXP_MODEL", kv = f16, section = ".dmexp_model");
static ARENA: StaticCell<Arena<{ Story::ARENA_LEN }>> = StaticCell::new();

/// The words that the story begins with.
const PROMPT: &str = "Once upon a time";

/// New tokens at most.
const TOKENS: u32 = 200;

/// Writes the story that belongs to `seed` to `out`.
pub(crate) fn tell(seed: u64, out: &mut impl Write) -> Result<(), dmexp::format::Error> {
    let sampler = Sampler::new(Settings { temperature: 0.8, top_p: 0.9, seed, ..Settings::GREEDY })?;
    let mut session = Session::new(Story::bind(), ARENA.init(Arena::new()), sampler)?;
    out.write_all(PROMPT.as_bytes()).map_err(|_| dmexp::format::Error::Output)?;
    session.generate(PROMPT, TOKENS, out).map(|_| ())
}
