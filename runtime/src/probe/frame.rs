//! Frames: how a message lies on the line. Called by both sides.
//!
//! A frame is a byte 0, its content without zeros (COBS, Cheshire and Baker, 1999), and another byte 0: after any damage the next frame is found again. Its content is the version, the number of the
//! request (u32), the message, and the CRC-32 of all that, numbers little-endian. It is shorter than 254 bytes, so that COBS needs no block longer than that.

use super::VERSION;
use super::encode::encode;
use crate::format::crc32;
use crate::write::write_all;
use embedded_io::Write;
use serde::Serialize;

/// The most bytes of a frame's content.
pub const CONTENT_LEN: usize = 253;

/// Bytes before the message: version and number.
const HEAD_LEN: usize = 5;

/// Bytes after the message.
const CHECKSUM_LEN: usize = 4;

/// A frame that arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The version of who sent it.
    pub version: u8,
    /// The number of the request, or of the one that this replies to.
    pub id: u32,
    /// The message.
    pub message: &'a [u8],
}

/// Finds frames among the bytes that arrive.
#[derive(Clone, Debug)]
pub struct Receiver {
    bytes: [u8; CONTENT_LEN + 1],
    len: usize,
    /// More bytes came than a frame has: what follows up to the next 0 is none.
    overlong: bool,
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new()
    }
}

impl Receiver {
    /// Nothing arrived.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; CONTENT_LEN + 1], len: 0, overlong: false }
    }

    /// Takes the next byte of the line, and gives the frame that it completes: one that is whole, by its checksum. Everything else is passed over.
    pub fn push(&mut self, byte: u8) -> Option<Frame<'_>> {
        if byte != 0 {
            match self.bytes.get_mut(self.len) {
                Some(place) => {
                    *place = byte;
                    self.len += 1;
                }
                None => self.overlong = true,
            }
            return None;
        }
        let (len, overlong) = (core::mem::take(&mut self.len), core::mem::take(&mut self.overlong));
        if overlong {
            return None;
        }
        parse(decode(self.bytes.get_mut(..len)?)?)
    }
}

/// Undoes COBS in place. `None` for what is none, with a block longer than any frame has, or of nothing.
fn decode(bytes: &mut [u8]) -> Option<&[u8]> {
    let (mut from, mut to) = (0, 0);
    while let Some(code) = bytes.get(from).copied() {
        // A 0 stands between two blocks.
        if from > 0 {
            *bytes.get_mut(to)? = 0;
            to += 1;
        }
        let end = from + usize::from(code);
        if code == 0 || code == u8::MAX || end > bytes.len() {
            return None;
        }
        for at in from + 1..end {
            let byte = bytes.get(at).copied()?;
            *bytes.get_mut(to)? = byte;
            to += 1;
        }
        from = end;
    }
    bytes.get(..to)
}

fn parse(content: &[u8]) -> Option<Frame<'_>> {
    let (covered, checksum) = content.split_last_chunk::<CHECKSUM_LEN>()?;
    if crc32::checksum(&[covered]) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (version, rest) = covered.split_first()?;
    let (id, message) = rest.split_first_chunk::<4>()?;
    Some(Frame { version: *version, id: u32::from_le_bytes(*id), message })
}

/// A frame to be sent.
#[derive(Clone, Debug)]
pub struct Outgoing {
    content: [u8; CONTENT_LEN],
    len: usize,
}

impl Outgoing {
    /// The frame of a message; `None` for one that is longer than a frame.
    pub fn new(id: u32, message: &impl Serialize) -> Option<Self> {
        let mut frame = Self { content: [0; CONTENT_LEN], len: 0 };
        let (head, rest) = frame.content.split_first_chunk_mut::<HEAD_LEN>()?;
        let [version, number @ ..] = head;
        *version = VERSION;
        *number = id.to_le_bytes();
        let room = rest.len() - CHECKSUM_LEN;
        let covered = HEAD_LEN + encode(message, rest.get_mut(..room)?)?;
        let checksum = crc32::checksum(&[frame.content.get(..covered)?]);
        *frame.content.get_mut(covered..)?.first_chunk_mut()? = checksum.to_le_bytes();
        frame.len = covered + CHECKSUM_LEN;
        Some(frame)
    }

    /// Puts the frame on the line, and flushes it. False if the line takes no more.
    pub fn send(&self, out: &mut impl Write) -> bool {
        let content = self.content.get(..self.len).unwrap_or(&[]);
        let mut sent = write_all(out, &[0]);
        for block in content.split(|byte| *byte == 0) {
            sent = sent && write_all(out, &[block.len() as u8 + 1]) && write_all(out, block);
        }
        sent && write_all(out, &[0]) && out.flush().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes on the line.
    struct Line(Vec<u8>);

    impl embedded_io::ErrorType for Line {
        type Error = core::convert::Infallible;
    }

    impl Write for Line {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Self::Error> {
            self.0.extend_from_slice(&bytes[..bytes.len().min(3)]);
            Ok(bytes.len().min(3))
        }

        fn flush(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    fn sent(id: u32, message: &[u8]) -> Vec<u8> {
        let mut line = Line(Vec::new());
        assert!(Outgoing::new(id, &message).unwrap().send(&mut line));
        line.0
    }

    /// All frames among `bytes`, with their messages as they were before they were made bytes of a message.
    fn received(receiver: &mut Receiver, bytes: &[u8]) -> Vec<(u8, u32, Vec<u8>)> {
        let mut found = Vec::new();
        for byte in bytes {
            if let Some(frame) = receiver.push(*byte) {
                found.push((frame.version, frame.id, postcard::from_bytes::<Vec<u8>>(frame.message).unwrap()));
            }
        }
        found
    }

    #[test]
    fn a_message_longer_than_a_frame_is_refused() {
        assert!(Outgoing::new(1, &&[1u8; 242][..]).is_some());
        assert!(Outgoing::new(1, &&[1u8; 243][..]).is_none());
    }

    #[test]
    fn zeros_stand_only_around_frames() {
        for message in [&[][..], &[0; 240], &[7; 242], &[0, 1, 0, 0, 2]] {
            let bytes = sent(0, message);
            assert_eq!((bytes[0], bytes[bytes.len() - 1]), (0, 0));
            assert!(bytes[1..bytes.len() - 1].iter().all(|byte| *byte != 0));
            assert_eq!(received(&mut Receiver::new(), &bytes), [(VERSION, 0, message.to_vec())]);
        }
    }

    proptest! {
        #[test]
        fn frames_are_found_among_noise(id: u32, message in prop::collection::vec(any::<u8>(), 0..240), noise in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut receiver = Receiver::new();
            let before = received(&mut receiver, &noise);
            let after = received(&mut receiver, &sent(id, &message));
            prop_assert_eq!(before, []);
            prop_assert_eq!(after, [(VERSION, id, message)]);
        }

        #[test]
        fn damaged_frames_are_none(message in prop::collection::vec(any::<u8>(), 0..240), place: prop::sample::Index, bit in 0..8u8) {
            let mut bytes = sent(9, &message);
            // The zero before the frame is no part of it.
            let at = 1 + place.index(bytes.len() - 1);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(received(&mut Receiver::new(), &bytes), []);
            let cut = &sent(9, &message)[..at];
            prop_assert_eq!(received(&mut Receiver::new(), cut), []);
        }
    }
}
