//! A Hugging Face folder: `config.json` says the architecture, `model.safetensors` has the tensors under that library's names, q and k with rotated pairs as halves.

use super::{Destination, Report, Watch, cannot, source};
use crate::checkpoint::{self, ArrayView, Checkpoint, Encoding, LlamaSource, hugging_face_name};
use crate::error::{Error, Result};
use crate::export::narrow::Narrower;
use crate::folder::FolderTarget;
use dmexp_format::DType;
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout};
use dmexp_format::host::Scalar;
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerFacts};
use serde_json::{Map, Value, json};
use std::io::{BufWriter, Write};
use std::path::Path;

const FORMAT: Destination = Destination::Safetensors;
const WEIGHTS: &str = "model.safetensors";
/// Elements written at a time.
const CHUNK: usize = 1 << 16;

/// A tensor as the file lists it.
struct Listed<'c> {
    name: String,
    dtype: DType,
    array: ArrayView<'c>,
}

pub(super) fn write(path: &Path, facts: &TokenizerFacts, out: &Path, watch: &mut Watch<'_>) -> Result<Report> {
    let checkpoint = Checkpoint::of_dmexp(path, RopeLayout::Half)?;
    let source = source(&checkpoint)?;
    let listed = list(&checkpoint, source)?;
    let config = config(source, facts, &listed).map_err(|error| error.in_file(path))?;
    let config = format!("{config:#}\n");
    let header = header(&listed);
    let target = FolderTarget::new(out)?;
    target.file("config.json")?.write_all(config.as_bytes()).map_err(|error| target.failed(error))?;
    let mut file = BufWriter::new(target.file(WEIGHTS)?);
    let mut bytes = config.len() as u64;
    let mut put = |piece: &[u8]| {
        bytes += piece.len() as u64;
        file.write_all(piece).map_err(|error| target.failed(error))
    };
    put(&(header.len() as u64).to_le_bytes())?;
    put(header.as_bytes())?;
    for Listed { name, dtype, array } in &listed {
        let mut narrower = Narrower::new(*dtype);
        array.for_each_chunk(CHUNK, |first, values| {
            put(narrower.narrow(first, values).map_err(|refused| refused.explain(name).in_file(path))?)?;
            watch.add(values.len() as u64)
        })?;
    }
    file.flush().map_err(|error| target.failed(error))?;
    drop(file);
    read_back(source, target.path()).map_err(|error| error.in_file(path))?;
    checkpoint.unchanged()?;
    target.commit()?;
    Ok(Report { out: out.to_path_buf(), format: FORMAT, bytes, tensors: listed.len() as u64, notes: Vec::new() })
}

fn list<'c>(checkpoint: &'c Checkpoint, source: &LlamaSource) -> Result<Vec<Listed<'c>>> {
    let listed = checkpoint.arrays().zip(0..).map(|(array, number)| {
        let name = source.config.tensor(number).as_ref().and_then(hugging_face_name);
        let dtype = match array.encoding() {
            Some(Encoding::F32 { .. }) => Some(DType::F32),
            Some(Encoding::F16 { .. }) => Some(DType::F16),
            Some(Encoding::Bf16 { .. }) => Some(DType::Bf16),
            _ => None,
        };
        match (name, dtype) {
            (Some(name), Some(dtype)) => Ok(Listed { name, dtype, array }),
            _ => Err(cannot(FORMAT, &format!("has a tensor {}", array.name()))),
        }
    });
    listed.collect()
}

/// The JSON at the head of the file, padded so that the tensors begin at a multiple of 8.
fn header(listed: &[Listed<'_>]) -> String {
    let mut map = Map::new();
    map.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut offset = 0;
    for Listed { name, dtype, array } in listed {
        let end = offset + array.count() * dtype.size();
        let dtype = dtype.name().to_uppercase();
        map.insert(name.clone(), json!({ "dtype": dtype, "shape": array.dims().as_slice(), "data_offsets": [offset, end] }));
        offset = end;
    }
    let mut text = Value::Object(map).to_string();
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    text
}

fn config(source: &LlamaSource, facts: &TokenizerFacts, listed: &[Listed<'_>]) -> Result<Value> {
    let config = &source.config;
    if source.rope_theta == 0.0 {
        return Err(cannot(FORMAT, "has rotation frequencies of a rope theta that it does not state"));
    }
    let (architecture, model_type) = match (config.qkv_bias, config.sliding_window) {
        (false, 0) => ("LlamaForCausalLM", "llama"),
        (false, _) => ("MistralForCausalLM", "mistral"),
        (true, 0) => ("Qwen2ForCausalLM", "qwen2"),
        (true, window) => return Err(cannot(FORMAT, &format!("has biases of q, k and v and a sliding window of {window}"))),
    };
    // Of the embedding: vectors may be wider.
    let dtype = match listed.first().map(|listed| listed.dtype) {
        Some(DType::F16) => "float16",
        Some(DType::Bf16) => "bfloat16",
        _ => "float32",
    };
    let norm_eps = exact(config.norm_eps)?;
    let mut map = json!({
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": config.dim,
        "intermediate_size": config.hidden_dim,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_seq_len,
        "rms_norm_eps": norm_eps,
        "rope_theta": source.rope_theta,
        "rope_scaling": if source.rope_scaling.is_empty() { Value::Null } else { source.rope_scaling.iter().map(|(key, value)| (key.clone(), scalar(value))).collect() },
        "hidden_act": "silu",
        "tie_word_embeddings": config.tied_embeddings,
        "torch_dtype": dtype,
    });
    let mut put = |key: &str, value: Value| map[key] = value;
    match model_type {
        "llama" => {
            put("attention_bias", Value::Bool(false));
            put("mlp_bias", Value::Bool(false));
        }
        "mistral" => put("sliding_window", config.sliding_window.into()),
        _ => put("use_sliding_window", Value::Bool(false)),
    }
    if facts.bos != NO_TOKEN {
        put("bos_token_id", facts.bos.into());
    }
    let eos: Vec<u32> = facts.eos.into_iter().filter(|token| *token != NO_TOKEN).collect();
    match eos.as_slice() {
        [] => {}
        [one] => put("eos_token_id", (*one).into()),
        several => put("eos_token_id", several.into()),
    }
    Ok(map)
}

/// Reads the folder as a checkpoint: where another configuration or rotation comes out, a file of this format cannot say what this model is.
fn read_back(source: &LlamaSource, folder: &Path) -> Result<()> {
    let differs = |what: &str| cannot(FORMAT, &format!("has a configuration that is not the same when it is read back ({what})"));
    let checkpoint = checkpoint::open(folder).map_err(|error| differs(&error.in_file(WEIGHTS.as_ref()).to_string()))?;
    let found = super::source(&checkpoint)?;
    let expected = LlamaConfig { rope_layout: found.config.rope_layout, ..source.config };
    if found.config != expected {
        return Err(differs(&format!("{:?}, not {expected:?}", found.config)));
    }
    let bits = |source: &LlamaSource| source.inv_freq.iter().map(|frequency| frequency.to_bits()).collect::<Vec<_>>();
    if bits(found) != bits(source) {
        return Err(differs("the rotation frequencies"));
    }
    Ok(())
}

fn scalar(value: &Scalar) -> Value {
    match value {
        Scalar::Bool(value) => (*value).into(),
        Scalar::Integer(value) => (*value).into(),
        Scalar::Float(value) => (*value).into(),
        Scalar::Text(value) => value.clone().into(),
        Scalar::List(items) => items.iter().map(scalar).collect(),
    }
}

/// The shortest decimal that reads back as this f32, as a JSON number.
fn exact(number: f32) -> Result<Value> {
    number.to_string().parse::<f64>().map(Value::from).map_err(|_| Error::damaged(format!("has a norm_eps of {number}")))
}
