//! Writes messages as `postcard` does. Its own writer indexes an array for numbers of variable length, which leaves a panic in firmware; its reader does not, and reads what this writes.

use core::fmt;
use serde::Serialize;
use serde::ser::{
    Error, Impossible, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
    Serializer,
};

/// Writes `message` to the front of `out`, and returns how many bytes it took; `None` where they are not as many.
pub(super) fn encode(message: &impl Serialize, out: &mut [u8]) -> Option<usize> {
    let mut writer = Writer { out, len: 0 };
    message.serialize(&mut writer).ok()?;
    Some(writer.len)
}

/// The message is longer than the buffer, or has in it what no message has.
#[derive(Debug)]
pub(super) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message cannot be written")
    }
}

impl core::error::Error for Refused {}

impl Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

struct Writer<'o> {
    out: &'o mut [u8],
    len: usize,
}

impl Writer<'_> {
    #[inline(never)]
    fn put(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        for byte in bytes {
            *self.out.get_mut(self.len).ok_or(Refused)? = *byte;
            self.len += 1;
        }
        Ok(())
    }

    /// A number of variable length: seven bits a byte, the lowest first, the top bit of all but the last set.
    #[inline(never)]
    fn number(&mut self, value: u64) -> Result<(), Refused> {
        let mut rest = value;
        while rest >= 0x80 {
            self.put(&[rest as u8 | 0x80])?;
            rest >>= 7;
        }
        self.put(&[rest as u8])
    }
}

/// Types that no message has.
macro_rules! refused {
    ($($name:ident($type:ty))*) => {
        $(fn $name(self, _: $type) -> Result<(), Refused> {
            Err(Refused)
        })*
    };
}

impl Serializer for &mut Writer<'_> {
    type Ok = ();
    type Error = Refused;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Impossible<(), Refused>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    refused! { serialize_i8(i8) serialize_i16(i16) serialize_i32(i32) serialize_i64(i64) serialize_f64(f64) serialize_char(char) serialize_unit_struct(&'static str) }

    fn serialize_bool(self, value: bool) -> Result<(), Refused> {
        self.put(&[u8::from(value)])
    }

    fn serialize_u8(self, value: u8) -> Result<(), Refused> {
        self.put(&[value])
    }

    fn serialize_u16(self, value: u16) -> Result<(), Refused> {
        self.number(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), Refused> {
        self.number(value.into())
    }

    fn serialize_u64(self, value: u64) -> Result<(), Refused> {
        self.number(value)
    }

    fn serialize_f32(self, value: f32) -> Result<(), Refused> {
        self.put(&value.to_bits().to_le_bytes())
    }

    fn serialize_str(self, value: &str) -> Result<(), Refused> {
        self.serialize_bytes(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Refused> {
        self.number(value.len() as u64)?;
        self.put(value)
    }

    fn serialize_none(self) -> Result<(), Refused> {
        self.put(&[0])
    }

    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), Refused> {
        self.put(&[1])?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Refused> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, index: u32, _: &'static str) -> Result<(), Refused> {
        self.number(index.into())
    }

    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _: &'static str, value: &T) -> Result<(), Refused> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Refused> {
        self.number(index.into())?;
        value.serialize(self)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self, Refused> {
        self.number(len.ok_or(Refused)? as u64)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Refused> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Refused> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &'static str, index: u32, _: &'static str, _: usize) -> Result<Self, Refused> {
        self.number(index.into())?;
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Refused> {
        Err(Refused)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Refused> {
        Ok(self)
    }

    fn serialize_struct_variant(self, _: &'static str, index: u32, _: &'static str, _: usize) -> Result<Self, Refused> {
        self.number(index.into())?;
        Ok(self)
    }

    fn collect_str<T: ?Sized + fmt::Display>(self, _: &T) -> Result<(), Refused> {
        Err(Refused)
    }
}

/// What has parts: they follow each other.
macro_rules! parts {
    ($($name:ident::$method:ident($($key:ty)?))*) => {
        $(impl $name for &mut Writer<'_> {
            type Ok = ();
            type Error = Refused;

            fn $method<T: ?Sized + Serialize>(&mut self, $(_: $key,)? value: &T) -> Result<(), Refused> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<(), Refused> {
                Ok(())
            }
        })*
    };
}

parts! {
    SerializeSeq::serialize_element()
    SerializeTuple::serialize_element()
    SerializeTupleStruct::serialize_field()
    SerializeTupleVariant::serialize_field()
    SerializeStruct::serialize_field(&'static str)
    SerializeStructVariant::serialize_field(&'static str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Chosen, Fact, Facts, Refusal, Reply, Request, Stats, Tested, Ticks};
    use crate::sampler::Settings;

    fn written(message: &impl Serialize) -> Vec<u8> {
        let mut out = [0; 253];
        let len = encode(message, &mut out).unwrap();
        assert_eq!(encode(message, &mut out[..len]), Some(len));
        assert_eq!(encode(message, &mut [0; 253][..len - 1]), None);
        assert_eq!(out[..len], *postcard::to_slice(message, &mut [0; 253]).unwrap(), "as postcard writes");
        out[..len].to_vec()
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let sampling = Settings { temperature: 0.8, seed: u64::MAX, ..Settings::GREEDY }.into();
        let (text, position, token) = (u32::MAX, 128, 300);
        for request in [
            Request::Hello,
            Request::Facts,
            Request::Reset { text, sampling },
            Request::Prompt { text, known: 0, bytes: &[0, 255, 7] },
            Request::Layers { text, position, token, layers: 0 },
            Request::Step { text, position, token },
            Request::Next { text, position },
            Request::Read { text, position, layers: None, offset: 56 },
            Request::Read { text, position, layers: Some(5), offset: 56 },
            Request::Tensor { number: 70_000 },
            Request::SelfTest { vector: 1 },
            Request::Stats,
        ] {
            assert_eq!(postcard::from_bytes::<Request<'_>>(&written(&request)).unwrap(), request);
        }
        let facts = Facts { dim: 64, n_layers: 5, vocab_size: 512, context: 256, kv: 1, tensors: 52, goldens: 2 };
        for reply in [
            Reply::Refused(Refusal::Version(7)),
            Reply::Refused(Refusal::Elsewhere { text, position }),
            Reply::Refused(Refusal::Range(Fact::Golden, 9)),
            Reply::Refused(Refusal::Failed),
            Reply::Busy,
            Reply::Done,
            Reply::Hello { firmware: "dmexp 0.1.0", board: "a board", fingerprint: 1 << 31 },
            Reply::Facts(facts),
            Reply::Prompted { tokens: 3 },
            Reply::Layered { checksum: 5 },
            Reply::Stepped { checksum: 5, top: [(u32::MAX, f32::NEG_INFINITY), (1, -0.5), (2, 0.0), (3, 1e30), (4, 2.0)] },
            Reply::Next(Chosen::Prompt { token }),
            Reply::Next(Chosen::Token { token, text: &[0xE2, 0x80] }),
            Reply::Next(Chosen::EndOfText { token }),
            Reply::Next(Chosen::ContextFull),
            Reply::Values(&[1; 224]),
            Reply::Tensor { checksum: 1, bytes: 2 },
            Reply::Tested(Tested { positions: 3, wrong: None }),
            Reply::Tested(Tested { positions: 3, wrong: Some((1, 2, 3)) }),
            Reply::Stats(Stats { ticks: Some((Ticks::Cycles, 1 << 60)), stack: None, arena: 9 }),
        ] {
            assert_eq!(postcard::from_bytes::<Reply<'_>>(&written(&reply)).unwrap(), reply);
        }
    }
}
