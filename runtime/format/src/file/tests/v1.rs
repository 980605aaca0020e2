//! Format 1: files of dormouse's own, small Llama files made by hand, and headers that are wrong in one thing alone.

use super::make::{self, CONFIG, INV_FREQ};
use crate::arch::Architecture;
use crate::crc32::checksum;
use crate::file::ModelFile;
use crate::tokenizer::{NO_TOKEN, TokenizerKind};
use crate::{ConfigKey, DType, Error, Part, Rule, TokenizerKey};
use std::fmt::Write as _;

pub(super) const LLAMA: &str = r#"arch = "llama"
dim = 4
hidden_dim = 3
n_layers = 1
n_heads = 2
n_kv_heads = 1
head_dim = 4
vocab_size = 6
max_seq_len = 8
norm_eps = 0.000009999999747378752
rope_layout = "half"
rope_theta = 10000.0
attention_factor = 1.0
tied_embeddings = true
qkv_bias = false
sliding_window = 0
rope_inv_freq = [1.0, 0.009999999776482582]
bos = 1
eos = [2]
add_bos = true
"#;

/// A header for the tensors of `CONFIG`, and their bytes.
pub(super) fn parts(config: &str) -> (String, Vec<u8>) {
    let weights = make::weights(false);
    let mut header = format!(
        "format = 1\ndtype = \"f32\"\nsource = \"made@step0\"\nstep = 0\nnum_params = {}\nnum_tensors = {}\nflushed = 0\nmax_abs = 1.0\nmin_nonzero_abs = 0.25\nconfig = \"\"\"\n{config}\"\"\"\n",
        CONFIG.num_params(),
        weights.len(),
    );
    let mut payload = vec![];
    for tensor in weights {
        let name = String::from_utf8(tensor.name).unwrap();
        write!(header, "\n[[tensors]]\nname = \"{name}\"\ndims = {:?}\noverflowed = 0\n", tensor.dims).unwrap();
        payload.extend(tensor.bytes);
    }
    (header, payload)
}

pub(super) fn file(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"DMEXPRT\x01".to_vec();
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend((payload.len() as u64).to_le_bytes());
    bytes.extend(checksum(&[payload]).to_le_bytes());
    bytes.extend(header);
    bytes.extend(payload);
    bytes
}

/// The error after `from` was replaced in the header by `to`, which must change it.
fn refused(from: &str, to: &str) -> Error {
    let (header, payload) = parts(LLAMA);
    let changed = header.replacen(from, to, 1);
    assert_ne!(header, changed, "nothing to replace");
    ModelFile::open(&file(changed.as_bytes(), &payload)).map(|_| panic!("{from} -> {to} was taken")).unwrap_err()
}

/// The same for a change that leaves a right file.
fn taken(from: &str, to: &str) {
    let (header, payload) = parts(LLAMA);
    let changed = header.replacen(from, to, 1);
    assert_ne!(header, changed, "nothing to replace");
    let bytes = file(changed.as_bytes(), &payload);
    let file = ModelFile::open(&bytes).unwrap_or_else(|error| panic!("{to}: {error}"));
    assert_eq!(file.llama_config(), Ok(CONFIG));
    file.verify_payload().unwrap();
}

fn config(error: Error) -> (ConfigKey, Rule) {
    match error {
        Error::Config { key, rule, .. } => (key, rule),
        other => panic!("{other:?}"),
    }
}

fn toml(error: Error) -> Rule {
    match error {
        Error::Toml { rule, .. } => rule,
        other => panic!("{other:?}"),
    }
}

fn tensor(error: Error) -> (u32, Rule) {
    match error {
        Error::Tensor { tensor, rule, .. } => (tensor, rule),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_right_llama_opens_and_says_what_is_in_it() {
    let (header, payload) = parts(LLAMA);
    for shift in 0..5 {
        let mut bytes = vec![0; shift];
        bytes.extend(file(header.as_bytes(), &payload));
        let file = ModelFile::open(&bytes[shift..]).unwrap();
        assert_eq!((file.version(), file.architecture(), file.single_dtype()), (1, Architecture::Llama, Some(DType::F32)));
        assert_eq!((file.num_tensors(), file.num_params()), (11, CONFIG.num_params()));
        assert_eq!(file.llama_config(), Ok(CONFIG));
        assert_eq!(file.header_text(), Some(header.as_str()));
        assert_eq!(file.config_text(), Some(LLAMA));
        assert_eq!(file.fingerprint(), checksum(&[&payload]));
        assert!(file.index().is_none() && file.golden().next().is_none());
        let facts = file.tokenizer_facts().unwrap();
        assert_eq!((facts.kind, facts.bos, facts.eos[0], facts.eos[1], facts.add_bos), (TokenizerKind::None, 1, 2, NO_TOKEN, true));
        let mut frequencies = [0.0; 2];
        file.rope_inv_freq(&mut frequencies).unwrap();
        assert_eq!(frequencies, INV_FREQ);
        assert!(file.rope_inv_freq(&mut [0.0; 1]).is_err());
        for (found, made) in file.tensors().zip(make::weights(false)) {
            assert_eq!(found.name.as_bytes(), made.name);
            assert_eq!(found.view.dims().as_slice(), made.dims);
            assert_eq!(found.view.bytes(), made.bytes);
            assert_eq!(file.tensor_name(found.number), Some(found.name));
            assert_eq!(file.tensor(found.number).unwrap().bytes(), made.bytes);
        }
        assert_eq!(file.tensors().count(), 11);
        assert!(file.tensor(11).is_none() && file.tensor_name(11).is_none());
        file.verify_payload().unwrap();
    }
}

#[test]
fn dormouse_files_open_and_verify() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/dormouse");
    let Ok(entries) = std::fs::read_dir(folder) else {
        println!("{folder} is not here: dormouse's own files were not tried");
        return;
    };
    let mut opened = 0;
    for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "dmexp")) {
        let bytes = std::fs::read(&path).unwrap();
        let file = ModelFile::open(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(file.architecture(), Architecture::Dormouse);
        let (params, tensors) = match path.file_name().unwrap().to_str().unwrap() {
            "default.f32.dmexp" => (41_142, 54),
            "plain.f32.dmexp" => (45_270, 62),
            _ => (file.num_params(), file.num_tensors()),
        };
        assert_eq!((file.num_params(), file.num_tensors()), (params, tensors));
        assert_eq!(file.payload().len() as u64, 4 * params);
        assert_eq!(file.tensors().count() as u32, tensors);
        assert_eq!(file.tensor_name(0), Some("embedding.weight"));
        assert!(matches!(file.llama_config(), Err(Error::OtherArchitecture { found: 2, expected: 1 })));
        file.verify_payload().unwrap();
        opened += 1;
    }
    assert!(opened >= 7, "{opened}");
}

#[test]
fn class_01_a_cut_at_any_offset_is_refused() {
    let (header, payload) = parts(LLAMA);
    let bytes = file(header.as_bytes(), &payload);
    for len in (0..bytes.len()).step_by(if cfg!(miri) { 499 } else { 1 }) {
        assert!(ModelFile::open(&bytes[..len]).is_err(), "{len}");
    }
    // The same cuts of the header with the lengths made right.
    for len in (0..header.len() - 1).step_by(if cfg!(miri) { 499 } else { 1 }) {
        assert!(ModelFile::open(&file(&header.as_bytes()[..len], &payload)).is_err(), "{len}");
    }
}

#[test]
fn class_04_lengths_are_checked() {
    let (header, payload) = parts(LLAMA);
    assert!(matches!(ModelFile::open(&file(b"", &payload)), Err(Error::Layout { part: Part::Header, rule: Rule::NotZero, .. })));
    let mut bytes = file(header.as_bytes(), &payload);
    bytes.push(0);
    assert!(matches!(ModelFile::open(&bytes), Err(Error::TrailingBytes { .. })));
    let longer = file(header.as_bytes(), &[payload.as_slice(), &[0; 4]].concat());
    assert!(matches!(ModelFile::open(&longer), Err(Error::Layout { part: Part::Payload, rule: Rule::Length, .. })));
    let shorter = file(header.as_bytes(), &payload[..payload.len() - 4]);
    assert!(matches!(ModelFile::open(&shorter), Err(Error::Tensor { tensor: 10, rule: Rule::Range, .. })));
}

#[test]
fn class_06_counts_are_checked() {
    assert_eq!(config(refused("num_tensors = 11", "num_tensors = 12")), (ConfigKey::NumTensors, Rule::Equal));
    assert_eq!(config(refused("num_tensors = 11", "num_tensors = 0")), (ConfigKey::NumTensors, Rule::Equal));
    let params = format!("num_params = {}", CONFIG.num_params());
    assert_eq!(config(refused(&params, "num_params = 1")), (ConfigKey::NumParams, Rule::Equal));
    let (header, payload) = parts(LLAMA);
    let end = header.find("\n[[tensors]]").unwrap();
    let error = ModelFile::open(&file(&header.as_bytes()[..end], &payload)).unwrap_err();
    assert_eq!(config(error), (ConfigKey::Tensors, Rule::Missing));
}

#[test]
fn class_07_dims_are_checked() {
    let dims = |dims: &str| tensor(refused("dims = [6, 4]", dims));
    assert_eq!(dims("dims = []"), (0, Rule::Rank));
    assert_eq!(dims("dims = [6, 4, 1, 1, 1]"), (0, Rule::Rank));
    assert_eq!(dims("dims = [0, 4]"), (0, Rule::NotZero));
    assert_eq!(dims("dims = [-6, 4]"), (0, Rule::Range));
    assert_eq!(dims("dims = [6.0, 4]"), (0, Rule::Type));
    assert_eq!(dims("dims = [\"6\", 4]"), (0, Rule::Type));
    assert_eq!(dims("dims = [[6], 4]"), (0, Rule::Type));
    assert_eq!(dims("dims = 24"), (0, Rule::Type));
    assert_eq!(dims("dims = [4294967296, 1]"), (0, Rule::TooLarge));
    assert_eq!(dims("dims = [9223372036854775808, 1]"), (0, Rule::TooLarge));
    assert_eq!(dims("dims = [99999999999999999999999, 1]"), (0, Rule::TooLarge));
    assert_eq!(dims("dims = [4294967295, 4294967295]"), (0, Rule::TooLarge));
    assert_eq!(dims("dims = [65536, 65536, 65536, 65536]"), (0, Rule::TooLarge));
    assert_eq!(dims("dims = [16777216, 16777216]"), (0, Rule::Range));
    assert_eq!(dims(""), (0, Rule::Missing));
    taken("dims = [6, 4]", "dims = [\n  0x6, # rows\n  4,\n]");
}

#[test]
fn class_10_names_are_checked() {
    let name = |text: &str| refused("name = \"norm.weight\"", &format!("name = {text}"));
    assert_eq!(tensor(name("\"\"")), (10, Rule::NotZero));
    assert_eq!(tensor(name(&format!("\"{}\"", "a".repeat(129)))), (10, Rule::TooLarge));
    assert_eq!(tensor(name("\"a\tb\"")), (10, Rule::Ascii));
    assert_eq!(tensor(name("\"\u{e9}\"")), (10, Rule::Ascii));
    assert_eq!(tensor(name("\"a\\u0062\"")), (10, Rule::Escape));
    assert_eq!(tensor(name("7")), (10, Rule::Type));
    assert_eq!(name("\"tok_embeddings.weight\""), Error::DuplicateName { first: 0, second: 10 });
    assert_eq!(tensor(refused("name = \"norm.weight\"", "")), (10, Rule::Missing));
    assert_eq!(tensor(refused("overflowed = 0", "overflowed = 1")), (0, Rule::Zero));
    assert_eq!(tensor(refused("overflowed = 0", "")), (0, Rule::Missing));
}

#[test]
fn class_11_types_are_checked() {
    for dtype in ["q8", "u8", "F32", ""] {
        assert_eq!(config(refused("dtype = \"f32\"", &format!("dtype = \"{dtype}\""))), (ConfigKey::DType, Rule::Unknown));
    }
    // Another width than the payload has.
    assert!(matches!(refused("dtype = \"f32\"", "dtype = \"f16\""), Error::Layout { part: Part::Payload, rule: Rule::Length, .. }));
}

#[test]
fn class_12_numbers_of_the_configuration_are_checked() {
    let eps = |value: &str| config(refused("norm_eps = 0.000009999999747378752", &format!("norm_eps = {value}")));
    for value in ["0.0", "-0.0", "0", "-1e-5", "1e-60"] {
        assert_eq!(eps(value), (ConfigKey::NormEps, Rule::Positive), "{value}");
    }
    for value in ["nan", "inf", "-inf", "+nan", "1e39"] {
        assert_eq!(eps(value), (ConfigKey::NormEps, Rule::Finite), "{value}");
        assert_eq!(config(refused("rope_theta = 10000.0", &format!("rope_theta = {value}"))), (ConfigKey::RopeTheta, Rule::Finite));
    }
    for value in ["0", "0.0", "-1.5"] {
        assert_eq!(config(refused("rope_theta = 10000.0", &format!("rope_theta = {value}"))), (ConfigKey::RopeTheta, Rule::Positive));
    }
    let frequencies = |value: &str| config(refused("[1.0, 0.009999999776482582]", value));
    assert_eq!(frequencies("[1.0]"), (ConfigKey::RopeInvFreq, Rule::Length));
    assert_eq!(frequencies("[1.0, 0.1, 0.01]"), (ConfigKey::RopeInvFreq, Rule::Length));
    assert_eq!(frequencies("[1.0, 0.0]"), (ConfigKey::RopeInvFreq, Rule::Positive));
    assert_eq!(frequencies("[1.0, nan]"), (ConfigKey::RopeInvFreq, Rule::Finite));
    assert_eq!(frequencies("[1.0, true]"), (ConfigKey::RopeInvFreq, Rule::Type));
    assert_eq!(frequencies("1.0"), (ConfigKey::RopeInvFreq, Rule::Type));
    taken("norm_eps = 0.000009999999747378752", "norm_eps = 0.000_01");
    taken("attention_factor = 1.0", "attention_factor = 1");
}

#[test]
fn class_13_every_key_of_the_configuration_is_required_and_no_other_is_taken() {
    let optional = ["arch", "rope_theta", "bos", "eos", "add_bos"];
    for line in LLAMA.lines() {
        let key = line.split(' ').next().unwrap();
        if key == "add_bos" || key == "eos" || key == "rope_theta" {
            taken(&format!("{line}\n"), "");
        } else if !optional.contains(&key) {
            let error = refused(&format!("{line}\n"), "");
            assert!(matches!(error, Error::Config { key: found, rule: Rule::Missing, .. } if found.name() == key), "{key}: {error:?}");
        }
        if key != "arch" {
            assert_eq!(toml(refused(&format!("{line}\n"), &format!("{line}\n{line}\n"))), Rule::Duplicate, "{key}");
        }
    }
    assert_eq!(config(refused("dim = 4\n", "dim = 4\nswiglu = true\n")), (ConfigKey::Other, Rule::Unknown));
    assert_eq!(config(refused("dim = 4\n", "dim.x = 4\n")), (ConfigKey::Other, Rule::Unknown));
    assert_eq!(config(refused("add_bos = true\n", "add_bos = true\n[more]\n")), (ConfigKey::Other, Rule::Unknown));
    assert_eq!(config(refused("dim = 4\n", "dim = 0\n")), (ConfigKey::Dim, Rule::NotZero));
    assert_eq!(config(refused("dim = 4\n", "dim = 4294967296\n")), (ConfigKey::Dim, Rule::TooLarge));
    assert_eq!(config(refused("rope_layout = \"half\"", "rope_layout = \"other\"")), (ConfigKey::RopeLayout, Rule::Unknown));
    assert_eq!(refused("arch = \"llama\"", "arch = \"mamba\""), Error::UnknownArchitecture { code: u32::MAX });
    assert_eq!(config(refused("arch = \"llama\"", "arch = 1")), (ConfigKey::Arch, Rule::Type));
    // The architecture must come first: otherwise another reader would take the file for dormouse's.
    assert_eq!(config(refused("arch = \"llama\"\ndim = 4", "dim = 4\narch = \"llama\"")), (ConfigKey::Arch, Rule::Order));
}

#[test]
fn class_14_special_tokens_are_checked() {
    let token = |from: &str, to: &str| match refused(from, to) {
        Error::Tokenizer { key, rule, .. } => (key, rule),
        other => panic!("{other:?}"),
    };
    assert_eq!(token("bos = 1", "bos = 6"), (TokenizerKey::Bos, Rule::TooLarge));
    assert_eq!(token("bos = 1", "bos = -1"), (TokenizerKey::Bos, Rule::Range));
    assert_eq!(token("bos = 1\n", ""), (TokenizerKey::Bos, Rule::Missing));
    assert_eq!(token("eos = [2]", "eos = [6]"), (TokenizerKey::Eos, Rule::TooLarge));
    assert_eq!(token("eos = [2]", "eos = 2"), (TokenizerKey::Eos, Rule::Type));
    assert_eq!(token("eos = [2]", "eos = [1, 1, 1, 1, 1, 1, 1, 1, 1]"), (TokenizerKey::Eos, Rule::Length));
    assert_eq!(token("add_bos = true", "add_bos = 1"), (TokenizerKey::Bos, Rule::Type));
}

#[test]
fn class_15_syntax_is_checked() {
    let lines = [
        "x",
        "x =",
        "= 1",
        "x = = 1",
        "x = 1 y = 2",
        "x = 1, 2",
        "x = [1",
        "x = [1 2]",
        "x = [1,, 2]",
        "x = ]",
        "x = {a = 1",
        "x = {a}",
        "x = \"a",
        "x = 'a",
        "x = \"a\\qb\"",
        "x = 01",
        "x = 1__0",
        "x = 1.",
        "x = .5",
        "x = 1e",
        "x = +-1",
        "x = TRUE",
        "x = bare",
        "x = 0x",
        "x y = 1",
        "x..y = 1",
        ".x = 1",
        "x. = 1",
        "[x",
        "[[x]",
        "[x]]",
        "[]",
        "[x] y = 1",
        "x = \u{1}",
        "x = \"\u{1}\"",
        "# \u{1}",
        "x = 1 # \u{7f}",
        "\u{feff}x = 1",
        "x = 1\ry = 2",
        "\"\"\"x\"\"\" = 1",
        "{x = 1}",
        "x = 1979-05-27 07:32:00",
        "\u{e9} = 1",
    ];
    for line in lines {
        assert_eq!(toml(refused("step = 0\n", &format!("step = 0\n{line}\n"))), Rule::Syntax, "{line}");
    }
    let (header, payload) = parts(LLAMA);
    let mut bytes = header.clone().into_bytes();
    bytes[30] = 0xff;
    assert_eq!(ModelFile::open(&file(&bytes, &payload)).unwrap_err(), Error::Toml { offset: 54, rule: Rule::Utf8 });
    // Within the configuration the place is counted from the file's start too.
    let (broken, payload) = parts(&LLAMA.replace("dim = 4", "dim 4"));
    let at = 24 + broken.find("dim 4").unwrap() as u64 + 4;
    assert_eq!(ModelFile::open(&file(broken.as_bytes(), &payload)).unwrap_err(), Error::Toml { offset: at, rule: Rule::Syntax });
}

#[test]
fn class_15_keys_given_twice_are_refused() {
    for line in ["step = 1", "format = 1", "x = 1\nx = 2", "x.y = 1\nx.y = 2", "\"step\" = 1", "'step' = 1"] {
        assert_eq!(toml(refused("step = 0\n", &format!("step = 0\n{line}\n"))), Rule::Duplicate, "{line}");
    }
    assert_eq!(toml(refused("overflowed = 0\n", "overflowed = 0\ndims = [6, 4]\n")), Rule::Duplicate);
    assert_eq!(toml(refused("\n[[tensors]]", "\n[x]\na = 1\na = 2\n[[tensors]]")), Rule::Duplicate);
    assert_eq!(toml(refused("\n[[tensors]]", "\n[x]\n[x]\n[[tensors]]")), Rule::Duplicate);
    // A table of the name of a key that has a value.
    assert_eq!(config(refused("\n[[tensors]]", "\n[step]\n[[tensors]]")), (ConfigKey::Provenance, Rule::Type));
    assert_eq!(config(refused("\n[[tensors]]", "\n[tensors]\n[[tensors]]")), (ConfigKey::Tensors, Rule::Type));
    assert_eq!(config(refused("\n[[tensors]]", "\n[[tensors.x]]\n[[tensors]]")), (ConfigKey::Tensors, Rule::Type));
}

#[test]
fn class_15_types_and_values_are_checked() {
    let config = |from: &str, to: &str| config(refused(from, to));
    assert_eq!(config("format = 1", "format = 2"), (ConfigKey::Format, Rule::Equal));
    assert_eq!(config("format = 1", "format = \"1\""), (ConfigKey::Format, Rule::Type));
    assert_eq!(config("format = 1", "format = 1.0"), (ConfigKey::Format, Rule::Type));
    assert_eq!(config("format = 1", "format.x = 1"), (ConfigKey::Format, Rule::Type));
    assert_eq!(config("format = 1\n", ""), (ConfigKey::Format, Rule::Missing));
    assert_eq!(config("dtype = \"f32\"\n", ""), (ConfigKey::DType, Rule::Missing));
    assert_eq!(config("dtype = \"f32\"", "dtype = 32"), (ConfigKey::DType, Rule::Type));
    assert_eq!(config("num_tensors = 11\n", ""), (ConfigKey::NumTensors, Rule::Missing));
    assert_eq!(config("step = 0", "step = nan"), (ConfigKey::Provenance, Rule::Type));
    assert_eq!(config("flushed = 0", "flushed = -1"), (ConfigKey::Provenance, Rule::Range));
    assert_eq!(config("max_abs = 1.0", "max_abs = nan"), (ConfigKey::Provenance, Rule::Finite));
    assert_eq!(config("max_abs = 1.0", "max_abs = inf"), (ConfigKey::Provenance, Rule::Finite));
    assert_eq!(config("max_abs = 1.0", "max_abs = true"), (ConfigKey::Provenance, Rule::Type));
    assert_eq!(config("source = \"made@step0\"", "source = 1"), (ConfigKey::Provenance, Rule::Type));
    assert_eq!(config("source = ", "tensors = "), (ConfigKey::Tensors, Rule::Type));
    assert_eq!(config("config = \"\"\"\n", "config = {}\nother = \"\"\"\n"), (ConfigKey::Config, Rule::Type));
    assert_eq!(config("dim = 4\n", "dim = 4 # \\t\n"), (ConfigKey::Config, Rule::Escape));
    assert_eq!(toml(refused("step = 0\n", "step = 0\n\"a\\u0062\" = 1\n")), Rule::Escape);
}

#[test]
fn class_15_depth_and_number_are_bounded() {
    let nested = |depth: usize| format!("step = 0\nx = {}{}\n", "[".repeat(depth), "]".repeat(depth));
    taken("step = 0\n", &nested(8));
    for depth in [9, 10_000, if cfg!(miri) { 20_000 } else { 1_000_000 }] {
        assert_eq!(toml(refused("step = 0\n", &nested(depth))), Rule::Depth);
    }
    assert_eq!(toml(refused("step = 0\n", &format!("step = 0\nx = {}", "{a=".repeat(10_000)))), Rule::Depth);
    let many = (0..100).map(|n| format!("x{n} = 1")).collect::<Vec<_>>().join("\n");
    assert_eq!(toml(refused("step = 0\n", &format!("step = 0\n{many}\n"))), Rule::Depth);
    // A header just within its limit is read in one walk.
    taken("step = 0\n", &format!("step = 0\n{}", "# a comment\n".repeat(if cfg!(miri) { 130 } else { 1_300_000 })));
}

#[test]
fn what_toml_allows_is_taken() {
    taken("format = 1", "\u{feff}format = 1");
    taken("step = 0\n", "step = 0 # a comment\n\n \t\n# another\n");
    taken("step = 0\n", "  \"step\"\t=\t+0\n");
    taken("step = 0\n", "step = 0\nx = {a = 1, b.c = [1.5, 'x', 1979-05-27T07:32:00Z, 2020-01-01], d = {}}\ny.z = '''\n'''\n");
    taken("\n[[tensors]]", "\n[more]\nx = 1\n[[more.list]]\nx = 1\n[[more.list]]\nx = 1\n[[tensors]]");
    taken("overflowed = 0\n", "overflowed = 0\nnote = \"x\"\n");
    taken("name = \"norm.weight\"", "name = 'norm.weight'");
    taken("name = \"norm.weight\"", "'name' = \"\"\"\nnorm.weight\"\"\"");
    taken("config = \"\"\"\n", "config = \"\"\"");
    taken("source = \"made@step0\"", "source = \"a\\\"b\"");
    let (header, payload) = parts(LLAMA);
    let literal = header.replace("\"\"\"", "'''");
    let windows = header.replace('\n', "\r\n");
    let padded = format!("{header}\n\n\n\n\n");
    for header in [literal, windows, padded] {
        let bytes = file(header.as_bytes(), &payload);
        let file = ModelFile::open(&bytes).unwrap();
        assert_eq!(file.llama_config(), Ok(CONFIG));
        file.verify_payload().unwrap();
    }
}

#[test]
fn class_17_the_payloads_checksum_is_checked() {
    let (header, payload) = parts(LLAMA);
    let right = file(header.as_bytes(), &payload);
    for at in [20, 24 + header.len(), right.len() - 1] {
        let mut bytes = right.clone();
        bytes[at] ^= 1;
        let error = ModelFile::open(&bytes).unwrap().verify_payload().unwrap_err();
        assert!(matches!(error, Error::Checksum { part: Part::Payload, tensor: u32::MAX, .. }));
    }
}

#[test]
fn class_19_weights_that_are_not_finite_are_named() {
    let (header, mut payload) = parts(LLAMA);
    payload[96 + 8..96 + 12].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = ModelFile::open(&file(header.as_bytes(), &payload)).map(|file| file.verify_payload()).unwrap();
    assert_eq!(error, Err(Error::NonFinite { tensor: 1, element: 2 }));
}
