//! Asks a chip what it computes: frames and messages over a serial line, and the side of the chip.
//!
//! A host sends a request, the chip sends replies to it until one that is not [`Reply::Busy`]. A request that comes twice, because a frame was lost, doubled or damaged, is answered from the same
//! state: a token is never fed twice. Either side may start anew at any time: what a request speaks of (the text by its number, the position) is in the request, and a chip that is elsewhere says
//! so. The frame and the messages are described in docs/compare.md.
//!
//! [`Probe`] is the side of the chip: give it the bytes that arrive, or let [`Probe::serve`] read them. The side of the host is in `dmexp-tools`.

mod device;
mod encode;
mod frame;
mod message;

pub use device::{About, Probe};
pub use frame::{CONTENT_LEN, Frame, Outgoing, Receiver};
pub use message::{Chosen, Fact, Facts, Refusal, Reply, Request, Sampling, Stats, Tested, Ticks, VALUES_LEN};

use crate::format::crc32;
use crate::format::tokenizer::NO_TOKEN;

/// The version of frames and messages: both sides have the same.
pub const VERSION: u8 = 1;

const _: () = assert!(cfg!(target_endian = "little"), "values go over the line as they lie in memory, which is little-endian");

/// The CRC-32 of values as little-endian f32: that of the golden vectors.
pub fn checksum(values: &[f32]) -> u32 {
    crc32::checksum(&[bytemuck::cast_slice(values)])
}

/// The five largest logits with their tokens, best first, ties to the lowest id; [`NO_TOKEN`] where there are fewer.
pub fn top5(logits: &[f32]) -> [(u32, f32); 5] {
    let mut top = [(NO_TOKEN, f32::NEG_INFINITY); 5];
    for (token, logit) in (0u32..).zip(logits) {
        let (mut moved, mut inserted) = ((token, *logit), false);
        for place in &mut top {
            inserted = inserted || place.0 == NO_TOKEN || moved.1 > place.1;
            if inserted {
                core::mem::swap(place, &mut moved);
            }
        }
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_five_come_in_order_and_ties_go_to_the_lowest() {
        let tokens = |logits: &[f32]| top5(logits).map(|(token, _)| token);
        assert_eq!(tokens(&[1.0, 3.0, 3.0, -1.0, 7.0, 0.0, 3.0]), [4, 1, 2, 6, 0]);
        assert_eq!(tokens(&[0.0, -0.0, 0.0]), [0, 1, 2, NO_TOKEN, NO_TOKEN]);
        assert_eq!(tokens(&[]), [NO_TOKEN; 5]);
        assert_eq!(top5(&[1.0, 2.0])[..2], [(1, 2.0), (0, 1.0)]);
    }

    #[test]
    fn the_checksum_is_of_little_endian_bytes() {
        assert_eq!(checksum(&[1.0]), crc32::checksum(&[&[0, 0, 0x80, 0x3f]]));
    }
}
