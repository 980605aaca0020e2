//! Figures of a run and of tensors, in words and in JSON.

use super::output::{bytes, float, grouped, table};
use dmexp_format::{DType, Dims, host};
use serde_json::{Value, json};
use std::fmt;

/// How fast tokens went by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    pub(crate) tokens: u64,
    pub(crate) seconds: f64,
}

impl Pace {
    /// Tokens a second; none of a single token, which is no rate.
    pub(crate) fn rate(self) -> Option<f64> {
        (self.tokens > 1 && self.seconds > 0.0).then(|| self.tokens as f64 / self.seconds)
    }

    pub(crate) fn json(self) -> Value {
        json!({ "tokens": self.tokens, "seconds": self.seconds, "tokens_per_s": self.rate() })
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate() {
            Some(rate) if rate >= 100.0 => write!(f, "{rate:.0} tokens/s ({} tokens)", self.tokens),
            Some(rate) => write!(f, "{rate:.2} tokens/s ({} tokens)", self.tokens),
            None => write!(f, "n/a ({} token{})", self.tokens, if self.tokens == 1 { "" } else { "s" }),
        }
    }
}

/// A tensor as commands list it.
#[derive(Clone, Debug)]
pub(crate) struct TensorLine {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) dims: Dims,
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
    /// Of the values as stored; `None` for types that hold no weights.
    pub(crate) figures: Option<host::Figures>,
    /// How many values narrowing made 0; `None` where nobody recorded it for each tensor.
    pub(crate) flushed: Option<u64>,
}

impl TensorLine {
    pub(crate) fn json(&self) -> Value {
        json!({
            "name": self.name,
            "dtype": self.dtype.name(),
            "dims": self.dims.as_slice(),
            "bytes": self.bytes,
            "offset": self.offset,
            "max_abs": self.figures.map(|f| float(f.max_abs)),
            "min_nonzero_abs": self.figures.map(|f| float(f.min_nonzero_abs)),
            "subnormal": self.figures.map(|f| f.subnormal),
            "flushed": self.flushed,
        })
    }
}

impl From<&host::TensorEntry> for TensorLine {
    fn from(entry: &host::TensorEntry) -> Self {
        Self {
            name: entry.spec.name.clone(),
            dtype: entry.spec.dtype,
            dims: entry.spec.dims,
            bytes: entry.bytes(),
            offset: entry.offset,
            figures: entry.figures,
            flushed: entry.figures.map(|figures| figures.flushed),
        }
    }
}

/// The tensors, one a row.
pub(crate) fn tensor_table(tensors: &[TensorLine]) -> String {
    let header = ["tensor", "dims", "dtype", "bytes", "max_abs", "min_nonzero_abs", "subnormal", "flushed"];
    let rows = tensors.iter().map(|tensor| {
        let dims: Vec<String> = tensor.dims.as_slice().iter().map(u32::to_string).collect();
        let figure = |pick: fn(&host::Figures) -> String| tensor.figures.as_ref().map_or_else(|| "-".to_owned(), pick);
        [
            super::output::shown(&tensor.name),
            dims.join(" x "),
            tensor.dtype.name().to_owned(),
            grouped(tensor.bytes),
            figure(|f| magnitude(f.max_abs)),
            figure(|f| magnitude(f.min_nonzero_abs)),
            figure(|f| grouped(f.subnormal)),
            tensor.flushed.map_or_else(|| "-".to_owned(), grouped),
        ]
    });
    table(header, &[3, 4, 5, 6, 7], rows)
}

/// A magnitude: the digits that say it exactly, with an exponent where it is far from 1.
pub(crate) fn magnitude(number: f32) -> String {
    if number == 0.0 || (1e-3..1e6).contains(&number) { number.to_string() } else { format!("{number:e}") }
}

/// How many tensors there are of each type, and their bytes.
pub(crate) fn by_dtype(tensors: &[TensorLine]) -> String {
    let mut kinds: Vec<(DType, u64, u64)> = Vec::new();
    for tensor in tensors {
        match kinds.iter_mut().find(|(dtype, ..)| *dtype == tensor.dtype) {
            Some((_, number, sum)) => (*number, *sum) = (*number + 1, *sum + tensor.bytes),
            None => kinds.push((tensor.dtype, 1, tensor.bytes)),
        }
    }
    let kinds: Vec<String> = kinds.iter().map(|(dtype, number, sum)| format!("{number} in {dtype}, {}", bytes(*sum))).collect();
    kinds.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_one_token_or_no_time_is_none() {
        assert_eq!(Pace { tokens: 0, seconds: 0.0 }.to_string(), "n/a (0 tokens)");
        assert_eq!(Pace { tokens: 1, seconds: 0.5 }.to_string(), "n/a (1 token)");
        assert_eq!(Pace { tokens: 9, seconds: 0.0 }.rate(), None);
        assert_eq!(Pace { tokens: 10, seconds: 0.5 }.to_string(), "20.00 tokens/s (10 tokens)");
        assert_eq!(Pace { tokens: 1000, seconds: 0.5 }.to_string(), "2000 tokens/s (1000 tokens)");
    }

    #[test]
    fn magnitudes_keep_their_digits() {
        assert_eq!(magnitude(0.0), "0");
        assert_eq!(magnitude(2.265_625), "2.265625");
        assert_eq!(magnitude(1e-7), "1e-7");
        assert_eq!(magnitude(f32::MAX), "3.4028235e38");
    }
}
