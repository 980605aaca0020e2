//! The keys of config.json that the graph does not carry: which are harmless, which are refused, and what becomes of those that nobody knows.
//!
//! The rule: a value that switches something off (null, false, an empty string, list or object) changes nothing, whatever its key. Of the rest, keys known to leave what the model computes alone are
//! passed over in silence; keys known to change it are refused with what they would need, unless they have the one value that changes nothing; of unknown keys a string is told in a note, unless its
//! name is one of a part of the network, and everything else is refused, for it could be a multiplier, a limit or a switch.

use crate::checkpoint::json::shown;
use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// Keys that the readers of this folder look at.
const CARRIED: [&str; 29] = [
    "architectures",
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "original_max_position_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "hidden_activation",
    "attention_bias",
    "mlp_bias",
    "tie_word_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "auto_map",
    "quantization_config",
];

/// Keys that concern training, generation, sharding or other programs.
const HARMLESS: [&str; 77] = [
    "attention_dropout",
    "attn_dropout",
    "attn_implementation",
    "attn_pdrop",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dropout",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout",
    "hidden_dropout_prob",
    "id2label",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "max_new_tokens",
    "max_sequence_length",
    "min_length",
    "name_or_path",
    "neftune_noise_alpha",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "rope_interleaved",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_flash_attn",
    "use_return_dict",
    "xla_device",
];

/// Keys that change what is computed: the value that changes nothing besides those that switch off, and what the key needs otherwise.
const REFUSED: [(&str, Option<f64>, &str); 36] = [
    ("partial_rotary_factor", Some(1.0), "rotation of a part of each head"),
    ("rotary_pct", Some(1.0), "rotation of a part of each head"),
    ("rotary_dim", None, "rotation of a part of each head"),
    ("rope_ratio", Some(1.0), "rotation frequencies of another kind"),
    ("rope_theta_local", None, "rotation frequencies that differ by layer"),
    ("rope_local_base_freq", None, "rotation frequencies that differ by layer"),
    ("no_rope_layers", None, "layers without rotation"),
    ("no_rope_layer_interval", None, "layers without rotation"),
    ("sliding_window_pattern", None, "a window that differs by layer"),
    ("attention_chunk_size", None, "attention in chunks"),
    ("attn_logit_softcapping", None, "a soft cap on attention"),
    ("final_logit_softcapping", None, "a soft cap on logits"),
    ("logits_soft_cap", None, "a soft cap on logits"),
    ("query_pre_attn_scalar", None, "another scale of attention"),
    ("attention_multiplier", None, "another scale of attention"),
    ("embedding_multiplier", Some(1.0), "a multiplier of embeddings"),
    ("residual_multiplier", Some(1.0), "a multiplier of residuals"),
    ("logits_scaling", Some(1.0), "a multiplier of logits"),
    ("logit_scale", Some(1.0), "a multiplier of logits"),
    ("scale_emb", Some(1.0), "a multiplier of embeddings"),
    ("scale_depth", None, "a multiplier of residuals"),
    ("dim_model_base", None, "a multiplier of logits"),
    ("mup_width_scale", Some(1.0), "a multiplier of logits"),
    ("clip_qkv", None, "a limit on q, k and v"),
    ("use_qk_norm", None, "norms of q and k"),
    ("qk_layernorm", None, "norms of q and k"),
    ("use_parallel_residual", None, "parallel residuals"),
    ("parallel_attn", None, "parallel residuals"),
    ("num_experts", None, "a mixture of experts"),
    ("num_local_experts", None, "a mixture of experts"),
    ("n_routed_experts", None, "a mixture of experts"),
    ("num_experts_per_tok", None, "a mixture of experts"),
    ("q_lora_rank", None, "latent attention"),
    ("kv_lora_rank", None, "latent attention"),
    ("pruned_heads", None, "heads left out"),
    ("adapter_path", None, "an adapter on top of the weights"),
];

/// Parts of names that speak of the network: an unknown key with one of them is refused even where it is a string.
const PARTS: [&str; 26] = [
    "act",
    "attn",
    "attention",
    "bias",
    "cap",
    "embed",
    "expert",
    "ffn",
    "freq",
    "gate",
    "head",
    "layer",
    "mlp",
    "mult",
    "norm",
    "posit",
    "quant",
    "resid",
    "rope",
    "rotary",
    "router",
    "scal",
    "softmax",
    "window",
    "weight",
    "moe",
];

/// Goes through all keys; returns a note for each that is unknown and let pass.
///
/// # Errors
/// [`Class::NotAModel`](crate::error::Class::NotAModel) for a key that changes what is computed, or may.
pub(super) fn check(config: &Map<String, Value>) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for (key, value) in config {
        let known = CARRIED.contains(&key.as_str()) || HARMLESS.contains(&key.as_str()) || key.starts_with('_');
        if known && !(key == "rope_interleaved" && value == &Value::Bool(true)) || switches_off(value) {
            continue;
        }
        if let Some((_, neutral, what)) = REFUSED.iter().find(|(name, ..)| name == key) {
            if neutral.is_some() && value.as_f64() == *neutral {
                continue;
            }
            let what = format!("{key} is {}: the model needs {what}, which this version does not have", shown(value));
            return Err(Error::not_a_model(what));
        }
        let of_the_network = PARTS.iter().any(|part| key.to_ascii_lowercase().contains(part));
        if !value.is_string() || of_the_network {
            let what =
                format!("{key} is {}, a key that this version does not know and that may change what the model computes", shown(value));
            return Err(Error::not_a_model(what).advise("take it out of config.json if it is known to change nothing"));
        }
        notes.push(format!("config.json: {key} is not known and was passed over (it is {})", shown(value)));
    }
    Ok(notes)
}

/// Whether a value is the absence of something.
fn switches_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
        Value::Bool(true) | Value::Number(_) => false,
    }
}
