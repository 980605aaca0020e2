//! The block formats of ggml, as `ggml-quants.c` defines them: codes with scales, 32 or 256 elements a block. Decoded by `ArrayView`, and handed out as codes to the exporter.
//!
//! Every value is one product, or one product and one sum or difference, in f32 and in the order of the definition: the same bits as ggml's own reference gives.

use half::f16;

/// A block format of ggml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// 4-bit codes less 8, an f16 scale for 32.
    Q4_0,
    /// 4-bit codes, an f16 scale and an f16 offset for 32.
    Q4_1,
    /// 5-bit codes less 16, an f16 scale for 32.
    Q5_0,
    /// 5-bit codes, an f16 scale and an f16 offset for 32.
    Q5_1,
    /// Signed bytes, an f16 scale for 32.
    Q8_0,
    /// 2-bit codes; a 4-bit scale and a 4-bit offset for 16; f16 multipliers of both for 256.
    Q2K,
    /// 3-bit codes less 4; a 6-bit scale less 32 for 16; an f16 multiplier for 256.
    Q3K,
    /// 4-bit codes; a 6-bit scale and a 6-bit offset for 32; f16 multipliers of both for 256.
    Q4K,
    /// 5-bit codes; a 6-bit scale and a 6-bit offset for 32; f16 multipliers of both for 256.
    Q5K,
    /// 6-bit codes less 32; a signed byte as the scale for 16; an f16 multiplier for 256.
    Q6K,
}

/// The most elements of a block.
pub(in crate::checkpoint) const LONGEST: usize = 256;

impl BlockType {
    /// ggml's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Elements of a block.
    pub const fn elements(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => LONGEST,
        }
    }

    /// Bytes of a block.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Whether [`codes`] has an answer.
    pub(in crate::checkpoint) const fn has_codes(self) -> bool {
        matches!(self, Self::Q4_0 | Self::Q4_1 | Self::Q8_0)
    }

    /// Where in a block its f16 numbers stand.
    const fn halves(self) -> &'static [usize] {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => &[0],
            Self::Q4_1 | Self::Q5_1 | Self::Q4K | Self::Q5K => &[0, 2],
            Self::Q2K => &[80, 82],
            Self::Q3K => &[108],
            Self::Q6K => &[208],
        }
    }
}

/// One block of `Q4_0`, `Q4_1` or `Q8_0` as the source has it: element i is `codes[i] * scale + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodeBlock {
    /// The codes, with `Q4_0`'s 8 taken off: -8..=7 for `Q4_0`, 0..=15 for `Q4_1`, -128..=127 for `Q8_0`.
    pub codes: [i8; 32],
    /// The scale; may be negative.
    pub scale: f32,
    /// The offset, 0 but for `Q4_1`.
    pub offset: f32,
}

/// A block's scale that is no number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::checkpoint) struct BadScale {
    /// Its place in the block.
    pub(in crate::checkpoint) byte: usize,
    pub(in crate::checkpoint) value: f32,
}

/// Decodes one block of `kind.bytes()` bytes into the first `kind.elements()` places of `out`.
pub(in crate::checkpoint) fn decode(kind: BlockType, block: &[u8], out: &mut [f32; LONGEST]) -> Result<(), BadScale> {
    if let Some(CodeBlock { codes, scale, offset }) = codes(kind, block)? {
        for (value, code) in out.iter_mut().zip(codes) {
            let product = f32::from(code) * scale;
            *value = if kind == BlockType::Q4_1 { product + offset } else { product };
        }
        return Ok(());
    }
    match kind {
        BlockType::Q4_0 | BlockType::Q4_1 | BlockType::Q8_0 => {}
        BlockType::Q5_0 | BlockType::Q5_1 => q5(kind, block, out),
        BlockType::Q2K => q2_k(block, out),
        BlockType::Q3K => q3_k(block, out),
        BlockType::Q4K | BlockType::Q5K => q4_k_or_q5_k(kind, block, out),
        BlockType::Q6K => q6_k(block, out),
    }
    Ok(())
}

fn check(kind: BlockType, block: &[u8]) -> Result<(), BadScale> {
    for &byte in kind.halves() {
        let value = half_at(block, byte);
        if !value.is_finite() {
            return Err(BadScale { byte, value });
        }
    }
    Ok(())
}

/// The codes, scale and offset of a block; `None` for a format that has other parts. Either way its scales are numbers.
pub(in crate::checkpoint) fn codes(kind: BlockType, block: &[u8]) -> Result<Option<CodeBlock>, BadScale> {
    check(kind, block)?;
    let (head, base) = match kind {
        BlockType::Q4_0 => (2, 8),
        BlockType::Q4_1 => (4, 0),
        BlockType::Q8_0 => (2, 0),
        _ => return Ok(None),
    };
    let scale = half_at(block, 0);
    let offset = if kind == BlockType::Q4_1 { half_at(block, 2) } else { 0.0 };
    let bytes = from(block, head);
    let mut codes = [0; 32];
    if kind == BlockType::Q8_0 {
        for (code, byte) in codes.iter_mut().zip(bytes) {
            *code = byte.cast_signed();
        }
    } else {
        let (low, high) = codes.split_at_mut(16);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
            *low = (byte & 15).cast_signed() - base;
            *high = (byte >> 4).cast_signed() - base;
        }
    }
    Ok(Some(CodeBlock { codes, scale, offset }))
}

fn half_at(block: &[u8], at: usize) -> f32 {
    block.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(f32::NAN, |bytes| f16::from_le_bytes(*bytes).to_f32())
}

/// `block` from byte `at` on; empty past its end.
fn from(block: &[u8], at: usize) -> &[u8] {
    block.get(at..).unwrap_or_default()
}

fn q5(kind: BlockType, block: &[u8], out: &mut [f32; LONGEST]) {
    let with_offset = kind == BlockType::Q5_1;
    let head = if with_offset { 4 } else { 2 };
    let scale = half_at(block, 0);
    let offset = if with_offset { half_at(block, 2) } else { 0.0 };
    let fifth = from(block, head).first_chunk().map_or(0, |bits| u32::from_le_bytes(*bits));
    let value = |code: u8| if with_offset { f32::from(code) * scale + offset } else { (f32::from(code) - 16.0) * scale };
    let (low, high) = out.split_at_mut(16);
    for (((i, low), high), byte) in (0..).zip(low).zip(high).zip(from(block, head + 4)) {
        *low = value(byte & 15 | ((fifth >> i & 1) << 4) as u8);
        *high = value(byte >> 4 | ((fifth >> (i + 16) & 1) << 4) as u8);
    }
}

fn q2_k(block: &[u8], out: &mut [f32; LONGEST]) {
    let (scale, offset) = (half_at(block, 80), half_at(block, 82));
    for ((run, part), packed) in (0..).zip(out.as_chunks_mut::<16>().0).zip(block) {
        let (scale, offset) = (scale * f32::from(packed & 15), offset * f32::from(packed >> 4));
        for (value, byte) in part.iter_mut().zip(from(block, 16 + two_bit_run(run))) {
            *value = scale * f32::from(byte >> two_bit_shift(run) & 3) - offset;
        }
    }
}

/// Where the bytes of a run of 16 two-bit codes begin: 32 bytes hold 128 elements, 32 in each pair of bits.
fn two_bit_run(run: usize) -> usize {
    32 * (run / 8) + 16 * (run % 2)
}

fn two_bit_shift(run: usize) -> usize {
    2 * (run % 8 / 2)
}

fn q3_k(block: &[u8], out: &mut [f32; LONGEST]) {
    let scale = half_at(block, 108);
    let packed = from(block, 96);
    let byte_of = |at: usize| packed.get(at).copied().unwrap_or_default();
    for (run, part) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let low = byte_of(run % 8) >> (4 * (run / 8)) & 15;
        let high = byte_of(8 + run % 4) >> (2 * (run / 4)) & 3;
        let scale = scale * (f32::from(low | high << 4) - 32.0);
        let bytes = from(block, 32 + two_bit_run(run)).iter().zip(from(block, 16 * (run % 2)));
        for (value, (byte, high)) in part.iter_mut().zip(bytes) {
            let code = byte >> two_bit_shift(run) & 3 | (high >> (run / 2) & 1) << 2;
            *value = scale * (f32::from(code) - 4.0);
        }
    }
}

fn q4_k_or_q5_k(kind: BlockType, block: &[u8], out: &mut [f32; LONGEST]) {
    let (scale, offset) = (half_at(block, 0), half_at(block, 2));
    let packed = from(block, 4);
    let byte_of = |at: usize| packed.get(at).copied().unwrap_or_default();
    let (fifth, codes) = if kind == BlockType::Q5K { (from(block, 16), from(block, 48)) } else { (&[][..], from(block, 16)) };
    for (run, part) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (multiplier, less) = if run < 4 {
            (byte_of(run) & 63, byte_of(run + 4) & 63)
        } else {
            let low = byte_of(run + 4);
            (low & 15 | byte_of(run - 4) >> 6 << 4, low >> 4 | byte_of(run) >> 6 << 4)
        };
        let (scale, offset) = (scale * f32::from(multiplier), offset * f32::from(less));
        for (i, (value, byte)) in part.iter_mut().zip(from(codes, 32 * (run / 2))).enumerate() {
            let bit = fifth.get(i).map_or(0, |bits| bits >> run & 1);
            let code = byte >> (4 * (run % 2)) & 15 | bit << 4;
            *value = scale * f32::from(code) - offset;
        }
    }
}

fn q6_k(block: &[u8], out: &mut [f32; LONGEST]) {
    let scale = half_at(block, 208);
    for (run, part) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let multiplier = from(block, 192 + run).first().copied().unwrap_or_default().cast_signed();
        let scale = scale * f32::from(multiplier);
        // 128 elements have 64 bytes of low bits, in which the high halves hold the second 64, and 32 bytes of high bits.
        let (half, quarter, place) = (run / 8, run % 8 / 2, 16 * (run % 2));
        let low = from(block, 64 * half + 32 * (quarter % 2) + place);
        let high = from(block, 128 + 32 * half + place);
        for (value, (low, high)) in part.iter_mut().zip(low.iter().zip(high)) {
            let code = low >> (4 * (quarter / 2)) & 15 | (high >> (2 * quarter) & 3) << 4;
            *value = scale * (f32::from(code) - 32.0);
        }
    }
}
