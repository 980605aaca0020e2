//! Keys and values of past positions in the caller's memory. Called by the models: rows are stored once a layer and step, then read by `attention`.

pub use super::kv_integer::IntegerRows;
use crate::format::{Error, KvDType};
use core::ops::Range;

/// The keys or the values of one layer, position after position, as they are stored.
#[derive(Clone, Copy, Debug)]
pub enum KvRows<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half-precision bit patterns.
    F16(&'a [u16]),
    /// Signed bytes, with a half-precision scale a head.
    Q8(IntegerRows<'a>),
}

/// Whether the build has what it takes to keep keys and values as `dtype`.
pub(crate) const fn is_built(dtype: KvDType) -> bool {
    matches!(dtype, KvDType::F32) && cfg!(feature = "kv-f32")
        || matches!(dtype, KvDType::F16) && cfg!(feature = "kv-f16")
        || matches!(dtype, KvDType::Q8) && cfg!(feature = "kv-q8")
}

/// One of the heads in a row of keys or values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvHead {
    pub(crate) n_kv_heads: usize,
    pub(crate) head: usize,
    pub(crate) head_dim: usize,
}

impl KvHead {
    /// Elements from one row to the next. `attention` compared all heads together with a slice, so neither this product nor the next is too large.
    pub(crate) fn stride(self) -> usize {
        self.n_kv_heads.wrapping_mul(self.head_dim)
    }

    /// Elements before the head in a row.
    pub(crate) fn offset(self) -> usize {
        self.head.wrapping_mul(self.head_dim)
    }
}

/// Keys and values of all layers: layer x (key, value) x position x `kv_dim`; behind them, in q8, the scales, layer x (key, value) x position x `n_kv_heads`.
#[derive(Debug)]
pub struct KvCache<'a> {
    words: &'a mut [u32],
    dtype: KvDType,
    n_layers: usize,
    context: usize,
    n_kv_heads: usize,
    head_dim: usize,
    /// Bytes before the scales.
    code_bytes: usize,
}

impl<'a> KvCache<'a> {
    /// A cache in `words` for `n_layers` layers of `context` positions of `n_kv_heads` heads of `head_dim` elements.
    ///
    /// # Errors
    /// [`Error::ArenaTooSmall`] if `words` does not hold them; [`Error::KvNotBuilt`] where the cargo feature for the type was left out.
    pub fn new(
        words: &'a mut [u32],
        dtype: KvDType,
        n_layers: usize,
        context: usize,
        (n_kv_heads, head_dim): (usize, usize),
    ) -> Result<Self, Error> {
        if !is_built(dtype) {
            return Err(Error::KvNotBuilt { kv: dtype });
        }
        let heads = (n_layers as u64).saturating_mul(2).saturating_mul(context as u64).saturating_mul(n_kv_heads as u64);
        let code_bytes = heads.saturating_mul(head_dim as u64).saturating_mul(dtype.size());
        let code_bytes = code_bytes.saturating_add(code_bytes.wrapping_neg() & 3);
        let needed = code_bytes.saturating_add(heads.saturating_mul(dtype.scale_size()));
        let found = (words.len() as u64).saturating_mul(4);
        if needed > found {
            return Err(Error::ArenaTooSmall { needed, found });
        }
        Ok(Self::from_parts(words, dtype, code_bytes as usize, n_layers, context, (n_kv_heads, head_dim)))
    }

    /// A cache in `words` as large as a layout says: the codes take `code_bytes`.
    pub(crate) fn from_parts(
        words: &'a mut [u32],
        dtype: KvDType,
        code_bytes: usize,
        n_layers: usize,
        context: usize,
        (n_kv_heads, head_dim): (usize, usize),
    ) -> Self {
        Self { words, dtype, n_layers, context, n_kv_heads, head_dim, code_bytes }
    }

    /// The memory for positions from `used` on, in one piece: the rows before `used` lie packed in front of it until [`KvCache::take_back`] puts them where they belong. Nothing is to be
    /// read or stored in between.
    pub fn lend_unused(&mut self, used: usize) -> &mut [u32] {
        self.pack(used, true)
    }

    /// Puts the rows before `used` where they were before [`KvCache::lend_unused`] of as many.
    pub fn take_back(&mut self, used: usize) {
        self.pack(used, false);
    }

    /// Moves the rows before `used` to the front, or from there to where they belong, and returns what lies behind them when they are at the front.
    #[inline(never)]
    fn pack(&mut self, used: usize, to_front: bool) -> &mut [u32] {
        let row = self.kv_dim().wrapping_mul(self.dtype.size() as usize);
        let (used, unused) = (used.wrapping_mul(row), self.context.saturating_sub(used).wrapping_mul(row));
        let planes = self.n_layers.wrapping_mul(2);
        let total = planes.wrapping_mul(used);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(self.words);
        // In the order in which no byte is written over before it was moved.
        for n in 0..total {
            let packed = if to_front { n } else { total - 1 - n };
            let placed = packed.wrapping_add((packed / used.max(1)).wrapping_mul(unused));
            let (from, to) = if to_front { (placed, packed) } else { (packed, placed) };
            if let Some(&byte) = bytes.get(from)
                && let Some(place) = bytes.get_mut(to)
            {
                *place = byte;
            }
        }
        self.words.get_mut(total.div_ceil(size_of::<u32>())..self.code_bytes / size_of::<u32>()).unwrap_or(&mut [])
    }

    /// Stores one position of a layer: `key` and `value` have `kv_dim` elements, narrowed to nearest even. A layer or position that the cache does not have
    /// is left alone.
    pub fn store(&mut self, layer: usize, position: usize, key: &[f32], value: &[f32]) {
        if layer < self.n_layers && position < self.context {
            self.store_row(self.row(layer, 0).wrapping_add(position), key);
            self.store_row(self.row(layer, 1).wrapping_add(position), value);
        }
    }

    /// The keys of a layer: position x `kv_dim`; empty for a layer that the cache does not have.
    pub fn keys(&self, layer: usize) -> KvRows<'_> {
        self.rows(layer, 0)
    }

    /// The values of a layer: position x `kv_dim`; empty for a layer that the cache does not have.
    pub fn values(&self, layer: usize) -> KvRows<'_> {
        self.rows(layer, 1)
    }

    /// The number of the first row of a layer's keys (0) or values (1). All rows that there are fit the memory, so no product of theirs wraps.
    fn row(&self, layer: usize, which: usize) -> usize {
        layer.wrapping_mul(2).wrapping_add(which).wrapping_mul(self.context)
    }

    /// Where `count` rows from number `first` on lie, of `len` elements each.
    fn places(first: usize, count: usize, len: usize) -> Range<usize> {
        let start = first.wrapping_mul(len);
        start..start.wrapping_add(count.wrapping_mul(len))
    }

    fn kv_dim(&self) -> usize {
        self.n_kv_heads.wrapping_mul(self.head_dim)
    }

    fn rows(&self, layer: usize, which: usize) -> KvRows<'_> {
        let (first, count) = if layer < self.n_layers { (self.row(layer, which), self.context) } else { (0, 0) };
        let elements = Self::places(first, count, self.kv_dim());
        match self.dtype {
            KvDType::F16 if is_built(KvDType::F16) => KvRows::F16(bytemuck::cast_slice(self.words).get(elements).unwrap_or(&[])),
            KvDType::Q8 if is_built(KvDType::Q8) => {
                let (codes, scales) = bytemuck::cast_slice(self.words).split_at_checked(self.code_bytes).unwrap_or_default();
                let codes = bytemuck::cast_slice::<u8, i8>(codes).get(elements).unwrap_or(&[]);
                let scales = bytemuck::try_cast_slice::<u8, u16>(scales).unwrap_or(&[]);
                KvRows::Q8(IntegerRows { codes, scales: scales.get(Self::places(first, count, self.n_kv_heads)).unwrap_or(&[]) })
            }
            _ if is_built(KvDType::F32) => KvRows::F32(bytemuck::cast_slice(self.words).get(elements).unwrap_or(&[])),
            _ => KvRows::F32(&[]),
        }
    }

    fn store_row(&mut self, number: usize, row: &[f32]) {
        let elements = Self::places(number, 1, self.kv_dim());
        match self.dtype {
            KvDType::F16 if is_built(KvDType::F16) => {
                super::chip::narrow_f16(bytemuck::cast_slice_mut(self.words).get_mut(elements).unwrap_or(&mut []), row);
            }
            KvDType::Q8 if is_built(KvDType::Q8) => {
                let (codes, scales) = bytemuck::cast_slice_mut(self.words).split_at_mut_checked(self.code_bytes).unwrap_or_default();
                let codes = bytemuck::cast_slice_mut::<u8, i8>(codes).get_mut(elements).unwrap_or(&mut []);
                let scales = bytemuck::try_cast_slice_mut::<u8, u16>(scales).unwrap_or(&mut []);
                let scales = scales.get_mut(Self::places(number, 1, self.n_kv_heads)).unwrap_or(&mut []);
                super::kv_integer::store(codes, scales, row, self.head_dim);
            }
            _ if is_built(KvDType::F32) => {
                let all: &mut [f32] = bytemuck::cast_slice_mut(self.words);
                for (to, from) in all.get_mut(elements).unwrap_or(&mut []).iter_mut().zip(row) {
                    *to = *from;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::test_rng::Rng;

    fn read(rows: KvRows<'_>) -> Vec<f32> {
        match rows {
            KvRows::F32(rows) => rows.to_vec(),
            KvRows::F16(rows) => rows.iter().map(|h| half::f16::from_bits(*h).to_f32()).collect(),
            KvRows::Q8(IntegerRows { codes, scales }) => {
                let scale = |i: usize| half::f16::from_bits(scales[i / (codes.len() / scales.len())]).to_f32();
                codes.iter().enumerate().map(|(i, code)| f32::from(*code) * scale(i)).collect()
            }
        }
    }

    /// What reading gives back of a stored row of heads 3 wide.
    fn kept(dtype: KvDType, row: &[f32]) -> Vec<f32> {
        let half = |x: f32| half::f16::from_f32(x).to_f32();
        match dtype {
            KvDType::F32 => row.to_vec(),
            KvDType::F16 => row.iter().map(|x| half(*x)).collect(),
            KvDType::Q8 => row
                .chunks(3)
                .flat_map(|head| {
                    let scale = half(head.iter().fold(0f32, |a, x| a.max(x.abs())) / 127.0);
                    let code = move |x: &f32| (x * (1.0 / scale)).round_ties_even().clamp(-127.0, 127.0);
                    head.iter().map(move |x| if scale == 0.0 { 0.0 } else { code(x) * scale }).collect::<Vec<_>>()
                })
                .collect(),
            _ => unreachable!(),
        }
    }

    #[test]
    fn what_is_stored_is_read_back_where_it_belongs() {
        for dtype in [KvDType::F32, KvDType::F16, KvDType::Q8] {
            let (layers, context, kv_dim) = (3, 5, 6);
            let bytes = layers * 2 * context * (kv_dim * dtype.size() as usize + 2 * dtype.scale_size() as usize);
            let mut words = vec![0u32; bytes.div_ceil(4)];
            let mut cache = KvCache::new(&mut words, dtype, layers, context, (2, 3)).unwrap();
            let mut rng = Rng::new(5);
            let mut expected = vec![vec![0.0; context * kv_dim]; layers * 2];
            for layer in 0..layers {
                for position in 0..context {
                    let (key, mut value) = (rng.floats(kv_dim), rng.floats(kv_dim));
                    let small = if position == 2 { 0.0 } else { value[1] * 1e-7 };
                    value[..3].fill(small);
                    cache.store(layer, position, &key, &value);
                    for (table, row) in [(2 * layer, key), (2 * layer + 1, value)] {
                        expected[table][position * kv_dim..][..kv_dim].copy_from_slice(&kept(dtype, &row));
                    }
                }
            }
            cache.store(0, context, &[9.0; 6], &[9.0; 6]);
            cache.store(layers, 0, &[9.0; 6], &[9.0; 6]);
            cache.store(usize::MAX, 0, &[9.0; 6], &[9.0; 6]);
            for layer in 0..layers {
                assert_eq!(read(cache.keys(layer)), expected[2 * layer]);
                assert_eq!(read(cache.values(layer)), expected[2 * layer + 1]);
            }
            assert!(read(cache.keys(layers)).is_empty() && read(cache.values(usize::MAX)).is_empty());
        }
    }

    #[test]
    fn unused_positions_are_lent_in_one_piece_and_the_used_ones_come_back() {
        for dtype in [KvDType::F32, KvDType::F16, KvDType::Q8] {
            let (layers, context) = (3, 7);
            let row = 6 * dtype.size() as usize;
            let bytes = (layers * 2 * context * row).next_multiple_of(4) + layers * 2 * context * 2 * dtype.scale_size() as usize;
            for used in 0..=context {
                let mut words = vec![0u32; bytes.div_ceil(4)];
                let mut cache = KvCache::new(&mut words, dtype, layers, context, (2, 3)).unwrap();
                let mut rng = Rng::new(used as u64);
                for layer in 0..layers {
                    for position in 0..used {
                        cache.store(layer, position, &rng.floats(6), &rng.floats(6));
                    }
                }
                let before: Vec<_> = (0..layers).flat_map(|layer| [read(cache.keys(layer)), read(cache.values(layer))]).collect();
                let unused = cache.lend_unused(used);
                unused.fill(u32::MAX);
                let lent = unused.len();
                cache.take_back(used);
                // All of it, but for what fills no word.
                assert!(lent * 4 <= layers * 2 * (context - used) * row + 3);
                assert!(lent * 4 + 3 >= layers * 2 * (context - used) * row, "{dtype:?} {used}: {lent}");
                let after = (0..layers).flat_map(|layer| [read(cache.keys(layer)), read(cache.values(layer))]);
                for (before, after) in before.iter().zip(after) {
                    assert_eq!(before[..used * 6], after[..used * 6], "{dtype:?} {used}");
                }
            }
        }
    }

    #[test]
    fn too_little_memory_is_refused_with_both_figures() {
        let mut words = [0u32; 11];
        let error = KvCache::new(&mut words, KvDType::F16, 1, 3, (1, 4)).map(|_| ());
        assert_eq!(error, Err(Error::ArenaTooSmall { needed: 48, found: 44 }));
        let error = KvCache::new(&mut words, KvDType::Q8, 1, 3, (2, 3)).map(|_| ());
        assert_eq!(error, Err(Error::ArenaTooSmall { needed: 36 + 24, found: 44 }));
        assert!(KvCache::new(&mut words, KvDType::F32, usize::MAX, usize::MAX, (usize::MAX, usize::MAX)).is_err());
    }
}
