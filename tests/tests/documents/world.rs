//! The files that the pages name and do not make themselves, under the names that they have there.

use crate::blocks::Block;
use crate::{foreign, shell};
use dmexp_tests::{Source, data, json, line, root, story};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes one file or folder; false where it cannot be had here.
type Make = fn(&Path, &str) -> bool;

/// Every name that pages use, and what makes it.
const FILES: &[(&str, Make)] = &[
    ("stories260K.bin", |folder, name| copy(folder, name, "story.bin")),
    ("stories15M.bin", |folder, name| copy(folder, name, "story.bin")),
    ("model.bin", |folder, name| copy(folder, name, "story.bin")),
    ("tok512.bin", |folder, name| copy(folder, name, "story.tokenizer.bin")),
    ("tokenizer.bin", |folder, name| copy(folder, name, "story.tokenizer.bin")),
    ("stories.dmexp", |folder, name| export(folder, name, "--dtype bf16")),
    ("story.dmexp", |folder, name| export(folder, name, "--dtype q8")),
    ("smollm2.dmexp", chat),
    ("text.txt", text),
    ("stories.txt", text),
    ("held-out.txt", text),
    ("SmolLM2-135M-Instruct", |folder, name| huggingface(folder, name, &story())),
    ("SmolLM2-135M-Instruct.Q4_1.gguf", |folder, name| write(folder, name, &foreign::gguf())),
    ("out/ckpt.pt", |folder, name| write(folder, name, &foreign::torch(true))),
    ("Llama-2-7b", |folder, name| {
        foreign::meta(&folder.join(name));
        true
    }),
    ("checkpoints", dormouse),
    ("word.npy", |folder, name| write(folder, name, &npy(&samples()[..1]))),
    ("words.csv", |folder, name| write(folder, name, csv(&samples()).as_bytes())),
    ("graph.dmexp", |folder, name| rustyml(folder, name, "graph_residual")),
    ("both.json", |folder, name| {
        let Some(path) = data("rustyml/graph_residual.json") else { return false };
        write(folder, name, json(&path)["samples"][0]["inputs"].to_string().as_bytes())
    }),
    ("lstm.dmexp", |folder, name| rustyml(folder, name, "lstm_har")),
    ("tuned.bin", |folder, name| copy(folder, name, "tones.bin")),
    ("kws.bin", |folder, name| copy(folder, name, "tones.bin")),
    ("kws.arch.toml", |folder, name| copy(folder, name, "tones.arch.toml")),
    ("kws.toml", |folder, name| copy(folder, name, "tones.arch.toml")),
    ("samples.json", |folder, name| copy(folder, name, "tones.samples.json")),
];

/// The folders of the repository that commands name, as a user in its root has them.
const FOLDERS: &[&str] = &["docs", "models"];

/// A template for conversations: the words, and nothing that says who speaks.
const TEMPLATE: &str = "{% for message in messages %}{{ message.content }} {% endfor %}";

/// Puts into the folder of a page what its commands name and do not make. Returns the names of what cannot be had here.
pub(crate) fn make(folder: &Path, blocks: &[Block]) -> Vec<&'static str> {
    let commands: Vec<String> = blocks.iter().filter(|block| block.mark.is_none()).flat_map(Block::commands).collect();
    for name in FOLDERS {
        copy_folder(&root().join(name), &folder.join(name));
    }
    shell::program(folder, "cargo", &cargo());
    shell::program(folder, "sensor", SENSOR);
    let mut missing = Vec::new();
    for (name, make) in FILES {
        let made = |command: &String| command.split_once(" --out ").is_some_and(|(_, out)| out.split(' ').next() == Some(*name));
        let first = commands.iter().find(|command| names(command, name));
        if first.is_some_and(|command| !made(command)) && !make(folder, name) {
            missing.push(*name);
        }
    }
    missing
}

/// Whether a command names a file or folder, or something in it.
pub(crate) fn names(command: &str, file: &str) -> bool {
    command.split([' ', '\'', '"']).any(|word| word.strip_prefix(file).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Prints what a sensor of six values may say at two times.
const SENSOR: &str = "#!/bin/sh\nfor time in 1 2; do seq -s , 6; done\n";

/// `cargo`, whose tasks are those of this repository.
fn cargo() -> String {
    let xtask = crate::steps::xtask().display().to_string();
    format!("#!/bin/sh\nif [ \"$1\" = xtask ]; then shift; exec '{xtask}' \"$@\"; fi\nexec '{}' \"$@\"\n", env!("CARGO"))
}

fn copy(folder: &Path, name: &str, model: &str) -> bool {
    write(folder, name, &fs::read(root().join("models").join(model)).unwrap())
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> bool {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    true
}

fn export(folder: &Path, name: &str, more: &str) -> bool {
    story().export(folder, name, more);
    true
}

/// A Hugging Face folder with a model of llama2.c's.
fn huggingface(folder: &Path, name: &str, source: &Source) -> bool {
    source.export(folder, ".source.dmexp", "--dtype f32 --no-golden");
    line(folder, &format!("export to --format safetensors .source.dmexp --out {name}")).ok();
    write(&folder.join(name), "tokenizer.model", &foreign::sentencepiece())
}

/// A model with a template for conversations and room for long ones; its weights are made up, and so is what it says.
fn chat(folder: &Path, name: &str) -> bool {
    let made = Command::new(env!("CARGO_BIN_EXE_made-checkpoint")).current_dir(folder).args(["long", ".long.bin"]).status();
    assert!(made.is_ok_and(|status| status.success()), "made-checkpoint makes a checkpoint");
    let source = Source { name: "long", checkpoint: folder.join(".long.bin"), ..story() };
    huggingface(folder, ".chat", &source);
    fs::write(folder.join(".chat/chat_template.jinja"), TEMPLATE).unwrap();
    line(folder, &format!("export run --checkpoint .chat --dtype q8 --no-golden --quiet --out {name}")).ok();
    true
}

/// A network of `RustyML`'s, where the reference data are.
fn rustyml(folder: &Path, name: &str, model: &str) -> bool {
    let Some(checkpoint) = data(&format!("rustyml/{model}.bin")) else { return false };
    let arch = checkpoint.with_extension("json").display().to_string();
    line(folder, &format!("export run --checkpoint {} --arch {arch} --dtype f32 --quiet --out {name}", checkpoint.display())).ok();
    true
}

/// The inputs of the samples of the network that pages call kws, each of 24 rows of 8.
fn samples() -> Vec<Vec<f32>> {
    let samples = json(&root().join("models/tones.samples.json"));
    let samples = samples["samples"].as_array().unwrap().iter();
    samples.map(|sample| serde_json::from_value(sample["inputs"][0]["data"].clone()).unwrap()).collect()
}

/// As numpy saves it.
fn npy(samples: &[Vec<f32>]) -> Vec<u8> {
    let header = format!("{:117}\n", format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 24, 8), }}", samples.len()));
    let numbers: Vec<u8> = samples.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &numbers].concat()
}

/// A line a sample.
fn csv(samples: &[Vec<f32>]) -> String {
    samples.iter().map(|sample| sample.iter().map(f32::to_string).collect::<Vec<_>>().join(",") + "\n").collect()
}

/// Some stories.
fn text(folder: &Path, name: &str) -> bool {
    let story = fs::read_to_string(root().join("boards/qemu-an386/expected.txt")).unwrap();
    write(folder, name, story.as_bytes())
}

/// A training checkpoint of dormouse, which only its trainer writes.
fn dormouse(folder: &Path, name: &str) -> bool {
    let Some(from) = data("dormouse/ckpt") else { return false };
    for file in ["latest.bin", "latest.config.toml", "latest.txt"] {
        write(&folder.join(name), file, &fs::read(from.join(file)).unwrap());
    }
    true
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &copy);
        } else {
            fs::copy(&path, copy).unwrap();
        }
    }
}
