//! One named array of a checkpoint: where its values lie, in one run or put together from several; hands them out as f32 piece by piece. Used by the importers, which make them, and by the
//! exporter, which reads them.

use super::encoding::past_the_end;
use super::{CodeBlock, Encoding, Mapping};
use crate::error::{Error, Result};
use dmexp_format::Dims;
use std::ops::Range;

/// Elements gone through before their pages are given back.
const RELEASED: u64 = 1 << 22;

/// What a checkpoint knows of one array.
///
/// Made by [`Array::whole`] or [`Array::strided`], put together by the others. None of them looks at a file: `Checkpoint::new` compares all arrays with the files' lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) name: String,
    pub(super) dims: Dims,
    values: Values,
}

/// Where the values of an array, row-major, come from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Values {
    /// One after the other in a file.
    Whole { file: usize, encoding: Encoding },
    /// At `first` + the sum over the axes of index * stride, all counted in elements of the encoding.
    Strided { file: usize, encoding: Encoding, first: u64, strides: [u64; 4] },
    /// The parts one after the other along an axis.
    Joined { axis: usize, parts: Vec<Array> },
    /// The rows (along axis 0) of another array in another order within each head.
    Reordered { order: RowOrder, head_dim: u32, inner: Box<Array> },
}

/// Where row `2i + b` (b: 0 or 1) of a head lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowOrder {
    /// Row `2i + b` is made of row `i + b * head_dim / 2`.
    Interleaved,
    /// The inverse: row `i + b * head_dim / 2` is made of row `2i + b`.
    Halves,
}

impl RowOrder {
    /// The row of the source of row `row`.
    fn source(self, row: u64, head_dim: u64) -> u64 {
        let (head, in_head) = (row / head_dim, row % head_dim);
        let half = head_dim / 2;
        let source = match self {
            Self::Interleaved => in_head / 2 + in_head % 2 * half,
            Self::Halves => in_head % half * 2 + in_head / half,
        };
        head * head_dim + source
    }
}

impl Array {
    /// An array whose values lie one after the other in file `file` of the checkpoint.
    pub(super) fn whole(name: impl Into<String>, dims: Dims, file: usize, encoding: Encoding) -> Self {
        Self { name: name.into(), dims, values: Values::Whole { file, encoding } }
    }

    /// An array whose element `[i, j, ..]` is the encoding's element `first + i * strides[0] + j * strides[1] + ..`: a `PyTorch` view, or a kernel with its axes the other way round.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged) where there are not as many strides as axes.
    pub(super) fn strided(
        name: impl Into<String>,
        dims: Dims,
        file: usize,
        encoding: Encoding,
        first: u64,
        strides: &[u64],
    ) -> Result<Self> {
        let name = name.into();
        if strides.len() as u64 != u64::from(dims.rank()) {
            return Err(Error::damaged(format!("{name} has {} axes and {} strides", dims.rank(), strides.len())));
        }
        let mut all = [0; 4];
        let mut contiguous = true;
        let mut next = 1;
        for ((stride, size), place) in strides.iter().zip(dims.as_slice()).zip(&mut all).rev() {
            *place = *stride;
            contiguous &= *size == 1 || *stride == next;
            next *= u64::from(*size);
        }
        let values = match encoding.skip(first) {
            Some(encoding) if contiguous => Values::Whole { file, encoding },
            _ => Values::Strided { file, encoding, first, strides: all },
        };
        Ok(Self { name, dims, values })
    }

    /// The parts one after the other along `axis`, the sizes of the other axes being the same.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) where they are not, with both.
    pub(super) fn concat(name: impl Into<String>, axis: usize, parts: Vec<Self>) -> Result<Self> {
        let name = name.into();
        let Some(first) = parts.first() else {
            return Err(Error::mismatch(format!("{name} has no parts")));
        };
        let mut sizes = first.dims.padded();
        let rank = first.dims.rank();
        let mut total = 0u64;
        for part in &parts {
            let mut others = part.dims.padded();
            let (Some(size), Some(own)) = (others.get_mut(axis).filter(|_| axis < rank as usize), sizes.get(axis)) else {
                return Err(Error::mismatch(format!("{name} has {rank} axes and cannot be joined along axis {axis}")));
            };
            total = total.saturating_add(u64::from(*size));
            *size = *own;
            if part.dims.rank() != rank || others != sizes {
                let (a, b) = (first.dims, part.dims);
                let what = format!("the parts of {name} do not fit: {:?} and {:?} along axis {axis}", a.as_slice(), b.as_slice());
                return Err(Error::mismatch(what));
            }
        }
        if let Some(size) = sizes.get_mut(axis) {
            *size = u32::try_from(total).map_err(|_| Error::mismatch(format!("{name} has {total} rows: too many")))?;
        }
        let dims = Dims::new(0, rank, sizes).map_err(|error| Error::mismatch(format!("{name}: {error}")))?;
        Ok(Self { name, dims, values: Values::Joined { axis, parts } })
    }

    /// Rows (along axis 0) that lie as rotary halves (row i and i + `head_dim`/2 are a pair) re-ordered to interleaved pairs (2i, 2i+1): Hugging Face's q and k as llama2.c has them.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) where the rows are not whole heads of an even size.
    pub(super) fn interleave_halves(self, head_dim: u32) -> Result<Self> {
        self.reordered(RowOrder::Interleaved, head_dim)
    }

    /// The inverse of [`Array::interleave_halves`].
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) where the rows are not whole heads of an even size.
    pub(super) fn separate_halves(self, head_dim: u32) -> Result<Self> {
        self.reordered(RowOrder::Halves, head_dim)
    }

    fn reordered(self, order: RowOrder, head_dim: u32) -> Result<Self> {
        let [rows, ..] = self.dims.padded();
        if head_dim == 0 || !head_dim.is_multiple_of(2) || !rows.is_multiple_of(head_dim) {
            return Err(Error::mismatch(format!("the {rows} rows of {} are not heads of {head_dim}", self.name)));
        }
        Ok(Self { name: self.name.clone(), dims: self.dims, values: Values::Reordered { order, head_dim, inner: Box::new(self) } })
    }

    /// The same values under another name.
    pub(super) fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// How the source stores it: its first part, where it is put together from several.
    pub(super) fn encoding(&self) -> Option<Encoding> {
        match &self.values {
            Values::Whole { encoding, .. } | Values::Strided { encoding, .. } => Some(*encoding),
            Values::Joined { parts, .. } => parts.first()?.encoding(),
            Values::Reordered { inner, .. } => inner.encoding(),
        }
    }

    /// Compares the array with the files that it lies in.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged), naming the array and the file.
    pub(super) fn check(&self, files: &[Mapping]) -> Result<()> {
        self.each_span(&mut |file, span| {
            let file = files.get(file).ok_or_else(|| Error::damaged(format!("{} lies in a file that is not there", self.name)))?;
            match span {
                Some(span) if span.end <= file.bytes().len() as u64 => Ok(()),
                span => Err(past_the_end(file, &self.name, span.map(|span| span.start))),
            }
        })
    }

    /// Gives the memory that holds the array's pages back to the system: they are read again when they are wanted again.
    fn release(&self, files: &[Mapping]) {
        // The callback never fails, so neither does the walk.
        let _ = self.each_span(&mut |file, span| {
            if let (Some(file), Some(span)) = (files.get(file), span) {
                file.release(span);
            }
            Ok(())
        });
    }

    /// Gives back the pages of some elements, where these lie one after the other; those of other arrays are given back together.
    fn release_elements(&self, files: &[Mapping], elements: Range<u64>) {
        if let Values::Whole { file, encoding } = &self.values
            && let (Some(file), Some(span)) = (files.get(*file), encoding.bytes(elements))
        {
            file.release(span);
        }
    }

    /// Calls `each` with the file and the bytes of every stored part; `None` for bytes past 2^64.
    fn each_span(&self, each: &mut impl FnMut(usize, Option<Range<u64>>) -> Result<()>) -> Result<()> {
        match &self.values {
            Values::Whole { file, encoding } => each(*file, encoding.bytes(0..self.dims.count())),
            Values::Strided { file, encoding, first, strides } => {
                let steps = self.dims.padded().map(|size| u64::from(size) - 1);
                let last = steps
                    .iter()
                    .zip(strides)
                    .try_fold(*first, |at, (steps, stride)| at.checked_add(steps.checked_mul(*stride)?))
                    .and_then(|last| last.checked_add(1));
                each(*file, last.and_then(|end| encoding.bytes(*first..end)))
            }
            Values::Joined { parts, .. } => parts.iter().try_for_each(|part| part.each_span(each)),
            Values::Reordered { inner, .. } => inner.each_span(each),
        }
    }

    /// Fills `out` from element `start` on; the array has that many.
    fn read(&self, files: &[Mapping], start: u64, out: &mut [f32]) -> Result<()> {
        match &self.values {
            Values::Whole { file, encoding } => encoding.decode(self.file(files, *file)?, &self.name, start, out),
            Values::Strided { file, encoding, first, strides } => {
                let file = self.file(files, *file)?;
                let [_, b, c, d] = self.dims.padded().map(u64::from);
                let axis = self.dims.rank() as usize - 1;
                let run = u64::from(self.dims.cols());
                in_runs(start, run, out, |start, out| {
                    let index = [start / (b * c * d), start / (c * d) % b, start / d % c, start % d];
                    let at = index.iter().zip(strides).map(|(index, stride)| index * stride).sum::<u64>() + first;
                    encoding.gather(file, &self.name, at, strides[axis], out)
                })
            }
            Values::Joined { axis, parts } => {
                let row = inner_len(self.dims, *axis) * u64::from(self.dims.padded()[*axis]);
                in_runs(start, row, out, |start, mut out| {
                    let (outer, mut within) = (start / row, start % row);
                    for part in parts {
                        let part_row = inner_len(part.dims, *axis) * u64::from(part.dims.padded()[*axis]);
                        if within >= part_row {
                            within -= part_row;
                            continue;
                        }
                        let run = usize::try_from(part_row - within).map_or(out.len(), |run| run.min(out.len()));
                        let (now, later) = out.split_at_mut(run);
                        part.read(files, outer * part_row + within, now)?;
                        if later.is_empty() {
                            break;
                        }
                        (out, within) = (later, 0);
                    }
                    Ok(())
                })
            }
            Values::Reordered { order, head_dim, inner } => {
                let row = inner_len(self.dims, 0);
                in_runs(start, row, out, |start, out| {
                    let source = order.source(start / row, u64::from(*head_dim));
                    inner.read(files, source * row + start % row, out)
                })
            }
        }
    }

    /// How the source codes `len` elements from `start` on, if they are of one of its groups.
    fn step(&self, files: &[Mapping], start: u64, len: u64) -> Option<(f32, f32)> {
        let row = inner_len(self.dims, 0);
        match &self.values {
            Values::Whole { file, encoding } => encoding.step(files.get(*file)?, start, len),
            Values::Joined { axis: 0, parts } => {
                let mut start = start;
                for part in parts {
                    if start < part.dims.count() {
                        return part.step(files, start, len).filter(|_| len <= part.dims.count() - start);
                    }
                    start -= part.dims.count();
                }
                None
            }
            Values::Strided { .. } | Values::Joined { .. } => None,
            Values::Reordered { order, head_dim, inner } => {
                let source = order.source(start / row, u64::from(*head_dim));
                inner.step(files, source * row + start % row, len).filter(|_| len <= row - start % row)
            }
        }
    }

    fn file<'f>(&self, files: &'f [Mapping], number: usize) -> Result<&'f Mapping> {
        files.get(number).ok_or_else(|| Error::damaged(format!("{} lies in a file that is not there", self.name)))
    }
}

/// Elements of one step along `axis`.
fn inner_len(dims: Dims, axis: usize) -> u64 {
    dims.padded().iter().skip(axis + 1).map(|size| u64::from(*size)).product()
}

/// Calls `each` with the start of every run and the part of `out` that lies in it; runs begin at multiples of `run`.
fn in_runs(start: u64, run: u64, mut out: &mut [f32], mut each: impl FnMut(u64, &mut [f32]) -> Result<()>) -> Result<()> {
    let mut start = start;
    while !out.is_empty() {
        let left = run - start % run;
        let n = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
        let (now, later) = out.split_at_mut(n);
        each(start, now)?;
        out = later;
        start += n as u64;
    }
    Ok(())
}

/// One array, borrowed from its checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a> {
    array: &'a Array,
    files: &'a [Mapping],
}

impl<'a> ArrayView<'a> {
    pub(super) fn new(array: &'a Array, files: &'a [Mapping]) -> Self {
        Self { array, files }
    }

    /// The name that the `.dmexp` file will give it.
    pub fn name(&self) -> &'a str {
        &self.array.name
    }

    /// Its dims, row-major.
    pub fn dims(&self) -> Dims {
        self.array.dims
    }

    /// How the source stores it; of an array that is put together from several parts, the first part.
    pub fn encoding(&self) -> Option<Encoding> {
        self.array.encoding()
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
        if let Some(out) = out.get_mut(..n).filter(|out| !out.is_empty()) {
            self.array.read(self.files, start, out)?;
        }
        Ok(n)
    }

    /// Whether [`ArrayView::code_blocks`] has any: the array is one run of `Q4_0`, `Q4_1` or `Q8_0` blocks.
    pub fn has_code_blocks(&self) -> bool {
        matches!(&self.array.values, Values::Whole { encoding, .. } if encoding.has_code_blocks())
    }

    /// Blocks `range` of 32 elements each as the source stores them: codes, scale and offset. A row has [`Dims::cols`] / 32 of them. None where [`ArrayView::has_code_blocks`] is false.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged) for a scale that is NaN or infinite, or blocks past the end of the file.
    pub fn code_blocks(&self, range: Range<u64>) -> Result<Vec<CodeBlock>> {
        match &self.array.values {
            Values::Whole { file, encoding } => encoding.code_blocks(self.array.file(self.files, *file)?, self.name(), range),
            _ => Ok(Vec::new()),
        }
    }

    /// The step and the offset by which the source itself codes `len` elements from `start` on, where they lie within one of its groups: what an exporter that quantises tries first.
    /// `None` for floats, for elements of several groups, and past the array's end.
    pub fn step(&self, start: u64, len: u64) -> Option<(f32, f32)> {
        self.array.step(self.files, start, len)
    }

    /// Gives the memory that holds the array's pages back to the system, for those who call [`ArrayView::read`] and are done.
    pub(crate) fn release(&self) {
        self.array.release(self.files);
    }

    /// Calls `each` with the number of the first element and the values, at most `most` at a time (at least 1), in order: memory stays bounded however large the array is. Afterwards the
    /// pages that the array was read from are given back, so that a file larger than memory can be gone through array by array.
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
        let mut released = 0;
        loop {
            let n = self.read(start, &mut values)?;
            if n == 0 {
                self.array.release(self.files);
                return Ok(());
            }
            each(start, &values[..n])?;
            start += n as u64;
            if start - released >= RELEASED {
                self.array.release_elements(self.files, released..start);
                released = start;
            }
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
}
