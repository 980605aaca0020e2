//! Made models run through the importer give what the library's own formulas give, in f64: rotation by halves, biases, windows, scaling, heads of any width.

use super::made::{CONTEXT, DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, Made, VOCAB, made};
use crate::checkpoint::{Checkpoint, Config, open};
use crate::export::tests::source_logits;
use dmexp_format::KvDType;
use serde_json::json;
use tempfile::TempDir;

/// What the reference has to be told besides the tensors.
struct Graph {
    frequencies: Vec<f64>,
    factor: f64,
    window: usize,
    eps: f64,
    tied: bool,
}

/// Logits at every position, from the tensors as Hugging Face has them.
fn reference(made: &Made, graph: &Graph, tokens: &[u32]) -> Vec<Vec<f64>> {
    let head = graph.frequencies.len() * 2;
    let t = |name: &str| made.tensor(name).iter().map(|value| f64::from(*value)).collect::<Vec<f64>>();
    let matmul = |w: &[f64], x: &[f64]| w.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect::<Vec<f64>>();
    let norm = |x: &[f64], w: &[f64]| {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        x.iter().zip(w).map(|(x, w)| w * (x / (mean + graph.eps).sqrt())).collect::<Vec<f64>>()
    };
    let biased = |layer: usize, which: &str, x: &[f64]| {
        let mut y = matmul(&t(&format!("model.layers.{layer}.self_attn.{which}_proj.weight")), x);
        let bias = format!("model.layers.{layer}.self_attn.{which}_proj.bias");
        if made.tensors.iter().any(|(name, ..)| *name == bias) {
            y.iter_mut().zip(t(&bias)).for_each(|(y, b)| *y += b);
        }
        y
    };
    // x * cos + rotate_half(x) * sin, head by head.
    let rotate = |x: &mut [f64], position: usize| {
        for x in x.chunks_mut(head) {
            let old = x.to_vec();
            for pair in 0..head / 2 {
                let angle = position as f64 * graph.frequencies[pair];
                let (sin, cos) = (angle.sin() * graph.factor, angle.cos() * graph.factor);
                x[pair] = old[pair] * cos - old[pair + head / 2] * sin;
                x[pair + head / 2] = old[pair + head / 2] * cos + old[pair] * sin;
            }
        }
    };
    let embedding = t("model.embed_tokens.weight");
    let mut keys = vec![Vec::new(); LAYERS];
    let mut values = vec![Vec::new(); LAYERS];
    let mut rows = Vec::new();
    for (position, token) in tokens.iter().enumerate() {
        let mut x = embedding[*token as usize * DIM..][..DIM].to_vec();
        for layer in 0..LAYERS {
            let name = |name: &str| format!("model.layers.{layer}.{name}.weight");
            let h = norm(&x, &t(&name("input_layernorm")));
            let (mut q, mut k) = (biased(layer, "q", &h), biased(layer, "k", &h));
            rotate(&mut q, position);
            rotate(&mut k, position);
            keys[layer].push(k);
            values[layer].push(biased(layer, "v", &h));
            let mut mixed = Vec::new();
            for (number, q) in q.chunks(head).enumerate() {
                let kv = number / (HEADS / KV_HEADS) * head;
                let first = if graph.window == 0 { 0 } else { (position + 1).saturating_sub(graph.window) };
                let scores: Vec<f64> = (first..=position)
                    .map(|past| q.iter().zip(&keys[layer][past][kv..kv + head]).map(|(q, k)| q * k).sum::<f64>() / (head as f64).sqrt())
                    .collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
                let sum: f64 = weights.iter().sum();
                mixed.extend((0..head).map(|i| {
                    (first..=position).zip(&weights).map(|(past, weight)| weight / sum * values[layer][past][kv + i]).sum::<f64>()
                }));
            }
            let out = matmul(&t(&name("self_attn.o_proj")), &mixed);
            x.iter_mut().zip(out).for_each(|(x, y)| *x += y);
            let h = norm(&x, &t(&name("post_attention_layernorm")));
            let (gate, up) = (matmul(&t(&name("mlp.gate_proj")), &h), matmul(&t(&name("mlp.up_proj")), &h));
            let inner: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            assert_eq!(inner.len(), HIDDEN);
            x.iter_mut().zip(matmul(&t(&name("mlp.down_proj")), &inner)).for_each(|(x, y)| *x += y);
        }
        let h = norm(&x, &t("model.norm.weight"));
        rows.push(matmul(&if graph.tied { embedding.clone() } else { t("lm_head.weight") }, &h));
    }
    rows
}

/// The tokens that are fed: to the end of the context.
fn tokens() -> Vec<u32> {
    (0..CONTEXT as u32).map(|place| (place * 17 + place * place) % VOCAB as u32).collect()
}

/// Plain frequencies.
fn plain(theta: f64) -> Vec<f64> {
    (0..3).map(|pair| theta.powf(-2.0 * f64::from(pair) / 6.0)).collect()
}

fn graph() -> Graph {
    Graph { frequencies: plain(500_000.0), factor: 1.0, window: 0, eps: 1e-6, tied: false }
}

fn check(made: &Made, graph: &Graph) -> Checkpoint {
    let folder = TempDir::new().unwrap();
    let source = open(&made.save(&folder)).unwrap();
    let tokens = tokens();
    let found = source_logits(&source, &tokens, KvDType::F32);
    let wanted = reference(made, graph, &tokens);
    let largest = wanted.iter().flatten().fold(0.0f64, |most, value| most.max(value.abs()));
    for (position, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(found.len(), wanted.len());
        let worst = found.iter().zip(wanted).fold(0.0f64, |most, (a, b)| most.max((f64::from(*a) - b).abs()));
        assert!(worst <= 1e-5 * largest, "position {position}: {worst} of {largest}");
    }
    source
}

/// That the reference tells a wrong graph from the right one, from this position on.
fn differs(made: &Made, right: &Graph, wrong: &Graph, from: usize) {
    let (a, b) = (reference(made, right, &tokens()), reference(made, wrong, &tokens()));
    let delta = |position: usize| a[position].iter().zip(&b[position]).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
    assert!((from..CONTEXT).all(|position| delta(position) > 1e-3), "{:?}", (0..CONTEXT).map(delta).collect::<Vec<_>>());
}

#[test]
fn report_41_theta_and_eps_are_those_of_the_model() {
    let made = made("LlamaForCausalLM", "llama");
    let source = check(&made, &graph());
    let Config::Llama(source) = &source.config else { panic!("it is a Llama") };
    assert_eq!((source.rope_theta, source.config.norm_eps, source.config.head_dim), (500_000.0, 1e-6, 6));
    differs(&made, &graph(), &Graph { frequencies: plain(10_000.0), ..graph() }, 3);
    let wide = made.with("rms_norm_eps", json!(0.5));
    check(&wide, &Graph { eps: 0.5, ..graph() });
    differs(&wide, &Graph { eps: 0.5, ..graph() }, &graph(), 0);
}

#[test]
fn report_41_scaling_of_the_rotation_is_carried() {
    let scaled = |scaling: serde_json::Value| made("LlamaForCausalLM", "llama").with("rope_scaling", scaling);
    let linear = scaled(json!({"type": "linear", "factor": 4.0}));
    let quarter = Graph { frequencies: plain(500_000.0).into_iter().map(|f| f / 4.0).collect(), ..graph() };
    let source = check(&linear, &quarter);
    let Config::Llama(source) = &source.config else { panic!("it is a Llama") };
    assert_eq!(source.rope_scaling.len(), 2);
    differs(&linear, &quarter, &graph(), 2);
    // Wavelengths 6.3, 499 and 39584: kept, between, divided.
    let llama3 = scaled(
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}),
    );
    let f = plain(500_000.0);
    let smooth = (1024.0 / (2.0 * std::f64::consts::PI / f[1]) - 1.0) / 3.0;
    assert!((0.0..1.0).contains(&smooth));
    let frequencies = vec![f[0], (1.0 - smooth) * f[1] / 8.0 + smooth * f[1], f[2] / 8.0];
    check(&llama3, &Graph { frequencies, ..graph() });
    let yarn = scaled(json!({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 24, "attention_factor": 1.5}));
    let Config::Llama(source) = check_only(&yarn) else { panic!("it is a Llama") };
    let frequencies = source.inv_freq.iter().map(|f| f64::from(*f)).collect();
    check(&yarn, &Graph { frequencies, factor: 1.5, ..graph() });
}

fn check_only(made: &Made) -> Config {
    let folder = TempDir::new().unwrap();
    open(&made.save(&folder)).unwrap().config
}

#[test]
fn windows_biases_and_ties_are_those_of_the_library() {
    let mistral = made("MistralForCausalLM", "mistral").with("sliding_window", json!(7));
    check(&mistral, &Graph { window: 7, ..graph() });
    differs(&mistral, &Graph { window: 7, ..graph() }, &Graph { window: 8, ..graph() }, 7);
    check(&mistral.with("sliding_window", json!(CONTEXT)), &graph());
    let qwen = made("Qwen2ForCausalLM", "qwen2");
    let source = check(&qwen, &graph());
    let Config::Llama(source) = &source.config else { panic!("it is a Llama") };
    assert!(source.config.qkv_bias);
    let windowed = qwen.with("use_sliding_window", json!(true)).with("sliding_window", json!(9)).with("max_window_layers", json!(0));
    check(&windowed, &Graph { window: 9, ..graph() });
    let tied = made("LlamaForCausalLM", "llama").with("tie_word_embeddings", json!(true)).without_tensor("lm_head.weight");
    check(&tied, &Graph { tied: true, ..graph() });
}
