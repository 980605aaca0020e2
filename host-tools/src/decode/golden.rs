//! Golden vectors: what is recorded of logits, and the replay that compares. Used by the exporter, `verify`, and whoever asks whether a machine computes as the exporting one did.

use super::{Cpu, CpuOptions, Loaded};
use crate::error::Result;
use dmexp::Sampler;
use dmexp::format::Error as FormatError;
use dmexp_format::host::GoldenPosition;
use dmexp_format::{crc32, tokenizer::NO_TOKEN};

/// What a golden vector records of the logits at `position`.
pub fn record(position: u32, logits: &[f32]) -> GoldenPosition {
    GoldenPosition { position, crc32: checksum(logits), top5: top5(logits) }
}

/// The CRC-32 of logits as little-endian f32.
pub fn checksum(logits: &[f32]) -> u32 {
    let bytes: Vec<u8> = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    crc32::checksum(&[&bytes])
}

/// The five largest logits' tokens, best first, ties to the lowest; [`NO_TOKEN`] where there are fewer.
pub fn top5(logits: &[f32]) -> [u32; 5] {
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(6);
    for (token, logit) in (0..).zip(logits) {
        let place = best.iter().position(|(_, other)| logit > other).unwrap_or(best.len());
        if place < 5 {
            best.insert(place, (token, *logit));
            best.truncate(5);
        }
    }
    let mut tokens = [NO_TOKEN; 5];
    for (place, (token, _)) in tokens.iter_mut().zip(best) {
        *place = token;
    }
    tokens
}

/// Replays every golden vector of the file and compares; returns how many there were.
///
/// # Errors
/// [`FormatError::Golden`] in words, with the path, for the first position whose logits are others; those of [`Cpu::new`].
pub fn golden_check(loaded: &Loaded) -> Result<usize> {
    let mut count = 0;
    for golden in loaded.file()?.golden() {
        let mut cpu = Cpu::new(loaded, &CpuOptions { context: Some(golden.len()), kv: golden.kv(), tokenizer: None })?;
        let mut session = cpu.session(Sampler::greedy())?;
        let tokens: Vec<u32> = golden.tokens().collect();
        let mut fed = 0;
        for known in golden.positions() {
            let end = known.position as usize + 1;
            let replay = session.push_tokens(tokens.get(fed..end).unwrap_or_default()).and_then(|()| session.logits());
            let logits = replay.map_err(|error| loaded.explain(error))?;
            let computed = checksum(logits);
            if computed != known.crc32 || top5(logits) != known.top {
                return Err(loaded.explain(FormatError::Golden { position: known.position, stored: known.crc32, computed }));
            }
            fed = end;
        }
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_five_come_in_order_and_ties_go_to_the_lowest() {
        assert_eq!(top5(&[1.0, 3.0, 3.0, -1.0, 7.0, 0.0, 3.0]), [4, 1, 2, 6, 0]);
        assert_eq!(top5(&[0.0, -0.0, 0.0]), [0, 1, 2, NO_TOKEN, NO_TOKEN]);
        assert_eq!(top5(&[]), [NO_TOKEN; 5]);
    }

    #[test]
    fn the_checksum_is_of_little_endian_bytes() {
        // CRC-32 of 00 00 80 3f.
        assert_eq!(checksum(&[1.0]), crc32::checksum(&[&[0, 0, 0x80, 0x3f]]));
    }
}
