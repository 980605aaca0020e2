//! What a user's firmware looks like: a model that was checked while this compiled, an arena of exactly the size it needs, and a story.

use dmexp::format::Error;
use dmexp::sampler::Settings;
use dmexp::{Arena, Sampler, Session, include_model};
use embedded_io::Write;
use static_cell::ConstStaticCell;

#[cfg(not(any(feature = "one-arena", feature = "one-arena-q8", feature = "hot-weights", feature = "built-in-dormouse")))]
include_model!(pub(crate) Story = "$DMEXP_MODEL", kv = f16, section = ".dmexp_model");
#[cfg(feature = "hot-weights")]
include_model!(pub(crate) Story = "$DMEXP_MODEL", kv = f16, section = ".dmexp_model", ram = ["layers.*.attention.w*", "norm.weight"]);
#[cfg(all(feature = "one-arena", not(feature = "hot-weights")))]
include_model!(pub(crate) Story = "$DMEXP_MODEL", kv = f32, section = ".dmexp_model");
#[cfg(all(feature = "one-arena-q8", not(feature = "hot-weights")))]
include_model!(pub(crate) Story = "$DMEXP_MODEL", kv = q8, section = ".dmexp_model");
#[cfg(feature = "built-in-dormouse")]
include_model!(pub(crate) Story = "$DMEXP_MODEL", context = 16, section = ".dmexp_model");

static ARENA: ConstStaticCell<Arena<{ Story::ARENA_LEN }>> = ConstStaticCell::new(Arena::new());

/// The words that the story begins with; the tiny model, which has no room for a story, says a sentence that it begins itself.
const PROMPT: &str = if Story::CONTEXT < 128 { "" } else { "Once upon a time" };

/// New tokens at most.
const TOKENS: u32 = 240;

/// The arena, which is given out once.
pub(crate) fn arena() -> Result<&'static mut Arena<{ Story::ARENA_LEN }>, Error> {
    // Its `take` would be shorter, but can panic.
    ARENA.try_take().ok_or(Error::ArenaTooSmall { needed: Story::ARENA_LEN as u64, found: 0 })
}

/// Writes the story that belongs to `seed` to `out`, as a line.
#[inline(never)]
pub(crate) fn tell(seed: u64, out: &mut impl Write) -> Result<(), Error> {
    let sampler = Sampler::new(Settings { temperature: 0.8, top_p: 0.9, seed, ..Settings::GREEDY })?;
    let arena = arena()?;
    out.write_all(PROMPT.as_bytes()).map_err(|_| Error::Output)?;
    // Used where it was made: moving it out of the result would take its size of stack once more.
    Session::new(Story::bind(), arena, sampler).as_mut().map_err(|error| *error)?.generate(PROMPT, TOKENS, out)?;
    out.write_all(b"\n").map_err(|_| Error::Output)
}
