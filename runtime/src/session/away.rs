//! Parts of a batch that an accelerator computes: their tokens are fed together, as many at once as it takes.

use super::{Fed, Part};
use crate::accelerator::{LOGITS, ROWS, Row};
use crate::format::Error;
use crate::model::Model;
use crate::network::State;
use crate::ops::check::all_finite;

/// A row that is fed, whose part it is of, and whether the logits after it are wanted.
#[derive(Clone, Copy, Default)]
struct Taken {
    row: Row,
    place: usize,
    wanted: bool,
}

/// Whether `part` is one of them.
pub(super) fn is_away(model: &Model<'_>, part: &Part<'_, '_>) -> bool {
    let whole = part.session.parts == 0 && core::ptr::eq(part.session.model, model);
    whole && matches!(&part.session.state, State::Away(state) if state.is_idle())
}

/// Bytes of memory for logits that come together.
pub(super) fn arena_len(model: &Model<'_>) -> Result<usize, Error> {
    let needed = (LOGITS as u64 * size_of::<f32>() as u64).saturating_mul(u64::from(model.network.vocab_size()));
    let addressable = isize::MAX as u64;
    if needed > addressable { Err(Error::TooLargeForTarget { needed, addressable }) } else { Ok(needed as usize) }
}

/// Feeds those of `parts` with room for logits in `memory`, and gives what is wanted of them to `each`, as [`super::Batch::feed`] says.
pub(super) fn feed(model: &Model<'_>, parts: &mut [Part<'_, '_>], memory: &mut [f32], each: &(dyn Fn(Fed<'_>) + Sync)) {
    // The part that comes next, and how many of its rows are fed.
    let mut next = (0, 0);
    while let Some((taken, count, after)) = take(model, parts, next, each) {
        let rows = taken.get(..count).unwrap_or_default();
        if let Err(error) = feed_rows(model, parts, rows, memory, each) {
            // What fails for one fails for all.
            for (place, part) in parts.iter().enumerate().skip(rows.first().map_or(0, |first| first.place)) {
                if is_away(model, part) && part.session.waiting() > 0 {
                    let session = &*part.session;
                    each(Fed { part: place, position: session.position, tokens: session.tokens(), logits: Err(error) });
                }
            }
            return;
        }
        next = after;
    }
}

/// The rows that are fed at once from `next` on, how many they are, and what comes after them; `None` where there are no more. Parts that cannot go on are told so.
fn take(
    model: &Model<'_>,
    parts: &[Part<'_, '_>],
    next: (usize, u32),
    each: &(dyn Fn(Fed<'_>) + Sync),
) -> Option<([Taken; ROWS], usize, (usize, u32))> {
    let mut taken = [Taken::default(); ROWS];
    let (mut count, (mut place, mut done)) = (0usize, next);
    while let Some(part) = parts.get(place) {
        let session = &*part.session;
        let State::Away(state) = &session.state else {
            (place, done) = (place.wrapping_add(1), 0);
            continue;
        };
        let there = state.accelerator();
        if done >= part.count || !is_away(model, part) || there.is_err() {
            if let (Err(error), true) = (there, done < part.count && is_away(model, part)) {
                each(Fed { part: place, position: session.position, tokens: session.tokens(), logits: Err(error) });
            }
            (place, done) = (place.wrapping_add(1), 0);
            continue;
        }
        if count >= state.block() as usize {
            break;
        }
        // Rows of this part that are taken already go before it.
        let before = taken.iter().take(count).filter(|taken| taken.place == place).count() as u32;
        let position = session.position.saturating_add(before);
        let wanted = part.every || position.saturating_add(1) == session.known;
        let Some(row) = taken.get_mut(count) else { break };
        *row = Taken { row: state.known_row(position), place, wanted };
        count = count.wrapping_add(1);
        done = done.wrapping_add(1);
    }
    (count > 0).then_some((taken, count, (place, done)))
}

/// Feeds rows at once and gives what is wanted of their logits.
fn feed_rows(
    model: &Model<'_>,
    parts: &mut [Part<'_, '_>],
    taken: &[Taken],
    memory: &mut [f32],
    each: &(dyn Fn(Fed<'_>) + Sync),
) -> Result<(), Error> {
    let (Some(accelerator), Some(first)) = (model.accelerator, taken.first()) else { return Ok(()) };
    let width = (model.network.vocab_size() as usize).max(1);
    // One row alone is a step, which is faster.
    let alone = taken.len() == 1 && first.wanted;
    if alone {
        accelerator.step(first.row, memory.get_mut(..width).unwrap_or_default())?;
    } else {
        let mut rows = [Row::default(); ROWS];
        rows.iter_mut().zip(taken).for_each(|(row, taken)| *row = taken.row);
        accelerator.feed(rows.get(..taken.len()).unwrap_or_default())?;
    }
    // Rows side by side come together.
    let runs = taken.chunk_by(|one, other| one.wanted && other.wanted).filter(|rows| rows.iter().all(|row| row.wanted));
    for rows in runs.flat_map(|rows| rows.chunks(LOGITS)) {
        let logits = memory.get_mut(..width.saturating_mul(rows.len())).unwrap_or_default();
        let Some(begin) = rows.first().map(|taken| taken.row) else { continue };
        let is_there = alone || accelerator.logits(begin.session, begin.position, logits)?;
        for (taken, logits) in rows.iter().zip(logits.chunks_exact_mut(width)) {
            if !is_there {
                // A session of another thread came between: it is fed again.
                accelerator.step(taken.row, logits)?;
            }
            let position = taken.row.position;
            let tokens = parts.get(taken.place).map_or(&[][..], |part| part.session.tokens());
            let logits = if all_finite(logits) { Ok(logits) } else { Err(Error::NonFiniteLogits { position }) };
            each(Fed { part: taken.place, position, tokens, logits });
        }
    }
    for taken in taken {
        if let Some(part) = parts.get_mut(taken.place) {
            part.session.finish();
        }
    }
    Ok(())
}
