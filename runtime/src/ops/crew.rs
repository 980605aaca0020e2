//! Work shared among the threads that a session was given, if it was given any. On a chip this is nothing.
#![cfg_attr(not(feature = "llama"), allow(dead_code, unused_imports, reason = "other networks work on one thread"))]

use super::activation::Activation;
use super::matvec::matvec;
#[cfg(not(target_os = "none"))]
use crate::executor::Executor;
use crate::format::TensorView;
#[cfg(all(feature = "llama", not(target_os = "none")))]
use {
    super::attention::{Heads, attention_of},
    super::chip,
    super::kv::KvRows,
    super::matvec::Rows,
    crate::format::DType,
};

/// What a row of queries attends to.
#[cfg(all(feature = "llama", not(target_os = "none")))]
#[derive(Clone, Copy)]
pub(crate) struct Attended<'k> {
    pub(crate) keys: KvRows<'k>,
    pub(crate) values: KvRows<'k>,
    /// The first position and the last.
    pub(crate) positions: (usize, usize),
}

/// The threads of a session.
#[derive(Clone, Copy)]
pub struct Crew<'a> {
    #[cfg(not(target_os = "none"))]
    executor: Option<&'a dyn Executor>,
    #[cfg(target_os = "none")]
    none: core::marker::PhantomData<&'a ()>,
}

/// The most vectors that a matrix is multiplied by at once.
#[cfg(not(target_os = "none"))]
pub(crate) const MOST: usize = 128;
/// Memory that the product of a matrix and many vectors may need.
#[cfg(not(target_os = "none"))]
#[cfg_attr(
    not(all(x86_64_host, any(feature = "q8", feature = "q4"))),
    allow(dead_code, reason = "vectors take another form for integer matrices alone, and on x86-64")
)]
#[derive(Debug)]
pub(crate) struct Scratch<'s> {
    /// For the vectors in another form: as many words as they have elements, each rounded up to a multiple of 32.
    pub(crate) planes: &'s mut [f32],
    /// A piece for each of [`Crew::slots`] threads, for some rows of the matrix.
    pub(crate) slots: &'s mut [f32],
}

/// Products of which a thread takes a piece: fewer are done before another thread has heard of them.
#[cfg(not(target_os = "none"))]
const WORTH_SHARING: usize = 32_768;
/// Bytes of weights that a thread takes at a time, at most: in longer runs memory is no faster, and a thread that is held up holds up little.
#[cfg(not(target_os = "none"))]
const LONGEST_PIECE: usize = 262_144;
/// Bytes of weights that are multiplied by many vectors before the next are read.
#[cfg(not(target_os = "none"))]
const PIECE: usize = 32_768;

impl<'a> Crew<'a> {
    /// The calling thread alone.
    pub const NONE: Self = Self {
        #[cfg(not(target_os = "none"))]
        executor: None,
        #[cfg(target_os = "none")]
        none: core::marker::PhantomData,
    };

    /// The threads of `executor`.
    #[cfg(not(target_os = "none"))]
    pub fn new(executor: &'a dyn Executor) -> Self {
        Self { executor: Some(executor).filter(|executor| executor.threads() > 1) }
    }

    /// [`matvec`] without a bias.
    #[cfg(target_os = "none")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "another name for the same")]
    pub(crate) fn matvec(self, out: &mut [f32], w: &TensorView<'_>, x: &mut Activation<'_>) {
        matvec(out, w, x, None);
    }

    /// [`matvec`] without a bias.
    #[cfg(all(feature = "llama", not(target_os = "none")))]
    pub(crate) fn matvec(self, out: &mut [f32], w: &TensorView<'_>, x: &mut Activation<'_>) {
        let shared = w.dtype() != DType::T2 && out.len().saturating_mul(w.cols()) >= WORTH_SHARING;
        let Some(executor) = self.executor.filter(|_| shared) else { return matvec(out, w, x, None) };
        let Some(rows) = Rows::new(w, out.len(), x) else { return out.fill(0.0) };
        let row_bytes = (w.bytes().len() / w.rows().max(1)).max(1);
        // Two pieces for each thread, should one be late. Whole fours of rows go through the kernels together.
        let bytes = (row_bytes.saturating_mul(out.len()) / executor.threads().saturating_mul(2).max(1)).min(LONGEST_PIECE);
        let piece = (bytes / row_bytes).next_multiple_of(4).max(4);
        chip::gate::share(executor, out, piece, &|first, out| rows.multiply(out, first));
    }

    /// Each row of `out` = [`matvec`] of an input, without a bias: a piece of the matrix is multiplied by all of them before the next is read.
    #[cfg(all(feature = "llama", not(target_os = "none")))]
    pub(crate) fn matmul(self, out: &mut [f32], w: &TensorView<'_>, x: &mut [Activation<'_>], scratch: &mut Scratch<'_>) {
        #[cfg(x86_64_host)]
        if chip::matmul(self.executor, out, w, x, scratch, self.slots()) {
            return;
        }
        #[cfg(not(x86_64_host))]
        let _ = scratch;
        let rows = out.len().checked_div(x.len()).unwrap_or(0);
        if w.dtype() == DType::T2 || x.len() > MOST {
            for (out, x) in out.chunks_exact_mut(rows.max(1)).zip(x) {
                self.matvec(out, w, x);
            }
            return;
        }
        let count = x.len();
        let mut inputs = x.iter_mut();
        let products: [Option<Rows<'_>>; MOST] = core::array::from_fn(|_| Rows::new(w, rows, inputs.next()?));
        let row_bytes = (w.bytes().len() / w.rows().max(1)).max(1);
        let piece = (PIECE / row_bytes).next_multiple_of(4).max(4);
        chip::gate::share_rows(self.executor, out, count, piece, &|first, row, out| match products.get(row) {
            Some(Some(product)) => product.multiply(out, first),
            _ => out.fill(0.0),
        });
    }

    /// [`attention`](super::attention::attention) of one position, its heads shared; `scratch` is for [`Crew::slots`] threads. False, and nothing done, where that does not pay.
    #[cfg(all(feature = "llama", not(target_os = "none")))]
    pub(crate) fn attention(
        self,
        out: &mut [f32],
        q: &[f32],
        (keys, values): (KvRows<'_>, KvRows<'_>),
        heads: Heads,
        positions: (usize, usize),
        scratch: Option<&mut [f32]>,
    ) -> bool {
        let head_dim = heads.head_dim;
        let work = q.len().saturating_mul(positions.1.saturating_sub(positions.0));
        let (Some(executor), Some(scratch)) = (self.executor.filter(|_| work >= WORTH_SHARING), scratch) else { return false };
        if heads.n_heads.checked_mul(head_dim) != Some(q.len()) || out.len() != q.len() || head_dim == 0 {
            return false;
        }
        chip::gate::share_with_scratch(Some(executor), out, head_dim, (scratch, self.slots()), &|first, out, scratch| {
            let (lanes, scores) = scratch.split_at_mut_checked(head_dim.saturating_mul(8)).unwrap_or_default();
            let q = q.get(first..first.saturating_add(head_dim)).unwrap_or(&[]);
            attention_of(first / head_dim, out, q, keys, values, heads, positions, scores, lanes);
        });
        true
    }

    /// Attention of all rows of `q` at once, whatever texts they are of: `row` says of each what it attends to. `scratch` is for [`Crew::slots`] threads.
    #[cfg(all(feature = "llama", not(target_os = "none")))]
    pub(crate) fn attention_rows<'k>(
        self,
        out: &mut [f32],
        q: &[f32],
        heads: Heads,
        row: &(dyn Fn(usize) -> Option<Attended<'k>> + Sync),
        scratch: &mut [f32],
    ) {
        let (head_dim, width) = (heads.head_dim.max(1), heads.n_heads.saturating_mul(heads.head_dim).max(1));
        let rows = out.len() / width;
        let positions = (0..rows).filter_map(row).map(|row| row.positions.1.saturating_sub(row.positions.0));
        let work = positions.fold(0usize, usize::saturating_add).saturating_mul(width);
        let executor = self.executor.filter(|_| work >= WORTH_SHARING);
        // Texts may be of any length beside each other: few rows are taken head by head, so that a long one holds nobody up.
        let piece = if rows < self.slots().saturating_mul(8) { head_dim } else { width };
        chip::gate::share_with_scratch(executor, out, piece, (scratch, self.slots()), &|start, out, scratch| {
            let (lanes, scores) = scratch.split_at_mut_checked(head_dim.saturating_mul(8)).unwrap_or_default();
            let q = q.get(start..start.saturating_add(out.len())).unwrap_or(&[]);
            match row(start / width) {
                Some(Attended { keys, values, positions }) => {
                    attention_of(start % width / head_dim, out, q, keys, values, heads, positions, scores, lanes);
                }
                None => out.fill(0.0),
            }
        });
    }

    /// Calls `each` with the rows of `rows`, `width` elements each, and their numbers, on any of the threads.
    #[cfg(all(feature = "llama", not(target_os = "none")))]
    pub(crate) fn each_row(self, rows: &mut [f32], width: usize, each: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        let width = width.max(1);
        chip::gate::share_rows(self.executor, rows, 1, width, &|first, _, row| each(first / width, row));
    }

    /// How many pieces of scratch the threads need: one more than there are.
    #[cfg(not(target_os = "none"))]
    pub(crate) fn slots(self) -> usize {
        self.executor.map_or(1, Executor::threads).saturating_add(1)
    }
}

impl core::fmt::Debug for Crew<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        #[cfg(not(target_os = "none"))]
        let threads = self.executor.map_or(1, Executor::threads);
        #[cfg(target_os = "none")]
        let threads = 1;
        write!(f, "Crew of {threads}")
    }
}
