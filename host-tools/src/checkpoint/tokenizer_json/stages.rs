//! The stages around the model of a tokenizer.json (normaliser, pre-tokeniser, post-processor, decoder): what our tokenizers do exactly, by structure; anything else is refused by name.

use crate::checkpoint::json::{Keys, shown};
use crate::error::{Error, Result};
use dmexp_format::tokenizer::{Normalizer, PreTokenizer};
use serde_json::{Value, json};

/// Sentencepiece's stand-in for a space.
pub(super) const SPACE: &str = "\u{2581}";

const LLAMA_3: &str =
    concat!(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|", r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+");
const QWEN_2: &str =
    concat!(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|", r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+");

/// The error for a stage that our tokenizers do not have.
pub(super) fn unknown(stage: &str, value: &Value) -> Error {
    if value.is_null() {
        return Error::not_a_model(format!("it has no {stage}, without which text cannot be split as a tokenizer of this version does"));
    }
    let name = value["type"].as_str().unwrap_or_default();
    Error::not_a_model(format!("its {stage} is {name:?} ({}), which this version does not have exactly", shown(value)))
        .advise("text would become other tokens than the model was trained with")
}

/// A stage as the list of its steps, sequences laid out flat.
fn steps<'v>(value: &'v Value, key: &str) -> Vec<&'v Value> {
    match (value, value["type"].as_str(), value[key].as_array()) {
        (Value::Null, ..) => Vec::new(),
        (_, Some("Sequence"), Some(list)) => list.iter().flat_map(|step| steps(step, key)).collect(),
        _ => vec![value],
    }
}

/// Whether text is split by bytes: then the tokenizer is a byte-level BPE.
pub(super) fn is_byte_level(pre_tokenizer: &Value) -> bool {
    steps(pre_tokenizer, "pretokenizers").iter().any(|step| step["type"] == "ByteLevel")
}

/// How a byte-level tokenizer splits text.
pub(super) fn pre_tokenizer(value: &Value) -> Result<PreTokenizer> {
    let all = steps(value, "pretokenizers");
    let Some((last, before)) = all.split_last() else { return Err(unknown("pre_tokenizer", value)) };
    let own = last["use_regex"].as_bool().unwrap_or(true);
    let plain = last["type"] == "ByteLevel" && last["add_prefix_space"] == Value::Bool(false);
    let found = match (before, own) {
        ([], true) => Some(PreTokenizer::Gpt2),
        ([], false) => Some(PreTokenizer::None),
        ([digits], true) if **digits == json!({"type": "Digits", "individual_digits": true}) => Some(PreTokenizer::Smollm),
        ([split], false) if split["type"] == "Split" && split["behavior"] == "Isolated" && split["invert"] != Value::Bool(true) => {
            match split["pattern"]["Regex"].as_str() {
                Some(LLAMA_3) => Some(PreTokenizer::LlamaBpe),
                Some(QWEN_2) => Some(PreTokenizer::Qwen2),
                _ => None,
            }
        }
        _ => None,
    };
    found.filter(|_| plain).ok_or_else(|| unknown("pre_tokenizer", value))
}

/// What a byte-level tokenizer does to text before it splits it.
pub(super) fn byte_level_normalizer(value: &Value) -> Result<Normalizer> {
    match steps(value, "normalizers").as_slice() {
        [] => Ok(Normalizer::None),
        [step] if step["type"] == "NFC" => Ok(Normalizer::Nfc),
        _ => Err(unknown("normalizer", value)),
    }
}

/// Whether a sentencepiece-style tokenizer puts a space before text.
pub(super) fn dummy_prefix(normalizer: &Value, pre_tokenizer: &Value) -> Result<bool> {
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE});
    let prepend = json!({"type": "Prepend", "prepend": SPACE});
    let before = steps(normalizer, "normalizers");
    let splits = steps(pre_tokenizer, "pretokenizers");
    match (before.as_slice(), splits.as_slice()) {
        ([first, second], []) if **first == prepend && **second == replace => Ok(true),
        ([only], []) if **only == replace => Ok(false),
        ([], [metaspace])
            if metaspace["type"] == "Metaspace" && metaspace["replacement"] == SPACE && metaspace["split"] == Value::Bool(false) =>
        {
            if metaspace["prepend_scheme"] == "never" {
                return Ok(false);
            }
            Err(unknown("pre_tokenizer", pre_tokenizer).advise(
                "it puts a space before text only where there is none, sentencepiece before any text: name the model's tokenizer.model instead, if it has one",
            ))
        }
        (_, []) => Err(unknown("normalizer", normalizer)),
        _ => Err(unknown("pre_tokenizer", pre_tokenizer)),
    }
}

/// Checks that tokens become text as ours do.
pub(super) fn decoder(value: &Value, byte_level: bool, dummy_prefix: bool) -> Result<()> {
    let all = steps(value, "decoders");
    let kinds: Vec<&str> = all.iter().map(|step| step["type"].as_str().unwrap_or_default()).collect();
    let right = match kinds.as_slice() {
        ["ByteLevel"] => byte_level,
        ["Replace", "ByteFallback", "Fuse", "Strip"] => {
            let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
            !byte_level && dummy_prefix && replaces(all[0]) && *all[3] == strip
        }
        ["Replace", "ByteFallback", "Fuse"] => !byte_level && !dummy_prefix && replaces(all[0]),
        _ => false,
    };
    if right { Ok(()) } else { Err(unknown("decoder", value)) }
}

fn replaces(step: &Value) -> bool {
    *step == json!({"type": "Replace", "pattern": {"String": SPACE}, "content": " "})
}

/// The token that the post-processor puts before text, if it does.
pub(super) fn begin(value: &Value) -> Result<Option<u32>> {
    let mut begin = None;
    for step in steps(value, "processors") {
        match step["type"].as_str() {
            Some("ByteLevel") => {}
            Some("TemplateProcessing") if begin.is_none() => begin = template(step)?,
            _ => return Err(unknown("post_processor", value)),
        }
    }
    Ok(begin)
}

fn template(step: &Value) -> Result<Option<u32>> {
    let text = |part: &Value| part["Sequence"]["id"] == "A";
    match step["single"].as_array().map(Vec::as_slice) {
        Some([only]) if text(only) => Ok(None),
        Some([first, rest]) if text(rest) => {
            let name = first["SpecialToken"]["id"].as_str().unwrap_or_default();
            let entry = &step["special_tokens"][name];
            match entry["ids"].as_array().map(Vec::as_slice) {
                Some([Value::Number(id)]) => match id.as_u64().and_then(|id| u32::try_from(id).ok()) {
                    Some(id) => Ok(Some(id)),
                    None => Err(unknown("post_processor", step)),
                },
                _ => Err(unknown("post_processor", step)),
            }
        }
        // Most of all: a token after the text, which would end it before it begins.
        _ => Err(unknown("post_processor", step)),
    }
}

/// Refuses what cuts or fills up text.
pub(super) fn no_limits(keys: &Keys<'_>) -> Result<()> {
    for key in ["truncation", "padding"] {
        if let Some(value) = keys.value(key) {
            let what = format!("{key} is {}: it would change the tokens of a text", shown(value));
            return Err(Error::not_a_model(what).advise(format!("make {key} null")));
        }
    }
    Ok(())
}
