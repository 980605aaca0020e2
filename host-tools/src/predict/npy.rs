//! `NumPy`'s files of one array, formats 1.0 to 3.0.

use super::Tensor;
use crate::error::{Class, Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header that is read: more than any array of 32 axes needs.
const HEADER_LIMIT: usize = 1 << 16;
/// Whole numbers up to this are floats of 32 bits.
const WHOLE: i64 = 1 << 24;

/// The array of an `.npy` file. Numbers of 64 bits are narrowed to 32, which the second value says.
///
/// # Errors
/// [`Class::NotAModel`] for what is no such file; [`Class::Damaged`] for one that is cut or has a header that cannot be read, with the byte; [`Class::Request`] for an element type that is no number, and
/// [`Class::Unrepresentable`] for a number that 32 bits cannot hold.
pub fn read(bytes: &[u8]) -> Result<(Tensor, Option<String>)> {
    let Some([major, _minor, rest @ ..]) = bytes.strip_prefix(MAGIC) else {
        return Err(Error::not_a_model("is no .npy file").advise("save it with numpy.save"));
    };
    let cut = || Error::damaged(format!("ends after {} bytes, within its header", bytes.len()));
    let (len, rest) = match major {
        1 => rest.split_first_chunk::<2>().map(|(len, rest)| (usize::from(u16::from_le_bytes(*len)), rest)),
        2 | 3 => rest.split_first_chunk::<4>().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest)),
        other => return Err(Error::not_a_model(format!("is an .npy file of format {other}; this software reads 1 to 3"))),
    }
    .ok_or_else(cut)?;
    if len > HEADER_LIMIT {
        return Err(Error::damaged(format!("states a header of {len} bytes; at most {HEADER_LIMIT} are read")));
    }
    let (header, values) = rest.split_at_checked(len).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).ok().and_then(Header::parse).ok_or_else(|| {
        Error::damaged("has a header that is not {'descr': .., 'fortran_order': .., 'shape': ..}")
            .at("byte 10")
            .advise("save it with numpy.save")
    })?;
    let (size, decode, wide) = decoder(header.descr)?;
    let count = header.shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
    if count.and_then(|count| count.checked_mul(size)) != Some(values.len()) {
        let shape = super::shown(&header.shape);
        return Err(Error::damaged(format!("has {} bytes of values; {} of the shape {shape} are others", values.len(), header.descr)));
    }
    let mut data = Vec::with_capacity(values.len() / size);
    for (place, value) in values.chunks_exact(size).enumerate() {
        data.push(decode(value).ok_or_else(|| {
            Error::new(Class::Unrepresentable, format!("element {place} of the type {} does not fit 32 bits", header.descr))
                .advise("save the array as float32")
        })?);
    }
    let data = if header.fortran { turned(&data, &header.shape) } else { data };
    let note = wide.then(|| format!("{} narrowed to 32 bits", header.descr));
    Ok((Tensor { shape: header.shape, data }, note))
}

type Decode = fn(&[u8]) -> Option<f32>;

/// Bytes of an element, how to read one, and whether bits may be lost.
fn decoder(descr: &str) -> Result<(usize, Decode, bool)> {
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().unwrap_or([0; N])
    }
    fn whole(number: i64) -> Option<f32> {
        (-WHOLE..=WHOLE).contains(&number).then_some(number as f32)
    }
    fn narrow(number: f64) -> Option<f32> {
        let narrowed = number as f32;
        (narrowed.is_finite() || !number.is_finite()).then_some(narrowed)
    }
    Ok(match descr {
        "<f4" => (4, |bytes| Some(f32::from_le_bytes(array(bytes))), false),
        ">f4" => (4, |bytes| Some(f32::from_be_bytes(array(bytes))), false),
        "<f8" => (8, |bytes| narrow(f64::from_le_bytes(array(bytes))), true),
        ">f8" => (8, |bytes| narrow(f64::from_be_bytes(array(bytes))), true),
        "<f2" => (2, |bytes| Some(half::f16::from_le_bytes(array(bytes)).to_f32()), false),
        ">f2" => (2, |bytes| Some(half::f16::from_be_bytes(array(bytes)).to_f32()), false),
        "|u1" => (1, |bytes| Some(f32::from(u8::from_le_bytes(array(bytes)))), false),
        "|i1" => (1, |bytes| Some(f32::from(i8::from_le_bytes(array(bytes)))), false),
        "<u2" => (2, |bytes| Some(f32::from(u16::from_le_bytes(array(bytes)))), false),
        "<i2" => (2, |bytes| Some(f32::from(i16::from_le_bytes(array(bytes)))), false),
        "<u4" => (4, |bytes| whole(u32::from_le_bytes(array(bytes)).into()), false),
        "<i4" => (4, |bytes| whole(i32::from_le_bytes(array(bytes)).into()), false),
        "<i8" => (8, |bytes| whole(i64::from_le_bytes(array(bytes))), false),
        other => {
            let what = format!("has elements of the type {other:?}");
            return Err(Error::new(Class::Request, what).advise("save it as float32: array.astype(numpy.float32)"));
        }
    })
}

/// What an `.npy` header says.
struct Header<'t> {
    descr: &'t str,
    fortran: bool,
    shape: Vec<usize>,
}

impl<'t> Header<'t> {
    /// Of `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`, in any order.
    fn parse(text: &'t str) -> Option<Self> {
        let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
        let after = |key: &str| {
            let (_, rest) = inner.split_once(&format!("'{key}'"))?;
            rest.trim_start().strip_prefix(':').map(str::trim_start)
        };
        let descr = after("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
        let order = after("fortran_order")?;
        let fortran = if order.starts_with("True") { true } else { order.strip_prefix("False").map(|_| false)? };
        let (sizes, _) = after("shape")?.strip_prefix('(')?.split_once(')')?;
        let sizes = sizes.trim().trim_end_matches(',');
        let shape = match sizes {
            "" => Vec::new(),
            sizes => sizes.split(',').map(|size| size.trim().trim_end_matches('L').parse().ok().map(super::size)).collect::<Option<_>>()?,
        };
        Some(Self { descr, fortran, shape })
    }
}

/// Values whose first axis is the fastest, with the last as the fastest.
fn turned(data: &[f32], shape: &[usize]) -> Vec<f32> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for size in shape {
        strides.push(stride);
        stride *= size;
    }
    let mut index = vec![0; shape.len()];
    (0..data.len())
        .filter_map(|_| {
            let at: usize = index.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
            for (place, size) in index.iter_mut().zip(shape).rev() {
                *place += 1;
                if *place < *size {
                    break;
                }
                *place = 0;
            }
            data.get(at).copied()
        })
        .collect()
}

/// The tensor as an `.npy` file of format 1.0, of `<f4`.
pub fn write(tensor: &Tensor) -> Vec<u8> {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", super::shown(&tensor.shape));
    // The values begin at a multiple of 64, after a newline.
    let used = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', used.next_multiple_of(64) - used));
    header.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(tensor.data.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}
