//! The fields of a request, read strictly: a wrong type is refused by the field's name. Fields that are not known are ignored, and null is the same as nothing.

use super::refusal::{Answer, Refusal};
use serde_json::{Map, Value};

/// The object that a request consists of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'v>(&'v Map<String, Value>);

/// What a value is, in words.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction or out of range",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn wrong(name: &str, wanted: &str, found: &Value) -> Refusal {
    Refusal::field(name, format_args!("expected {wanted}, found {}", kind(found)))
}

impl<'v> Fields<'v> {
    /// Those of `value`, which is the whole body.
    pub(super) fn of(value: &'v Value) -> Answer<Self> {
        value.as_object().map(Self).ok_or_else(|| Refusal::request(format!("the body is {}, not an object", kind(value))))
    }

    /// The value of a field.
    pub(super) fn get(self, name: &str) -> Option<&'v Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(self, name: &str) -> Answer<Option<&'v str>> {
        self.get(name).map(|value| value.as_str().ok_or_else(|| wrong(name, "a string", value))).transpose()
    }

    pub(super) fn flag(self, name: &str) -> Answer<bool> {
        self.get(name).map_or(Ok(false), |value| value.as_bool().ok_or_else(|| wrong(name, "true or false", value)))
    }

    pub(super) fn object(self, name: &str) -> Answer<Option<Fields<'v>>> {
        self.get(name).map(|value| value.as_object().map(Fields).ok_or_else(|| wrong(name, "an object", value))).transpose()
    }

    pub(super) fn list(self, name: &str) -> Answer<Option<&'v [Value]>> {
        self.get(name).map(|value| value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(name, "an array", value))).transpose()
    }

    /// A number from `least` to `most`.
    pub(super) fn float(self, name: &str, (least, most): (f32, f32)) -> Answer<Option<f32>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_f64().ok_or_else(|| wrong(name, "a number", value))? as f32;
        if number < least || number > most {
            return Err(Refusal::field(name, format_args!("{value} is not from {least} to {most}")));
        }
        Ok(Some(number))
    }

    /// A whole number from `least` to `most`.
    pub(super) fn whole(self, name: &str, (least, most): (u64, u64)) -> Answer<Option<u64>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            None if !value.is_number() => Err(wrong(name, "a whole number", value)),
            _ => Err(Refusal::field(name, format_args!("{value} is not a whole number from {least} to {most}"))),
        }
    }

    /// Refuses a field that would change the result and is not supported, unless it has one of the values that change nothing.
    pub(super) fn unsupported(self, name: &str, harmless: impl Fn(&Value) -> bool) -> Answer<()> {
        match self.get(name) {
            Some(value) if !harmless(value) => {
                Err(Refusal::field(name, "is not supported by this server").with_code("unsupported_parameter"))
            }
            _ => Ok(()),
        }
    }
}

/// Token ids of the vocabulary.
pub(super) fn tokens(name: &str, list: &[Value], vocab_size: u32) -> Answer<Vec<u32>> {
    let token = |value: &Value| match value.as_u64() {
        Some(token) if token < u64::from(vocab_size) => Ok(token as u32),
        Some(token) => {
            Err(Refusal::field(name, format_args!("token {token} is not in the vocabulary, whose ids go from 0 to {}", vocab_size - 1)))
        }
        None => Err(wrong(name, "token ids", value)),
    };
    list.iter().map(token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_types_and_ranges_are_refused_by_name() {
        let body = json!({ "n": 1.5, "t": "x", "big": 1e30, "neg": -1, "s": 3, "null": null, "list": [1, 700], "bad": ["a"] });
        let fields = Fields::of(&body).unwrap();
        let message = |answer: Refusal| answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(message(fields.whole("n", (1, 9)).unwrap_err()), "n: 1.5 is not a whole number from 1 to 9");
        assert_eq!(message(fields.whole("t", (1, 9)).unwrap_err()), "t: expected a whole number, found a string");
        assert_eq!(message(fields.whole("neg", (0, 9)).unwrap_err()), "neg: -1 is not a whole number from 0 to 9");
        assert_eq!(message(fields.float("t", (0.0, 2.0)).unwrap_err()), "t: expected a number, found a string");
        assert_eq!(message(fields.float("big", (0.0, 2.0)).unwrap_err()), "big: 1e+30 is not from 0 to 2");
        assert_eq!(message(fields.text("s").unwrap_err()), "s: expected a string, found a number");
        assert_eq!(message(fields.flag("s").unwrap_err()), "s: expected true or false, found a number");
        assert_eq!(fields.whole("null", (1, 9)), Ok(None));
        assert_eq!(fields.float("absent", (0.0, 1.0)), Ok(None));
        let list = |name| fields.list(name).unwrap().unwrap();
        assert!(message(tokens("list", list("list"), 512).unwrap_err()).contains("token 700"));
        assert_eq!(message(tokens("bad", list("bad"), 512).unwrap_err()), "bad: expected token ids, found a string");
        assert!(Fields::of(&json!([1])).is_err());
        assert_eq!(fields.unsupported("s", |_| false).unwrap_err().json()["error"]["param"], "s");
        assert!(fields.unsupported("null", |_| false).is_ok());
    }
}
