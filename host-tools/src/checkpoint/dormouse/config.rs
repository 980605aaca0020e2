//! dormouse's model configuration: a flat TOML table in which every key has a default. Read from the snapshot that lies with a checkpoint, or from a preset and `--set`.

use crate::error::{Class, Error, Result};
use toml::{Table, Value};

/// A key's type and default.
#[derive(Clone, Copy)]
enum Key {
    Flag(bool),
    Size(u32),
    Number(f32),
    Orders,
    /// A string or a number; absent by default.
    ActQuant,
}

use Key::{Flag, Number, Size};

/// Every key in the order in which upstream writes them, with the default of the preset "small"; `byteflow_*` besides.
const KEYS: [(&str, Key); 47] = [
    ("bf16", Flag(false)),
    ("act_quant", Key::ActQuant),
    ("act_group", Size(0)),
    ("d_model", Size(768)),
    ("n_heads", Size(12)),
    ("head_dim", Size(64)),
    ("d_ffn", Size(2048)),
    ("vocab", Size(256)),
    ("max_seq_len", Size(512)),
    ("max_iter", Size(4)),
    ("rank", Size(64)),
    ("norm_eps", Number(0.001)),
    ("use_kda", Flag(true)),
    ("use_plain_attn", Flag(false)),
    ("use_tsct", Flag(true)),
    ("use_engram", Flag(true)),
    ("use_gr", Flag(false)),
    ("use_attnres", Flag(false)),
    ("use_mhc", Flag(false)),
    ("mhc_streams", Size(4)),
    ("use_situ", Flag(false)),
    ("n_experts", Size(3)),
    ("jepa_weight", Number(0.05)),
    ("jepa_mask_frac", Number(0.15)),
    ("jepa_mask_span", Size(8)),
    ("dspark_weight", Number(0.0)),
    ("dspark_k", Size(4)),
    ("dspark_stride", Size(16)),
    ("aux_fb_weight", Number(0.0)),
    ("aux_fb_horizon", Size(2)),
    ("engram_rows", Size(25_000)),
    ("engram_orders", Key::Orders),
    ("engram_dim", Size(32)),
    ("engram_lam_max", Number(0.5)),
    ("use_mor", Flag(false)),
    ("mor_k", Size(2)),
    ("mor_bce_weight", Number(0.05)),
    ("moe_topk", Size(0)),
    ("moe_lb_coef", Number(0.0)),
    ("use_msa", Flag(false)),
    ("msa_kb", Size(16)),
    ("msa_q_heads", Size(4)),
    ("msa_block_r", Size(4)),
    ("msa_head_dim", Size(32)),
    ("msa_distill_weight", Number(0.0)),
    // What a file does not say is false here, although upstream's own default is true: only models without it are exported.
    ("use_byteflow", Flag(false)),
    // Left in p150's table by an older version; nothing reads it.
    ("ponder_prior", Number(0.0)),
];

/// What each preset changes of the defaults.
const PRESETS: [(&str, &str); 6] = [
    ("small", ""),
    ("nano", "d_model = 512\nn_heads = 8\nrank = 96"),
    ("base", "d_model = 1024\nn_heads = 16\nd_ffn = 2816\nmax_iter = 8\nmax_seq_len = 1024"),
    ("p150", "d_model = 4096\nn_heads = 64\nd_ffn = 11264\nn_experts = 4\nmax_iter = 12\nmax_seq_len = 2048"),
    (
        "plain9m",
        "d_ffn = 3520\nmax_iter = 1\nuse_tsct = false\nuse_plain_attn = true\nuse_kda = false\nuse_engram = false\nn_experts = 1\nengram_rows = 1\njepa_weight = 0.0\nmor_bce_weight = 0.0",
    ),
    ("mor", "use_mor = true"),
];

/// Keys that `--set` does not take, as upstream's does not.
const NOT_SETTABLE: [&str; 4] = ["use_attnres", "use_mhc", "mhc_streams", "ponder_prior"];

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct DormouseConfig {
    /// Keys as they will be written, in order.
    table: Table,
}

impl DormouseConfig {
    /// The configuration of a snapshot's `[model]`.
    ///
    /// # Errors
    /// [`Class::Damaged`] for a key that is not known or has another type; [`Class::Mismatch`] for values that do not go together; [`Class::NotAModel`] for a model that no
    /// `.dmexp` can hold.
    pub(super) fn from_table(table: Table) -> Result<Self> {
        let mut checked = Table::new();
        for (key, value) in table {
            let value = if key.starts_with("byteflow_") { value } else { typed(&key, value)? };
            checked.insert(key, value);
        }
        let config = Self { table: checked };
        config.validate()?;
        Ok(config)
    }

    /// A preset with changes, each `key=value`.
    ///
    /// # Errors
    /// [`Class::Request`] for a preset or key that is not known, or a value of another type; those of the values together as in a snapshot.
    pub fn from_preset(preset: &str, changes: &[String]) -> Result<Self> {
        let Some((_, text)) = PRESETS.iter().find(|(name, _)| *name == preset) else {
            let names: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
            return Err(Error::new(Class::Request, format!("the preset {preset:?} is not known"))
                .advise(format!("the presets are {}", names.join(", "))));
        };
        let mut changed: Table = text.parse().map_err(|error| Error::damaged(format!("preset {preset}: {error}")))?;
        for change in changes {
            let request = |what: String| Error::new(Class::Request, format!("--set {change}: {what}"));
            let (key, value) = change.split_once('=').ok_or_else(|| request("is not key=value".to_owned()))?;
            // The last part of a dotted key, in any case.
            let key = key.rsplit('.').next().unwrap_or(key).trim().to_ascii_lowercase();
            let kind = KEYS.iter().find(|(name, _)| *name == key && !NOT_SETTABLE.contains(name));
            let Some((_, kind)) = kind else { return Err(request(format!("{key} is not a key that can be set"))) };
            match set_value(*kind, value.trim()).map_err(|allowed| request(format!("{key} takes {allowed}")))? {
                Some(value) => changed.insert(key, value),
                None => changed.remove(&key),
            };
        }
        let mut table = Table::new();
        for (key, kind) in KEYS {
            if key.starts_with("msa_") || matches!(key, "ponder_prior" | "use_msa" | "use_byteflow") {
                continue;
            }
            if let Some(value) = changed.remove(key).or_else(|| default(kind)) {
                table.insert(key.to_owned(), value);
            }
        }
        table.extend(changed);
        Self::from_table(table)
    }

    /// The text in an export's header: what upstream's `toml::to_string` gives.
    pub fn to_text(&self) -> String {
        self.table.to_string()
    }

    /// The value of a flag.
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some(Value::Boolean(true)))
    }

    /// The value of a size.
    pub fn size(&self, key: &str) -> u64 {
        self.get(key).and_then(|value| value.as_integer()).and_then(|value| value.try_into().ok()).unwrap_or(0)
    }

    /// The value of a number.
    pub fn number(&self, key: &str) -> f64 {
        self.get(key).and_then(|value| value.as_float()).unwrap_or(0.0)
    }

    /// How many n-gram orders the Engram memory has.
    pub fn orders(&self) -> Vec<i64> {
        let list = self.get("engram_orders");
        list.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_integer).collect()
    }

    /// Rows of one Engram table.
    pub fn engram_table(&self) -> u64 {
        self.size("engram_rows").max(1).next_power_of_two()
    }

    fn get(&self, key: &str) -> Option<Value> {
        self.table.get(key).cloned().or_else(|| KEYS.iter().find(|(name, _)| *name == key).and_then(|(_, kind)| default(*kind)))
    }

    fn validate(&self) -> Result<()> {
        self.refuse_other_graphs()?;
        let wrong = |what: String| Err(Error::mismatch(format!("the configuration's {what}")));
        for key in [
            "d_model",
            "n_heads",
            "head_dim",
            "d_ffn",
            "vocab",
            "max_seq_len",
            "max_iter",
            "rank",
            "n_experts",
            "engram_dim",
            "dspark_stride",
            "aux_fb_horizon",
        ] {
            if self.size(key) == 0 {
                return wrong(format!("{key} is 0"));
            }
        }
        for (key, kind) in KEYS {
            if let Number(_) = kind
                && !(self.number(key).is_finite() && self.number(key) >= 0.0)
            {
                return wrong(format!("{key} is {}, not a number of at least 0", self.number(key)));
            }
        }
        let (d_model, heads, width) = (self.size("d_model"), self.size("n_heads"), self.size("head_dim"));
        if self.number("norm_eps") <= 0.0 {
            return wrong("norm_eps is 0".to_owned());
        }
        if !d_model.is_multiple_of(heads) {
            return wrong(format!("n_heads = {heads} does not divide d_model = {d_model}"));
        }
        let group = self.size("act_group");
        if self.get("act_quant").is_some() && group != 0 && !d_model.is_multiple_of(group) {
            return wrong(format!("act_group = {group} does not divide d_model = {d_model}"));
        }
        let orders = self.orders();
        if orders.len() != 3 || orders.iter().any(|order| !(1..=32).contains(order)) {
            return wrong(format!("engram_orders are {orders:?}, not three of 1 to 32"));
        }
        let most = self.number("engram_lam_max");
        if most <= 0.0 || most > 1.0 {
            return wrong(format!("engram_lam_max is {most}, not more than 0 and at most 1"));
        }
        let arms: Vec<_> = ["use_gr", "use_attnres", "use_mhc"].into_iter().filter(|arm| self.flag(arm)).collect();
        if arms.len() > 1 {
            return wrong(format!("residual arms are {}: one at most", arms.join(" and ")));
        }
        let streams = self.size("mhc_streams");
        if self.flag("use_mhc") && (streams == 0 || !d_model.is_multiple_of(streams)) {
            return wrong(format!("mhc_streams = {streams} does not divide d_model = {d_model}"));
        }
        if self.flag("use_plain_attn") && self.flag("use_kda") {
            return wrong("attention is use_plain_attn and use_kda: one at most".to_owned());
        }
        if self.flag("use_plain_attn") && (heads * width != d_model || !width.is_multiple_of(2)) {
            return wrong(format!(
                "n_heads = {heads} of head_dim = {width} are not d_model = {d_model}, or not even, as use_plain_attn wants"
            ));
        }
        let (kept, loops) = (self.size("mor_k"), self.size("max_iter"));
        if self.flag("use_mor") && (kept == 0 || kept > loops) {
            return wrong(format!("mor_k is {kept}, not 1 to max_iter = {loops}"));
        }
        let (top, experts) = (self.size("moe_topk"), self.size("n_experts"));
        if top > experts {
            return wrong(format!("moe_topk is {top}, more than n_experts = {experts}"));
        }
        if self.number("moe_lb_coef") > 0.0 && top == 0 {
            return wrong("moe_lb_coef is set without moe_topk".to_owned());
        }
        Ok(())
    }

    /// Refuses models whose function is not the one that a `.dmexp` of dormouse means.
    fn refuse_other_graphs(&self) -> Result<()> {
        for (key, what) in [
            ("use_byteflow", "a byteflow model, which dormouse's own exporter cannot write either"),
            ("use_msa", "a model with MSA attention"),
            ("bf16", "a model that computes in bf16"),
        ] {
            if self.flag(key) {
                return Err(Error::not_a_model(format!("is {what} ({key} = true)")).advise("models without it can be exported"));
            }
        }
        if self.flag("use_engram") && self.engram_table() == 1 {
            let what = format!(
                "has an Engram memory of one row (engram_rows = {}): its memory lies in the .ngram file of the training and cannot travel",
                self.size("engram_rows")
            );
            return Err(Error::not_a_model(what).advise("train without --engram-ram, or export a model with use_engram = false"));
        }
        Ok(())
    }
}

fn default(kind: Key) -> Option<Value> {
    Some(match kind {
        Flag(value) => Value::Boolean(value),
        Size(value) => Value::Integer(i64::from(value)),
        Number(value) => Value::Float(f64::from(value)),
        Key::Orders => Value::Array([2, 3, 4].map(Value::Integer).to_vec()),
        Key::ActQuant => return None,
    })
}

/// `value` as the type that `key` has; numbers as the f32 that upstream holds them in.
fn typed(key: &str, value: Value) -> Result<Value> {
    let Some((_, kind)) = KEYS.iter().find(|(name, _)| *name == key) else {
        let what = format!("has {key} = {value} in [model], which this version does not know");
        return Err(Error::damaged(what).advise("if it changes nothing that is computed, take it out of the snapshot"));
    };
    let (right, allowed) = match (kind, &value) {
        (Flag(_), Value::Boolean(_)) => (true, ""),
        (Flag(_), _) => (false, "true or false"),
        (Size(_), Value::Integer(number)) if u32::try_from(*number).is_ok() => (true, ""),
        (Size(_), _) => (false, "a whole number from 0 to 4294967295"),
        (Number(_), Value::Float(number)) => return Ok(Value::Float(f64::from(*number as f32))),
        (Number(_), Value::Integer(number)) => return Ok(Value::Float(f64::from(*number as f32))),
        (Number(_), _) => (false, "a number"),
        (Key::Orders, Value::Array(items)) if items.iter().all(Value::is_integer) => (true, ""),
        (Key::Orders, _) => (false, "a list of whole numbers"),
        (Key::ActQuant, _) if act_quant(&value) => (true, ""),
        (Key::ActQuant, _) => (false, "\"fp4\", 4 or 8"),
    };
    if right { Ok(value) } else { Err(Error::damaged(format!("has {key} = {value} in [model]: {allowed} is possible"))) }
}

fn act_quant(value: &Value) -> bool {
    match value {
        Value::Integer(bits) => matches!(bits, 4 | 8),
        Value::String(text) => matches!(text.as_str(), "fp4" | "4" | "8" | "int4" | "int8"),
        _ => false,
    }
}

/// What `--set` makes of a value; `None` takes the key away. The error is what is allowed.
fn set_value(kind: Key, text: &str) -> Result<Option<Value>, &'static str> {
    let lower = text.to_ascii_lowercase();
    Ok(Some(match kind {
        Flag(_) => match lower.as_str() {
            "true" | "1" | "yes" | "on" => Value::Boolean(true),
            "false" | "0" | "no" | "off" => Value::Boolean(false),
            _ => return Err("true, 1, yes, on, false, 0, no or off"),
        },
        Size(_) => Value::Integer(i64::from(text.parse::<u32>().map_err(|_| "a whole number from 0 to 4294967295")?)),
        Number(_) => Value::Float(f64::from(text.parse::<f32>().map_err(|_| "a number")?)),
        Key::Orders => {
            let orders = text.split(',').map(|order| order.trim().parse().map(Value::Integer)).collect::<Result<_, _>>();
            Value::Array(orders.map_err(|_| "whole numbers with commas between them")?)
        }
        Key::ActQuant if matches!(lower.as_str(), "none" | "null" | "off" | "") => return Ok(None),
        Key::ActQuant if act_quant(&Value::String(lower.clone())) => Value::String(lower),
        Key::ActQuant => return Err("fp4, 4, 8 or none"),
    }))
}
