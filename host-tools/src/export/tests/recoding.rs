//! Sources that are quantised already are coded again from their own steps: the blocks of GGUF. Exact where every step of a row is a whole number of 128ths (up to 128 of them) of its largest
//! one, and every lowest value a whole number of the same unit, as it always is where a row is one block of `Q4_0` or `Q8_0`; elsewhere nearer than without the source's steps.

use super::*;
use crate::checkpoint::BlockType::{self, Q4_0, Q4_1, Q8_0};
use crate::checkpoint::gguf_maker::{self as make, Bytes, Gguf};
use dmexp_format::file::ModelFile;
use half::f16;
use std::fs;

/// Block types, and what they are coded again as.
const CODED: [(BlockType, DType); 3] = [(Q8_0, DType::Q8), (Q4_0, DType::Q4), (Q4_1, DType::Q4)];

/// Matrices of two blocks a row (`attn_q` and `attn_k` come with their rows in another order) and of three.
const SHAPE: make::Shape = make::Shape { dim: 64, hidden: 96, layers: 1, heads: 4, kv_heads: 2, vocab: 24, context: 32 };

/// ggml's number of a type.
fn number(kind: BlockType) -> u32 {
    match kind {
        Q4_0 => 2,
        Q4_1 => 3,
        _ => 8,
    }
}

/// A block of 32 with this scale and lowest value (which `Q4_1` alone has); its codes are made bytes.
fn block(kind: BlockType, scale: f32, lowest: f32, codes: &mut Bytes) -> Vec<u8> {
    let half = |x: f32| f16::from_f32(x).to_le_bytes();
    let mut block = half(scale).to_vec();
    if kind == Q4_1 {
        block.extend(half(lowest));
    }
    // -128 is not among the codes of q8, and writers of Q8_0 do not write it.
    let code = |byte: u8| if kind == Q8_0 && byte == 0x80 { 0 } else { byte };
    block.extend((0..if kind == Q8_0 { 32 } else { 16 }).map(|_| code(codes.next())));
    block
}

/// A model whose matrices are blocks of `kind`; `scales` says scale and lowest value of a block by its number in its row.
fn model(shape: &make::Shape, kind: BlockType, mut scales: impl FnMut(usize, &mut Bytes) -> (f32, f32)) -> Gguf {
    let mut file = make::model(shape);
    let mut bytes = Bytes(kind.bytes() as u64);
    for tensor in file.tensors.iter_mut().filter(|tensor| tensor.sizes.len() == 2) {
        let (cols, rows) = (tensor.sizes[0] as usize, tensor.sizes[1] as usize);
        let mut data = Vec::new();
        for place in 0..rows * cols / 32 {
            let (scale, lowest) = scales(place % (cols / 32), &mut bytes);
            data.extend(block(kind, scale, lowest, &mut bytes));
        }
        (tensor.kind, tensor.data) = (number(kind), data);
    }
    file
}

/// The values of all matrices: the source's, and those of its export in `dtype` with the group given.
fn exported(source: &Checkpoint, dtype: DType, group: u32) -> (Vec<f32>, Vec<f32>) {
    let folder = TempDir::new().unwrap();
    let select = vec![format!("*={dtype}:{group}").parse().unwrap()];
    let report = export(source, &Options { select, golden: false, ..options(&folder, dtype, Format::V2) }).unwrap();
    let bytes = fs::read(&report.out).unwrap();
    let file = ModelFile::open(&bytes).unwrap();
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    for array in source.arrays().filter(|array| array.dims().rank() > 1) {
        let view = file.tensors().find(|tensor| tensor.name == array.name()).unwrap().view;
        assert_eq!(view.dtype(), dtype);
        wanted.extend(array.to_vec().unwrap());
        found.extend((0..view.dims().count() as usize).map(|element| view.get_f32(element)));
    }
    (wanted, found)
}

fn squared_error((wanted, found): &(Vec<f32>, Vec<f32>)) -> f64 {
    wanted.iter().zip(found).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

/// The same values without a word of their codes: the source in f32.
fn as_floats(source: &Checkpoint, kind: BlockType, mut file: Gguf) -> Checkpoint {
    for tensor in file.tensors.iter_mut().filter(|tensor| tensor.sizes.len() == 2) {
        let values = make::decode_all(kind, &tensor.data);
        (tensor.kind, tensor.data) = (0, values.iter().flat_map(|value| value.to_le_bytes()).collect());
    }
    let floats = make::open(file.bytes()).unwrap();
    assert_eq!(make::arrays(&floats), make::arrays(source));
    floats
}

#[test]
fn blocks_whose_steps_are_whole_parts_of_the_largest_come_back_bit_for_bit() {
    for (kind, dtype) in CODED {
        let unit = 1.0 / 4096.0;
        let file = model(&SHAPE, kind, |number, bytes| {
            // One block of a row has the largest step, which is 128 units; a negative scale turns the codes round; a step of 0 is a block of one value.
            let parts = if number == 0 { 128.0 } else { f32::from(bytes.next() % 129) };
            let sign = if bytes.next() % 3 == 0 { -1.0 } else { 1.0 };
            (sign * parts * unit, (f32::from(bytes.next()) - 128.0) * unit)
        });
        let source = make::open(file.bytes()).unwrap();
        let (wanted, found) = exported(&source, dtype, 32);
        let differing = wanted.iter().zip(&found).filter(|(a, b)| a != b).count();
        assert_eq!(differing, 0, "{}: of {} values", kind.name(), wanted.len());
    }
}

#[test]
fn a_row_of_one_block_comes_back_bit_for_bit_whatever_its_scale() {
    let shape = make::Shape { dim: 32, hidden: 32, heads: 2, kv_heads: 1, ..SHAPE };
    for (kind, dtype) in [(Q8_0, DType::Q8), (Q4_0, DType::Q4)] {
        // Any f16: 128 parts of it are f32 numbers.
        let file = model(&shape, kind, |_, bytes| (f32::from(bytes.next()) * f32::from(bytes.next()) / 65_536.0 - 0.3, 0.0));
        let (wanted, found) = exported(&make::open(file.bytes()).unwrap(), dtype, 0);
        assert_eq!(wanted, found, "{}", kind.name());
    }
}

#[test]
fn other_blocks_come_nearer_by_their_own_steps() {
    for (kind, dtype) in CODED {
        let file = model(&SHAPE, kind, |_, bytes| {
            let scale = 0.01 + f32::from(bytes.next()) / 10_000.0;
            (scale, -8.0 * scale + f32::from(bytes.next()) / 3_000.0)
        });
        let source = make::open(file.bytes()).unwrap();
        let with = squared_error(&exported(&source, dtype, 32));
        let without = squared_error(&exported(&as_floats(&source, kind, file), dtype, 32));
        println!("{} as {dtype}: squared error {with:.3e} by the source's steps, {without:.3e} by the values alone", kind.name());
        assert!(with < without, "{}: {with} {without}", kind.name());
        // Groups that no block covers have no step to start from, and lose what any values lose.
        let across = exported(&source, dtype, 48);
        assert!(squared_error(&across) > with && across.1.iter().all(|value| value.is_finite()));
    }
}

#[test]
fn the_code_that_q8_does_not_have_becomes_its_neighbour() {
    let mut file = model(&SHAPE, Q8_0, |_, _| (0.5, 0.0));
    file.named("token_embd.weight").data[2] = 0x80;
    let (wanted, found) = exported(&make::open(file.bytes()).unwrap(), DType::Q8, 32);
    assert_eq!(wanted[0], -64.0);
    assert!((found[0] + 64.0).abs() <= 0.5 && found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() <= 0.5), "{}", found[0]);
}
