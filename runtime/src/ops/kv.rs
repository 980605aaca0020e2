//! Keys and values of past positions in the caller's memory. Called by the models: rows are stored once a layer and step, then read by `attention`.

use crate::format::{Error, KvDType};

/// The keys or the values of one layer, position after position, as they are stored.
#[derive(Clone, Copy, Debug)]
pub enum KvRows<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half-precision bit patterns.
    F16(&'a [u16]),
}

/// Keys and values of all layers: layer x (key, value) x position x `kv_dim`.
#[derive(Debug)]
pub struct KvCache<'a> {
    words: &'a mut [u32],
    dtype: KvDType,
    context: usize,
    kv_dim: usize,
}

impl<'a> KvCache<'a> {
    /// A cache in `words` for `n_layers` layers of `context` positions of `kv_dim` elements.
    ///
    /// # Errors
    /// [`Error::ArenaTooSmall`] if `words` does not hold them.
    pub fn new(words: &'a mut [u32], dtype: KvDType, n_layers: usize, context: usize, kv_dim: usize) -> Result<Self, Error> {
        let elements = (n_layers as u64).saturating_mul(2).saturating_mul(context as u64).saturating_mul(kv_dim as u64);
        let needed = elements.saturating_mul(dtype.size());
        let found = (words.len() as u64).saturating_mul(4);
        if needed > found {
            return Err(Error::ArenaTooSmall { needed, found });
        }
        Ok(Self { words, dtype, context, kv_dim })
    }

    /// The memory itself: nobody needs it before the first position is stored.
    pub fn words(&mut self) -> &mut [u32] {
        self.words
    }

    /// Stores one position of a layer: `key` and `value` have `kv_dim` elements, narrowed to nearest even. A layer or position that the cache does not have
    /// is left alone.
    pub fn store(&mut self, layer: usize, position: usize, key: &[f32], value: &[f32]) {
        if position < self.context {
            self.store_row(layer.saturating_mul(2), position, key);
            self.store_row(layer.saturating_mul(2).saturating_add(1), position, value);
        }
    }

    /// The keys of a layer: position x `kv_dim`; empty for a layer that the cache does not have.
    pub fn keys(&self, layer: usize) -> KvRows<'_> {
        self.rows(layer.saturating_mul(2))
    }

    /// The values of a layer: position x `kv_dim`; empty for a layer that the cache does not have.
    pub fn values(&self, layer: usize) -> KvRows<'_> {
        self.rows(layer.saturating_mul(2).saturating_add(1))
    }

    /// Where the positions of a table (keys or values of a layer) begin and end, in elements.
    fn table(&self, table: usize) -> (usize, usize) {
        let len = self.context.saturating_mul(self.kv_dim);
        let start = table.saturating_mul(len);
        (start, start.saturating_add(len))
    }

    fn rows(&self, table: usize) -> KvRows<'_> {
        let (start, end) = self.table(table);
        match self.dtype {
            KvDType::F16 => {
                KvRows::F16(bytemuck::try_cast_slice(self.words).ok().and_then(|all: &[u16]| all.get(start..end)).unwrap_or(&[]))
            }
            _ => KvRows::F32(bytemuck::try_cast_slice(self.words).ok().and_then(|all: &[f32]| all.get(start..end)).unwrap_or(&[])),
        }
    }

    fn store_row(&mut self, table: usize, position: usize, row: &[f32]) {
        let start = self.table(table).0.saturating_add(position.saturating_mul(self.kv_dim));
        let end = start.saturating_add(self.kv_dim);
        if self.dtype == KvDType::F16 {
            let Ok(all) = bytemuck::try_cast_slice_mut::<u32, u16>(self.words) else { return };
            super::chip::narrow_f16(all.get_mut(start..end).unwrap_or(&mut []), row);
        } else {
            let Ok(all) = bytemuck::try_cast_slice_mut::<u32, f32>(self.words) else { return };
            for (to, from) in all.get_mut(start..end).unwrap_or(&mut []).iter_mut().zip(row) {
                *to = *from;
            }
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
        }
    }

    #[test]
    fn what_is_stored_is_read_back_where_it_belongs() {
        for dtype in [KvDType::F32, KvDType::F16] {
            let (layers, context, kv_dim) = (3, 5, 6);
            let mut words = vec![0u32; layers * 2 * context * kv_dim * dtype.size() as usize / 4];
            let mut cache = KvCache::new(&mut words, dtype, layers, context, kv_dim).unwrap();
            let mut rng = Rng::new(5);
            let mut expected = vec![vec![0.0; context * kv_dim]; layers * 2];
            for layer in 0..layers {
                for position in 0..context {
                    let (key, value) = (rng.floats(kv_dim), rng.floats(kv_dim));
                    cache.store(layer, position, &key, &value);
                    for (table, row) in [(2 * layer, key), (2 * layer + 1, value)] {
                        for (j, x) in row.iter().enumerate() {
                            expected[table][position * kv_dim + j] =
                                if dtype == KvDType::F32 { *x } else { half::f16::from_f32(*x).to_f32() };
                        }
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
    fn too_little_memory_is_refused_with_both_figures() {
        let mut words = [0u32; 11];
        let error = KvCache::new(&mut words, KvDType::F16, 1, 3, 4).map(|_| ());
        assert_eq!(error, Err(Error::ArenaTooSmall { needed: 48, found: 44 }));
        assert!(KvCache::new(&mut words, KvDType::F32, usize::MAX, usize::MAX, usize::MAX).is_err());
    }
}
