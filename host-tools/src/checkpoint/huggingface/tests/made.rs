//! Small Hugging Face models made in memory, and their files as the library writes them; shares no code with the reader.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A tensor: name, shape, values.
pub(super) type Tensor = (String, Vec<usize>, Vec<f32>);

/// A model: config.json and tensors.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) config: Value,
    pub(super) tensors: Vec<Tensor>,
}

pub(super) const DIM: usize = 16;
pub(super) const HIDDEN: usize = 24;
pub(super) const LAYERS: usize = 2;
pub(super) const HEADS: usize = 4;
pub(super) const KV_HEADS: usize = 2;
pub(super) const VOCAB: usize = 40;
pub(super) const CONTEXT: usize = 48;

/// A model of this class: keys and values are two heads of the four, heads are 6 wide and not 16 / 4.
pub(super) fn made(class: &str, kind: &str) -> Made {
    let head = 6;
    let config = json!({
        "architectures": [class],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": head,
        "hidden_act": "silu",
        "hidden_size": DIM,
        "initializer_range": 0.02,
        "intermediate_size": HIDDEN,
        "max_position_embeddings": CONTEXT,
        "model_type": kind,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-6,
        "rope_scaling": null,
        "rope_theta": 500_000.0,
        "sliding_window": null,
        "tie_word_embeddings": false,
        "torch_dtype": "float32",
        "transformers_version": "4.44.2",
        "use_cache": true,
        "vocab_size": VOCAB
    });
    let mut random = crate::export::tests::random();
    let mut tensors = Vec::new();
    let mut tensor = |name: String, shape: &[usize]| {
        let count = shape.iter().product();
        tensors.push((name, shape.to_vec(), (0..count).map(|_| random() * 0.6).collect()));
    };
    tensor("model.embed_tokens.weight".to_owned(), &[VOCAB, DIM]);
    for layer in 0..LAYERS {
        let mut within = |name: &str, shape: &[usize]| tensor(format!("model.layers.{layer}.{name}"), shape);
        within("input_layernorm.weight", &[DIM]);
        within("self_attn.q_proj.weight", &[HEADS * head, DIM]);
        within("self_attn.k_proj.weight", &[KV_HEADS * head, DIM]);
        within("self_attn.v_proj.weight", &[KV_HEADS * head, DIM]);
        within("self_attn.o_proj.weight", &[DIM, HEADS * head]);
        if class == "Qwen2ForCausalLM" {
            within("self_attn.q_proj.bias", &[HEADS * head]);
            within("self_attn.k_proj.bias", &[KV_HEADS * head]);
            within("self_attn.v_proj.bias", &[KV_HEADS * head]);
        }
        within("post_attention_layernorm.weight", &[DIM]);
        within("mlp.gate_proj.weight", &[HIDDEN, DIM]);
        within("mlp.up_proj.weight", &[HIDDEN, DIM]);
        within("mlp.down_proj.weight", &[DIM, HIDDEN]);
    }
    tensor("model.norm.weight".to_owned(), &[DIM]);
    tensor("lm_head.weight".to_owned(), &[VOCAB, DIM]);
    Made { config, tensors }
}

pub(super) fn llama() -> Made {
    made("LlamaForCausalLM", "llama")
}

/// A safetensors file: header and data.
pub(super) fn file(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// The header's entries and the data of these tensors.
pub(super) fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut data = Vec::new();
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}));
    }
    file(&Value::Object(header).to_string(), &data)
}

impl Made {
    /// Sets a key of config.json.
    pub(super) fn with(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    /// Takes a key out of config.json.
    pub(super) fn without(mut self, key: &str) -> Self {
        self.config.as_object_mut().unwrap().remove(key);
        self
    }

    /// Takes a tensor out.
    pub(super) fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|(other, ..)| other != name);
        self
    }

    /// Adds a tensor.
    pub(super) fn with_tensor(mut self, name: &str, shape: &[usize]) -> Self {
        let count = shape.iter().product();
        self.tensors.push((name.to_owned(), shape.to_vec(), vec![0.25; count]));
        self
    }

    pub(super) fn tensor(&self, name: &str) -> &[f32] {
        &self.tensors.iter().find(|(other, ..)| other == name).unwrap_or_else(|| panic!("no {name}")).2
    }

    /// Writes the folder.
    pub(super) fn save(&self, folder: &TempDir) -> PathBuf {
        self.save_config(folder.path());
        std::fs::write(folder.path().join("model.safetensors"), safetensors(&self.tensors)).unwrap();
        folder.path().to_path_buf()
    }

    fn save_config(&self, folder: &Path) {
        std::fs::write(folder.join("config.json"), self.config.to_string()).unwrap();
    }

    /// Writes the folder with the weights in `parts` files.
    pub(super) fn save_parts(&self, folder: &TempDir, parts: usize) -> PathBuf {
        self.save_config(folder.path());
        let mut map = serde_json::Map::new();
        for (number, chunk) in self.tensors.chunks(self.tensors.len().div_ceil(parts)).enumerate() {
            let name = format!("model-{:05}-of-{parts:05}.safetensors", number + 1);
            map.extend(chunk.iter().map(|(tensor, ..)| (tensor.clone(), Value::from(name.clone()))));
            std::fs::write(folder.path().join(name), safetensors(chunk)).unwrap();
        }
        let index = json!({"metadata": {}, "weight_map": map});
        std::fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        folder.path().to_path_buf()
    }
}
