//! The inner loops that training spends its time in, compiled for the vector units that are found at run time.
//! Called by `model.rs` and `attention.rs`; everything else in this crate is plain Rust.

#![expect(
    clippy::inline_always,
    reason = "a body must be inlined into the function that enables the instructions, or it is compiled without them"
)]
#![expect(clippy::needless_pass_by_value, reason = "a product takes its target as it takes its operands")]

/// The left matrix of a product: element (row, k) is `data[row * row_stride + k * k_stride]`, so that a transposed matrix needs no copy.
#[derive(Debug, Clone, Copy)]
pub struct Left<'a> {
    /// The values.
    pub data: &'a [f32],
    /// Distance between rows.
    pub row_stride: usize,
    /// Distance along the summed dimension.
    pub k_stride: usize,
}

/// The right matrix of a product: element (k, column) is `data[k * stride + column]`.
#[derive(Debug, Clone, Copy)]
pub struct Right<'a> {
    /// The values.
    pub data: &'a [f32],
    /// Distance between rows.
    pub stride: usize,
}

/// Where a product goes: element (row, column) is `data[row * stride + column]`.
#[derive(Debug)]
pub struct Target<'a> {
    /// The values.
    pub data: &'a mut [f32],
    /// Distance between rows.
    pub stride: usize,
    /// True: add to what is there; false: overwrite it.
    pub add: bool,
}

/// Sizes of a product: `m` rows, `n` columns, `k` summed.
pub type Size = (usize, usize, usize);

#[inline(always)]
fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    // Without the instruction `mul_add` is a slow library call.
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// One `MR` x `NR` block of the product, held in registers while k runs.
///
/// # Safety
/// The pointers must be valid for `MR` rows, `NR` columns and `k` steps at the given strides.
#[inline(always)]
unsafe fn block<const FMA: bool, const MR: usize, const NR: usize>(
    k: usize,
    (a, a_row, a_k): (*const f32, usize, usize),
    (b, b_k): (*const f32, usize),
    (c, c_row, add): (*mut f32, usize, bool),
) {
    let mut acc = [[0.0_f32; NR]; MR];
    for p in 0..k {
        // SAFETY: the caller vouches for MR rows, NR columns and k steps.
        let columns = unsafe { b.add(p * b_k).cast::<[f32; NR]>().read_unaligned() };
        for (r, sums) in acc.iter_mut().enumerate() {
            // SAFETY: as above.
            let left = unsafe { *a.add(r * a_row + p * a_k) };
            for (sum, right) in sums.iter_mut().zip(columns) {
                *sum = fma::<FMA>(left, right, *sum);
            }
        }
    }
    for (r, sums) in acc.iter_mut().enumerate() {
        // SAFETY: as above.
        unsafe {
            let row = c.add(r * c_row).cast::<[f32; NR]>();
            if add {
                for (sum, old) in sums.iter_mut().zip(row.read_unaligned()) {
                    *sum += old;
                }
            }
            row.write_unaligned(*sums);
        }
    }
}

/// All columns of one strip of `MR` rows.
///
/// # Safety
/// As [`block`], for `n` columns.
#[inline(always)]
unsafe fn strip<const FMA: bool, const MR: usize, const WIDE: usize>(
    (n, k): (usize, usize),
    a: (*const f32, usize, usize),
    (b, b_k): (*const f32, usize),
    (c, c_row, add): (*mut f32, usize, bool),
) {
    let mut j = 0;
    macro_rules! columns {
        ($nr:expr) => {
            while n - j >= $nr {
                // SAFETY: columns j..j + $nr lie within n.
                unsafe { block::<FMA, MR, { $nr }>(k, a, (b.add(j), b_k), (c.add(j), c_row, add)) };
                j += $nr;
            }
        };
    }
    columns!(WIDE);
    columns!(16);
    columns!(8);
    columns!(4);
    columns!(1);
}

#[inline(always)]
fn product_body<const FMA: bool, const WIDE: usize>((m, n, k): Size, a: Left<'_>, b: Right<'_>, c: Target<'_>) {
    if m == 0 || n == 0 {
        return;
    }
    // These make the pointer arithmetic below sound; a mistake in a caller stops here.
    assert!(k == 0 || (m - 1) * a.row_stride + (k - 1) * a.k_stride < a.data.len(), "left matrix too small");
    assert!(k == 0 || (k - 1) * b.stride + n <= b.data.len(), "right matrix too small");
    assert!((m - 1) * c.stride + n <= c.data.len(), "target too small");
    let (ap, bp, cp) = (a.data.as_ptr(), b.data.as_ptr(), c.data.as_mut_ptr());
    let mut i = 0;
    macro_rules! rows {
        ($mr:expr) => {
            while m - i >= $mr {
                // SAFETY: rows i..i + $mr lie within m, and the assertions above bound every element for m rows, n columns and k steps.
                unsafe {
                    strip::<FMA, { $mr }, WIDE>(
                        (n, k),
                        (ap.add(i * a.row_stride), a.row_stride, a.k_stride),
                        (bp, b.stride),
                        (cp.add(i * c.stride), c.stride, c.add),
                    );
                }
                i += $mr;
            }
        };
    }
    rows!(8);
    rows!(4);
    rows!(1);
}

/// e^x for x <= 0 (a softmax after the maximum is taken off), within 2 ulp or so; below -87 it is as good as 0.
#[inline(always)]
fn exp<const FMA: bool>(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to an integer
    let x = x.clamp(-87.0, 87.0);
    let n = fma::<FMA>(x, std::f32::consts::LOG2_E, MAGIC);
    let whole = n - MAGIC;
    let r = fma::<FMA>(whole, -0.693_359_4, x);
    let r = fma::<FMA>(whole, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5] {
        p = fma::<FMA>(p, r, c);
    }
    let p = fma::<FMA>(p * r, r, r) + 1.0;
    f32::from_bits((p.to_bits() as i32 + ((n.to_bits() as i32) << 23)) as u32)
}

/// Sum in sixteen lanes: a running sum in order cannot be vectorised.
#[inline(always)]
fn lanes<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut acc = [0.0_f32; 16];
    let (a16, a_rest) = a.as_chunks::<16>();
    let (b16, b_rest) = b.as_chunks::<16>();
    for (a, b) in a16.iter().zip(b16) {
        for ((s, &x), &y) in acc.iter_mut().zip(a).zip(b) {
            *s = fma::<FMA>(x, y, *s);
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    acc.iter().sum::<f32>() + rest
}

#[inline(always)]
fn softmax_body<const FMA: bool>(row: &mut [f32], scale: f32) {
    let mut tops = [f32::NEG_INFINITY; 16];
    let (wide, rest) = row.as_chunks::<16>();
    for chunk in wide {
        for (t, &x) in tops.iter_mut().zip(chunk) {
            *t = if x > *t { x } else { *t };
        }
    }
    let mut top = rest.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    top = tops.iter().copied().fold(top, f32::max);
    let mut sums = [0.0_f32; 16];
    let (wide, rest) = row.as_chunks_mut::<16>();
    for chunk in wide {
        for (s, x) in sums.iter_mut().zip(chunk) {
            *x = exp::<FMA>((*x - top) * scale);
            *s += *x;
        }
    }
    let mut sum = sums.iter().sum::<f32>();
    for x in rest {
        *x = exp::<FMA>((*x - top) * scale);
        sum += *x;
    }
    let inverse = 1.0 / sum;
    for x in row {
        *x *= inverse;
    }
}

#[inline(always)]
fn softmax_gradient_body<const FMA: bool>(probabilities: &[f32], gradient: &mut [f32], scale: f32) {
    let dot = lanes::<FMA>(probabilities, gradient);
    for (g, p) in gradient.iter_mut().zip(probabilities) {
        *g = (*g - dot) * *p * scale;
    }
}

#[inline(always)]
fn gate_body<const FMA: bool>(gate: &[f32], up: &[f32], out: &mut [f32]) {
    for ((o, &g), &u) in out.iter_mut().zip(gate).zip(up) {
        *o = g / (1.0 + exp::<FMA>(-g)) * u;
    }
}

#[inline(always)]
fn gate_gradient_body<const FMA: bool>(gate: &mut [f32], up: &mut [f32], dout: &[f32]) {
    for ((g, u), &d) in gate.iter_mut().zip(up).zip(dout) {
        let sigmoid = 1.0 / (1.0 + exp::<FMA>(-*g));
        let silu = *g * sigmoid;
        *g = d * *u * (sigmoid + silu * (1.0 - sigmoid));
        *u = d * silu;
    }
}

/// Makes the public function, which picks the widest version that this processor runs.
macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident, $body:ident, [$($generic:expr),*], [$($narrow:expr),*], ($($arg:ident: $type:ty),*) -> $ret:ty) => {
        $(#[$doc])*
        pub fn $name($($arg: $type),*) -> $ret {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx2,fma")]
                fn wide($($arg: $type),*) -> $ret {
                    $body::<true $(, {$generic})*>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn middle($($arg: $type),*) -> $ret {
                    $body::<true $(, {$narrow})*>($($arg),*)
                }
                if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("fma") {
                    // SAFETY: the features were just found.
                    return unsafe { wide($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the features were just found.
                    return unsafe { middle($($arg),*) };
                }
            }
            $body::<{ cfg!(target_arch = "aarch64") } $(, {$narrow})*>($($arg),*)
        }
    };
}

dispatched!(
    /// `c = a b`, or `c += a b`.
    ///
    /// # Panics
    /// When a slice is too small for the sizes.
    product, product_body, [32], [16], (size: Size, a: Left<'_>, b: Right<'_>, c: Target<'_>) -> ()
);
dispatched!(
    /// `row` becomes softmax(row * scale).
    softmax, softmax_body, [], [], (row: &mut [f32], scale: f32) -> ()
);
dispatched!(
    /// `gradient` becomes the gradient of the softmax's input, given its output.
    softmax_gradient, softmax_gradient_body, [], [], (probabilities: &[f32], gradient: &mut [f32], scale: f32) -> ()
);
dispatched!(
    /// `out = silu(gate) * up`.
    gate, gate_body, [], [], (gate: &[f32], up: &[f32], out: &mut [f32]) -> ()
);
dispatched!(
    /// `gate` and `up` become their own gradients, given that of the output.
    gate_gradient, gate_gradient_body, [], [], (gate: &mut [f32], up: &mut [f32], dout: &[f32]) -> ()
);

#[cfg(test)]
mod tests {
    use super::{Left, Right, Target, gate, gate_gradient, product, softmax};
    use crate::rng::Rng;

    fn noise(rng: &mut Rng, n: usize) -> Vec<f32> {
        (0..n).map(|_| rng.normal()).collect()
    }

    #[test]
    fn products_of_any_size_and_stride_match_the_plain_sum() {
        let mut rng = Rng::new(3);
        for (m, n, k) in [(1, 1, 1), (8, 32, 16), (13, 47, 9), (30, 172, 64), (5, 12, 0)] {
            let (a, b) = (noise(&mut rng, m * k + 1), noise(&mut rng, k * n + 1));
            let before = noise(&mut rng, m * n);
            for transposed in [false, true] {
                let (row_stride, k_stride) = if transposed { (1, m) } else { (k, 1) };
                let mut c = before.clone();
                product(
                    (m, n, k),
                    Left { data: &a, row_stride, k_stride },
                    Right { data: &b, stride: n },
                    Target { data: &mut c, stride: n, add: true },
                );
                for i in 0..m {
                    for j in 0..n {
                        let sum: f64 = (0..k).map(|p| f64::from(a[i * row_stride + p * k_stride]) * f64::from(b[p * n + j])).sum();
                        let want = sum + f64::from(before[i * n + j]);
                        assert!((f64::from(c[i * n + j]) - want).abs() < 1e-4, "({m},{n},{k}) at {i},{j}");
                    }
                }
            }
        }
    }

    #[test]
    fn softmax_and_gate_match_f64() {
        let mut rng = Rng::new(4);
        let input: Vec<f32> = noise(&mut rng, 77).iter().map(|x| x * 8.0).collect();
        let mut row = input.clone();
        softmax(&mut row, 0.5);
        let sum: f64 = input.iter().map(|&x| (f64::from(x) * 0.5).exp()).sum();
        for (got, x) in row.iter().zip(&input) {
            assert!((f64::from(*got) - (f64::from(*x) * 0.5).exp() / sum).abs() < 1e-6);
        }
        let silu = |g: f64| g / (1.0 + (-g).exp());
        let up = noise(&mut rng, 77);
        let mut out = vec![0.0; 77];
        gate(&input, &up, &mut out);
        let (mut dg, mut du) = (input.clone(), up.clone());
        gate_gradient(&mut dg, &mut du, &[1.0; 77]);
        for i in 0..77 {
            let (g, u) = (f64::from(input[i]), f64::from(up[i]));
            assert!((f64::from(out[i]) - silu(g) * u).abs() < 1e-4);
            assert!((f64::from(du[i]) - silu(g)).abs() < 1e-4);
            let slope = (silu(g + 1e-5) - silu(g - 1e-5)) / 2e-5;
            assert!((f64::from(dg[i]) - slope * u).abs() < 1e-3);
        }
    }
}
