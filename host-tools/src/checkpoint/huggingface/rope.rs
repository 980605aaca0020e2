//! `rope_theta` and `rope_scaling` of config.json to rotation frequencies, as the transformers library computes them (`modeling_rope_utils.py`), in f64 and rounded to f32 once.

use crate::checkpoint::json::{Keys, shown};
use crate::checkpoint::rope::frequency;
use crate::error::{Error, Result};
use dmexp_format::host::Scalar;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// What rotates.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rope {
    /// The base; for people.
    pub(super) theta: f64,
    /// Whether config.json states the base.
    pub(super) theta_stated: bool,
    /// One frequency a pair.
    pub(super) inv_freq: Vec<f32>,
    /// Multiplies sines and cosines.
    pub(super) attention_factor: f32,
    /// As it stands in config.json; for people.
    pub(super) scaling: BTreeMap<String, Scalar>,
}

/// The base that the transformers library takes for Llama, Mistral and Qwen2 where none is stated.
const DEFAULT_THETA: f64 = 10_000.0;

/// Reads the keys `rope_theta`, `rope_scaling` and `rope_parameters`.
///
/// # Errors
/// [`Class::Damaged`](crate::error::Class::Damaged) for values that cannot be, [`Class::NotAModel`](crate::error::Class::NotAModel) for a kind of scaling that is not one of `default`, `linear`,
/// `dynamic`, `llama3` and `yarn`, or a key of it that is not known.
pub(super) fn read(config: &Map<String, Value>, head_dim: u32, positions: u32) -> Result<Rope> {
    let top = Keys::new(config, "");
    let (name, table) = match (non_empty(&top, "rope_scaling")?, non_empty(&top, "rope_parameters")?) {
        (Some(_), Some(_)) => {
            return Err(
                Error::damaged("has both rope_scaling and rope_parameters").advise("take out the one that the model was not trained with")
            );
        }
        (Some(table), None) => ("rope_scaling.", Some(table)),
        (None, Some(table)) => ("rope_parameters.", Some(table)),
        (None, None) => ("", None),
    };
    let empty = Map::new();
    let keys = Keys::new(table.unwrap_or(&empty), name);
    let inner = keys.f64("rope_theta")?;
    let stated = match (top.f64("rope_theta")?, inner) {
        (Some(outer), Some(inner)) if outer != inner => {
            return Err(Error::damaged(format!("rope_theta is {outer}, but {name}rope_theta is {inner}")));
        }
        (outer, inner) => inner.or(outer),
    };
    let theta = stated.unwrap_or(DEFAULT_THETA);
    if theta <= 1.0 {
        return Err(Error::damaged(format!("rope_theta is {theta}; it can be a number above 1")));
    }
    let plain: Vec<f64> = (0..head_dim / 2).map(|pair| frequency(theta, head_dim, pair)).collect();
    let scaling = Scaling { keys, top, theta, head_dim, positions };
    let (frequencies, attention_factor) = scaling.apply(table, plain)?;
    let scaling = table.map(|table| table.iter().filter_map(|(key, value)| Some((key.clone(), scalar(value)?))).collect());
    Ok(Rope {
        theta,
        theta_stated: stated.is_some(),
        inv_freq: frequencies.into_iter().map(|frequency| frequency as f32).collect(),
        attention_factor: attention_factor as f32,
        scaling: scaling.unwrap_or_default(),
    })
}

fn non_empty<'v>(keys: &Keys<'v>, key: &str) -> Result<Option<&'v Map<String, Value>>> {
    Ok(keys.object(key)?.filter(|table| !table.is_empty()))
}

fn scalar(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::Bool(value) => Scalar::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => Scalar::Integer(number),
            None => Scalar::Float(number.as_f64()?),
        },
        Value::String(text) => Scalar::Text(text.clone()),
        Value::Array(list) => Scalar::List(list.iter().filter_map(scalar).collect()),
        Value::Null | Value::Object(_) => return None,
    })
}

struct Scaling<'v> {
    keys: Keys<'v>,
    top: Keys<'v>,
    theta: f64,
    head_dim: u32,
    positions: u32,
}

impl Scaling<'_> {
    /// Frequencies and attention factor.
    fn apply(&self, table: Option<&Map<String, Value>>, plain: Vec<f64>) -> Result<(Vec<f64>, f64)> {
        let Some(table) = table else { return Ok((plain, 1.0)) };
        let kind = match (self.keys.text("rope_type")?, self.keys.text("type")?) {
            (Some(a), Some(b)) if a != b => {
                return Err(Error::damaged(format!("the scaling of the rotation has the types {a:?} and {b:?}")));
            }
            (Some(kind), _) | (None, Some(kind)) => kind,
            (None, None) if self.keys.value("factor").is_none() => "default",
            (None, None) => return Err(Error::damaged("the scaling of the rotation has no rope_type")),
        };
        let allowed: &[&str] = match kind {
            "default" => &[],
            "linear" => &["factor"],
            "dynamic" => &["factor", "original_max_position_embeddings"],
            "llama3" => &["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"],
            "yarn" => &[
                "factor",
                "original_max_position_embeddings",
                "attention_factor",
                "beta_fast",
                "beta_slow",
                "mscale",
                "mscale_all_dim",
                "truncate",
            ],
            other => {
                let what = format!("the rotation is scaled by {other:?}; this version has linear, dynamic, llama3 and yarn");
                return Err(Error::not_a_model(what));
            }
        };
        for (key, value) in table {
            let whole = key == "partial_rotary_factor" && value.as_f64() == Some(1.0);
            if !["type", "rope_type", "rope_theta"].contains(&key.as_str())
                && !allowed.contains(&key.as_str())
                && !whole
                && !value.is_null()
            {
                let what =
                    format!("the scaling of the rotation, {kind}, has a key that this version does not know: {key} is {}", shown(value));
                return Err(Error::not_a_model(what));
            }
        }
        match kind {
            "linear" => {
                let factor = self.factor()?;
                Ok((plain.into_iter().map(|frequency| frequency / factor).collect(), 1.0))
            }
            "dynamic" => {
                self.factor()?;
                // Up to the positions that the model was trained for the formula leaves theta as it is; beyond them no context goes.
                match self.original()? {
                    Some(original) if original != self.positions => {
                        let what = format!(
                            "dynamic scaling from {original} positions to {}: the frequencies change as the text grows, which this version does not do",
                            self.positions
                        );
                        Err(Error::not_a_model(what))
                    }
                    _ => Ok((plain, 1.0)),
                }
            }
            "llama3" => self.llama3(plain),
            "yarn" => self.yarn(&plain),
            _ => Ok((plain, 1.0)),
        }
    }

    fn positive(&self, key: &str) -> Result<Option<f64>> {
        match self.keys.f64(key)? {
            Some(number) if number <= 0.0 => {
                Err(Error::damaged(format!("{key} of the scaling of the rotation is {number}; it can be a number above 0")))
            }
            number => Ok(number),
        }
    }

    fn factor(&self) -> Result<f64> {
        let factor = self.keys.required("factor", self.keys.f64("factor")?)?;
        if factor < 1.0 {
            return Err(Error::damaged(format!("factor of the scaling of the rotation is {factor}; it can be a number from 1 on")));
        }
        Ok(factor)
    }

    /// The positions before scaling, where they are stated.
    fn original(&self) -> Result<Option<u32>> {
        const KEY: &str = "original_max_position_embeddings";
        match (self.keys.u32(KEY)?, self.top.u32(KEY)?) {
            (Some(a), Some(b)) if a != b => Err(Error::damaged(format!("{KEY} is {b}, but {a} in the scaling of the rotation"))),
            (Some(0), _) | (_, Some(0)) => Err(Error::damaged(format!("{KEY} is 0"))),
            (a, b) => Ok(a.or(b)),
        }
    }

    fn llama3(&self, plain: Vec<f64>) -> Result<(Vec<f64>, f64)> {
        let factor = self.factor()?;
        let low = self.keys.required("low_freq_factor", self.positive("low_freq_factor")?)?;
        let high = self.keys.required("high_freq_factor", self.positive("high_freq_factor")?)?;
        let original = f64::from(self.keys.required("original_max_position_embeddings", self.original()?)?);
        if high <= low {
            return Err(Error::damaged(format!("high_freq_factor is {high}; it can be a number above low_freq_factor, {low}")));
        }
        let scaled = plain.into_iter().map(|frequency| {
            let wavelength = 2.0 * PI / frequency;
            if wavelength > original / low {
                frequency / factor
            } else if wavelength < original / high {
                frequency
            } else {
                let smooth = (original / wavelength - low) / (high - low);
                (1.0 - smooth) * frequency / factor + smooth * frequency
            }
        });
        Ok((scaled.collect(), 1.0))
    }

    fn yarn(&self, plain: &[f64]) -> Result<(Vec<f64>, f64)> {
        let factor = self.factor()?;
        let original = match self.original()? {
            // Versions of the library disagree on which of the two numbers counts, so they have to say the same.
            Some(original) if f64::from(original) * factor != f64::from(self.positions) => {
                let what = format!(
                    "yarn by {factor} from {original} positions gives {}, but max_position_embeddings is {}",
                    f64::from(original) * factor,
                    self.positions
                );
                return Err(Error::mismatch(what).advise("make max_position_embeddings the product of the two"));
            }
            Some(original) => f64::from(original),
            None => f64::from(self.positions),
        };
        let mscale = |scale: f64, by: f64| if scale <= 1.0 { 1.0 } else { 0.1 * by * libm::log(scale) + 1.0 };
        let attention_factor = match (self.positive("attention_factor")?, self.keys.f64("mscale")?, self.keys.f64("mscale_all_dim")?) {
            (Some(stated), ..) => stated,
            // Python's truth: 0 counts as not stated.
            (None, Some(one), Some(all)) if one != 0.0 && all != 0.0 => mscale(factor, one) / mscale(factor, all),
            _ => mscale(factor, 1.0),
        };
        let fast = self.positive("beta_fast")?.unwrap_or(32.0);
        let slow = self.positive("beta_slow")?.unwrap_or(1.0);
        if fast < slow {
            return Err(Error::damaged(format!("beta_fast is {fast}; it can be a number from beta_slow, {slow}, on")));
        }
        let dim = f64::from(self.head_dim);
        let turns = |rotations: f64| dim * libm::log(original / (rotations * 2.0 * PI)) / (2.0 * libm::log(self.theta));
        let (mut low, mut high) = (turns(fast), turns(slow));
        if self.keys.bool("truncate")?.unwrap_or(true) {
            (low, high) = (libm::floor(low), libm::ceil(high));
        }
        (low, high) = (low.max(0.0), high.min(dim - 1.0));
        if low == high {
            high += 0.001;
        }
        let mixed = (0u32..).zip(plain).map(|(pair, frequency)| {
            let kept = 1.0 - ((f64::from(pair) - low) / (high - low)).clamp(0.0, 1.0);
            frequency / factor * (1.0 - kept) + frequency * kept
        });
        Ok((mixed.collect(), attention_factor))
    }
}
