//! The arguments of a model (llama2.c's `model_args`, Meta's `params.json`): every key is taken by name, and what is left over is refused.

use super::pickle::Pickle;
use super::value::Value;
use crate::checkpoint::json;
use crate::error::{Error, Result};
use dmexp_format::arch::llama::LlamaConfig;
use std::collections::BTreeMap;

/// One argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Arg {
    None,
    Bool(bool),
    Integer(i64),
    Float(f64),
    /// Anything else: what it is.
    Other(String),
}

impl std::fmt::Display for Arg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("nothing"),
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Other(kind) => f.write_str(kind),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Args {
    /// What errors call them.
    source: &'static str,
    values: BTreeMap<String, Arg>,
}

impl Args {
    /// Those of a dict in a pickle.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) for what is no dict, or a key that is there twice.
    pub(super) fn from_pickle(source: &'static str, pickle: &Pickle<'_>, dict: &Value<'_>) -> Result<Self> {
        let Some(entries) = pickle.entries(dict) else {
            return Err(Error::mismatch(format!("{source} is {}, not a dict", dict.kind())));
        };
        let mut values = BTreeMap::new();
        for (key, value) in entries {
            let arg = match value {
                Value::None => Arg::None,
                Value::Bool(value) => Arg::Bool(*value),
                Value::Integer(value) => Arg::Integer(*value),
                Value::Float(value) => Arg::Float(*value),
                other => Arg::Other(other.kind().to_owned()),
            };
            if values.insert(key.to_owned(), arg).is_some() {
                return Err(Error::mismatch(format!("{source} has the key {key:?} twice")));
            }
        }
        Ok(Self { source, values })
    }

    /// Those of a JSON object.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged) for what is no JSON object.
    pub(super) fn from_json(source: &'static str, bytes: &[u8]) -> Result<Self> {
        let object = json::object(bytes)?;
        let arg = |value: serde_json::Value| match value {
            serde_json::Value::Null => Arg::None,
            serde_json::Value::Bool(value) => Arg::Bool(value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Arg::Integer(integer),
                (None, Some(float)) => Arg::Float(float),
                (None, None) => Arg::Other(number.to_string()),
            },
            serde_json::Value::String(_) => Arg::Other("a string".to_owned()),
            serde_json::Value::Array(_) => Arg::Other("a list".to_owned()),
            serde_json::Value::Object(_) => Arg::Other("an object".to_owned()),
        };
        Ok(Self { source, values: object.into_iter().map(|(key, value)| (key, arg(value))).collect() })
    }

    /// Takes the argument of this key; `None` where it is absent or says nothing.
    pub(super) fn take(&mut self, key: &str) -> Option<Arg> {
        self.values.remove(key).filter(|arg| *arg != Arg::None)
    }

    /// Takes a size: 1 up to the largest that a model can have.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) for any other value.
    pub(super) fn size(&mut self, key: &str) -> Result<Option<u32>> {
        let limit = LlamaConfig::SIZE_LIMIT;
        let Some(arg) = self.take(key) else { return Ok(None) };
        match arg {
            Arg::Integer(value) if (1..=i64::from(limit)).contains(&value) => Ok(Some(value as u32)),
            other => Err(self.wrong(key, &other, &format!("a whole number from 1 to {limit}"))),
        }
    }

    /// Takes a size that must be there.
    ///
    /// # Errors
    /// Those of [`Args::size`], and [`Class::Mismatch`](crate::error::Class::Mismatch) where it is absent.
    pub(super) fn required(&mut self, key: &str) -> Result<u32> {
        self.size(key)?.ok_or_else(|| Error::mismatch(format!("{} has no {key}", self.source)))
    }

    /// Takes a positive, finite number.
    ///
    /// # Errors
    /// [`Class::Mismatch`](crate::error::Class::Mismatch) for any other value.
    pub(super) fn positive(&mut self, key: &str) -> Result<Option<f64>> {
        let Some(arg) = self.take(key) else { return Ok(None) };
        let value = match arg {
            Arg::Integer(value) => value as f64,
            Arg::Float(value) => value,
            _ => f64::NAN,
        };
        if value > 0.0 && value.is_finite() { Ok(Some(value)) } else { Err(self.wrong(key, &arg, "a positive number")) }
    }

    /// The error of a value that cannot be.
    pub(super) fn wrong(&self, key: &str, found: &Arg, allowed: &str) -> Error {
        Error::mismatch(format!("{} says {key} is {found}; it can be {allowed}", self.source))
    }

    /// Refuses what nobody took.
    ///
    /// # Errors
    /// [`Class::NotAModel`](crate::error::Class::NotAModel), naming the first key and its value.
    pub(super) fn refuse_rest(mut self) -> Result<()> {
        self.values.retain(|_, arg| *arg != Arg::None);
        match self.values.first_key_value() {
            Some((key, value)) => Err(Error::not_a_model(format!("{} has the key {key:?} ({value}), which is not known", self.source))
                .advise("it may change what the model computes, so the checkpoint is not read")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_refused() {
        let error = Args::from_json("params.json", br#"{"dim": 64, "norm_eps": 1e-5, "norm_eps": 1e-6}"#).unwrap_err();
        assert!(error.to_string().contains("the key \"norm_eps\" stands twice"), "{error}");
    }
}
