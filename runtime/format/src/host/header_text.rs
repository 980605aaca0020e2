//! The header of format 2 to its text and back. `parse(to_text(h)) == h`, and a header has one text.

use super::check::check_group;
use super::dormouse;
use super::header::{Config, Golden, GoldenPosition, Header, LlamaSettings, Provenance, Scalar, TensorEntry, TensorSpec, Tokenizer};
use super::sequential::SequentialSettings;
use super::toml_text::{BOOL, F32, F64, Keys, TABLE, TABLE_LIST, TEXT, Text, U32, U32_LIST, U64, float, list, show, string};
use super::{Figures, HeaderError};
use crate::arch::Architecture;
use crate::arch::llama::{LlamaConfig, RopeLayout};
use crate::tokenizer::{NO_TOKEN, Normalizer, PreTokenizer, TokenizerKind};
use crate::{ARITHMETIC, DType, Dims, KvDType};
use std::collections::BTreeMap;
use toml::{Table, Value};

const ARCHITECTURES: [(&str, Architecture); 3] =
    [("llama", Architecture::Llama), ("dormouse", Architecture::Dormouse), ("sequential", Architecture::Sequential)];
const DTYPES: [(&str, DType); 8] = [
    ("f32", DType::F32),
    ("f16", DType::F16),
    ("bf16", DType::Bf16),
    ("q8", DType::Q8),
    ("q4", DType::Q4),
    ("t2", DType::T2),
    ("u8", DType::U8),
    ("u32", DType::U32),
];
const KV_DTYPES: [(&str, KvDType); 3] = [("f32", KvDType::F32), ("f16", KvDType::F16), ("q8", KvDType::Q8)];
const KINDS: [(&str, bool); 2] = [("trainable", true), ("non_trainable", false)];
const LAYOUTS: [(&str, RopeLayout); 2] = [("interleaved", RopeLayout::Interleaved), ("half", RopeLayout::Half)];
const TOKENIZERS: [(&str, TokenizerKind); 4] = [
    ("none", TokenizerKind::None),
    ("bytes", TokenizerKind::Bytes),
    ("sentencepiece_bpe", TokenizerKind::SentencepieceBpe),
    ("byte_level_bpe", TokenizerKind::ByteLevelBpe),
];

impl Header {
    /// Reads a header and checks it as [`Header::check`] does. The second value lists keys that are not known and change nothing that is computed.
    ///
    /// # Errors
    /// [`HeaderError`] with the first key that is wrong.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), HeaderError> {
        let mut unknown = Vec::new();
        let mut keys = Keys::parse(text)?;
        keys.equal("format", &U32, &2)?;
        let arch = keys.named("arch", &ARCHITECTURES)?;
        keys.equal("arithmetic", &U32, &ARITHMETIC)?;
        let config = keys.required("config", &TABLE)?;
        let tokenizer = keys.required("tokenizer", &TABLE)?;
        let provenance = keys.required("provenance", &TABLE)?;
        let tensors = keys.required("tensors", &TABLE_LIST)?;
        let golden = keys.optional("golden", &TABLE_LIST)?.unwrap_or_default();
        let header = Self {
            arithmetic: ARITHMETIC,
            payload_crc32: keys.required("payload_crc32", &U32)?,
            config: match arch {
                Architecture::Dormouse => Config::Dormouse(dormouse::parse(config)?),
                Architecture::Sequential => Config::Sequential(SequentialSettings::from_table("config", config)?),
                _ => Config::Llama(parse_llama(config)?),
            },
            tokenizer: parse_tokenizer(tokenizer, &mut unknown)?,
            provenance: parse_provenance(provenance, &mut unknown)?,
            tensors: numbered("tensors", tensors, |path, number, table| parse_tensor(path, number, table, &mut unknown))?,
            golden: numbered("golden", golden, |path, _, table| parse_golden(path, table, &mut unknown))?,
        };
        keys.equal("num_tensors", &U64, &(header.tensors.len() as u64))?;
        header.check()?;
        keys.equal("num_params", &U64, &header.num_params())?;
        let figures = header.figures();
        keys.equal("flushed", &U64, &figures.flushed)?;
        keys.equal("max_abs", &F32, &figures.max_abs)?;
        keys.equal("min_nonzero_abs", &F32, &figures.min_nonzero_abs)?;
        keys.list_rest(&mut unknown);
        unknown.sort();
        Ok((header, unknown))
    }

    /// The text of the header, without padding.
    pub fn to_text(&self) -> String {
        let mut text = Text::default();
        text.plain("format", 2);
        text.text("arch", self.arch().name());
        text.plain("arithmetic", self.arithmetic);
        text.plain("num_params", self.num_params());
        text.plain("num_tensors", self.tensors.len());
        let figures = self.figures();
        text.plain("flushed", figures.flushed);
        text.float("max_abs", figures.max_abs);
        text.float("min_nonzero_abs", figures.min_nonzero_abs);
        text.crc("payload_crc32", self.payload_crc32);
        match &self.config {
            Config::Llama(settings) => llama_text(&mut text, settings),
            Config::Dormouse(config) => dormouse::write(&mut text, config),
            Config::Sequential(settings) => settings.write(&mut text),
        }
        tokenizer_text(&mut text, &self.tokenizer);
        provenance_text(&mut text, &self.provenance);
        for tensor in &self.tensors {
            tensor_text(&mut text, tensor);
        }
        for golden in &self.golden {
            golden_text(&mut text, golden);
        }
        text.0
    }
}

fn numbered<T>(
    name: &str,
    tables: Vec<Table>,
    mut parse: impl FnMut(String, u32, Table) -> Result<T, HeaderError>,
) -> Result<Vec<T>, HeaderError> {
    tables.into_iter().enumerate().map(|(number, table)| parse(format!("{name}[{number}]"), number as u32, table)).collect()
}

fn parse_llama(table: Table) -> Result<LlamaSettings, HeaderError> {
    let mut keys = Keys::new("config".into(), table);
    let model = LlamaConfig {
        dim: keys.required("dim", &U32)?,
        hidden_dim: keys.required("hidden_dim", &U32)?,
        n_layers: keys.required("n_layers", &U32)?,
        n_heads: keys.required("n_heads", &U32)?,
        n_kv_heads: keys.required("n_kv_heads", &U32)?,
        head_dim: keys.required("head_dim", &U32)?,
        vocab_size: keys.required("vocab_size", &U32)?,
        max_seq_len: keys.required("max_seq_len", &U32)?,
        norm_eps: keys.required("norm_eps", &F32)?,
        rope_layout: keys.named("rope_layout", &LAYOUTS)?,
        attention_factor: keys.required("attention_factor", &F32)?,
        tied_embeddings: keys.required("tied_embeddings", &BOOL)?,
        qkv_bias: keys.required("qkv_bias", &BOOL)?,
        sliding_window: keys.required("sliding_window", &U32)?,
    };
    let rope_theta = keys.optional("rope_theta", &F64)?;
    let rope_scaling = keys.optional("rope_scaling", &TABLE)?.unwrap_or_default();
    keys.refuse_rest()?;
    let rope_scaling = rope_scaling
        .into_iter()
        .map(|(key, value)| match scalar(&value) {
            Some(scalar) => Ok((key, scalar)),
            None => Err(HeaderError::wrong(
                format!("config.rope_scaling.{key}"),
                show(&value),
                "true, false, a finite number, a string or a list",
            )),
        })
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    Ok(LlamaSettings { model, rope_theta, rope_scaling })
}

fn scalar(value: &Value) -> Option<Scalar> {
    Some(match value {
        Value::Boolean(value) => Scalar::Bool(*value),
        Value::Integer(value) => Scalar::Integer(*value),
        Value::Float(value) if value.is_finite() => Scalar::Float(*value),
        Value::String(value) => Scalar::Text(value.clone()),
        Value::Array(items) => Scalar::List(items.iter().map(scalar).collect::<Option<_>>()?),
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => return None,
    })
}

fn llama_text(text: &mut Text, settings: &LlamaSettings) {
    text.head("[config]");
    llama_keys(text, &settings.model, settings.rope_theta);
    if !settings.rope_scaling.is_empty() {
        text.head("[config.rope_scaling]");
        for (key, value) in &settings.rope_scaling {
            text.raw(&string(key), &scalar_text(value));
        }
    }
}

/// The keys of a Llama configuration that both formats write, in their order.
pub(super) fn llama_keys(text: &mut Text, model: &LlamaConfig, rope_theta: Option<f64>) {
    text.plain("dim", model.dim);
    text.plain("hidden_dim", model.hidden_dim);
    text.plain("n_layers", model.n_layers);
    text.plain("n_heads", model.n_heads);
    text.plain("n_kv_heads", model.n_kv_heads);
    text.plain("head_dim", model.head_dim);
    text.plain("vocab_size", model.vocab_size);
    text.plain("max_seq_len", model.max_seq_len);
    text.float("norm_eps", model.norm_eps);
    text.text("rope_layout", model.rope_layout.name());
    if let Some(theta) = rope_theta {
        text.raw("rope_theta", &float(theta));
    }
    text.float("attention_factor", model.attention_factor);
    text.plain("tied_embeddings", model.tied_embeddings);
    text.plain("qkv_bias", model.qkv_bias);
    text.plain("sliding_window", model.sliding_window);
}

fn scalar_text(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Bool(value) => value.to_string(),
        Scalar::Integer(value) => value.to_string(),
        Scalar::Float(value) => float(*value),
        Scalar::Text(value) => string(value),
        Scalar::List(items) => list(items, scalar_text),
    }
}

fn parse_tokenizer(table: Table, unknown: &mut Vec<String>) -> Result<Tokenizer, HeaderError> {
    let mut keys = Keys::new("tokenizer".into(), table);
    let kind = keys.named("kind", &TOKENIZERS)?;
    let (pre_tokenizer, ignore_merges, normalizer) = if kind == TokenizerKind::ByteLevelBpe {
        let names = PreTokenizer::ALL.map(|pre_tokenizer| (pre_tokenizer.name(), pre_tokenizer));
        let pre_tokenizer = keys.named("pre_tokenizer", &names)?;
        let normalizer = keys.named_or("normalizer", &[(Normalizer::Nfc.name(), Normalizer::Nfc)], Normalizer::None)?;
        (pre_tokenizer, keys.required("ignore_merges", &BOOL)?, normalizer)
    } else {
        (PreTokenizer::None, false, Normalizer::None)
    };
    let tokenizer = Tokenizer {
        kind,
        n_pieces: keys.required("n_pieces", &U32)?,
        add_bos: keys.required("add_bos", &BOOL)?,
        dummy_prefix: keys.required("dummy_prefix", &BOOL)?,
        bos: keys.optional("bos", &U32)?,
        eos: keys.required("eos", &U32_LIST)?,
        pad: keys.optional("pad", &U32)?,
        unk: keys.optional("unk", &U32)?,
        byte_base: keys.optional("byte_base", &U32)?,
        max_piece_len: keys.required("max_piece_len", &U32)?,
        special: keys.optional("special", &U32_LIST)?.unwrap_or_default(),
        pre_tokenizer,
        ignore_merges,
        normalizer,
        chat_template: keys.optional("chat_template", &TEXT)?,
    };
    keys.list_rest(unknown);
    Ok(tokenizer)
}

fn tokenizer_text(text: &mut Text, tokenizer: &Tokenizer) {
    text.head("[tokenizer]");
    text.text("kind", tokenizer.kind.name());
    text.plain("n_pieces", tokenizer.n_pieces);
    text.plain("add_bos", tokenizer.add_bos);
    text.plain("dummy_prefix", tokenizer.dummy_prefix);
    if let Some(token) = tokenizer.bos {
        text.plain("bos", token);
    }
    text.raw("eos", &list(&tokenizer.eos, u32::to_string));
    for (key, token) in [("pad", tokenizer.pad), ("unk", tokenizer.unk), ("byte_base", tokenizer.byte_base)] {
        if let Some(token) = token {
            text.plain(key, token);
        }
    }
    text.plain("max_piece_len", tokenizer.max_piece_len);
    if !tokenizer.special.is_empty() {
        text.raw("special", &list(&tokenizer.special, u32::to_string));
    }
    if tokenizer.kind == TokenizerKind::ByteLevelBpe {
        text.text("pre_tokenizer", tokenizer.pre_tokenizer.name());
        text.plain("ignore_merges", tokenizer.ignore_merges);
        if tokenizer.normalizer != Normalizer::None {
            text.text("normalizer", tokenizer.normalizer.name());
        }
    }
    if let Some(template) = &tokenizer.chat_template {
        text.text("chat_template", template);
    }
}

fn parse_provenance(table: Table, unknown: &mut Vec<String>) -> Result<Provenance, HeaderError> {
    let mut keys = Keys::new("provenance".into(), table);
    let provenance = Provenance {
        source: keys.required("source", &TEXT)?,
        sha256: keys.optional("sha256", &TEXT)?,
        importer: keys.required("importer", &TEXT)?,
        exporter: keys.required("exporter", &TEXT)?,
        licence: keys.optional("licence", &TEXT)?,
    };
    keys.list_rest(unknown);
    Ok(provenance)
}

fn provenance_text(text: &mut Text, provenance: &Provenance) {
    text.head("[provenance]");
    text.text("source", &provenance.source);
    if let Some(sum) = &provenance.sha256 {
        text.text("sha256", sum);
    }
    text.text("importer", &provenance.importer);
    text.text("exporter", &provenance.exporter);
    if let Some(licence) = &provenance.licence {
        text.text("licence", licence);
    }
}

/// Dims as a list of 1 to 4 sizes; `number` is the tensor's, `key` the full name of the key.
pub(super) fn parse_dims(key: &str, number: u32, sizes: &[u32]) -> Result<Dims, HeaderError> {
    let allowed = "1 to 4 sizes, none 0, at most 2^48 elements";
    let mut padded = [1; 4];
    for (place, size) in padded.iter_mut().zip(sizes) {
        *place = *size;
    }
    Dims::new(number, sizes.len() as u32, padded).map_err(|_| HeaderError::wrong(key, list(sizes, u32::to_string), allowed))
}

fn parse_tensor(path: String, number: u32, table: Table, unknown: &mut Vec<String>) -> Result<TensorEntry, HeaderError> {
    let mut keys = Keys::new(path, table);
    let name = keys.required("name", &TEXT)?;
    let sizes = keys.required("dims", &U32_LIST)?;
    let spec = TensorSpec {
        dims: parse_dims(&keys.path_of("dims"), number, &sizes)?,
        name,
        dtype: keys.named("dtype", &DTYPES)?,
        group: keys.required("group", &U32)?,
        trainable: keys.named("kind", &KINDS)?,
        transposed: keys.required("transposed", &BOOL)?,
    };
    check_group(&keys.path_of("group"), number, &spec)?;
    keys.equal("bytes", &U64, &spec.bytes())?;
    let figures = if spec.dtype.is_weight() {
        Some(Figures {
            flushed: keys.required("flushed", &U64)?,
            subnormal: keys.required("subnormal", &U64)?,
            max_abs: keys.required("max_abs", &F32)?,
            min_nonzero_abs: keys.required("min_nonzero_abs", &F32)?,
        })
    } else {
        None
    };
    let entry = TensorEntry { spec, offset: keys.required("offset", &U64)?, crc32: keys.required("crc32", &U32)?, figures };
    keys.list_rest(unknown);
    Ok(entry)
}

fn tensor_text(text: &mut Text, tensor: &TensorEntry) {
    text.head("[[tensors]]");
    text.text("name", &tensor.spec.name);
    text.raw("dims", &list(tensor.spec.dims.as_slice(), u32::to_string));
    text.text("dtype", tensor.spec.dtype.name());
    text.plain("group", tensor.spec.group);
    text.plain("offset", tensor.offset);
    text.plain("bytes", tensor.bytes());
    text.text("kind", if tensor.spec.trainable { "trainable" } else { "non_trainable" });
    text.plain("transposed", tensor.spec.transposed);
    if let Some(figures) = tensor.figures {
        text.plain("flushed", figures.flushed);
        text.plain("subnormal", figures.subnormal);
        text.float("max_abs", figures.max_abs);
        text.float("min_nonzero_abs", figures.min_nonzero_abs);
    }
    text.crc("crc32", tensor.crc32);
}

fn parse_golden(path: String, table: Table, unknown: &mut Vec<String>) -> Result<Golden, HeaderError> {
    let mut keys = Keys::new(path, table);
    let kv = keys.named("kv", &KV_DTYPES)?;
    let tokens = keys.required("tokens", &U32_LIST)?;
    let tables = keys.required("positions", &TABLE_LIST)?;
    let positions = numbered(&keys.path_of("positions"), tables, |path, _, table| {
        let mut keys = Keys::new(path, table);
        let position = keys.required("position", &U32)?;
        let crc32 = keys.required("crc32", &U32)?;
        let best = keys.required("top5", &U32_LIST)?;
        if best.len() > 5 || best.contains(&NO_TOKEN) {
            return Err(HeaderError::wrong(keys.path_of("top5"), list(&best, u32::to_string), "five tokens of the vocabulary"));
        }
        let mut top5 = [NO_TOKEN; 5];
        for (place, token) in top5.iter_mut().zip(best) {
            *place = token;
        }
        keys.list_rest(unknown);
        Ok(GoldenPosition { position, crc32, top5 })
    })?;
    keys.list_rest(unknown);
    Ok(Golden { kv, tokens, positions })
}

fn golden_text(text: &mut Text, golden: &Golden) {
    text.head("[[golden]]");
    text.text("kv", golden.kv.name());
    text.raw("tokens", &list(&golden.tokens, u32::to_string));
    let position = |at: &GoldenPosition| {
        let best: Vec<_> = at.top5.into_iter().filter(|token| *token != NO_TOKEN).collect();
        format!("{{ position = {}, crc32 = {:#010x}, top5 = {} }}", at.position, at.crc32, list(&best, u32::to_string))
    };
    text.raw("positions", &list(&golden.positions, position));
}
