//! Whether a model and its arena have room on a board.

use super::Board;
use crate::error::{Class, Error, Result};
use crate::plan::Facts;
use dmexp_format::KvDType;
use dmexp_format::layout::LlamaLayout;

/// Bytes of flash that are kept for drivers and for what a user adds, beside the code of our own firmware for such a model.
const OWN_CODE: u64 = 32_000;

/// Bytes of flash that are kept for code where that of our own firmware was not measured.
const CODE: u64 = 96_000;

/// Bytes of RAM that are kept for the stack and small statics: more than `dmexp plan` keeps, which counts nothing but our own.
pub const STACK: u64 = 5_000;

/// What a model takes of a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Positions of the context.
    pub context: u32,
    /// Bytes of flash, the code left out.
    pub model: u64,
    /// Bytes of arena.
    pub arena: u64,
}

/// What the model takes with these settings.
///
/// # Errors
/// [`Class::Request`] where the board has less, with what would fit.
pub(super) fn fit(board: &Board, facts: &Facts, context: u32, kv: KvDType) -> Result<Fit> {
    let (model, config) = (facts.model_bytes, &facts.config);
    let code = facts.code_on(board.name).map_or(CODE, |code| code + OWN_CODE);
    let room = board.model_room().unwrap_or(board.flash().saturating_sub(code));
    if model > room {
        let kept = if board.model_room().is_some() { String::new() } else { format!(", {code} kept for code") };
        let what = format!("the model takes {model} bytes, and {} has {room} bytes for it{kept}", board.name);
        return Err(Error::new(Class::Request, what).advise(facts.smaller(room)));
    }
    let arena = |context, kv| LlamaLayout::new(config, context, kv).map(|layout| layout.total_bytes as u64);
    let needed = arena(context, kv).map_err(|error| Error::new(Class::Request, error.to_string()))?;
    let room = board.ram().saturating_sub(STACK);
    if needed <= room {
        return Ok(Fit { context, model, arena: needed });
    }
    let what = format!(
        "a context of {context} positions with keys and values in {kv} takes {needed} bytes of RAM, and {} has {room}, {STACK} kept for the stack",
        board.name
    );
    let fitting = |kv| longest(context, |context| arena(context, kv).is_ok_and(|bytes| bytes <= room)).map(|most| (most, kv));
    let options = [kv, KvDType::Q8].into_iter().filter_map(fitting);
    let options: Vec<_> = options.map(|(most, kv)| format!("--context {most} --kv {kv}")).collect();
    let advice = match options.as_slice() {
        [] => "no context fits: choose a larger board (--list)".to_owned(),
        [first, .., last] if first != last => format!("{first} would fit, or {last}"),
        [first, ..] => format!("{first} would fit"),
    };
    Err(Error::new(Class::Request, what).advise(advice))
}

/// The most positions, up to `most`, that fit; more positions never take less.
fn longest(most: u32, fits: impl Fn(u32) -> bool) -> Option<u32> {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    Some(low).filter(|context| *context > 0)
}
