//! Block formats against vectors that gguf-py's own `dequantize` made of the same bytes, and against an encoder that is written down from the layout.

use super::make::{self, Bytes, Shape, decode_all};
use crate::checkpoint::gguf::blocks::BlockType;
use crate::checkpoint::{CodeBlock, Encoding};
use dmexp_format::crc32;
use half::f16;

const ALL: [BlockType; 10] = [
    BlockType::Q4_0,
    BlockType::Q4_1,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q8_0,
    BlockType::Q2K,
    BlockType::Q3K,
    BlockType::Q4K,
    BlockType::Q5K,
    BlockType::Q6K,
];

/// Where f16 numbers stand: the layout's, written down once more.
fn halves(kind: BlockType) -> &'static [usize] {
    match kind {
        BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[0],
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => &[0, 2],
        BlockType::Q2K => &[80, 82],
        BlockType::Q3K => &[108],
        BlockType::Q6K => &[208],
    }
}

/// 96 blocks of made bytes, their f16 numbers finite.
fn made(kind: BlockType, seed: u64) -> Vec<u8> {
    let mut bytes = Bytes(seed);
    let mut all = Vec::new();
    for _ in 0..96 {
        let mut block: Vec<u8> = (0..kind.bytes()).map(|_| bytes.next()).collect();
        for half in halves(kind) {
            let high = &mut block[half + 1];
            *high = (*high & 0x80) | ((*high & 0x7f) % 0x7c);
        }
        all.extend(block);
    }
    all
}

/// CRC-32 of the made bytes, and of the f32 values that gguf-py 0.19's `gguf.quants.dequantize` makes of them, little-endian.
const FROM_GGUF_PY: [(u32, u32); 10] = [
    (0xc8d1_e2eb, 0x1e02_b1f0),
    (0xc0eb_961b, 0xab75_0c5e),
    (0xfe52_84c6, 0xf4c7_0f00),
    (0x72df_1036, 0x2440_7da8),
    (0x850b_d9b4, 0xd8dd_8da9),
    (0x155c_056d, 0xa970_46f8),
    (0xaa3c_26f9, 0x393d_a053),
    (0x0215_6be2, 0x1ca6_479f),
    (0xbb5c_2f70, 0x64e8_791b),
    (0x6a66_2ae2, 0x05a7_9ce5),
];

#[test]
fn every_block_format_decodes_to_the_bits_of_gguf_py() {
    for ((kind, seed), expected) in ALL.into_iter().zip(1..).zip(FROM_GGUF_PY) {
        let bytes = made(kind, seed);
        let values: Vec<u8> = decode_all(kind, &bytes).iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!((crc32::checksum(&[&bytes]), crc32::checksum(&[&values])), expected, "{}", kind.name());
    }
}

/// A model of one matrix type, whose embedding is the made blocks; 256 wide so that every format's rows fit.
fn model_in(kind: BlockType, number: u32, seed: u64) -> (make::Gguf, Vec<f32>) {
    let shape = Shape { dim: 256, hidden: 256, layers: 1, heads: 4, kv_heads: 2, vocab: 96 / (256 / 32), context: 32 };
    let rows = 96 * kind.elements() / 256;
    let shape = Shape { vocab: rows as u64, ..shape };
    let mut file = make::model(&shape);
    let bytes = made(kind, seed);
    let values = decode_all(kind, &bytes);
    let tensor = file.named("token_embd.weight");
    (tensor.kind, tensor.data) = (number, bytes);
    (file, values)
}

const NUMBERS: [u32; 10] = [2, 3, 6, 7, 8, 10, 11, 12, 13, 14];

#[test]
fn arrays_in_blocks_are_read_from_any_place_in_any_length() {
    for ((kind, number), seed) in ALL.into_iter().zip(NUMBERS).zip(1..) {
        let (file, values) = model_in(kind, number, seed);
        let checkpoint = make::open(file.bytes()).unwrap();
        let array = checkpoint.array("tok_embeddings.weight").unwrap();
        assert!(matches!(array.encoding(), Some(Encoding::Blocks { kind: found, .. }) if found == kind));
        assert_eq!(array.to_vec().unwrap(), values, "{}", kind.name());
        let mut places = Bytes(seed + 100);
        for _ in 0..200 {
            let start = (usize::from(places.next()) << 8 | usize::from(places.next())) % (values.len() + 10);
            let mut out = vec![f32::NAN; usize::from(places.next()) * 3];
            let n = array.read(start as u64, &mut out).unwrap();
            assert_eq!(n, out.len().min(values.len().saturating_sub(start)));
            assert_eq!(out[..n], values[start.min(values.len())..][..n], "{} from {start}", kind.name());
        }
    }
}

#[test]
fn a_scale_that_is_no_number_is_named_with_its_place() {
    for ((kind, number), seed) in ALL.into_iter().zip(NUMBERS).zip(1..) {
        for half in halves(kind) {
            for bits in [0x7c00u16, 0xfc00, 0x7e01] {
                let (mut file, _) = model_in(kind, number, seed);
                let place = 5 * kind.bytes() + half;
                file.named("token_embd.weight").data[place..place + 2].copy_from_slice(&bits.to_le_bytes());
                let bytes = file.bytes();
                let data = bytes.len() - file.tensors.iter().map(|tensor| tensor.data.len().next_multiple_of(32)).sum::<usize>();
                let checkpoint = make::open(bytes).unwrap();
                let error = checkpoint.array("tok_embeddings.weight").unwrap().to_vec().unwrap_err().to_string();
                for part in ["made.gguf", "tok_embeddings.weight", &f16::from_bits(bits).to_string(), &format!("byte {}", data + place)] {
                    assert!(error.contains(part), "{part} is not in: {error}");
                }
            }
        }
    }
}

#[test]
fn codes_scales_and_offsets_are_handed_out_as_the_source_has_them() {
    for ((kind, number), seed) in ALL.into_iter().zip(NUMBERS).zip(1..) {
        let (file, values) = model_in(kind, number, seed);
        let checkpoint = make::open(file.bytes()).unwrap();
        let array = checkpoint.array("tok_embeddings.weight").unwrap();
        let with_codes = matches!(kind, BlockType::Q4_0 | BlockType::Q4_1 | BlockType::Q8_0);
        assert_eq!(array.has_code_blocks(), with_codes);
        let found: Vec<CodeBlock> = array.code_blocks(0..3).unwrap();
        assert_eq!(found.len(), if with_codes { 3 } else { 0 });
        for (block, values) in found.iter().zip(values.chunks(32)) {
            for (code, value) in block.codes.iter().zip(values) {
                let expected =
                    if kind == BlockType::Q4_1 { f32::from(*code) * block.scale + block.offset } else { f32::from(*code) * block.scale };
                assert_eq!(expected.to_bits(), value.to_bits());
            }
        }
        let norm = checkpoint.array("norm.weight").unwrap();
        assert!(!norm.has_code_blocks() && norm.code_blocks(0..1).unwrap().is_empty());
    }
}
