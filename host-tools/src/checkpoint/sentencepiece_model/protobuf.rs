//! Just enough of Protocol Buffers: the fields of one message, one after the other. The wire format is that of protobuf.dev/programming-guides/encoding.

use crate::error::{Error, Result};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'a> {
    Varint(u64),
    /// Eight bytes: no field of ours.
    Fixed64,
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
}

impl<'a> Field<'a> {
    /// A number, if it is one.
    pub(super) fn number(self) -> Option<u64> {
        if let Self::Varint(number) = self { Some(number) } else { None }
    }

    /// Bytes, a string or a message, if it is that.
    pub(super) fn bytes(self) -> Option<&'a [u8]> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// A float, if it is one.
    pub(super) fn float(self) -> Option<f32> {
        if let Self::Fixed32(bytes) = self { Some(f32::from_le_bytes(bytes)) } else { None }
    }
}

/// The fields of a message with their numbers; ends after the first error.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    /// Where `rest` begins in the file, for errors.
    offset: usize,
}

impl<'a> Fields<'a> {
    /// The fields of a message that lies at `offset`.
    pub(super) fn new(message: &'a [u8], offset: usize) -> Self {
        Self { rest: message, offset }
    }

    /// The place of the next field.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    fn advance(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        self.offset += count;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.advance(1)? else { return None };
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => self.advance(8).map(|_| Field::Fixed64)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.advance(length)?)
            }
            5 => Field::Fixed32(*self.advance(4)?.first_chunk()?),
            _ => return None,
        };
        (tag >> 3 != 0).then_some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let start = self.offset;
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field.ok_or_else(|| {
            Error::damaged("is not the protobuf message that it should be").at(format!("byte {start}")).advise("copy or download it again")
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u64, Field<'_>)>> {
        Fields::new(bytes, 0).collect()
    }

    #[test]
    fn fields_of_every_type_are_read() {
        let bytes = b"\x08\x96\x01\x12\x03abc\x1d\0\0\x80\x3f\x21\0\0\0\0\0\0\0\0";
        let fields = all(bytes).unwrap();
        assert_eq!(
            fields,
            [(1, Field::Varint(150)), (2, Field::Bytes(b"abc")), (3, Field::Fixed32([0, 0, 0x80, 0x3f])), (4, Field::Fixed64)]
        );
        assert_eq!((fields[0].1.number(), fields[1].1.bytes(), fields[2].1.float()), (Some(150), Some(&b"abc"[..]), Some(1.0)));
    }

    #[test]
    fn what_is_cut_or_impossible_is_refused_with_its_place() {
        for bytes in [
            &b"\x08"[..],
            b"\x08\x80",
            b"\x12\x05abc",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
            b"\x0b",
            b"\x00\x00",
            b"\x1d\0\0",
        ] {
            let error = all(bytes).unwrap_err().to_string();
            assert!(error.contains("(at byte 0)"), "{bytes:?}: {error}");
        }
        assert!(all(b"\x08\x01\x12\x05").unwrap_err().to_string().contains("(at byte 2)"));
    }
}
