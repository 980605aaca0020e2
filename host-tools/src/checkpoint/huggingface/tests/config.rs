//! config.json, key by key: what is carried, what is passed over, what is refused.

use super::made::{CONTEXT, LAYERS, Made, llama, made};
use crate::checkpoint::{Config, open};
use crate::error::{Class, Error};
use dmexp_format::arch::llama::LlamaConfig;
use serde_json::{Value, json};
use tempfile::TempDir;

fn refusal(made: &Made) -> Error {
    let folder = TempDir::new().unwrap();
    let error = open(&made.save(&folder)).unwrap_err();
    assert!(error.path().starts_with(folder.path()), "{error}");
    error
}

fn opened(made: &Made) -> (LlamaConfig, Vec<String>) {
    let folder = TempDir::new().unwrap();
    let checkpoint = open(&made.save(&folder)).unwrap();
    let Config::Llama(source) = &checkpoint.config else { panic!("it is a Llama") };
    (source.config, checkpoint.notes)
}

#[test]
fn keys_that_change_the_graph_are_refused_by_name() {
    for (key, value, said) in [
        ("hidden_act", json!("gelu"), "hidden_act is \"gelu\""),
        ("hidden_activation", json!("relu2"), "hidden_activation is \"relu2\""),
        ("attention_bias", json!(true), "the output projection of attention (o_proj) has a bias"),
        ("mlp_bias", json!(true), "mlp_bias is true"),
        ("sliding_window", json!(7), "sliding_window is 7, which a LlamaForCausalLM does not have"),
        ("layer_types", json!(["full_attention", "sliding_attention"]), "layer_types is"),
        ("layer_types", json!(["linear_attention", "linear_attention"]), "layer_types is"),
        ("layer_types", json!(["full_attention"]), "layer_types has 1 entries, the model 2 layers"),
        ("partial_rotary_factor", json!(0.5), "partial_rotary_factor is 0.5"),
        ("rope_interleaved", json!(true), "rope_interleaved is true"),
        ("final_logit_softcapping", json!(30.0), "a soft cap on logits"),
        ("attn_logit_softcapping", json!(50), "a soft cap on attention"),
        ("query_pre_attn_scalar", json!(256), "another scale of attention"),
        ("attention_multiplier", json!(0.015), "another scale of attention"),
        ("embedding_multiplier", json!(12.0), "a multiplier of embeddings"),
        ("residual_multiplier", json!(0.22), "a multiplier of residuals"),
        ("logits_scaling", json!(8), "a multiplier of logits"),
        ("scale_emb", json!(12), "a multiplier of embeddings"),
        ("scale_depth", json!(1.4), "a multiplier of residuals"),
        ("clip_qkv", json!(8.0), "a limit on q, k and v"),
        ("num_local_experts", json!(8), "a mixture of experts"),
        ("kv_lora_rank", json!(512), "latent attention"),
        ("no_rope_layers", json!([1, 0]), "layers without rotation"),
        ("quantization_config", json!({"quant_method": "gptq", "bits": 4}), "quantised by gptq"),
        ("auto_map", json!({"AutoModelForCausalLM": "modeling_made.MadeForCausalLM"}), "code of its own for AutoModelForCausalLM"),
        // Known to nobody.
        ("mystery", json!(2.5), "mystery is 2.5, a key that this version does not know"),
        ("mystery", json!(true), "mystery is true"),
        ("mystery", json!([1]), "mystery is [1]"),
        ("norm_type", json!("layernorm"), "norm_type is \"layernorm\""),
    ] {
        let error = refusal(&llama().with(key, value.clone()));
        assert!(error.to_string().contains(said), "{key} = {value}: {error}");
        assert!(matches!(error.class(), Class::NotAModel | Class::Mismatch), "{error}");
    }
}

#[test]
fn values_that_switch_off_change_nothing() {
    let (plain, notes) = opened(&llama());
    assert_eq!(notes, [""; 0]);
    for (key, value) in [
        ("partial_rotary_factor", json!(1.0)),
        ("embedding_multiplier", json!(1)),
        ("final_logit_softcapping", Value::Null),
        ("use_qk_norm", json!(false)),
        ("quantization_config", Value::Null),
        ("mystery", Value::Null),
        ("mystery", json!(false)),
        ("mystery", json!({})),
        ("rope_interleaved", json!(false)),
        ("pretraining_tp", json!(2)),
        ("is_llama_config", json!(true)),
        ("_name_or_path", json!("x")),
        ("hidden_act", json!("swish")),
        ("layer_types", json!(["full_attention", "full_attention"])),
        ("auto_map", json!({"AutoTokenizer": ["x.X", null]})),
        ("sliding_window", json!(4096)),
    ] {
        assert_eq!(opened(&llama().with(key, value.clone())), (plain, Vec::new()), "{key} = {value}");
    }
    let (config, notes) = opened(&llama().with("made_by", json!("me")));
    assert_eq!(config, plain);
    assert!(notes.len() == 1 && notes[0].contains("made_by is not known"), "{notes:?}");
}

#[test]
fn values_that_cannot_be_are_refused_with_the_key() {
    for (key, value, said) in [
        ("hidden_size", json!("16"), "hidden_size is \"16\"; it can be a whole number"),
        ("hidden_size", json!(16.5), "hidden_size is 16.5"),
        ("hidden_size", json!(-1), "hidden_size is -1"),
        ("num_hidden_layers", json!(0), "n_layers"),
        ("num_hidden_layers", json!(4_000_000_000u32), "n_layers"),
        ("num_key_value_heads", json!(3), "n_kv_heads"),
        ("head_dim", json!(7), "head_dim"),
        ("vocab_size", json!(0), "vocab_size"),
        ("rms_norm_eps", json!(0), "norm_eps"),
        ("rms_norm_eps", json!("small"), "rms_norm_eps is \"small\""),
        ("rope_theta", json!(0), "rope_theta is 0"),
        ("rope_theta", json!(-5.0), "rope_theta is -5"),
        ("tie_word_embeddings", json!("no"), "tie_word_embeddings is \"no\""),
        ("sliding_window", json!(0), "sliding_window is 0"),
        ("architectures", json!(["MambaForCausalLM"]), "the architecture \"MambaForCausalLM\""),
        ("architectures", json!(["LlamaModel"]), "the architecture \"LlamaModel\""),
        ("architectures", json!(["LlamaForCausalLM", "X"]), "not one name"),
        ("model_type", json!("gemma"), "the type \"gemma\""),
        ("model_type", json!("mistral"), "two kinds of model"),
    ] {
        let error = refusal(&llama().with(key, value.clone()));
        assert!(error.to_string().contains(said), "{key} = {value}: {error}");
    }
    for key in [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
        "rms_norm_eps",
        "hidden_act",
    ] {
        assert!(refusal(&llama().without(key)).to_string().contains(&format!("has no {key}")), "{key}");
    }
    let error = refusal(&llama().without("head_dim").with("num_attention_heads", json!(3)).with("num_key_value_heads", json!(3)));
    assert!(error.to_string().contains("num_attention_heads is 3, which does not divide hidden_size, 16"), "{error}");
    let error = refusal(&llama().without("architectures").without("model_type"));
    assert!(error.to_string().contains("neither architectures nor model_type"), "{error}");
    assert!(opened(&llama().without("architectures")).1.is_empty());
}

#[test]
fn defaults_of_the_library_are_told() {
    let folder = TempDir::new().unwrap();
    let checkpoint = open(&llama().without("rope_theta").without("tie_word_embeddings").save(&folder)).unwrap();
    let Config::Llama(source) = &checkpoint.config else { panic!("it is a Llama") };
    assert_eq!(source.fixed.iter().map(|fixed| (fixed.key, fixed.value)).collect::<Vec<_>>(), [("rope_theta", "10000")]);
    assert_eq!((source.rope_theta, source.config.tied_embeddings), (10_000.0, false));
    let mistral = made("MistralForCausalLM", "mistral");
    let long = mistral.clone().without("sliding_window").with("max_position_embeddings", json!(8192));
    assert_eq!(opened(&long).0.sliding_window, 4096);
    assert_eq!(opened(&mistral).0.sliding_window, 0);
    for class in ["MistralForCausalLM", "Qwen2ForCausalLM"] {
        let kind = if class.starts_with('M') { "mistral" } else { "qwen2" };
        assert!(refusal(&made(class, kind).without("num_key_value_heads")).to_string().contains("has no num_key_value_heads"));
    }
}

#[test]
fn windows_of_some_layers_are_refused() {
    let qwen = made("Qwen2ForCausalLM", "qwen2").with("use_sliding_window", json!(true)).with("sliding_window", json!(5));
    let error = refusal(&qwen.clone().with("max_window_layers", json!(1)));
    assert!(error.to_string().contains("max_window_layers is 1"), "{error}");
    assert_eq!(opened(&qwen.clone().with("max_window_layers", json!(LAYERS))).0.sliding_window, 0);
    assert_eq!(opened(&qwen.clone().with("max_window_layers", json!(1)).with("sliding_window", json!(CONTEXT))).0.sliding_window, 0);
    assert!(refusal(&qwen.clone()).to_string().contains("no max_window_layers"));
    assert_eq!(opened(&qwen.clone().with("layer_types", json!(["sliding_attention", "sliding_attention"]))).0.sliding_window, 5);
    let error = refusal(&qwen.with("layer_types", json!(["full_attention", "full_attention"])));
    assert!(error.to_string().contains("full_attention of every layer, but there is a window of 5"), "{error}");
    let off = made("Qwen2ForCausalLM", "qwen2").with("sliding_window", json!(5));
    assert_eq!(opened(&off).0.sliding_window, 0);
    assert!(refusal(&off.with("attention_bias", json!(false))).to_string().contains("q, k and v of a Qwen2ForCausalLM have biases"));
}

#[test]
fn ties_are_as_stated_and_as_stored() {
    let head = "lm_head.weight";
    let tied = |made: &Made| opened(made).0.tied_embeddings;
    assert!(!tied(&llama()));
    assert!(tied(&llama().with("tie_word_embeddings", json!(true)).without_tensor(head)));
    assert!(!tied(&llama().without("tie_word_embeddings")));
    let unsaid = refusal(&llama().without("tie_word_embeddings").without_tensor(head)).to_string();
    assert!(unsaid.contains("has no tensor lm_head.weight, and config.json does not say tie_word_embeddings"), "{unsaid}");
    let mut copy = llama().with("tie_word_embeddings", json!(true));
    let embedding = copy.tensor("model.embed_tokens.weight").to_vec();
    copy.tensors.iter_mut().find(|(name, ..)| name == head).unwrap().2 = embedding;
    assert!(tied(&copy));
    copy.tensors.iter_mut().find(|(name, ..)| name == head).unwrap().2[639] += 0.5;
    assert!(refusal(&copy).to_string().contains("lm_head.weight is stored and differs from model.embed_tokens.weight"));
    assert!(
        refusal(&llama().without_tensor(head)).to_string().contains("tie_word_embeddings is false, but there is no tensor lm_head.weight")
    );
}

#[test]
fn report_42_tensors_that_are_not_used_are_refused() {
    for (name, shape) in [
        ("model.layers.0.self_attn.o_proj.bias", &[16][..]),
        ("model.layers.0.self_attn.q_proj.bias", &[24]),
        ("model.layers.1.mlp.gate_proj.bias", &[24]),
        ("model.layers.0.self_attn.q_norm.weight", &[6]),
        ("model.layers.2.mlp.down_proj.weight", &[16, 24]),
        ("score.weight", &[2, 16]),
    ] {
        let error = refusal(&llama().with_tensor(name, shape));
        assert!(error.to_string().contains(name) && error.class() == Class::Mismatch, "{error}");
    }
    let (_, notes) = opened(&llama().with_tensor("model.layers.1.self_attn.rotary_emb.inv_freq", &[3]));
    assert!(notes.is_empty());
    let error = refusal(&llama().without_tensor("model.layers.1.mlp.up_proj.weight"));
    assert!(error.to_string().contains("has no tensor model.layers.1.mlp.up_proj.weight"), "{error}");
    let error = refusal(&llama().with("intermediate_size", json!(25)));
    assert!(error.to_string().contains("mlp.gate_proj.weight in model.safetensors is [24, 16]; config.json calls for [25, 16]"), "{error}");
}
