//! Models in the formats of others, made of the story model: what pages name that show how such a model is exported.

use dmexp::format::file::ModelFile;
use dmexp_tests::story;
use std::fs;
use std::path::Path;

/// A tensor: its name in llama2.c, its sizes, the fastest-running last, and its numbers as f32.
struct Tensor {
    name: String,
    sizes: Vec<u32>,
    bytes: Vec<u8>,
}

/// The story model's tensors, without tokenizer and tables.
fn tensors() -> Vec<Tensor> {
    let folder = dmexp_tests::folder();
    let bytes = fs::read(story().export(folder.path(), "story.dmexp", "--dtype f32 --no-golden")).unwrap();
    let file = ModelFile::open(&bytes).unwrap();
    let weights = file.tensors().filter(|tensor| tensor.name.ends_with(".weight"));
    weights
        .map(|tensor| Tensor {
            name: tensor.name.to_owned(),
            sizes: tensor.view.dims().as_slice().to_vec(),
            bytes: tensor.view.bytes().to_vec(),
        })
        .collect()
}

/// The shape of the story model, as both formats below spell it out.
const DIM: u32 = 64;
const HIDDEN: u32 = 172;
const LAYERS: u32 = 5;
const HEADS: u32 = 8;
const KV_HEADS: u32 = 4;
const VOCABULARY: u32 = 512;
const CONTEXT: u32 = 256;

/// The story model in GGUF, with its tokenizer.
pub(crate) fn gguf() -> Vec<u8> {
    fn text(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes()[..], text].concat()
    }
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut set = |name: &str, kind: u32, value: Vec<u8>| keys.push([text(name.as_bytes()), kind.to_le_bytes().to_vec(), value].concat());
    set("general.architecture", 8, text(b"llama"));
    for (name, value) in [
        ("llama.block_count", LAYERS),
        ("llama.context_length", CONTEXT),
        ("llama.embedding_length", DIM),
        ("llama.feed_forward_length", HIDDEN),
        ("llama.attention.head_count", HEADS),
        ("llama.attention.head_count_kv", KV_HEADS),
        ("tokenizer.ggml.bos_token_id", 1),
        ("tokenizer.ggml.eos_token_id", 2),
        ("tokenizer.ggml.unknown_token_id", 0),
    ] {
        set(name, 4, value.to_le_bytes().to_vec());
    }
    set("llama.attention.layer_norm_rms_epsilon", 6, 1e-5f32.to_le_bytes().to_vec());
    set("llama.rope.freq_base", 6, 10_000f32.to_le_bytes().to_vec());
    set("tokenizer.ggml.model", 8, text(b"llama"));
    let pieces = pieces();
    let array = |kind: u32, items: Vec<u8>| [&kind.to_le_bytes()[..], &(pieces.len() as u64).to_le_bytes(), &items].concat();
    set("tokenizer.ggml.tokens", 9, array(8, pieces.iter().flat_map(|(piece, _)| text(piece)).collect()));
    set("tokenizer.ggml.scores", 9, array(6, pieces.iter().flat_map(|(_, score)| score.to_le_bytes()).collect()));
    let kind = |place: usize| -> i32 {
        match place {
            0 => 2,
            1 | 2 => 3,
            3..259 => 6,
            _ => 1,
        }
    };
    set("tokenizer.ggml.token_type", 9, array(5, (0..pieces.len()).flat_map(|place| kind(place).to_le_bytes()).collect()));
    let tensors = tensors();
    let (mut list, mut data) = (Vec::new(), Vec::new());
    for tensor in &tensors {
        let name = tensor
            .name
            .replace("layers.", "blk.")
            .replace("tok_embeddings", "token_embd")
            .replace("attention.w", "attn_")
            .replace("attn_o.", "attn_output.")
            .replace("attention_norm", "attn_norm")
            .replace("feed_forward.w1", "ffn_gate")
            .replace("feed_forward.w2", "ffn_down")
            .replace("feed_forward.w3", "ffn_up");
        let name = if name == "norm.weight" { "output_norm.weight".to_owned() } else { name };
        list.extend(text(name.as_bytes()));
        list.extend((tensor.sizes.len() as u32).to_le_bytes());
        list.extend(tensor.sizes.iter().rev().flat_map(|size| u64::from(*size).to_le_bytes()));
        list.extend(0u32.to_le_bytes());
        list.extend((data.len() as u64).to_le_bytes());
        data.extend(&tensor.bytes);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    let mut file = [b"GGUF\x03\0\0\0", &(tensors.len() as u64).to_le_bytes()[..], &(keys.len() as u64).to_le_bytes()].concat();
    file.extend(keys.concat());
    file.extend(list);
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    file
}

/// The pieces and scores of the story model's tokenizer.bin, as sentencepiece spells them.
fn pieces() -> Vec<(Vec<u8>, f32)> {
    let bytes = fs::read(dmexp_tests::root().join("models/story.tokenizer.bin")).unwrap();
    let mut rest = &bytes[4..];
    let mut pieces = Vec::new();
    while let Some((head, body)) = rest.split_at_checked(8) {
        let score = f32::from_le_bytes(*head.first_chunk().unwrap());
        let (piece, after) = body.split_at(u32::from_le_bytes(*head.last_chunk().unwrap()) as usize);
        let special = [&b"<unk>"[..], b"<s>", b"</s>"].get(pieces.len()).map(|name| name.to_vec());
        let spelt = String::from_utf8(piece.to_vec()).unwrap().replace(' ', "\u{2581}").into_bytes();
        pieces.push((special.unwrap_or(spelt), score));
        rest = after;
    }
    pieces
}

/// What `torch.save` writes of these tensors, with llama2.c's arguments around them where they are asked for.
pub(crate) fn torch(with_arguments: bool) -> Vec<u8> {
    let text = |text: &str| [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    let int = |value: u32| [b"J", &value.to_le_bytes()[..]].concat();
    let tuple = |items: &[Vec<u8>]| [b"(", &items.concat()[..], b"t"].concat();
    let dict = |items: Vec<(&str, Vec<u8>)>| {
        let items: Vec<u8> = items.into_iter().flat_map(|(key, value)| [text(key), value].concat()).collect();
        [b"}(", &items[..], b"u"].concat()
    };
    let tensors = tensors();
    let pickled = |number: usize, tensor: &Tensor| {
        let class = b"ctorch\nFloatStorage\n".to_vec();
        let storage = tuple(&[text("storage"), class, text(&number.to_string()), text("cpu"), int((tensor.bytes.len() / 4) as u32)]);
        let strides: Vec<u32> = (0..tensor.sizes.len()).map(|axis| tensor.sizes[axis + 1..].iter().product()).collect();
        let numbers = |numbers: &[u32]| tuple(&numbers.iter().map(|number| int(*number)).collect::<Vec<_>>());
        let hooks = b"ccollections\nOrderedDict\n)R".to_vec();
        let words = [[storage, b"Q".to_vec()].concat(), int(0), numbers(&tensor.sizes), numbers(&strides), b"\x89".to_vec(), hooks];
        [b"ctorch._utils\n_rebuild_tensor_v2\n".to_vec(), tuple(&words), b"R".to_vec()].concat()
    };
    let mut state: Vec<_> = tensors.iter().enumerate().map(|(number, tensor)| (tensor.name.as_str(), pickled(number, tensor))).collect();
    // The classifier is the embedding, with the same storage.
    let embedding = tensors.iter().position(|tensor| tensor.name == "tok_embeddings.weight").unwrap();
    state.push(("output.weight", pickled(embedding, &tensors[embedding])));
    let state = dict(state);
    let sizes = [
        ("dim", DIM),
        ("n_layers", LAYERS),
        ("n_heads", HEADS),
        ("n_kv_heads", KV_HEADS),
        ("vocab_size", VOCABULARY),
        ("hidden_dim", HIDDEN),
        ("multiple_of", 4),
        ("max_seq_len", CONTEXT),
    ];
    let arguments = dict(sizes.into_iter().map(|(key, value)| (key, int(value))).collect());
    let object = if with_arguments { dict(vec![("model", state), ("model_args", arguments)]) } else { state };
    let mut members = vec![("made/data.pkl".to_owned(), [b"\x80\x02", &object[..], b"."].concat())];
    members.extend(tensors.into_iter().enumerate().map(|(number, tensor)| (format!("made/data/{number}"), tensor.bytes)));
    zip(&members)
}

/// Meta's folder with the story model.
pub(crate) fn meta(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let params = serde_json::json!({
        "dim": DIM, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": KV_HEADS, "vocab_size": -1, "multiple_of": 4, "norm_eps": 1e-5,
    });
    fs::write(folder.join("params.json"), params.to_string()).unwrap();
    fs::write(folder.join("consolidated.00.pth"), torch(false)).unwrap();
    fs::write(folder.join("tokenizer.model"), sentencepiece()).unwrap();
}

/// The tokenizer as a `tokenizer.model` of sentencepiece: a field for each piece, with its text, score and kind, and the kind of model.
pub(crate) fn sentencepiece() -> Vec<u8> {
    let mut model = Vec::new();
    for (place, (piece, score)) in pieces().iter().enumerate() {
        let kind = match place {
            0 => 2,
            1 | 2 => 3,
            3..259 => 6,
            _ => 1,
        };
        let fields = [&[0x0a, piece.len() as u8], &piece[..], &[0x15], &score.to_le_bytes(), &[0x18, kind]].concat();
        model.extend([0x0a, fields.len() as u8]);
        model.extend(fields);
    }
    // trainer_spec: model_type BPE, byte_fallback.
    model.extend([0x12, 5, 0x18, 2, 0x98, 2, 1]);
    // normalizer_spec: identity, with a space before the text, none taken away, spaces as sentencepiece writes them.
    model.extend([0x1a, 16, 0x0a, 8]);
    model.extend(b"identity");
    model.extend([0x18, 1, 0x20, 0, 0x28, 1]);
    model
}

/// An archive of members that are stored as they are.
fn zip(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in members {
        let place = file.len() as u32;
        let mut about = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        about.extend(crc32fast::hash(bytes).to_le_bytes());
        about.extend([(bytes.len() as u32).to_le_bytes(); 2].concat());
        about.extend([(name.len() as u16).to_le_bytes(), [0; 2]].concat());
        file.extend([&b"PK\x03\x04"[..], &about, name.as_bytes(), bytes].concat());
        directory.extend([&b"PK\x01\x02\x14\0"[..], &about, &[0; 10], &place.to_le_bytes(), name.as_bytes()].concat());
    }
    let (start, len, count) = (file.len() as u32, directory.len() as u32, members.len() as u16);
    file.extend(directory);
    file.extend(
        [&b"PK\x05\x06\0\0\0\0"[..], &[count.to_le_bytes(); 2].concat(), &len.to_le_bytes(), &start.to_le_bytes(), &[0; 2]].concat(),
    );
    file
}
