//! The metadata of Llama-family models: what is mapped, and what is refused by name.

use super::make::{self, Gguf, TINY, refusal};
use crate::checkpoint::{Checkpoint, Config, LlamaSource};
use crate::error::Class;
use dmexp_format::arch::llama::RopeLayout;

fn changed(change: impl FnOnce(&mut Gguf)) -> Vec<u8> {
    let mut file = make::model(&TINY);
    change(&mut file);
    file.bytes()
}

#[allow(irrefutable_let_patterns, reason = "there may be other architectures")]
fn source(checkpoint: &Checkpoint) -> &LlamaSource {
    let Config::Llama(source) = &checkpoint.config else { panic!("it is a Llama") };
    source
}

/// A Qwen2 of the tiny shape: its keys, and biases on q, k and v.
fn qwen2() -> Gguf {
    let mut file = make::model(&TINY);
    for (key, _) in &mut file.keys {
        *key = key.replacen("llama.", "qwen2.", 1);
    }
    file.set("general.architecture", "qwen2");
    for layer in 0..TINY.layers {
        for (name, count) in [("q", TINY.dim), ("k", 4), ("v", 4)] {
            let data = make::weights(count as usize, layer + 50).iter().flat_map(|bias| bias.to_le_bytes()).collect();
            file.tensor(&format!("blk.{layer}.attn_{name}.bias"), &[count], 0, data);
        }
    }
    file
}

#[test]
fn every_key_that_is_mapped_arrives() {
    let checkpoint = make::open(make::model(&TINY).bytes()).unwrap();
    let found = source(&checkpoint);
    let config = found.config;
    assert_eq!((config.dim, config.hidden_dim, config.n_layers, config.n_heads, config.n_kv_heads), (8, 12, 2, 2, 1));
    assert_eq!((config.head_dim, config.vocab_size, config.max_seq_len, config.sliding_window), (4, 16, 32, 0));
    assert_eq!((config.norm_eps, config.rope_layout, config.attention_factor), (1e-5, RopeLayout::Interleaved, 1.0));
    assert!(config.tied_embeddings && !config.qkv_bias);
    assert_eq!((found.rope_theta, found.inv_freq.as_slice()), (10_000.0, [1.0, 0.01].as_slice()));

    let bytes = changed(|file| {
        file.set("llama.attention.sliding_window", 7u32).set("llama.attention.layer_norm_rms_epsilon", 1e-6);
        let data = file.named("token_embd.weight").data.clone();
        file.tensor("output.weight", &[TINY.dim, TINY.vocab], 0, data);
    });
    let checkpoint = make::open(bytes).unwrap();
    let config = source(&checkpoint).config;
    assert_eq!((config.sliding_window, config.norm_eps, config.tied_embeddings), (7, 1e-6, false));
}

#[test]
fn qwen2_has_biases_and_pairs_half_a_head_apart() {
    let checkpoint = make::open(qwen2().bytes()).unwrap();
    let config = source(&checkpoint).config;
    assert_eq!((config.rope_layout, config.qkv_bias), (RopeLayout::Half, true));
    assert_eq!(checkpoint.array("layers.1.attention.wq.bias").map(|array| array.count()), Some(8));
    let mut without = qwen2();
    without.tensors.retain(|tensor| tensor.name != "blk.1.attn_k.bias");
    assert!(refusal(without.bytes()).contains("no tensor blk.1.attn_k.bias"));
}

#[test]
fn what_the_file_does_not_state_is_said_to_be_a_default() {
    let bytes = changed(|file| _ = file.unset("llama.rope.freq_base").unset("llama.attention.head_count_kv"));
    // Without its key every head is a key/value head, so the made tensors do not fit.
    assert!(refusal(bytes).contains("blk.0.attn_k.weight has the sizes [8, 4]; its configuration calls for [8, 8]"));
    let checkpoint = make::open(changed(|file| _ = file.unset("llama.rope.freq_base"))).unwrap();
    let found = source(&checkpoint);
    assert_eq!(found.rope_theta, 10_000.0);
    assert!(found.fixed.iter().any(|fixed| fixed.key == "rope_theta" && fixed.value == "10000"));
}

#[test]
fn missing_keys_are_named() {
    for key in [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ] {
        let key = format!("llama.{key}");
        let error = refusal(changed(|file| _ = file.unset(&key)));
        assert!(error.contains(&format!("has no {key}")), "{error}");
    }
    assert!(refusal(changed(|file| _ = file.unset("general.architecture"))).contains("general.architecture"));
}

#[test]
fn keys_that_change_what_is_computed_are_refused_by_name() {
    let cases: [(&str, make::Value); 15] = [
        ("llama.expert_count", 8u32.into()),
        ("llama.rope.scaling.type", "longrope".into()),
        ("llama.rope.scaling.yarn_log_multiplier", 0.1.into()),
        ("llama.rope.dimension_count", 2u32.into()),
        ("llama.attention.value_length", 6u32.into()),
        ("llama.attention.causal", false.into()),
        ("llama.attention.clamp_kqv", 8.0.into()),
        ("llama.attention.scale", 0.25.into()),
        ("llama.logit_scale", 0.5.into()),
        ("llama.embedding_scale", 12.0.into()),
        ("llama.final_logit_softcapping", 30.0.into()),
        ("llama.use_parallel_residual", true.into()),
        ("llama.tensor_data_layout", "something".into()),
        ("llama.interleave_moe_layer_step", 0u32.into()),
        ("llama.feed_forward_length", make::Value::I32s(vec![12, 12])),
    ];
    for (key, value) in cases {
        let error = refusal(changed(|file| _ = file.set(key, value.clone())));
        let name = key.rsplit('.').next().unwrap();
        // Two of them are named by what they mean.
        let meaning = match name {
            "dimension_count" => "the rotation covers 2 elements",
            "value_length" => "values have heads of 6 elements",
            _ => key,
        };
        assert!(error.contains(meaning), "{key}: {error}");
    }
}

#[test]
fn keys_that_change_nothing_at_their_value_are_taken() {
    let cases: [(&str, make::Value); 11] = [
        ("llama.expert_count", 0u32.into()),
        ("llama.attention.causal", true.into()),
        ("llama.attention.scale", 0.5.into()),
        ("llama.attention.key_length", 4u32.into()),
        ("llama.rope.dimension_count", 4u32.into()),
        ("llama.rope.scaling.type", "none".into()),
        ("llama.rope.scaling.original_context_length", 16u32.into()),
        ("llama.vocab_size", 16u32.into()),
        ("llama.logit_scale", 1.0.into()),
        ("llama.tensor_data_layout", "Meta AI original pth".into()),
        ("llama.block_count", make::Value::I32(2)),
    ];
    for (key, value) in cases {
        assert!(make::open(changed(|file| _ = file.set(key, value.clone()))).is_ok(), "{key}");
    }
    assert!(refusal(changed(|file| _ = file.set("llama.vocab_size", 17u32))).contains("17"));
}

#[test]
fn linear_scaling_and_the_factors_of_llama_3_divide_the_frequencies() {
    let frequencies = |change: &dyn Fn(&mut Gguf)| source(&make::open(changed(|file| change(file))).unwrap()).inv_freq.clone();
    let linear = frequencies(&|file| _ = file.set("llama.rope.scaling.type", "linear").set("llama.rope.scaling.factor", 4.0));
    assert_eq!(linear, [0.25, 0.0025]);
    assert_eq!(frequencies(&|file| _ = file.set("llama.rope.scale_linear", 4.0)), [0.25, 0.0025]);
    let factors =
        |values: [f32; 2]| move |file: &mut Gguf| _ = file.tensor("rope_freqs.weight", &[2], 0, values.map(f32::to_le_bytes).concat());
    assert_eq!(frequencies(&factors([1.0, 8.0])), [1.0, 0.00125]);
    for wrong in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let error = refusal(changed(factors([1.0, wrong])));
        assert!(error.contains("rope_freqs.weight") && error.contains("at 1"), "{error}");
    }
    let error = refusal(changed(|file| _ = file.tensor("rope_freqs.weight", &[3], 0, vec![0; 12])));
    assert!(error.contains("rope_freqs.weight") && error.contains("[3]"), "{error}");
    for wrong in [0.0, f32::NAN, -2.0] {
        let error = refusal(changed(|file| _ = file.set("llama.rope.scaling.type", "linear").set("llama.rope.scaling.factor", wrong)));
        assert!(error.contains("rope.scaling.factor"), "{error}");
    }
}

#[test]
fn yarn_mixes_frequencies_and_scales_the_attention() {
    let yarn = |factor: f32, original: u32| {
        changed(move |file| {
            file.set("llama.rope.scaling.type", "yarn").set("llama.rope.scaling.factor", factor);
            file.set("llama.rope.scaling.original_context_length", original);
        })
    };
    // By the formula of the paper in numpy, head_dim 4, theta 10000, factor 4, 1000 positions: pairs 0 to 2 are mixed.
    let checkpoint = make::open(yarn(4.0, 1000)).unwrap();
    let found = source(&checkpoint);
    assert_eq!(found.inv_freq, [1.0, 0.006_25]);
    assert_eq!(found.config.attention_factor, 1.138_629_4);
    assert!(!found.fixed.iter().any(|fixed| fixed.key == "attention_factor"));
    for wrong in [0.5, 0.0, -1.0, f32::NAN] {
        assert!(refusal(yarn(wrong, 1000)).contains("llama.rope.scaling.factor"), "{wrong}");
    }
    assert!(refusal(changed(|file| _ = file.set("llama.rope.scaling.type", "yarn"))).contains("yarn has one from 1"));
    assert!(refusal(changed(|file| _ = file.set("llama.rope.scaling.attn_factor", 2.0))).contains("attn_factor is 2"));
    // Head_dim 16 has pairs that stay, that are mixed and that are divided.
    let mut wide = make::model(&make::Shape { dim: 32, ..TINY });
    wide.set("llama.rope.scaling.type", "yarn")
        .set("llama.rope.scaling.factor", 4.0)
        .set("llama.rope.scaling.original_context_length", 1024u32);
    let expected = [1.0, 0.316_227_76, 0.081_25, 0.019_764_235, 0.004_375, 0.000_790_569_4, 0.000_25, 0.000_079_056_94];
    assert_eq!(source(&make::open(wide.bytes()).unwrap()).inv_freq, expected);
}

#[test]
fn tensors_are_matched_strictly() {
    let missing = changed(|file| file.tensors.retain(|tensor| tensor.name != "blk.1.ffn_gate.weight"));
    assert!(refusal(missing).contains("no tensor blk.1.ffn_gate.weight"));
    let extra = changed(|file| _ = file.tensor("blk.0.attn_q_norm.weight", &[4], 0, vec![0; 16]));
    assert!(refusal(extra).contains("a tensor blk.0.attn_q_norm.weight of the sizes [4]"));
    let bias = changed(|file| _ = file.tensor("blk.0.attn_output.bias", &[8], 0, vec![0; 32]));
    assert!(refusal(bias).contains("blk.0.attn_output.bias"));
    let turned = changed(|file| file.named("blk.0.attn_k.weight").sizes = vec![4, 8]);
    assert!(refusal(turned).contains("blk.0.attn_k.weight has the sizes [4, 8]; its configuration calls for [8, 4]"));
    let more_layers = changed(|file| _ = file.set("llama.block_count", 4096u32));
    assert!(refusal(more_layers).contains("no tensor blk.2.attn_norm.weight"));
}

#[test]
fn other_files_in_the_same_container_are_named() {
    let architecture = changed(|file| _ = file.set("general.architecture", "mamba"));
    assert_eq!(make::open(architecture.clone()).unwrap_err().class(), Class::NotAModel);
    assert!(refusal(architecture).contains("\"mamba\""));
    assert!(refusal(changed(|file| _ = file.set("general.type", "adapter"))).contains("\"adapter\""));
    assert!(refusal(changed(|file| _ = file.set("split.count", 3u32))).contains("one of 3 parts"));
    let old = changed(|file| {
        file.set("general.quantization_version", 1u32);
        let tensor = file.named("token_embd.weight");
        // 8 wide is no whole block, so the layer below is not reached: a matrix of 32 columns is.
        (tensor.kind, tensor.sizes, tensor.data) = (8, vec![32, 4], vec![0; 4 * 34]);
    });
    assert!(refusal(old).contains("general.quantization_version is 1"));
}
