//! `PyTorch` checkpoints made in memory: a small pickle writer (protocol 2) and both containers, written from the description of the formats.

use super::made::{SHAPE, Shape};
use half::{bf16, f16};
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The type of a storage, as its class is called.
pub(in crate::checkpoint) const FLOAT: &str = "FloatStorage";
pub(in crate::checkpoint) const HALF: &str = "HalfStorage";
pub(in crate::checkpoint) const BFLOAT16: &str = "BFloat16Storage";

/// A tensor of a state dict, in its own storage unless `storage` names another's.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) name: String,
    pub(super) class: &'static str,
    pub(super) storage: String,
    /// How many elements the storage has.
    pub(super) count: usize,
    pub(super) offset: usize,
    pub(super) sizes: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// A checkpoint, before it is written.
#[derive(Clone, Debug)]
pub(in crate::checkpoint) struct Torch {
    pub(super) tensors: Vec<Made>,
    pub(super) storages: Vec<(String, Vec<u8>)>,
    /// `model_args`, values as they are pickled.
    pub(super) args: Vec<(&'static str, Vec<u8>)>,
}

pub(super) fn int(value: i32) -> Vec<u8> {
    [b"J".as_slice(), &value.to_le_bytes()].concat()
}

pub(super) fn float(value: f64) -> Vec<u8> {
    [b"G".as_slice(), &value.to_be_bytes()].concat()
}

pub(super) fn text(value: &str) -> Vec<u8> {
    [b"X".as_slice(), &(value.len() as u32).to_le_bytes(), value.as_bytes()].concat()
}

pub(super) fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(".as_slice(), &items.concat(), b"t"].concat()
}

pub(super) fn dict(items: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<u8> = items.iter().flat_map(|(key, value)| [key.clone(), value.clone()].concat()).collect();
    [b"}(".as_slice(), &items, b"u"].concat()
}

pub(super) fn pickled(value: &[u8]) -> Vec<u8> {
    [b"\x80\x02".as_slice(), value, b"."].concat()
}

/// The values as a storage of `class` holds them.
fn stored(class: &str, values: &[f32]) -> Vec<u8> {
    let values = values.iter();
    match class {
        FLOAT => values.flat_map(|value| value.to_le_bytes()).collect(),
        HALF => values.flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        BFLOAT16 => values.flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        other => panic!("no values are made for {other}"),
    }
}

impl Made {
    fn pickled(&self, legacy: bool) -> Vec<u8> {
        let numbers = |numbers: &[usize]| tuple(&numbers.iter().map(|n| int(*n as i32)).collect::<Vec<_>>());
        let class = format!("ctorch\n{}\n", self.class).into_bytes();
        let mut id = vec![text("storage"), class, text(&self.storage), text("cpu"), int(self.count as i32)];
        if legacy {
            id.push(b"N".to_vec());
        }
        let storage = [tuple(&id), b"Q".to_vec()].concat();
        let hooks = b"ccollections\nOrderedDict\n)R".to_vec();
        let arguments = tuple(&[storage, int(self.offset as i32), numbers(&self.sizes), numbers(&self.strides), b"\x89".to_vec(), hooks]);
        [b"ctorch._utils\n_rebuild_tensor_v2\n".to_vec(), arguments, b"R".to_vec()].concat()
    }
}

impl Torch {
    /// The made model of this shape, every tensor with a storage of its own but for a tied classifier.
    pub(super) fn new(shape: Shape) -> Self {
        let kv = shape.kv_heads * shape.dim / shape.heads;
        let (d, f) = (shape.dim, shape.hidden);
        let mut torch = Self::empty();
        for (name, layers) in shape.weights() {
            for (layer, values) in layers.iter().enumerate() {
                let in_layer = name.contains("attention") || name.contains('f');
                let full = if in_layer { format!("layers.{layer}.{name}") } else { name.to_owned() };
                let sizes = match name {
                    "tok_embeddings.weight" | "output.weight" => vec![shape.vocab, d],
                    "attention.wq.weight" | "attention.wo.weight" => vec![d, d],
                    "attention.wk.weight" | "attention.wv.weight" => vec![kv, d],
                    "feed_forward.w1.weight" | "feed_forward.w3.weight" => vec![f, d],
                    "feed_forward.w2.weight" => vec![d, f],
                    _ => vec![d],
                };
                torch.add(&full, &sizes, values);
            }
        }
        if shape.tied {
            let shared = torch.tensors[0].clone();
            torch.tensors.push(Made { name: "output.weight".to_owned(), ..shared });
        }
        let sizes = [("dim", d), ("n_layers", shape.layers), ("n_heads", shape.heads), ("n_kv_heads", shape.kv_heads)];
        torch.args = sizes.map(|(key, value)| (key, int(value as i32))).into();
        torch.args.extend([
            ("vocab_size", int(shape.vocab as i32)),
            ("hidden_dim", int(f as i32)),
            ("max_seq_len", int(shape.seq_len as i32)),
        ]);
        torch.args.extend([("multiple_of", int(32)), ("dropout", float(0.0))]);
        torch
    }

    /// No tensors and no arguments.
    pub(in crate::checkpoint) fn empty() -> Self {
        Self { tensors: Vec::new(), storages: Vec::new(), args: Vec::new() }
    }

    pub(super) fn add(&mut self, name: &str, sizes: &[usize], values: &[f32]) {
        self.add_as(FLOAT, name, sizes, values);
    }

    /// Adds a tensor whose storage is of `class`, the values rounded to it.
    pub(in crate::checkpoint) fn add_as(&mut self, class: &'static str, name: &str, sizes: &[usize], values: &[f32]) {
        let storage = self.storages.len().to_string();
        let strides = (0..sizes.len()).map(|axis| sizes[axis + 1..].iter().product()).collect();
        self.storages.push((storage.clone(), stored(class, values)));
        let (sizes, count) = (sizes.to_vec(), values.len());
        self.tensors.push(Made { name: name.to_owned(), class, storage, count, offset: 0, sizes, strides });
    }

    /// Stores a tensor that has its storage for itself as `class`.
    pub(super) fn narrow(&mut self, name: &str, class: &'static str) {
        let tensor = self.tensor(name);
        tensor.class = class;
        let key = tensor.storage.clone();
        let (_, bytes) = self.storages.iter_mut().find(|(storage, _)| *storage == key).unwrap();
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        *bytes = stored(class, &values);
    }

    pub(super) fn tensor(&mut self, name: &str) -> &mut Made {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    pub(super) fn arg(&mut self, key: &'static str, value: Option<Vec<u8>>) {
        self.args.retain(|(name, _)| *name != key);
        self.args.extend(value.map(|value| (key, value)));
    }

    pub(super) fn state(&self, legacy: bool) -> Vec<u8> {
        dict(&self.tensors.iter().map(|tensor| (text(&tensor.name), tensor.pickled(legacy))).collect::<Vec<_>>())
    }

    fn object(&self, legacy: bool) -> Vec<u8> {
        let args = dict(&self.args.iter().map(|(key, value)| (text(key), value.clone())).collect::<Vec<_>>());
        pickled(&dict(&[(text("model"), self.state(legacy)), (text("model_args"), args), (text("iter_num"), int(7))]))
    }

    /// As `torch.save` writes since version 1.6.
    pub(super) fn zip(&self) -> Vec<u8> {
        zip(&self.object(false), &self.storages)
    }

    /// The tensors alone, without arguments.
    pub(in crate::checkpoint) fn state_zip(&self) -> Vec<u8> {
        zip(&pickled(&self.state(false)), &self.storages)
    }

    /// As `torch.save` wrote before.
    pub(super) fn legacy(&self) -> Vec<u8> {
        self.legacy_of(&self.object(true))
    }

    /// The tensors alone, as it wrote them before.
    pub(in crate::checkpoint) fn state_legacy(&self) -> Vec<u8> {
        self.legacy_of(&pickled(&self.state(true)))
    }

    fn legacy_of(&self, object: &[u8]) -> Vec<u8> {
        let mut file = pickled(b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19");
        file.extend(pickled(&int(1001)));
        file.extend(pickled(&dict(&[(text("protocol_version"), int(1001)), (text("little_endian"), b"\x88".to_vec())])));
        file.extend(object);
        let named = |key: &str| self.tensors.iter().any(|tensor| tensor.storage == key);
        let storages: Vec<_> = self.storages.iter().filter(|(key, _)| named(key)).collect();
        let keys: Vec<u8> = storages.iter().flat_map(|(key, _)| text(key)).collect();
        file.extend(pickled(&[b"](".as_slice(), &keys, b"e"].concat()));
        for (key, bytes) in storages {
            let count = self.tensors.iter().find(|tensor| tensor.storage == *key).map_or(0, |tensor| tensor.count);
            file.extend((count as u64).to_le_bytes());
            file.extend(bytes);
        }
        file
    }
}

/// An archive of a pickle and storages.
pub(super) fn zip(pickle: &[u8], storages: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut members = vec![("made/data.pkl".to_owned(), pickle.to_vec()), ("made/byteorder".to_owned(), b"little".to_vec())];
    members.extend(storages.iter().map(|(key, bytes)| (format!("made/data/{key}"), bytes.clone())));
    members.push(("made/version".to_owned(), b"3\n".to_vec()));
    archive(&members)
}

pub(super) fn archive(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(name.as_str(), SimpleFileOptions::default().compression_method(CompressionMethod::Stored)).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The made model.
pub(super) fn small() -> Torch {
    Torch::new(SHAPE)
}
