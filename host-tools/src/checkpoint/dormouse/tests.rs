//! The containers of ../shared/data/dormouse/ckpt, which burn's own writer made, against the exports that upstream's exporter should make of them; and what is refused.

use super::{DormouseConfig, snapshot_of};
use crate::checkpoint::tests::data;
use crate::checkpoint::{Checkpoint, open};
use crate::error::{Class, Error};
use crate::export::{self, Format, Options};
use dmexp_format::DType;
use dmexp_format::host::HeaderV1;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// A folder with a container and the snapshot, either edited; `None`, said in one line, without the shared data.
fn folder(name: &str, container: impl FnOnce(&mut Vec<u8>), snapshot: impl FnOnce(&mut String)) -> Option<(TempDir, PathBuf)> {
    let shared = data(&format!("dormouse/ckpt/{name}.bin"))?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoints/latest.bin");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let mut bytes = std::fs::read(&shared).unwrap();
    container(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
    let mut text = std::fs::read_to_string(shared.with_file_name("latest.config.toml")).unwrap();
    snapshot(&mut text);
    std::fs::write(snapshot_of(&path), text).unwrap();
    Some((folder, path))
}

fn export(checkpoint: &Checkpoint, out: &Path, dtype: DType) -> (HeaderV1, Vec<u8>) {
    let options = Options { dtype, format: Format::V1, golden: false, ..Options::new(out) };
    export::run(checkpoint, &options, &AtomicBool::new(false), &mut |_| ()).unwrap();
    parts(&std::fs::read(out).unwrap())
}

/// Header and payload of a format-1 file.
fn parts(file: &[u8]) -> (HeaderV1, Vec<u8>) {
    let len = u32::from_le_bytes(file[8..12].try_into().unwrap()) as usize;
    let (header, unknown) = HeaderV1::parse(std::str::from_utf8(&file[24..24 + len]).unwrap()).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    (header, file[24 + len..].to_vec())
}

#[test]
fn exports_are_those_that_upstream_makes() {
    for name in ["latest", "noteacher"] {
        let Some((folder, path)) = folder(name, |_| (), |_| ()) else { return };
        let checkpoint = open(&path).unwrap();
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let (header, payload) = export(&checkpoint, &folder.path().join("out.dmexp"), dtype);
            let expected = std::fs::read(data(&format!("dormouse/ckpt/expected.{dtype}.dmexp")).unwrap()).unwrap();
            let (expected_header, expected_payload) = parts(&expected);
            assert!(payload == expected_payload, "{name} {dtype}");
            // The path is another one. The figures are of the values as stored, which is what upstream's exporter measures; these files state those before narrowing.
            assert_eq!(header.source, format!("{}@step20", path.display()));
            let (max_abs, min_nonzero_abs) = (expected_header.max_abs, expected_header.min_nonzero_abs);
            assert!(dtype != DType::F32 || (header.max_abs, header.min_nonzero_abs) == (max_abs, min_nonzero_abs));
            assert_eq!(HeaderV1 { source: expected_header.source.clone(), max_abs, min_nonzero_abs, ..header }, expected_header);
        }
    }
}

#[test]
fn stripped_and_canonical_files_hold_what_they_should() {
    let Some((folder, path)) = folder("latest", |_| (), |_| ()) else { return };
    let mut checkpoint = open(&path).unwrap();
    assert_eq!(checkpoint.strip_unread().unwrap(), 9);
    assert!(checkpoint.arrays().all(|array| !array.name().starts_with("aux.") && !array.name().contains("mor_router")));
    let before = open(&path).unwrap();
    assert_eq!(checkpoint.canonical_factors().unwrap(), 8);
    for array in checkpoint.arrays() {
        let (values, old) = (array.to_vec().unwrap(), before.array(array.name()).unwrap().to_vec().unwrap());
        if array.name().ends_with(".Tsct.u") || array.name().ends_with(".Tsct.v") {
            assert!(values.iter().all(|value| matches!(*value, -1.0 | 0.0 | 1.0)), "{}", array.name());
            assert!(values.iter().zip(&old).all(|(code, old)| *code == 0.0 || *code == old.signum()));
        } else if !array.name().ends_with(".Tsct.s") {
            assert!(values == old, "{}", array.name());
        }
    }
    // Written in bf16, the codes are what they were.
    export(&checkpoint, &folder.path().join("out.dmexp"), DType::Bf16);
}

fn refused(container: impl FnOnce(&mut Vec<u8>), snapshot: impl FnOnce(&mut String)) -> Option<Error> {
    let (_folder, path) = folder("noteacher", container, snapshot)?;
    Some(open(&path).unwrap_err())
}

fn is(error: Option<Error>, class: Class, parts: &[&str]) {
    let Some(error) = error else { return };
    let text = error.to_string();
    assert_eq!(error.class(), class, "{text}");
    assert!(parts.iter().all(|part| text.contains(part)), "{text}\n{parts:?}");
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn containers_that_cannot_be_are_refused() {
    let container = |edit: fn(&mut Vec<u8>), class, parts: &[&str]| is(refused(edit, |_| ()), class, parts);
    container(|b| b[6] = 3, Class::NotAModel, &["version", "byte 5"]);
    container(|b| b.truncate(40), Class::Damaged, &["40 bytes", "48"]);
    container(|b| b.truncate(173_775), Class::Damaged, &["173775", "173776"]);
    container(|b| b.push(0), Class::Damaged, &["173777", "173776"]);
    container(|b| put(b, 16, u64::MAX), Class::Damaged, &["18446744073709551615", "more than 2^64"]);
    container(
        |b| {
            put(b, 16, 0);
            put(b, 24, 173_728);
        },
        Class::Damaged,
        &["model section is empty"],
    );
    container(|b| put(b, 40, 2), Class::NotAModel, &["flags 0x2"]);
    container(|b| b[48] = b'X', Class::NotAModel, &["NRUB", "byte 48"]);
    container(|b| b[52] = 2, Class::NotAModel, &["burnpack version 2"]);
    container(|b| b[54..58].copy_from_slice(&u32::MAX.to_le_bytes()), Class::Damaged, &["4294967295 bytes", "byte 54"]);
}

/// Where `text` lies in the container, with its length.
fn place(bytes: &[u8], text: &[u8]) -> usize {
    bytes.windows(text.len()).position(|window| window == text).unwrap()
}

#[test]
fn lists_of_tensors_that_cannot_be_are_refused() {
    let list = |edit: fn(&mut Vec<u8>), class, parts: &[&str]| is(refused(edit, |_| ()), class, parts);
    list(|b| b[58] = 0xBF, Class::Damaged, &["indefinite length", "byte 59"]);
    list(|b| b[58] = 0xA2, Class::Damaged, &["ends early"]);
    list(|b| b[66] = 0xBB, Class::Damaged, &["CBOR"]);
    list(|b| b[60] = 0xFF, Class::Damaged, &["UTF-8"]);
    list(
        |b| {
            let at = place(b, b"F32");
            b[at..at + 3].copy_from_slice(b"F16");
        },
        Class::Damaged,
        &["aux.conf.proj.weight", "F16", "F32"],
    );
    // 40 rows become 41: more bytes than there are between the offsets.
    list(
        |b| {
            let at = place(b, b"shape\x82\x18\x28");
            b[at + 7] = 41;
        },
        Class::Damaged,
        &["aux.conf.proj.weight", "[41, 1]", "164 bytes"],
    );
    // One offset later by one, its end too.
    list(
        |b| {
            let at = place(b, b"data_offsets\x82\x1a") + 14;
            b[at + 3] += 1;
            b[at + 8] += 1;
        },
        Class::Damaged,
        &["aux.conf.proj.weight", "not a multiple of 256"],
    );
    list(
        |b| {
            let at = place(b, b"data_offsets\x82\x1a") + 14;
            b[at + 2] -= 1;
            b[at + 7] -= 1;
        },
        Class::Damaged,
        &["overlaps"],
    );
    // Two names that are one.
    list(
        |b| {
            let at = place(b, b"aux.dspark.inner.w2.weight");
            b[at + 18] = b'1';
        },
        Class::Damaged,
        &["aux.dspark.inner.w1.weight", "twice"],
    );
    list(
        |b| {
            let at = place(b, b"aux.dspark.inner.w2.weight");
            b[at + 18] = b'3';
        },
        Class::Mismatch,
        &["no tensor aux.dspark.inner.w2.weight", "[8, 256]"],
    );
}

#[test]
fn snapshots_that_do_not_fit_are_refused() {
    let snapshot = |from: &'static str, to: &'static str, class, parts: &[&str]| {
        is(
            refused(
                |_| (),
                |text| {
                    assert!(text.contains(from));
                    *text = text.replacen(from, to, 1);
                },
            ),
            class,
            parts,
        );
    };
    snapshot("d_model = 32", "d_model = 64", Class::Mismatch, &["embedding.weight [256, 32]", "[256, 64]"]);
    snapshot("use_gr = false", "use_gr = true", Class::Mismatch, &["no tensor loop_block.gr.branch_norms.0.weight [32]"]);
    snapshot("n_experts = 3", "n_experts = 2", Class::Mismatch, &["loop_block.expert_ffns.2"]);
    snapshot("n_experts = 3", "n_experts = 4294967295", Class::Mismatch, &["n_experts = 4294967295"]);
    snapshot("vocab = 256", "vocab = -1", Class::Damaged, &["vocab = -1"]);
    snapshot("rank = 8", "rank = 0", Class::Mismatch, &["rank is 0"]);
    snapshot("bf16 = false", "bf16 = true", Class::NotAModel, &["bf16 = true"]);
    snapshot("use_gr = false", "use_byteflow = true", Class::NotAModel, &["byteflow"]);
    snapshot("use_gr = false", "use_msa = true", Class::NotAModel, &["MSA"]);
    snapshot("engram_rows = 60", "engram_rows = 1", Class::NotAModel, &["one row", ".ngram"]);
    snapshot(
        "engram_rows = 60",
        "engram_rows = 65",
        Class::Mismatch,
        &["loop_block.engram.memory.embedding.weight [192, 32]", "[384, 32]"],
    );
    snapshot("use_gr = false", "use_other = true", Class::Damaged, &["use_other = true", "does not know"]);
    snapshot("[model]", "[modle]", Class::Damaged, &["no table [model]"]);
    snapshot("d_model = 32", "d_model = ", Class::Damaged, &["not TOML", "byte"]);
    snapshot("n_heads = 4", "n_heads = 5", Class::Mismatch, &["n_heads = 5", "d_model = 32"]);
    snapshot("use_mor = false\nmor_k = 2", "use_mor = true\nmor_k = 5", Class::Mismatch, &["mor_k is 5", "max_iter = 4"]);
}

#[test]
fn without_a_snapshot_the_preset_is_needed_and_with_one_it_is_refused() {
    let Some((_folder, path)) = folder("noteacher", |_| (), |_| ()) else { return };
    let sets: Vec<String> = ["d_model=32", "model.n_heads=4", "HEAD_DIM=8", "d_ffn=48", "max_seq_len=64", "rank=8", "engram_rows=60"]
        .map(str::to_owned)
        .to_vec();
    let config = DormouseConfig::from_preset("small", &sets).unwrap();
    is(super::open_as(&path, config.clone()).err(), Class::Request, &["latest.config.toml", "--preset"]);
    std::fs::remove_file(snapshot_of(&path)).unwrap();
    is(open(&path).err(), Class::Request, &["latest.config.toml", "--preset"]);
    let checkpoint = super::open_as(&path, config).unwrap();
    assert_eq!(checkpoint.arrays().count(), 54);
    for (set, part) in [
        ("d_model", "key=value"),
        ("use_mhc=true", "cannot be set"),
        ("d_modle=3", "d_modle"),
        ("use_kda=maybe", "true"),
        ("rank=-1", "whole number"),
    ] {
        let error = DormouseConfig::from_preset("small", &[set.to_owned()]).unwrap_err();
        assert_eq!(error.class(), Class::Request);
        assert!(error.to_string().contains(part) || part == "cannot be set", "{error}");
    }
    assert_eq!(DormouseConfig::from_preset("huge", &[]).unwrap_err().class(), Class::Request);
}

/// The form without magic: three numbers, then the records.
#[test]
fn the_older_container_reads_the_same() {
    let older = |bytes: &mut Vec<u8>| {
        let mut head = bytes[8..32].to_vec();
        head.extend_from_slice(&bytes[48..]);
        *bytes = head;
    };
    let Some((_folder, path)) = folder("noteacher", older, |_| ()) else { return };
    let (old, new) =
        (open(&path).unwrap(), folder("noteacher", |_| (), |_| ()).map(|(folder, path)| (open(&path).unwrap(), folder)).unwrap());
    assert_eq!(old.provenance.importer, "dormouse, before v2");
    assert!(old.arrays().zip(new.0.arrays()).all(|(a, b)| a.name() == b.name() && a.to_vec().unwrap() == b.to_vec().unwrap()));
}

/// Tensors and numbers of the presets as upstream publishes them.
#[test]
fn presets_have_as_many_numbers_as_upstream_says() {
    use super::tensors::{Variant, list};
    for (preset, conf_markov, tensors, numbers) in [
        ("small", false, 54, 9_197_390),
        ("small", true, 54, 9_197_454),
        ("nano", false, 54, 7_192_906),
        ("nano", true, 54, 7_193_002),
        ("base", false, 54, 13_065_810),
        ("base", true, 54, 13_065_874),
        ("plain9m", true, 46, 13_358_510),
        ("p150", true, 60, 132_862_786),
    ] {
        let config = DormouseConfig::from_preset(preset, &[]).unwrap();
        let list = list(&config, Variant { conf_markov, attnres_gain: true }).unwrap();
        assert_eq!((list.len(), list.iter().map(|(_, dims)| dims.count()).sum::<u64>()), (tensors, numbers), "{preset}");
    }
}
