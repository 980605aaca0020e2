//! Cores with a single-precision floating-point unit (Cortex-M4F and up, hard-float targets): the kernels of `cortex_m4f.s`, each behind a function that checks
//! what the assembly takes for granted. What the kernels do not cover (matrices at odd addresses, odd half-precision lengths, heads not a multiple of 8 wide) is done
//! element by element, with the same bits: slower, and small.

use crate::format::{DType, TensorView};
use crate::ops::kv::{KvHead, KvRows};
use crate::ops::kv_integer;
use crate::ops::math::{EXP, EXP_HIGHEST, EXP_LOWEST, LN2_HIGH, LN2_LOW, LOG2_E, MAGIC};
use crate::ops::portable;
use crate::ops::sum::{Lanes, tree};
use core::arch::global_asm;

pub(crate) use portable::divide;

global_asm!(include_str!("cortex_m4f.s"), options(raw));

type MatvecKernel = unsafe extern "C" fn(w: *const u8, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
type MixKernel = unsafe extern "C" fn(
    values: *const u8,
    weights: *const f32,
    weights_end: *const f32,
    stride_bytes: usize,
    lanes: *mut f32,
    first_lane: *mut f32,
    out: *mut f32,
);

unsafe extern "C" {
    fn dmexp_m4f_matvec_f32(w: *const u8, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    fn dmexp_m4f_matvec_f16(w: *const u8, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    #[cfg(feature = "bf16")]
    fn dmexp_m4f_matvec_bf16(w: *const u8, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    fn dmexp_m4f_mix_f32(
        values: *const u8,
        weights: *const f32,
        weights_end: *const f32,
        stride_bytes: usize,
        lanes: *mut f32,
        first_lane: *mut f32,
        out: *mut f32,
    );
    fn dmexp_m4f_mix_f16(
        values: *const u8,
        weights: *const f32,
        weights_end: *const f32,
        stride_bytes: usize,
        lanes: *mut f32,
        first_lane: *mut f32,
        out: *mut f32,
    );
    fn dmexp_m4f_exp_minus(values: *mut f32, end: *mut f32, constants: &[f32; 12], largest: f32) -> *mut f32;
    fn dmexp_m4f_gate(gate: *mut f32, end: *mut f32, constants: &[f32; 12], up: *const f32) -> *mut f32;
    safe fn dmexp_m4f_sqrt(x: f32) -> f32;
    safe fn dmexp_m4f_widen_f16(half: u32) -> f32;
    fn dmexp_m4f_narrow_f16(to: *mut u16, from: *const f32, from_end: *const f32);
}

/// As the assembly's `EXP` wants them, then the ends of the range.
static CONSTANTS: [f32; 12] = [LOG2_E, MAGIC, LN2_HIGH, LN2_LOW, EXP[3], EXP[2], EXP[1], EXP[0], 0.5, 1.0, EXP_LOWEST, -EXP_LOWEST];
const _: () = assert!(EXP_HIGHEST > -EXP_LOWEST, "the gate's range check takes the smaller end for both");

/// Rows of stored elements, one every `stride` elements: one definition for every type, so that flash holds it once.
#[derive(Clone, Copy)]
struct Rows<'a> {
    dtype: DType,
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Rows<'a> {
    /// The part of each row of keys or values that begins `offset` elements in.
    fn of_kv(dtype: DType, bytes: &'a [u8], head: KvHead) -> Self {
        let bytes = bytes.get(head.offset().wrapping_mul(dtype.size() as usize)..).unwrap_or(&[]);
        Self { dtype, bytes, stride: head.stride() }
    }

    /// The distance between rows in bytes where a kernel may read `count` rows of `n` elements: all of them there, whole aligned words each.
    fn stride_bytes(&self, count: usize, n: usize) -> Option<usize> {
        let size = self.dtype.size() as usize;
        let stride = self.stride.checked_mul(size)?;
        let len = n.checked_mul(size)?;
        let needed = count.checked_sub(1)?.checked_mul(stride)?.checked_add(len)?;
        let whole = (self.bytes.as_ptr().addr() | stride | len).is_multiple_of(4);
        (whole && len > 0 && stride >= len && needed <= self.bytes.len()).then_some(stride)
    }

    /// Element `index`, counted from the first row's start.
    fn element(&self, index: usize) -> f32 {
        self.dtype.element(self.bytes, index)
    }
}

/// `out[r] = dot8(row r, x)`.
pub(crate) fn matvec(out: &mut [f32], w: &TensorView<'_>, x: &[f32]) {
    dots(out, Rows { dtype: w.dtype(), bytes: w.bytes(), stride: x.len() }, x);
}

fn dots(out: &mut [f32], rows: Rows<'_>, x: &[f32]) {
    let kernel: MatvecKernel = match rows.dtype {
        DType::F32 => dmexp_m4f_matvec_f32,
        DType::F16 => dmexp_m4f_matvec_f16,
        #[cfg(feature = "bf16")]
        DType::Bf16 => dmexp_m4f_matvec_bf16,
        _ => return slow_dots(out, rows, x),
    };
    let n = x.len();
    let Some(stride) = rows.stride_bytes(out.len(), n) else { return slow_dots(out, rows, x) };
    let odd = out.len() & 1;
    let Some((paired, last)) = out.split_at_mut_checked(out.len() ^ odd) else { return };
    let last_row = rows.bytes.as_ptr().wrapping_add(paired.len().wrapping_mul(stride));
    if !paired.is_empty() {
        let ends = paired.as_mut_ptr_range();
        // SAFETY: `paired` is a whole number of pairs, at least one; `stride_bytes` made sure that each row has n elements, not none, in whole aligned words that
        // lie within `rows`, and `x` has n. The kernel writes `paired` alone and keeps to the calling convention.
        unsafe { kernel(rows.bytes.as_ptr(), x.as_ptr(), n, stride, ends.start, ends.end) };
    }
    if let [last] = last {
        let mut twice = [0.0; 2];
        let ends = twice.as_mut_ptr_range();
        // SAFETY: as above; the one row is both rows of the pair.
        unsafe { kernel(last_row, x.as_ptr(), n, 0, ends.start, ends.end) };
        [*last, _] = twice;
    }
}

/// Any type at any address, element by element; zeros where there are no elements.
#[cold]
fn slow_dots(out: &mut [f32], rows: Rows<'_>, x: &[f32]) {
    let mut start = 0usize;
    for y in out {
        let mut lanes: Lanes = [0.0; 8];
        for (i, x) in x.iter().enumerate() {
            lanes[i & 7] += rows.element(start.wrapping_add(i)) * *x;
        }
        *y = tree(lanes);
        start = start.wrapping_add(rows.stride);
    }
}

/// As [`portable::scores`]; the first row of `keys` belongs to the first score. `scratch` has at least half as many elements as `q`.
pub(crate) fn scores(scores: &mut [f32], q: &[f32], keys: KvRows<'_>, head: KvHead, scale: f32, scratch: &mut [f32]) -> f32 {
    let rows = match keys {
        KvRows::F32(keys) => Rows::of_kv(DType::F32, bytemuck::cast_slice(keys), head),
        KvRows::F16(keys) => Rows::of_kv(DType::F16, bytemuck::cast_slice(keys), head),
        KvRows::Q8(keys) => return kv_integer::scores(scores, q, keys, head, scale, scratch),
    };
    dots(scores, rows, q);
    let mut largest = f32::NEG_INFINITY;
    for score in scores {
        *score *= scale;
        if *score > largest {
            largest = *score;
        }
    }
    largest
}

/// As [`portable::mix`]; the first row of `values` belongs to the first weight. The weights may be lost.
pub(crate) fn mix(out: &mut [f32], weights: &mut [f32], values: KvRows<'_>, head: KvHead, first_lane: usize, lanes: &mut [f32]) {
    let rows = match values {
        KvRows::F32(values) => Rows::of_kv(DType::F32, bytemuck::cast_slice(values), head),
        KvRows::F16(values) => Rows::of_kv(DType::F16, bytemuck::cast_slice(values), head),
        KvRows::Q8(values) => return kv_integer::mix(out, weights, values, head),
    };
    let kernel: MixKernel = if rows.dtype == DType::F32 { dmexp_m4f_mix_f32 } else { dmexp_m4f_mix_f16 };
    let fit = if out.len().is_multiple_of(8) { rows.stride_bytes(weights.len(), out.len()) } else { None };
    let (Some(scratch), Some(stride)) = (lanes.first_chunk_mut::<64>(), fit) else { return slow_mix(out, weights, rows, first_lane) };
    let block_bytes = 8 * rows.dtype.size() as usize;
    let mut from = rows.bytes.as_ptr();
    let ends = weights.as_ptr_range();
    for block in out.as_chunks_mut::<8>().0 {
        let lanes = scratch.as_mut_ptr();
        // SAFETY: `stride_bytes` made sure that there is a weight, and that the row of each has as many elements as `out`, in whole aligned words within `rows`; this block
        // is eight of them. `lanes` has 64 elements and the first lane is at most 56; `block` has eight. The kernel writes those two alone and keeps to the calling
        // convention.
        unsafe { kernel(from, ends.start, ends.end, stride, lanes, lanes.add((first_lane & 7) * 8), block.as_mut_ptr()) };
        from = from.wrapping_add(block_bytes);
    }
}

/// Heads of any width, element by element.
#[cold]
fn slow_mix(out: &mut [f32], weights: &[f32], rows: Rows<'_>, first_lane: usize) {
    for (j, y) in out.iter_mut().enumerate() {
        let mut lanes: Lanes = [0.0; 8];
        let mut at = j;
        for (t, weight) in weights.iter().enumerate() {
            lanes[first_lane.wrapping_add(t) & 7] += *weight * rows.element(at);
            at = at.wrapping_add(rows.stride);
        }
        *y = tree(lanes);
    }
}

/// As [`portable::exp_minus`]; no value is above `largest`.
pub(crate) fn exp_minus(values: &mut [f32], largest: f32) {
    let mut rest = values;
    while !rest.is_empty() {
        let ends = rest.as_mut_ptr_range();
        // SAFETY: the kernel reads and writes from the first value to the end, of which there is at least one, and keeps to the calling convention.
        let stopped = unsafe { dmexp_m4f_exp_minus(ends.start, ends.end, &CONSTANTS, largest) };
        // It stops at a value whose exponential is 0 or NaN; that one is done here.
        let done = stopped.addr().wrapping_sub(ends.start.addr()) / size_of::<f32>();
        let Some((special, after)) = rest.get_mut(done..).and_then(<[f32]>::split_first_mut) else { return };
        portable::exp_minus(core::slice::from_mut(special), largest);
        rest = after;
    }
}

/// As [`portable::gate`].
pub(crate) fn gate(gate: &mut [f32], up: &[f32]) {
    let n = gate.len().min(up.len());
    let (mut gate, mut up) = (gate.get_mut(..n).unwrap_or(&mut []), up.get(..n).unwrap_or(&[]));
    while !gate.is_empty() && gate.len() == up.len() {
        let ends = gate.as_mut_ptr_range();
        // SAFETY: both slices have the same length, which is not 0; the kernel reads both, writes `gate`, and keeps to the calling convention.
        let stopped = unsafe { dmexp_m4f_gate(ends.start, ends.end, &CONSTANTS, up.as_ptr()) };
        // It stops at a value too far from 0, or NaN; that one is done here.
        let done = stopped.addr().wrapping_sub(ends.start.addr()) / size_of::<f32>();
        let (Some((g, gate_after)), Some((u, up_after))) =
            (gate.get_mut(done..).and_then(<[f32]>::split_first_mut), up.get(done..).and_then(<[f32]>::split_first))
        else {
            return;
        };
        portable::gate(core::slice::from_mut(g), core::slice::from_ref(u));
        (gate, up) = (gate_after, up_after);
    }
}

/// The IEEE square root.
#[inline]
pub(crate) fn sqrt(x: f32) -> f32 {
    dmexp_m4f_sqrt(x)
}

/// The value of a half-precision pattern, by the instruction that the kernels use.
#[inline]
pub(crate) fn widen_f16(half: u16) -> f32 {
    dmexp_m4f_widen_f16(u32::from(half))
}

/// Half-precision patterns of `from`, nearest even.
pub(crate) fn narrow_f16(to: &mut [u16], from: &[f32]) {
    let n = to.len().min(from.len());
    let (Some(to), Some(from)) = (to.get_mut(..n), from.get(..n)) else { return };
    if n > 0 {
        let ends = from.as_ptr_range();
        // SAFETY: both slices have n elements, n is not 0; the kernel reads one, writes the other and keeps to the calling convention.
        unsafe { dmexp_m4f_narrow_f16(to.as_mut_ptr(), ends.start, ends.end) };
    }
}
