//! Small checkpoints of every format.

use super::{bytes_of, numbers, reference};
use crate::checkpoints::stored;
use dmexp_tools::checkpoint::DormouseConfig;
use dmexp_tools::error::Result;
use serde_json::json;
use std::sync::LazyLock;

/// The sizes of a Llama: those of the seeds.
const DIM: usize = 8;
const HIDDEN: usize = 12;
const LAYERS: usize = 1;
const HEADS: usize = 2;
const KV_HEADS: usize = 1;
const CONTEXT: usize = 48;

/// A llama2.c checkpoint of version 0 with so many tokens, whose embedding is its classifier.
pub(crate) fn llama2c_of(vocab: usize) -> Vec<u8> {
    let kv = DIM / HEADS * KV_HEADS;
    let head = [DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, vocab, CONTEXT].map(|size| size as u32);
    let layer = 2 * DIM + 2 * DIM * DIM + 2 * kv * DIM + 3 * HIDDEN * DIM;
    let weights = numbers(vocab * DIM + LAYERS * layer + DIM);
    // Cosines and sines, in which theta stands.
    let angle = |place: usize| {
        let half = DIM / HEADS / 2;
        (place / half) as f32 / 10_000f32.powf((place % half) as f32 / half as f32)
    };
    let places = 0..CONTEXT * DIM / HEADS / 2;
    let tables: Vec<f32> = places.clone().map(|place| angle(place).cos()).chain(places.map(|place| angle(place).sin())).collect();
    [head.iter().flat_map(|size| size.to_le_bytes()).collect(), bytes_of(&weights), bytes_of(&tables)].concat()
}

pub(crate) fn llama2c() -> Vec<Vec<u8>> {
    let zero = llama2c_of(16);
    let shape = zero.get(..28).unwrap_or_default();
    let padded = |version: i32, rest: &[u8]| {
        let mut file = [b"24ka".as_slice(), &version.to_le_bytes(), shape, rest].concat();
        file.resize(256, 0);
        file
    };
    let weights = numbers(16 * DIM + 3 * DIM + 2 * DIM * DIM + 2 * DIM * 4 + 3 * DIM * HIDDEN);
    let one = [padded(1, &[1]), bytes_of(&weights)].concat();
    // Norms, then matrices as codes and a scale for each group of 4.
    let norms = bytes_of(&numbers(3 * DIM));
    let codes = |count: usize| [(0..count).map(|place| (place * 7 % 255) as u8).collect(), bytes_of(&vec![0.01; count / 4])].concat();
    let matrices = [16 * DIM, DIM * DIM, 4 * DIM, 4 * DIM, DIM * DIM, HIDDEN * DIM, DIM * HIDDEN, HIDDEN * DIM];
    let two = [padded(2, &[1, 4, 0, 0, 0]), norms, matrices.into_iter().flat_map(codes).collect()].concat();
    vec![zero, one, two]
}

/// Names and sizes of the tensors of a Llama of these sizes, as llama2.c's training calls them.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let kv = DIM / HEADS * KV_HEADS;
    let within = [
        ("attention_norm", vec![DIM]),
        ("attention.wq", vec![DIM, DIM]),
        ("attention.wk", vec![kv, DIM]),
        ("attention.wv", vec![kv, DIM]),
        ("attention.wo", vec![DIM, DIM]),
        ("ffn_norm", vec![DIM]),
        ("feed_forward.w1", vec![HIDDEN, DIM]),
        ("feed_forward.w2", vec![DIM, HIDDEN]),
        ("feed_forward.w3", vec![HIDDEN, DIM]),
    ];
    let mut list = vec![("tok_embeddings.weight".to_owned(), vec![16, DIM])];
    list.extend(within.map(|(name, sizes)| (format!("layers.0.{name}.weight"), sizes)));
    list.extend([("norm.weight".to_owned(), vec![DIM]), ("output.weight".to_owned(), vec![16, DIM])]);
    list
}

fn int(value: usize) -> Vec<u8> {
    [b"J".as_slice(), &(value as u32).to_le_bytes()].concat()
}

fn text(value: &str) -> Vec<u8> {
    [b"X".as_slice(), &(value.len() as u32).to_le_bytes(), value.as_bytes()].concat()
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(".as_slice(), &items.concat(), b"t"].concat()
}

fn dict(items: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<u8> = items.iter().flat_map(|(key, value)| [key.clone(), value.clone()].concat()).collect();
    [b"}(".as_slice(), &items, b"u"].concat()
}

/// What `torch.save` pickles of a checkpoint of llama2.c's training.
static PICKLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let tensor = |(number, (name, sizes)): (usize, &(String, Vec<usize>))| {
        let count = sizes.iter().product();
        let strides = if let [_, columns] = sizes[..] { vec![columns, 1] } else { vec![1] };
        let class = b"ctorch\nFloatStorage\n".to_vec();
        let id = tuple(&[text("storage"), class, text(&number.to_string()), text("cpu"), int(count)]);
        let list = |numbers: &[usize]| tuple(&numbers.iter().copied().map(int).collect::<Vec<_>>());
        let hooks = b"ccollections\nOrderedDict\n)R".to_vec();
        let arguments = tuple(&[[id, b"Q".to_vec()].concat(), int(0), list(sizes), list(&strides), b"\x89".to_vec(), hooks]);
        (text(name), [b"ctorch._utils\n_rebuild_tensor_v2\n".to_vec(), arguments, b"R".to_vec()].concat())
    };
    let state: Vec<_> = tensors().iter().enumerate().map(tensor).collect();
    let sizes = [("dim", DIM), ("n_layers", LAYERS), ("n_heads", HEADS), ("n_kv_heads", KV_HEADS), ("vocab_size", 16)];
    let more = [("hidden_dim", HIDDEN), ("max_seq_len", CONTEXT), ("multiple_of", 4)];
    let args: Vec<_> = sizes.iter().chain(&more).map(|(key, value)| (text(key), int(*value))).collect();
    let whole = dict(&[(text("model"), dict(&state)), (text("model_args"), dict(&args)), (text("iter_num"), int(7))]);
    [b"\x80\x02".as_slice(), &whole, b"."].concat()
});

/// The storages that the pickle names.
static STORAGES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    let storage =
        |(number, (_, sizes)): (usize, &(String, Vec<usize>))| (format!("made/data/{number}"), bytes_of(&numbers(sizes.iter().product())));
    tensors().iter().enumerate().map(storage).collect()
});

/// An archive of a pickle and those storages.
pub(crate) fn archive_of(pickle: &[u8]) -> Vec<u8> {
    let mut members = vec![("made/data.pkl".to_owned(), pickle.to_vec()), ("made/byteorder".to_owned(), b"little".to_vec())];
    members.extend(STORAGES.iter().cloned());
    members.push(("made/version".to_owned(), b"3\n".to_vec()));
    stored(&members)
}

pub(crate) fn pickles() -> Vec<Vec<u8>> {
    vec![PICKLE.clone()]
}

pub(crate) fn pytorch() -> Vec<Vec<u8>> {
    vec![archive_of(&PICKLE)]
}

/// `config.json` and `model.safetensors` of a small Llama.
pub(crate) fn hugging_face() -> (Vec<u8>, Vec<u8>) {
    static MADE: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| (hf_config("LlamaForCausalLM", "llama"), hf_weights()));
    MADE.clone()
}

fn hf_config(class: &str, kind: &str) -> Vec<u8> {
    let config = json!({
        "architectures": [class], "model_type": kind, "hidden_act": "silu", "hidden_size": DIM, "intermediate_size": HIDDEN,
        "max_position_embeddings": CONTEXT, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "rope_scaling": null, "tie_word_embeddings": true, "torch_dtype": "float32",
        "vocab_size": 16, "bos_token_id": 1, "eos_token_id": [2, 3], "head_dim": DIM / HEADS
    });
    config.to_string().into_bytes()
}

fn hf_weights() -> Vec<u8> {
    let kv = DIM / HEADS * KV_HEADS;
    let within = [
        ("input_layernorm", vec![DIM]),
        ("self_attn.q_proj", vec![DIM, DIM]),
        ("self_attn.k_proj", vec![kv, DIM]),
        ("self_attn.v_proj", vec![kv, DIM]),
        ("self_attn.o_proj", vec![DIM, DIM]),
        ("post_attention_layernorm", vec![DIM]),
        ("mlp.gate_proj", vec![HIDDEN, DIM]),
        ("mlp.up_proj", vec![HIDDEN, DIM]),
        ("mlp.down_proj", vec![DIM, HIDDEN]),
    ];
    let mut list = vec![("model.embed_tokens.weight".to_owned(), vec![16, DIM])];
    list.extend(within.map(|(name, sizes)| (format!("model.layers.0.{name}.weight"), sizes)));
    list.push(("model.norm.weight".to_owned(), vec![DIM]));
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, sizes) in list {
        let start = data.len();
        data.extend(bytes_of(&numbers(sizes.iter().product())));
        header.insert(name, json!({"dtype": "F32", "shape": sizes, "data_offsets": [start, data.len()]}));
    }
    let header = serde_json::Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

pub(crate) fn safetensors() -> Vec<Vec<u8>> {
    vec![hugging_face().1]
}

pub(crate) fn hf_configs() -> Vec<Vec<u8>> {
    let scaled = String::from_utf8(hugging_face().0).expect("JSON is text").replace(
        "\"rope_scaling\":null",
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":6}",
    );
    let yarn = scaled.replace("llama3", "yarn").replace("\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,", "");
    vec![hugging_face().0, hf_config("MistralForCausalLM", "mistral"), scaled.into(), yarn.into()]
}

/// A GGUF file with these keys behind those of a Llama, whose weights are f32.
fn gguf_of(vocab: usize, more: &[Vec<u8>]) -> Vec<u8> {
    let kv = DIM / HEADS * KV_HEADS;
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let pair = |key: &str, kind: u32, value: &[u8]| [string(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat();
    let number = |key: &str, value: usize| pair(key, 4, &(value as u32).to_le_bytes());
    let mut keys = vec![
        pair("general.architecture", 8, &string("llama")),
        number("llama.block_count", LAYERS),
        number("llama.context_length", CONTEXT),
        number("llama.embedding_length", DIM),
        number("llama.feed_forward_length", HIDDEN),
        number("llama.attention.head_count", HEADS),
        number("llama.attention.head_count_kv", KV_HEADS),
        pair("llama.attention.layer_norm_rms_epsilon", 6, &1e-5f32.to_le_bytes()),
        pair("llama.rope.freq_base", 6, &1e4f32.to_le_bytes()),
    ];
    keys.extend(more.iter().cloned());
    let within = [
        ("attn_norm", vec![DIM]),
        ("attn_q", vec![DIM, DIM]),
        ("attn_k", vec![DIM, kv]),
        ("attn_v", vec![DIM, kv]),
        ("attn_output", vec![DIM, DIM]),
        ("ffn_norm", vec![DIM]),
        ("ffn_gate", vec![DIM, HIDDEN]),
        ("ffn_up", vec![DIM, HIDDEN]),
        ("ffn_down", vec![HIDDEN, DIM]),
    ];
    let mut tensors = vec![("token_embd.weight".to_owned(), vec![DIM, vocab])];
    tensors.extend(within.map(|(name, sizes)| (format!("blk.0.{name}.weight"), sizes)));
    tensors.push(("output_norm.weight".to_owned(), vec![DIM]));
    let mut file = [b"GGUF\x03\0\0\0".as_slice(), &(tensors.len() as u64).to_le_bytes(), &(keys.len() as u64).to_le_bytes()].concat();
    file.extend(keys.concat());
    let mut data = Vec::new();
    for (name, sizes) in &tensors {
        file.extend([string(name), (sizes.len() as u32).to_le_bytes().to_vec()].concat());
        file.extend(sizes.iter().flat_map(|size| (*size as u64).to_le_bytes()));
        file.extend([&0u32.to_le_bytes()[..], &(data.len() as u64).to_le_bytes()].concat());
        data.extend(bytes_of(&numbers(sizes.iter().product())));
        data.resize(data.len().next_multiple_of(32), 0);
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    file
}

pub(crate) fn gguf() -> Vec<Vec<u8>> {
    let string = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let key = |key: &str, kind: u32, value: &[u8]| [string(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat();
    let list = |name: &str, kind: u32, items: &[Vec<u8>]| {
        key(name, 9, &[&kind.to_le_bytes()[..], &(items.len() as u64).to_le_bytes(), &items.concat()].concat())
    };
    let pieces: Vec<String> = ["<unk>", "<s>", "</s>"]
        .map(str::to_owned)
        .into_iter()
        .chain((0..256).map(|byte| format!("<0x{byte:02X}>")))
        .chain(["\u{2581}", "a"].map(str::to_owned))
        .collect();
    let kinds = |place: usize| match place {
        0 => 2,
        1 | 2 => 3,
        3..=258 => 6,
        _ => 1u32,
    };
    let tokenizer = [
        key("tokenizer.ggml.model", 8, &string("llama")),
        list("tokenizer.ggml.tokens", 8, &pieces.iter().map(|piece| string(piece)).collect::<Vec<_>>()),
        list("tokenizer.ggml.scores", 6, &vec![0f32.to_le_bytes().to_vec(); pieces.len()]),
        list("tokenizer.ggml.token_type", 5, &(0..pieces.len()).map(|place| kinds(place).to_le_bytes().to_vec()).collect::<Vec<_>>()),
        key("tokenizer.ggml.bos_token_id", 4, &1u32.to_le_bytes()),
        key("tokenizer.ggml.eos_token_id", 4, &2u32.to_le_bytes()),
        key("tokenizer.chat_template", 8, &string("{% for m in messages %}{{ m.content }}{% endfor %}")),
    ];
    vec![gguf_of(16, &[]), gguf_of(pieces.len(), &tokenizer)]
}

/// The configuration of the reference data's training container.
pub(crate) fn dormouse_config() -> Result<DormouseConfig> {
    let changes = ["d_model=32", "n_heads=4", "head_dim=8", "d_ffn=48", "max_seq_len=64", "rank=8", "engram_rows=60"];
    DormouseConfig::from_preset("small", &changes.map(str::to_owned))
}

/// A container with one tensor, in both forms; and the whole one of the reference data, where they are here.
pub(crate) fn dormouse_checkpoints() -> Vec<Vec<u8>> {
    let cbor = |text: &str| [&[0x60 | text.len() as u8][..], text.as_bytes()].concat();
    let fields = [
        (cbor("dtype"), cbor("F32")),
        (cbor("shape"), vec![0x82, 0x02, 0x04]),
        (cbor("data_offsets"), vec![0x82, 0x00, 0x18, 32]),
        (cbor("param_id"), vec![0x07]),
    ];
    let entry: Vec<u8> = fields.into_iter().flat_map(|(key, value)| [key, value].concat()).collect();
    let metadata = [&[0xa1][..], &cbor("tensors"), &[0xa1], &cbor("embed.weight"), &[0xa4], &entry].concat();
    let mut record = [b"NRUB\x01\0".as_slice(), &(metadata.len() as u32).to_le_bytes(), &metadata].concat();
    record.resize(256, 0);
    record.extend(bytes_of(&numbers(8)));
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let new = [b"DMCK\0\x02\0\0".as_slice(), &words(&[20, record.len() as u64, 0, 0, 1]), &record].concat();
    let old = [words(&[20, record.len() as u64, 0]), record].concat();
    [new, old].into_iter().chain(reference("dormouse/ckpt/noteacher.bin")).collect()
}

/// The network of the example: its weights and its architecture.
pub(crate) fn tones() -> (&'static [u8], &'static str) {
    (include_bytes!("../../../../models/tones.bin"), include_str!("../../../../models/tones.arch.toml"))
}

pub(crate) fn rustyml() -> Vec<Vec<u8>> {
    vec![tones().0.to_vec()]
}

pub(crate) fn rustyml_archs() -> Vec<Vec<u8>> {
    vec![tones().1.into()]
}
