//! Cores with a single-precision floating-point unit (Cortex-M4F and up, hard-float targets): the kernels of `cortex_m4f.s`, each behind a function that checks
//! what the assembly takes for granted. What the kernels do not cover (matrices at odd addresses, rows shorter than 8, odd half-precision lengths, heads not a multiple of 8 wide) is done
//! element by element, with the same bits: slower, and small.

#[cfg(all(dsp, feature = "kv-q8"))]
use super::cortex_m_kv as kv_integer;
use crate::format::arch::llama::RopeLayout;
use crate::format::{DType, KvDType, TensorView};
use crate::ops::kv::{KvHead, KvRows, is_built};
#[cfg(all(not(dsp), feature = "kv-q8"))]
use crate::ops::kv_integer;
use crate::ops::math::{EXP, EXP_HIGHEST, EXP_LOWEST, LN2_HIGH, LN2_LOW, LOG2_E, MAGIC};
use crate::ops::sum::{Lanes, tree};
use crate::ops::{portable, quantise};
use core::arch::global_asm;

/// Whether a multiply-add is two instructions; see the macros.
#[cfg(not(feature = "vmla"))]
macro_rules! split {
    () => {
        ".equ SPLIT, 1"
    };
}
#[cfg(feature = "vmla")]
macro_rules! split {
    () => {
        ".equ SPLIT, 0"
    };
}

// One text: the macros are shared.
global_asm!(
    split!(),
    include_str!("cortex_m4f_macros.s"),
    include_str!("cortex_m4f_matvec.s"),
    include_str!("cortex_m4f_mix.s"),
    include_str!("cortex_m4f.s"),
    options(raw)
);

type MatvecKernel = unsafe extern "C" fn(w: *const u8, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
type ScoresKernel = unsafe extern "C" fn(
    keys: *const u8,
    q: *const f32,
    q_end: *const f32,
    gap: usize,
    scores: *mut f32,
    end: *mut f32,
    scale: f32,
    largest: f32,
) -> f32;
type LaneKernel = unsafe extern "C" fn();

unsafe extern "C" {
    #[cfg(feature = "f32")]
    fn dmexp_m4f_matvec_f32(w: *const u8, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    #[cfg(feature = "f16")]
    fn dmexp_m4f_matvec_f16(w: *const u8, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    #[cfg(feature = "bf16")]
    fn dmexp_m4f_matvec_bf16(w: *const u8, x: *const f32, n: usize, stride_bytes: usize, out: *mut f32, out_end: *mut f32);
    #[cfg(feature = "kv-f32")]
    fn dmexp_m4f_scores_f32(
        keys: *const u8,
        q: *const f32,
        q_end: *const f32,
        gap: usize,
        scores: *mut f32,
        end: *mut f32,
        scale: f32,
        largest: f32,
    ) -> f32;
    #[cfg(feature = "kv-f16")]
    fn dmexp_m4f_scores_f16(
        keys: *const u8,
        q: *const f32,
        q_end: *const f32,
        gap: usize,
        scores: *mut f32,
        end: *mut f32,
        scale: f32,
        largest: f32,
    ) -> f32;
    #[cfg(feature = "kv-f32")]
    fn dmexp_m4f_lane_f32();
    #[cfg(feature = "kv-f16")]
    fn dmexp_m4f_lane_f16();
    fn dmexp_m4f_mix(
        values: *const u8,
        weights: *const f32,
        weights_end: *const f32,
        stride_bytes: usize,
        step_bytes: usize,
        lane: LaneKernel,
        first_lane: usize,
        out: *mut f32,
    );
    fn dmexp_m4f_exp_minus(values: *mut f32, end: *mut f32, constants: &[f32; 11], largest: f32) -> *mut f32;
    fn dmexp_m4f_gate(gate: *mut f32, end: *mut f32, constants: &[f32; 11], up: *const f32, limit: u32) -> *mut f32;
    fn dmexp_m4f_argmax(x: *const f32, end: *const f32) -> *const f32;
    fn dmexp_m4f_largest(x: *const f32, end: *const f32) -> u32;
    fn dmexp_m4f_sum8(x: *const f32, n: usize, squares: bool) -> f32;
    fn dmexp_m4f_add(x: *mut f32, n: usize, y: *const f32);
    fn dmexp_m4f_divide(x: *mut f32, n: usize, divisor: f32);
    fn dmexp_m4f_norm(out: *mut f32, n: usize, x: *const f32, gain: *const f32, scale: f32);
    fn dmexp_m4f_rotate(
        v: *mut f32,
        end: *mut f32,
        cos: *const f32,
        sin: *const f32,
        cos_end: *const f32,
        distance: usize,
        step: usize,
        skip: usize,
    );
    safe fn dmexp_m4f_sqrt(x: f32) -> f32;
    safe fn dmexp_m4f_widen_f16(half: u32) -> f32;
    fn dmexp_m4f_narrow_f16(to: *mut u16, from: *const f32, n: usize);
}

/// As the assembly's `EXP` wants them, then the lower end of the range.
static CONSTANTS: [f32; 11] = [LOG2_E, MAGIC, LN2_HIGH, LN2_LOW, EXP[3], EXP[2], EXP[1], EXP[0], 0.5, 1.0, EXP_LOWEST];
/// The smaller end of the range of both signs, in twice its bits.
const GATE_LIMIT: u32 = (-EXP_LOWEST).to_bits() << 1;
const _: () = assert!(EXP_HIGHEST > -EXP_LOWEST, "the gate's range check takes the smaller end for both");

/// Rows of stored elements, one every `stride` elements: one definition for every type, so that flash holds it once.
#[derive(Clone, Copy)]
struct Rows<'a> {
    dtype: DType,
    bytes: &'a [u8],
    stride: usize,
}

impl Rows<'_> {
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
    match (kernel_of(rows.dtype), rows.stride_bytes(out.len(), x.len())) {
        // SAFETY: `stride_bytes` and the comparison made sure of it.
        (Some(kernel), Some(stride)) if x.len() >= 8 => unsafe { pairs(out, kernel, rows.bytes.as_ptr(), stride, x) },
        _ => slow_dots(out, rows, x),
    }
}

fn kernel_of(dtype: DType) -> Option<MatvecKernel> {
    match dtype {
        #[cfg(feature = "f32")]
        DType::F32 => Some(dmexp_m4f_matvec_f32),
        #[cfg(feature = "f16")]
        DType::F16 => Some(dmexp_m4f_matvec_f16),
        #[cfg(feature = "bf16")]
        DType::Bf16 => Some(dmexp_m4f_matvec_bf16),
        _ => None,
    }
}

/// Runs `kernel` over the rows from `start` on, `stride` bytes apart.
///
/// # Safety
/// There is a row for each of `out`, each with as many elements as `x`, 8 at least, in whole aligned words.
unsafe fn pairs(out: &mut [f32], kernel: MatvecKernel, start: *const u8, stride: usize, x: &[f32]) {
    let Some((paired, last)) = out.split_at_mut_checked(out.len() & !1) else { return };
    let mut row = start;
    if !paired.is_empty() {
        let ends = paired.as_mut_ptr_range();
        // SAFETY: `paired` is a whole number of pairs, at least one; the rows are as this function's caller promises, and `x` has n elements. The kernel writes `paired` alone and keeps to
        // the calling convention.
        unsafe { kernel(row, x.as_ptr(), x.len(), stride, ends.start, ends.end) };
        row = row.wrapping_add(paired.len().wrapping_mul(stride));
    }
    if let [last] = last {
        let mut twice = [0.0; 2];
        let ends = twice.as_mut_ptr_range();
        // SAFETY: as above; the one row is both rows of the pair.
        unsafe { kernel(row, x.as_ptr(), x.len(), 0, ends.start, ends.end) };
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

/// Keys or values of the positions at hand, and what is the same for all heads.
pub(crate) struct Prepared<'a> {
    #[cfg(feature = "kv-q8")]
    kv: KvRows<'a>,
    rows: Rows<'a>,
    head: KvHead,
    count: usize,
    /// The distance between rows in bytes, where the kernels may read a head's part of all of them; else 0.
    stride_bytes: usize,
    /// The distance between heads in bytes.
    head_bytes: usize,
}

/// Looks once at `count` rows of keys or values, whose heads are like `head`.
pub(crate) fn prepare(kv: KvRows<'_>, count: usize, head: KvHead) -> Prepared<'_> {
    let (dtype, bytes): (_, &[u8]) = match kv {
        KvRows::F32(rows) if is_built(KvDType::F32) => (DType::F32, bytemuck::cast_slice(rows)),
        KvRows::F16(rows) if is_built(KvDType::F16) => (DType::F16, bytemuck::cast_slice(rows)),
        _ => (DType::F16, &[]),
    };
    let rows = Rows { dtype, bytes, stride: head.stride() };
    let head_bytes = head.head_dim.wrapping_mul(dtype.size() as usize);
    let whole = head.head_dim.is_multiple_of(8);
    let stride_bytes = rows.stride_bytes(count, rows.stride).filter(|_| whole).unwrap_or(0);
    Prepared {
        #[cfg(feature = "kv-q8")]
        kv,
        rows,
        head,
        count,
        stride_bytes,
        head_bytes,
    }
}

impl<'a> Prepared<'a> {
    /// Where the part of head `head`, of `width` elements, begins in the first of `count` rows, if the kernels may read them: `prepare` saw whole rows at whole words, of which the heads are
    /// equal parts, each a number of eights.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a few comparisons, twice a head")]
    fn start(&self, head: usize, width: usize, count: usize) -> Option<*const u8> {
        let fits = self.stride_bytes > 0 && head < self.head.n_kv_heads && width == self.head.head_dim && count <= self.count && count > 0;
        fits.then(|| self.rows.bytes.as_ptr().wrapping_add(head.wrapping_mul(self.head_bytes)))
    }

    /// The same as rows, for reading element by element.
    #[inline(never)]
    fn part(&self, head: usize) -> Rows<'a> {
        Rows { bytes: self.rows.bytes.get(head.wrapping_mul(self.head_bytes)..).unwrap_or(&[]), ..self.rows }
    }
}

/// As [`portable::scores`]; the first row of `keys` belongs to the first score. `scratch` has at least half as many elements as `q`.
#[cfg_attr(not(feature = "kv-q8"), allow(unused_variables, reason = "floats need no scratch"))]
pub(crate) fn scores(scores: &mut [f32], q: &[f32], keys: &Prepared<'_>, head: KvHead, scale: f32, scratch: &mut [f32]) -> f32 {
    #[cfg(feature = "kv-q8")]
    if let KvRows::Q8(keys) = keys.kv {
        return kv_integer::scores(scores, q, keys, head, scale, scratch);
    }
    let kernel: Option<ScoresKernel> = match keys.rows.dtype {
        #[cfg(feature = "kv-f32")]
        DType::F32 => Some(dmexp_m4f_scores_f32),
        #[cfg(feature = "kv-f16")]
        DType::F16 => Some(dmexp_m4f_scores_f16),
        _ => None,
    };
    let (Some(start), Some(kernel)) = (keys.start(head.head, q.len(), scores.len()), kernel) else {
        return slow_scores(scores, q, keys.part(head.head), scale);
    };
    let (q_ends, ends) = (q.as_ptr_range(), scores.as_mut_ptr_range());
    let gap = keys.stride_bytes.wrapping_sub(keys.head_bytes);
    // SAFETY: `start` made sure that there is a score, and for each a row with as many elements as `q`, a number of eights, in whole aligned words; `gap` is from the end of one to the next.
    // The kernel writes the scores alone and keeps to the calling convention.
    unsafe { kernel(start, q_ends.start, q_ends.end, gap, ends.start, ends.end, scale, f32::NEG_INFINITY) }
}

/// Heads of any width, element by element.
#[cold]
fn slow_scores(scores: &mut [f32], q: &[f32], rows: Rows<'_>, scale: f32) -> f32 {
    let mut largest = f32::NEG_INFINITY;
    slow_dots(scores, rows, q);
    for score in scores {
        *score *= scale;
        if *score > largest {
            largest = *score;
        }
    }
    largest
}

/// As [`portable::mix`]; the first row of `values` belongs to the first weight. The weights may be lost.
#[cfg_attr(not(any(feature = "kv-f32", feature = "kv-f16")), allow(unused_mut, reason = "a build without keys and values in floats"))]
pub(crate) fn mix(out: &mut [f32], weights: &mut [f32], values: &Prepared<'_>, head: KvHead, first_lane: usize, _: &mut [f32]) {
    #[cfg(feature = "kv-q8")]
    if let KvRows::Q8(values) = values.kv {
        return kv_integer::mix(out, weights, values, head);
    }
    let start = values.start(head.head, out.len(), weights.len());
    let lane: Option<(LaneKernel, usize)> = match values.rows.dtype {
        #[cfg(feature = "kv-f32")]
        DType::F32 => Some((dmexp_m4f_lane_f32, 32)),
        #[cfg(feature = "kv-f16")]
        DType::F16 => Some((dmexp_m4f_lane_f16, 16)),
        _ => None,
    };
    let (Some(mut from), Some((lane, block_bytes))) = (start, lane) else {
        return slow_mix(out, weights, values.part(head.head), first_lane);
    };
    let ends = weights.as_ptr_range();
    let (stride, first_lane) = (values.stride_bytes, first_lane & 7);
    let step = stride.wrapping_mul(8).wrapping_sub(block_bytes);
    for block in out.as_chunks_mut::<8>().0 {
        // SAFETY: `start` made sure that there is a weight, and that the row of each has as many elements as `out`, in whole aligned words; this block is eight of them, which `lane` reads.
        // The kernel writes `block`, eight elements, alone and keeps to the calling convention.
        unsafe { dmexp_m4f_mix(from, ends.start, ends.end, stride, step, lane, first_lane, block.as_mut_ptr()) };
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
        // SAFETY: the kernel reads and writes values from the start to the end, at least one, and keeps to the calling convention.
        let stopped = unsafe { dmexp_m4f_exp_minus(ends.start, ends.end, &CONSTANTS, largest) };
        let done = stopped.addr().wrapping_sub(ends.start.addr()) / size_of::<f32>();
        // It stops where an exponential may be 0 or NaN.
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
        let ends = gate.get_mut(..gate.len() & !1).unwrap_or(&mut []).as_mut_ptr_range();
        let mut done = 0;
        if !ends.is_empty() {
            // SAFETY: both slices have the same length; the kernel reads pairs of both, from the start of `gate` to the end, at least one, writes those of `gate`, and keeps to the calling
            // convention.
            let stopped = unsafe { dmexp_m4f_gate(ends.start, ends.end, &CONSTANTS, up.as_ptr(), GATE_LIMIT) };
            done = stopped.addr().wrapping_sub(ends.start.addr()) / size_of::<f32>();
        }
        // It stops at a pair with a value too far from 0, or NaN; that one is done here, and a last value that has no other.
        let (Some((special, after)), Some(up_rest)) = (gate.get_mut(done..).and_then(at_most_two), up.get(done..)) else { return };
        portable::gate(special, up_rest);
        up = up_rest.get(special.len()..).unwrap_or(&[]);
        gate = after;
    }
}

/// The first two values, or the one that there is, and the rest; `None` where there are none.
fn at_most_two(values: &mut [f32]) -> Option<(&mut [f32], &mut [f32])> {
    let two = values.len().min(2);
    values.split_at_mut_checked(two).filter(|(first, _)| !first.is_empty())
}

/// The largest magnitude of `x`; NaN if there is one, 0 if there is nothing.
pub(crate) fn largest_magnitude(x: &[f32]) -> f32 {
    let Some((eights, rest)) = x.split_at_checked(x.len() & !7) else { return 0.0 };
    let largest = quantise::largest_magnitude(rest).to_bits();
    if eights.is_empty() {
        return f32::from_bits(largest);
    }
    let ends = eights.as_ptr_range();
    // SAFETY: reads a multiple of 8 values, not none.
    f32::from_bits(unsafe { dmexp_m4f_largest(ends.start, ends.end) }.max(largest))
}

/// As [`portable::argmax`].
pub(crate) fn argmax(values: &[f32]) -> Option<(u32, f32)> {
    let (fours, rest) = values.split_at_checked(values.len() & !3)?;
    if fours.is_empty() {
        return portable::argmax(rest);
    }
    let ends = fours.as_ptr_range();
    // SAFETY: reads a multiple of 4 values, not none, and returns the address of one of them.
    let at = unsafe { dmexp_m4f_argmax(ends.start, ends.end) }.addr().wrapping_sub(ends.start.addr()) / size_of::<f32>();
    let mut best = (at as u32, fours.get(at).copied()?);
    for (at, &value) in (fours.len() as u32..).zip(rest) {
        if value > best.1 {
            best = (at, value);
        }
    }
    Some(best)
}

/// As [`sum8`](crate::ops::sum::sum8).
pub(crate) fn sum8(x: &[f32]) -> f32 {
    // SAFETY: reads the n values of `x`.
    unsafe { dmexp_m4f_sum8(x.as_ptr(), x.len(), false) }
}

/// As [`sum8_squares`](crate::ops::sum::sum8_squares).
pub(crate) fn sum8_squares(x: &[f32]) -> f32 {
    // SAFETY: reads the n values of `x`.
    unsafe { dmexp_m4f_sum8(x.as_ptr(), x.len(), true) }
}

/// `x[i] = x[i] + y[i]`.
pub(crate) fn add(x: &mut [f32], y: &[f32]) {
    let n = x.len().min(y.len());
    // SAFETY: both have n values; the kernel reads both, writes the first and keeps to the calling convention.
    unsafe { dmexp_m4f_add(x.as_mut_ptr(), n, y.as_ptr()) };
}

/// Each value divided by `divisor`.
pub(crate) fn divide(values: &mut [f32], divisor: f32) {
    // SAFETY: the kernel reads and writes the n values and keeps to the calling convention.
    unsafe { dmexp_m4f_divide(values.as_mut_ptr(), values.len(), divisor) };
}

/// `out[i] = (x[i] * scale) * gain[i]`; all have the same length, or nothing is done.
pub(crate) fn norm(out: &mut [f32], x: &[f32], gain: &[f32], scale: f32) {
    if x.len() == out.len() && gain.len() == out.len() {
        // SAFETY: all three have n values; the kernel reads two, writes the first and keeps to the calling convention.
        unsafe { dmexp_m4f_norm(out.as_mut_ptr(), out.len(), x.as_ptr(), gain.as_ptr(), scale) };
    }
}

/// As [`portable::rotate`].
pub(crate) fn rotate(vectors: &mut [f32], head_dim: usize, cos: &[f32], sin: &[f32], layout: RopeLayout) {
    let half = head_dim / 2;
    let pairs = half.min(cos.len()).min(sin.len());
    let len = vectors.len().checked_div(head_dim).unwrap_or(0).wrapping_mul(head_dim);
    let (Some(heads), Some(cos)) = (vectors.get_mut(..len), cos.get(..pairs)) else { return };
    if heads.is_empty() || cos.is_empty() {
        return;
    }
    let (distance, step) = if layout == RopeLayout::Interleaved { (4, 8) } else { (half.wrapping_mul(4), 4) };
    let skip = head_dim.wrapping_mul(4).wrapping_sub(pairs.wrapping_mul(step));
    let (ends, cos) = (heads.as_mut_ptr_range(), cos.as_ptr_range());
    // SAFETY: `heads` is a number of whole heads, not none, and a head has at least as many pairs as `cos` and `sin` have numbers, not none: the kernel reads and writes those, and `skip` takes it
    // to the next head. It keeps to the calling convention.
    unsafe { dmexp_m4f_rotate(ends.start, ends.end, cos.start, sin.as_ptr(), cos.end, distance, step, skip) };
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
    if n > 0 {
        // SAFETY: both slices have n elements, n is not 0; the kernel reads one, writes the other and keeps to the calling convention.
        unsafe { dmexp_m4f_narrow_f16(to.as_mut_ptr(), from.as_ptr(), n) };
    }
}
