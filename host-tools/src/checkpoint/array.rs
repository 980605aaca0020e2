//! One named array of a checkpoint: where its values lie and how they are encoded; hands them out as f32 piece by piece. Used by the exporter.

use crate::checkpoint::Mapping;
use crate::error::{Error, Result};
use dmexp_format::Dims;
use std::fmt;

/// How an array's values are stored in its source. Offsets are in bytes from the file's start and were checked against its length when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encoding {
    /// IEEE single precision, little-endian, at any alignment.
    F32 {
        /// The first value.
        offset: u64,
    },
    /// Signed bytes with one f32 scale for every `group` consecutive elements of the flat array, so that a group may straddle rows; value = byte * scale.
    Q80 {
        /// The first byte.
        codes: u64,
        /// The first scale.
        scales: u64,
        /// Elements that share a scale; divides the number of elements.
        group: u32,
    },
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 { .. } => f.write_str("f32"),
            Self::Q80 { group, .. } => write!(f, "q80 in groups of {group}"),
        }
    }
}

/// What a checkpoint knows of one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) name: String,
    pub(super) dims: Dims,
    /// Which of the checkpoint's files it lies in.
    pub(super) file: usize,
    pub(super) encoding: Encoding,
}

/// One array, borrowed from its checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a> {
    array: &'a Array,
    file: &'a Mapping,
}

impl<'a> ArrayView<'a> {
    pub(super) fn new(array: &'a Array, file: &'a Mapping) -> Self {
        Self { array, file }
    }

    /// The name that the `.dmexp` file will give it.
    pub fn name(&self) -> &'a str {
        &self.array.name
    }

    /// Its dims, row-major.
    pub fn dims(&self) -> Dims {
        self.array.dims
    }

    /// How the source stores it.
    pub fn encoding(&self) -> Encoding {
        self.array.encoding
    }

    /// How many elements.
    pub fn count(&self) -> u64 {
        self.array.dims.count()
    }

    /// Fills `out` with the values from element `start` on and returns how many there were: fewer than `out` holds at the array's end, 0 past it. No value is judged: a NaN in an f32 array
    /// is handed out as it is.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged) for a scale that is NaN or infinite.
    pub fn read(&self, start: u64, out: &mut [f32]) -> Result<usize> {
        let left = self.count().saturating_sub(start);
        let n = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
        let Some(out) = out.get_mut(..n).filter(|out| !out.is_empty()) else {
            return Ok(0);
        };
        match self.array.encoding {
            Encoding::F32 { offset } => {
                let bytes = self.slice(offset + 4 * start, 4 * n)?;
                for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f32::from_le_bytes(*bytes);
                }
            }
            Encoding::Q80 { codes, scales, group } => {
                let mut codes = self.slice(codes + start, n)?;
                let mut out = out;
                let mut element = start;
                while !out.is_empty() {
                    let number = element / u64::from(group);
                    let in_group = u64::from(group) - element % u64::from(group);
                    let run = usize::try_from(in_group).map_or(out.len(), |run| run.min(out.len()));
                    let place = scales + 4 * number;
                    let scale = self.slice(place, 4)?.first_chunk().map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes));
                    if !scale.is_finite() {
                        let what = format!("scale {number} of {} is {scale}", self.name());
                        return Err(Error::damaged(what).at(format!("byte {place}")).in_file(self.file.path()));
                    }
                    let (now, later) = out.split_at_mut(run);
                    let (codes_now, codes_later) = codes.split_at(run);
                    for (value, code) in now.iter_mut().zip(codes_now) {
                        *value = f32::from(code.cast_signed()) * scale;
                    }
                    (out, codes) = (later, codes_later);
                    element += run as u64;
                }
            }
        }
        Ok(n)
    }

    /// Calls `each` with the number of the first element and the values, at most `most` at a time (at least 1), in order: memory stays bounded however large the array is.
    ///
    /// # Errors
    /// Those of [`ArrayView::read`] and those that `each` returns.
    pub fn for_each_chunk<E: From<Error>>(
        &self,
        most: usize,
        mut each: impl FnMut(u64, &[f32]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let most = usize::try_from(self.count()).map_or(most, |count| most.min(count)).max(1);
        let mut values = vec![0.0; most];
        let mut start = 0;
        loop {
            let n = self.read(start, &mut values)?;
            if n == 0 {
                return Ok(());
            }
            each(start, &values[..n])?;
            start += n as u64;
        }
    }

    /// All values at once.
    ///
    /// # Errors
    /// Those of [`ArrayView::read`].
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        self.for_each_chunk(1 << 16, |_, chunk| {
            values.extend_from_slice(chunk);
            Ok::<(), Error>(())
        })?;
        Ok(values)
    }

    /// Bytes of the file. The importer compared every array with the file's length, so a miss is a mistake in the importer: an error all the same, not a panic.
    fn slice(&self, offset: u64, len: usize) -> Result<&'a [u8]> {
        let start = usize::try_from(offset).ok();
        start.and_then(|start| self.file.bytes().get(start..start.checked_add(len)?)).ok_or_else(|| {
            Error::damaged(format!("{} lies past the end of the file", self.name())).at(format!("byte {offset}")).in_file(self.file.path())
        })
    }
}
