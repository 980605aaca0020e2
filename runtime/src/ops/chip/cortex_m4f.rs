//! Cores with a single-precision floating-point unit (Cortex-M4F and up, hard-float targets): the kernels of `cortex_m4f.s`, each behind a function that checks
//! what the assembly takes for granted. What the kernels do not cover (odd last rows, odd half-precision lengths, heads not a multiple of 8 wide) is done by
//! the portable ones, with the same bits.

use crate::ops::convert::{F16, F32, Stored};
use crate::ops::kv::KvRows;
use crate::ops::math::{EXP, EXP_HIGHEST, EXP_LOWEST, LN2_HIGH, LN2_LOW, LOG2_E, MAGIC};
use crate::ops::portable;
use core::arch::global_asm;

pub(crate) use portable::divide;

global_asm!(include_str!("cortex_m4f.s"), options(raw));

type MatvecKernel<T> = unsafe extern "C" fn(w: *const T, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
type MixKernel<T> = unsafe extern "C" fn(
    values: *const T,
    weights: *const f32,
    weights_end: *const f32,
    stride_bytes: usize,
    lanes: *mut f32,
    first_lane: *mut f32,
    out: *mut f32,
);

unsafe extern "C" {
    fn dmexp_m4f_matvec_f32(w: *const f32, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    fn dmexp_m4f_matvec_f16(w: *const u16, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    #[cfg(feature = "bf16")]
    fn dmexp_m4f_matvec_bf16(w: *const u16, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    fn dmexp_m4f_mix_f32(
        values: *const f32,
        weights: *const f32,
        weights_end: *const f32,
        stride_bytes: usize,
        lanes: *mut f32,
        first_lane: *mut f32,
        out: *mut f32,
    );
    fn dmexp_m4f_mix_f16(
        values: *const u16,
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

/// An element type of a row with its kernels.
trait Rows: Stored {
    const MATVEC: MatvecKernel<Self::Item>;
    /// What the length of a row and the distance between rows must be a multiple of, for the kernel to read whole aligned words.
    const UNIT: usize;
}

impl Rows for F32 {
    const MATVEC: MatvecKernel<f32> = dmexp_m4f_matvec_f32;
    const UNIT: usize = 1;
}

impl Rows for F16 {
    const MATVEC: MatvecKernel<u16> = dmexp_m4f_matvec_f16;
    const UNIT: usize = 2;
}

#[cfg(feature = "bf16")]
impl Rows for crate::ops::convert::Bf16 {
    const MATVEC: MatvecKernel<u16> = dmexp_m4f_matvec_bf16;
    const UNIT: usize = 2;
}

/// `out[r] = dot8(rows[r * stride..][..n], x)`, n the length of `x`; false, with nothing done, where the kernel does not fit.
fn strided<S: Rows>(out: &mut [f32], rows: &[S::Item], stride: usize, x: &[f32]) -> bool {
    let n = x.len();
    let pairs = out.len() & !1;
    let aligned = n.is_multiple_of(S::UNIT) && stride.is_multiple_of(S::UNIT) && rows.as_ptr().addr().is_multiple_of(4);
    let needed = out.len().saturating_sub(1).checked_mul(stride).and_then(|start| start.checked_add(n));
    if n == 0 || stride < n || !aligned || needed.is_none_or(|needed| needed > rows.len()) {
        return false;
    }
    let Some((paired, last)) = out.split_at_mut_checked(pairs) else { return false };
    if !paired.is_empty() {
        let ends = paired.as_mut_ptr_range();
        // SAFETY: `paired` is a whole number of pairs, at least one; row r reads n elements from r * stride on, which `needed` says lie within `rows`, and nothing
        // past them; `x` has n elements, n is not 0; rows and strides are whole words, as the kernel's loads need. The kernel writes `paired` alone and keeps to
        // the calling convention.
        unsafe { S::MATVEC(rows.as_ptr(), x.as_ptr(), n, stride * size_of::<S::Item>(), ends.start, ends.end) };
    }
    if let [last] = last {
        let row = rows.get(pairs.saturating_mul(stride)..).unwrap_or(&[]);
        *last = portable::dot::<S>(row, x);
    }
    true
}

fn matvec<S: Rows>(out: &mut [f32], rows: &[S::Item], x: &[f32]) {
    if !strided::<S>(out, rows, x.len(), x) {
        portable::matvec::<S>(out, rows, x);
    }
}

/// `out[r] = dot8(row r, x)`.
#[cfg(feature = "f32")]
pub(crate) fn matvec_f32(out: &mut [f32], rows: &[f32], x: &[f32]) {
    matvec::<F32>(out, rows, x);
}

/// `out[r] = dot8(row r, x)`, half precision.
#[cfg(feature = "f16")]
pub(crate) fn matvec_f16(out: &mut [f32], rows: &[u16], x: &[f32]) {
    matvec::<F16>(out, rows, x);
}

/// `out[r] = dot8(row r, x)`, bfloat16.
#[cfg(feature = "bf16")]
pub(crate) fn matvec_bf16(out: &mut [f32], rows: &[u16], x: &[f32]) {
    matvec::<crate::ops::convert::Bf16>(out, rows, x);
}

/// As [`portable::scores`]; the first row of `keys` belongs to the first score.
pub(crate) fn scores(scores: &mut [f32], q: &[f32], keys: KvRows<'_>, stride: usize, offset: usize, scale: f32) -> f32 {
    match keys {
        KvRows::F32(keys) => scores_of::<F32>(scores, q, keys, stride, offset, scale),
        KvRows::F16(keys) => scores_of::<F16>(scores, q, keys, stride, offset, scale),
    }
}

fn scores_of<S: Rows>(scores: &mut [f32], q: &[f32], keys: &[S::Item], stride: usize, offset: usize, scale: f32) -> f32 {
    if !strided::<S>(scores, keys.get(offset..).unwrap_or(&[]), stride, q) {
        return portable::scores::<S>(scores, q, keys, stride, offset, scale);
    }
    let mut largest = f32::NEG_INFINITY;
    for score in scores {
        *score *= scale;
        if *score > largest {
            largest = *score;
        }
    }
    largest
}

/// As [`portable::mix`]; the first row of `values` belongs to the first weight.
pub(crate) fn mix(
    out: &mut [f32],
    weights: &[f32],
    values: KvRows<'_>,
    stride: usize,
    offset: usize,
    first_lane: usize,
    lanes: &mut [f32],
) {
    match values {
        KvRows::F32(values) => mix_of::<F32>(out, weights, values, stride, offset, first_lane, lanes, dmexp_m4f_mix_f32),
        KvRows::F16(values) => mix_of::<F16>(out, weights, values, stride, offset, first_lane, lanes, dmexp_m4f_mix_f16),
    }
}

#[allow(clippy::too_many_arguments, reason = "those of the kernel")]
fn mix_of<S: Rows>(
    out: &mut [f32],
    weights: &[f32],
    values: &[S::Item],
    stride: usize,
    offset: usize,
    first_lane: usize,
    lanes: &mut [f32],
    kernel: MixKernel<S::Item>,
) {
    let n = out.len();
    let from = values.get(offset..).unwrap_or(&[]);
    let needed = weights.len().saturating_sub(1).checked_mul(stride).and_then(|start| start.checked_add(n));
    let aligned = stride.is_multiple_of(S::UNIT) && from.as_ptr().addr().is_multiple_of(4) && n.is_multiple_of(8);
    let fits = !weights.is_empty() && stride >= n && needed.is_some_and(|needed| needed <= from.len());
    let (Some(scratch), true) = (lanes.first_chunk_mut::<64>(), aligned && fits) else {
        return portable::mix::<S>(out, weights, values, stride, offset, first_lane, lanes);
    };
    let first_lane = (first_lane & 7) * 8;
    let ends = weights.as_ptr_range();
    for (block, out) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let lanes = scratch.as_mut_ptr();
        // SAFETY: `needed` says that n elements from t * stride on lie within `from` for every weight t, and block * 8 + 8 <= n; there is a weight; rows are whole
        // words apart. `lanes` has 64 elements and first_lane is at most 56; `out` has eight. The kernel writes those two alone and keeps to the calling
        // convention.
        unsafe {
            kernel(
                from.as_ptr().add(block * 8),
                ends.start,
                ends.end,
                stride * size_of::<S::Item>(),
                lanes,
                lanes.add(first_lane),
                out.as_mut_ptr(),
            );
        }
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
