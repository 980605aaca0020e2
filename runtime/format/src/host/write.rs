//! Format-2 files to any output, in two passes, so that no more than one tensor need be in memory.
//!
//! The head of a file (fixed part, header, index) holds checksums and figures of the tensors that follow it. So the source is gone through twice: [`Measure`] takes every tensor's
//! bytes and keeps offsets, checksums and figures; [`write_v2`] writes the head and takes the bytes again, and refuses bytes that are not those measured. The output need not be
//! seekable and no room is reserved, so the same input gives the same file. Where making the bytes is expensive, spool them in the first pass and copy them in the second.

use super::header::{Header, Payload, TensorEntry, TensorSpec};
use super::stats::TensorMeter;
use super::{HEADER_LIMIT, HeaderError, WriteError, derive_index};
use crate::bytes::part;
use crate::file::ModelFile;
use crate::file::index::Index;
use crate::{Error, crc32};
use std::io::{self, Write};

/// The alignment of payload and tensors that is used unless another is asked for.
pub const DEFAULT_ALIGNMENT: u32 = 64;

const FIXED_LEN: u64 = 32;

/// The first pass: lays tensors out one after the other and measures them.
#[derive(Clone, Debug)]
pub struct Measure {
    alignment: u64,
    end: u64,
    crc: crc32fast::Hasher,
    tensors: Vec<TensorEntry>,
}

impl Measure {
    /// For a format-2 file with this alignment ([`DEFAULT_ALIGNMENT`] unless there is a reason).
    ///
    /// # Errors
    /// [`HeaderError`] unless it is a power of two from 16 to 4096.
    pub fn new(alignment: u32) -> Result<Self, HeaderError> {
        check_alignment(alignment)?;
        Ok(Self::aligned_to(u64::from(alignment)))
    }

    /// For a format-1 file: tensors without gaps.
    pub fn contiguous() -> Self {
        Self::aligned_to(1)
    }

    fn aligned_to(alignment: u64) -> Self {
        Self { alignment, end: 0, crc: crc32fast::Hasher::new(), tensors: Vec::new() }
    }

    /// Begins the next tensor; write all its bytes to what is returned, then call [`TensorSink::finish`].
    pub fn begin(&mut self, spec: TensorSpec) -> TensorSink<'_> {
        let meter = TensorMeter::of(spec.dtype, spec.dims, spec.group);
        TensorSink { measure: self, spec, meter }
    }

    /// Measures a tensor whose bytes are at hand; `flushed` is how many values narrowing made 0.
    ///
    /// # Errors
    /// As [`TensorSink::finish`].
    pub fn tensor(&mut self, spec: TensorSpec, bytes: &[u8], flushed: u64) -> Result<&TensorEntry, HeaderError> {
        let mut sink = self.begin(spec);
        sink.meter.update(bytes);
        sink.finish(flushed)
    }

    /// All tensors.
    pub fn finish(self) -> Payload {
        Payload { tensors: self.tensors, crc32: self.crc.finalize(), bytes: self.end }
    }
}

/// Takes the bytes of one tensor in the first pass.
#[derive(Debug)]
pub struct TensorSink<'m> {
    measure: &'m mut Measure,
    spec: TensorSpec,
    meter: TensorMeter,
}

impl<'m> TensorSink<'m> {
    /// Ends the tensor; `flushed` is how many values narrowing made 0.
    ///
    /// # Errors
    /// [`HeaderError`] if the bytes are not as many as type and dims need, or a value is NaN or infinite.
    pub fn finish(self, flushed: u64) -> Result<&'m TensorEntry, HeaderError> {
        let Self { measure, spec, meter } = self;
        let measured = meter.finish();
        if measured.bytes != spec.bytes() {
            let allowed = format!("{} bytes for {:?} of {}", spec.bytes(), spec.dims.as_slice(), spec.dtype);
            return Err(HeaderError::wrong(format!("tensor {}", spec.name), format!("{} bytes", measured.bytes), allowed));
        }
        if let Some((element, value)) = measured.non_finite {
            return Err(HeaderError::wrong(format!("tensor {}, element {element}", spec.name), value, "finite numbers"));
        }
        if let Some(fault) = measured.fault {
            return Err(HeaderError::wrong(format!("tensor {}", spec.name), fault, format!("what {} allows", spec.dtype)));
        }
        let offset = measure.end.next_multiple_of(measure.alignment);
        measure.crc.update(&zeros(offset - measure.end));
        measure.crc.combine(meter.crc());
        measure.end = offset + measured.bytes;
        let figures = measured.figures.map(|figures| super::Figures { flushed, ..figures });
        let place = measure.tensors.len();
        measure.tensors.push(TensorEntry { spec, offset, crc32: measured.crc32, figures });
        Ok(&measure.tensors[place])
    }
}

impl Write for TensorSink<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.meter.update(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The second pass: writes a whole format-2 file. `tensor` is called once a tensor, in order, with its number and where to write its bytes. The number of bytes written comes back.
///
/// # Errors
/// [`WriteError::Header`] before anything is written; [`WriteError::Changed`] if a tensor's bytes are not those measured; [`WriteError::Io`].
/// After an error the output is not a file: write to a temporary one and rename it.
pub fn write_v2<W: Write>(
    out: &mut W,
    header: &Header,
    alignment: u32,
    tensor: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
) -> Result<u64, WriteError> {
    let index = derive_index(header)?;
    let mut text = header.to_text().into_bytes();
    // Newlines at the end put the index on a multiple of 16.
    text.resize((FIXED_LEN as usize + text.len()).next_multiple_of(16) - FIXED_LEN as usize, b'\n');
    if text.len() as u64 > HEADER_LIMIT {
        return Err(HeaderError::wrong("the header", format!("{} bytes", text.len()), format!("at most {HEADER_LIMIT} bytes")).into());
    }
    check_alignment(alignment)?;
    let mut end = 0u64;
    for entry in &header.tensors {
        let allowed = end.next_multiple_of(u64::from(alignment));
        if entry.offset != allowed {
            let key = format!("offset of tensor {}", entry.spec.name);
            return Err(HeaderError::wrong(key, entry.offset, format!("{allowed}, the next multiple of the alignment {alignment}")).into());
        }
        end = allowed + entry.bytes();
    }
    let head = head_v2(&text, &index, alignment, header.payload_bytes())?;
    out.write_all(&head)?;
    let tensors = header.tensors.iter().map(|entry| (entry.spec.name.as_str(), entry.offset, entry.bytes(), entry.crc32));
    write_payload(out, tensors, Some(header.payload_crc32), tensor)?;
    Ok(head.len() as u64 + header.payload_bytes())
}

/// A whole format-2 file in memory, for small models and tests: `tensors` are the bytes in order.
///
/// # Errors
/// As [`write_v2`].
pub fn to_bytes(header: &Header, alignment: u32, tensors: &[&[u8]]) -> Result<Vec<u8>, WriteError> {
    let mut file = Vec::new();
    write_v2(&mut file, header, alignment, |number, out| out.write_all(tensors.get(number).copied().unwrap_or_default()))?;
    Ok(file)
}

/// Writes `file`, a format-2 file that opens, again under another header for the same tensors: how golden vectors, which need a file that runs, get into one.
///
/// # Errors
/// As [`write_v2`]; [`WriteError::Changed`] if the payload is not the one that the header describes.
pub fn rewrite_head<W: Write>(out: &mut W, file: &[u8], header: &Header) -> Result<u64, WriteError> {
    let (file, _) = open_v2(file)?;
    write_v2(out, header, file.alignment(), |number, out| {
        let bytes = header.tensors.get(number).and_then(|entry| part(file.payload(), entry.offset as usize, entry.bytes() as usize));
        out.write_all(bytes.unwrap_or_default())
    })
}

/// The form of a format-2 file for firmware: without the TOML header. Index, payload and fingerprint stay the same.
///
/// # Errors
/// Those of [`ModelFile::open`]; [`Error::Version`] for a format-1 file, which has no index to keep.
pub fn strip(file: &[u8]) -> Result<Vec<u8>, WriteError> {
    let (file, index) = open_v2(file)?;
    let mut stripped = head_v2(&[], index.bytes(), file.alignment(), file.payload().len() as u64)?;
    stripped.extend_from_slice(file.payload());
    Ok(stripped)
}

fn open_v2(file: &[u8]) -> Result<(ModelFile<'_>, Index<'_>), Error> {
    let file = ModelFile::open(file)?;
    match file.index() {
        Some(index) => Ok((file, index)),
        None => Err(Error::Version { found: file.version() }),
    }
}

/// Everything up to the payload.
fn head_v2(text: &[u8], index: &[u8], alignment: u32, payload_len: u64) -> Result<Vec<u8>, HeaderError> {
    check_alignment(alignment)?;
    let mut start = Vec::from(*b"DMEXPRT\x02");
    start.extend((text.len() as u32).to_le_bytes());
    start.extend(payload_len.to_le_bytes());
    let lengths = [index.len() as u32, alignment].map(u32::to_le_bytes).concat();
    let crc = crc32::checksum(&[&start, &lengths, text, index]);
    let mut head = [start.as_slice(), &crc.to_le_bytes(), &lengths, text, index].concat();
    head.resize(head.len().next_multiple_of(alignment as usize), 0);
    Ok(head)
}

fn check_alignment(alignment: u32) -> Result<(), HeaderError> {
    if !alignment.is_power_of_two() || !(16..=4096).contains(&alignment) {
        return Err(HeaderError::wrong("alignment", alignment, "a power of two from 16 to 4096"));
    }
    Ok(())
}

fn zeros(count: u64) -> Vec<u8> {
    vec![0; count as usize]
}

/// Writes tensors at their offsets, gaps zero; each is (name, offset, bytes, checksum), and so is the whole's checksum looked at if it is given.
pub(super) fn write_payload<'n, W: Write>(
    out: &mut W,
    tensors: impl Iterator<Item = (&'n str, u64, u64, u32)>,
    payload_crc32: Option<u32>,
    mut tensor: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
) -> Result<u32, WriteError> {
    let mut end = 0;
    let mut whole = crc32fast::Hasher::new();
    for (number, (name, offset, bytes, crc)) in tensors.enumerate() {
        let gap = zeros(offset.saturating_sub(end));
        out.write_all(&gap)?;
        whole.update(&gap);
        let mut counted = Counted { out, crc: crc32fast::Hasher::new(), written: 0 };
        tensor(number, &mut counted)?;
        let Counted { crc: found, written, .. } = counted;
        whole.combine(&found);
        let found = found.finalize();
        if (written, found) != (bytes, crc) {
            let show = |bytes, crc| format!("{bytes} bytes with checksum {crc:08x}");
            return Err(WriteError::Changed { name: name.into(), found: show(written, found), expected: show(bytes, crc) });
        }
        end = offset + bytes;
    }
    let whole = whole.finalize();
    match payload_crc32 {
        Some(stored) if stored != whole => {
            Err(HeaderError::wrong("payload_crc32", format!("{stored:#010x}"), format!("{whole:#010x}, which the tensors give")).into())
        }
        _ => Ok(whole),
    }
}

struct Counted<'w, W: Write> {
    out: &'w mut W,
    crc: crc32fast::Hasher,
    written: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let taken = self.out.write(piece)?;
        self.crc.update(piece.get(..taken).unwrap_or_default());
        self.written += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
