//! Writes a checkpoint of a known shape with made weights, in llama2.c's first format: something to measure with where no trained model of that size is at hand.
//!
//! Usage: `made-checkpoint SHAPE FILE`, SHAPE one of 15M, 42M, 110M, 1.1B; or long: a small one with many positions; or ternary: one, whose matrices hold 0 and one value with either sign; or dormouse or
//! dormouse-small: models of dormouse in its own format, as small as a chip has memory for and of the size `small`.

#[path = "../../host-tools/examples/dormouse/made.rs"]
mod dormouse;

use dmexp::format::arch::dormouse::DormouseConfig;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

/// A shape: dim, hidden dim, layers, heads, key/value heads, vocabulary (negative: the classifier is no embedding), context.
type Shape = [i32; 7];

const SHAPES: &[(&str, Shape)] = &[
    ("15M", [288, 768, 6, 6, 6, 32_000, 256]),
    ("42M", [512, 1376, 8, 8, 8, 32_000, 1024]),
    ("110M", [768, 2048, 12, 12, 12, 32_000, 1024]),
    ("1.1B", [2048, 5632, 22, 32, 4, -32_000, 2048]),
    ("long", [64, 96, 1, 4, 2, 512, 2304]),
    (TERNARY, [72, 136, 2, 4, 2, 512, 256]),
];

/// The shape with three values in a matrix.
const TERNARY: &str = "ternary";

/// What the file has of a kind of weights, one after the other.
#[derive(Clone, Copy)]
enum Part {
    /// Ones.
    Gains(u64),
    /// So many numbers, in rows of this width.
    Matrix(u64, u64),
    /// Cosines and sines of so many positions, for heads of this width.
    Rotations(u64, u64),
}
use Part::{Gains, Matrix, Rotations};

/// The file's parts, in their order.
fn parts(shape: Shape) -> Vec<Part> {
    let [dim, hidden, layers, heads, kv_heads, vocab, context] = shape.map(|size| u64::from(size.unsigned_abs()));
    let head = dim / heads;
    let kv_dim = kv_heads * head;
    let mut parts = vec![
        Matrix(vocab * dim, dim),
        Gains(layers * dim),
        Matrix(layers * dim * dim, dim),
        Matrix(layers * kv_dim * dim, dim),
        Matrix(layers * kv_dim * dim, dim),
        Matrix(layers * dim * dim, dim),
        Gains(layers * dim),
        Matrix(layers * hidden * dim, dim),
        Matrix(layers * dim * hidden, hidden),
        Matrix(layers * hidden * dim, dim),
        Gains(dim),
        Rotations(context, head),
    ];
    if shape[5] < 0 {
        parts.push(Matrix(vocab * dim, dim));
    }
    parts
}

fn write(shape: Shape, ternary: bool, file: &str) -> std::io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    for size in shape {
        out.write_all(&size.to_le_bytes())?;
    }
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for part in parts(shape) {
        match part {
            Gains(count) => (0..count).try_for_each(|_| out.write_all(&1f32.to_le_bytes()))?,
            Matrix(count, width) => {
                let size = 1.0 / (width as f32).sqrt();
                for _ in 0..count {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let value = (random >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
                    let value = if ternary { (1.5 * value).round() } else { value } * size;
                    out.write_all(&value.to_le_bytes())?;
                }
            }
            Rotations(positions, head) => {
                for function in [f64::cos, f64::sin] {
                    for n in 0..positions * (head / 2) {
                        let (position, pair) = (n / (head / 2), n % (head / 2));
                        let angle = position as f64 / 10_000f64.powf(2.0 * pair as f64 / head as f64);
                        out.write_all(&(function(angle) as f32).to_le_bytes())?;
                    }
                }
            }
        }
    }
    out.flush()
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [shape, file] = words.as_slice() else {
        eprintln!("usage: made-checkpoint SHAPE FILE");
        return ExitCode::from(2);
    };
    let written = match shape.as_str() {
        "dormouse" => std::fs::write(file, dormouse::file(&dormouse::CHIP)),
        "dormouse-small" => std::fs::write(file, dormouse::file(&DormouseConfig::DEFAULT)),
        _ => {
            let Some((_, sizes)) = SHAPES.iter().find(|(name, _)| name == shape) else {
                eprintln!("there is no shape {shape}; the shapes are 15M, 42M, 110M, 1.1B, long, ternary, dormouse, dormouse-small");
                return ExitCode::from(2);
            };
            write(*sizes, shape == TERNARY, file)
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write {file}: {error}");
            ExitCode::from(2)
        }
    }
}
