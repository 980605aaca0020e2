//! Every kind of file is recognised, and what is said of it helps.

use super::data;
use super::made::{SHAPE, Shape};
use crate::checkpoint::gguf::tests::make as gguf;
use crate::checkpoint::{DirectoryHint, Kind, not_a_dmexp, open, recognise, recognise_path};
use crate::error::Class;
use std::path::Path;

fn torch_zip(name: &str) -> Vec<u8> {
    let mut bytes = b"PK\x03\x04".to_vec();
    bytes.resize(26, 0);
    bytes.extend((name.len() as u16).to_le_bytes());
    bytes.extend([0, 0]);
    bytes.extend(name.as_bytes());
    bytes
}

fn cases() -> Vec<(Vec<u8>, Kind)> {
    let safetensors = [&22u64.to_le_bytes()[..], br#"{"__metadata__":{}}   "#].concat();
    let sentencepiece = b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02\x0a\x0c".to_vec();
    let legacy_dormouse = [&[5u64, 100, 0].map(u64::to_le_bytes).concat()[..], b"NRUB\x01\0"].concat();
    let tokenizer = [
        &5u32.to_le_bytes()[..],
        &[0; 4],
        &5u32.to_le_bytes(),
        b"<unk>",
        &[0; 4],
        &1u32.to_le_bytes(),
        b"a",
        &[0; 4],
        &1u32.to_le_bytes(),
        b" ",
    ]
    .concat();
    vec![
        (Vec::new(), Kind::Empty),
        (b"DMEXPRT\x01rest".to_vec(), Kind::Dmexp { version: 1 }),
        (b"DMEXPRT\x02rest".to_vec(), Kind::Dmexp { version: 2 }),
        (b"DMEXPRT\x09".to_vec(), Kind::Dmexp { version: 9 }),
        (SHAPE.v0(Some(1e4)), Kind::Llama2c { version: 0 }),
        (SHAPE.untied().v0(None), Kind::Llama2c { version: 0 }),
        (SHAPE.v1(), Kind::Llama2c { version: 1 }),
        (SHAPE.v2(4).0, Kind::Llama2c { version: 2 }),
        (b"24ka\x07\0\0\0".to_vec(), Kind::Llama2c { version: 7 }),
        (SHAPE.v0(None)[..100].to_vec(), Kind::Llama2cWrongSize),
        (b"ak42\0\0\0\x01".to_vec(), Kind::Llama2cBigEndian),
        (gguf::model(&gguf::TINY).bytes(), Kind::Gguf),
        (b"tjgg\x03\0\0\0".to_vec(), Kind::Ggml),
        (torch_zip("archive/data.pkl"), Kind::Zip { pytorch: true }),
        (torch_zip("readme.txt"), Kind::Zip { pytorch: false }),
        (b"\x80\x02\x8a\x0al\xfc".to_vec(), Kind::Pickle),
        (safetensors, Kind::Safetensors),
        (b"DMCK\0\x02\0\0".to_vec(), Kind::DormouseCheckpoint),
        (legacy_dormouse, Kind::DormouseCheckpoint),
        (b"NRUB\x01\0".to_vec(), Kind::Burnpack),
        (tokenizer, Kind::TokenizerBin { pieces: 3 }),
        (sentencepiece, Kind::SentencepieceModel),
        (b"\xef\xbb\xbf \n<!DOCTYPE HTML><p>404".to_vec(), Kind::Html),
        (b"<html lang=en>".to_vec(), Kind::Html),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n".to_vec(), Kind::LfsPointer),
        (b"\x1f\x8b\x08\0".to_vec(), Kind::Compressed("gzip")),
        (b"\xfd7zXZ\0".to_vec(), Kind::Compressed("xz")),
        (b"BZh91AY".to_vec(), Kind::Compressed("bzip2")),
        (b"\x28\xb5\x2f\xfd\0".to_vec(), Kind::Compressed("zstd")),
        (b"\x7fELF\x02".to_vec(), Kind::Elf),
        (b" {\"a\": 1}".to_vec(), Kind::Json),
        (b"[1, 2]".to_vec(), Kind::Json),
        ("Es war einmal \u{e9}ine\n".as_bytes().to_vec(), Kind::Text),
        (vec![0; 64], Kind::Unknown { first: [0; 8] }),
        (vec![0xff, 1, 2], Kind::Unknown { first: [0xff, 1, 2, 0, 0, 0, 0, 0] }),
    ]
}

#[test]
fn every_kind_is_recognised_by_its_bytes() {
    for (bytes, kind) in cases() {
        assert_eq!(recognise(&bytes), kind, "{:?}", bytes.get(..16));
    }
}

#[test]
fn checkpoints_whose_first_bytes_are_anothers_magic_are_still_recognised() {
    // dim 384 and 640 begin with 0x80 0x01 and 0x80 0x02, as pickles do.
    for dim in [384, 640, 896] {
        let shape = Shape { dim, heads: 2, kv_heads: 2, hidden: 4, ..SHAPE };
        let bytes = shape.v0(Some(1e4));
        assert_eq!(recognise(&bytes), Kind::Llama2c { version: 0 });
        assert_eq!(recognise(&bytes[..bytes.len() - 1]), Kind::Llama2cWrongSize);
    }
}

#[test]
fn every_kind_that_is_no_model_is_refused_in_one_line_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some model.bin");
    for (bytes, kind) in cases() {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(recognise_path(&path).unwrap(), kind);
        let run = not_a_dmexp(&path).to_string();
        assert!(run.contains(&kind.sentence()) && run.contains("; ") && !run.contains('\n'), "{run}");
        assert_eq!(run.contains("not a .dmexp"), !matches!(kind, Kind::Dmexp { .. }), "{run}");
        assert_eq!(run.contains("dmexp export run --checkpoint '"), kind.is_imported(), "{run}");
        match open(&path) {
            Ok(_) => assert!(kind.is_imported()),
            Err(error) => assert!(error.to_string().contains("; "), "{error}"),
        }
    }
}

#[test]
fn the_command_names_both_files_and_can_be_pasted() {
    let kind = Kind::Llama2c { version: 0 };
    let command = |path: &str| kind.command(Path::new(path)).unwrap();
    assert_eq!(command("models/stories260K.bin"), "dmexp export run --checkpoint models/stories260K.bin --out stories260K.dmexp");
    assert_eq!(command("it's/a b.bin"), r"dmexp export run --checkpoint 'it'\''s/a b.bin' --out 'a b.dmexp'");
    assert_eq!(Kind::Ggml.command(Path::new("a.ggml")), None);
    let advice = Kind::Ggml.advice(Path::new("a.ggml"));
    assert!(advice.contains("imports llama2.c checkpoints (v0, v1, v2, ckpt.pt), ") && advice.ends_with(" and cannot import this one"));
    assert_eq!(Kind::Dmexp { version: 2 }.advice(Path::new("a.dmexp")), "run it with: dmexp generate --export a.dmexp");
}

#[test]
fn folders_are_told_by_what_they_hold() {
    let folder = tempfile::tempdir().unwrap();
    for (name, hint) in [
        ("notes.txt", DirectoryHint::Other),
        ("a.safetensors", DirectoryHint::Safetensors),
        ("params.json", DirectoryHint::Meta),
        ("config.json", DirectoryHint::HuggingFace),
    ] {
        std::fs::write(folder.path().join(name), "x").unwrap();
        assert_eq!(recognise_path(folder.path()).unwrap(), Kind::Directory(hint));
        let error = open(folder.path()).unwrap_err();
        let class = if hint == DirectoryHint::HuggingFace { Class::Damaged } else { Class::NotAModel };
        assert_eq!(error.class(), class, "{error}");
    }
}

#[test]
fn the_shared_files_are_what_they_are() {
    for (name, kind) in [
        ("stories260K/stories260K.bin", Kind::Llama2c { version: 0 }),
        ("stories260K/tok512.bin", Kind::TokenizerBin { pieces: 512 }),
        ("stories260K-derived/stories260K_v1.bin", Kind::Llama2c { version: 1 }),
        ("stories260K-derived/stories260K_v2_q80_gs64.bin", Kind::Llama2c { version: 2 }),
        ("stories260K-derived/stories260K_rebuilt_ckpt.pt", Kind::Zip { pytorch: true }),
        ("llama2c-made/mha_tied/ckpt_legacy_nonzip.pt", Kind::Pickle),
        ("llama2c-made/mha_tied/hf_export_by_llama2c/pytorch_model.bin", Kind::Zip { pytorch: true }),
        ("llama2c-made/gqa_untied/meta/consolidated.00.pth", Kind::Zip { pytorch: true }),
        ("llama2c-made/gqa_untied/hf_safetensors/model.safetensors", Kind::Safetensors),
        ("llama2c-made/gqa_untied/hf_safetensors/config.json", Kind::Json),
        ("llama2c-made/gqa_untied/hf_safetensors", Kind::Directory(DirectoryHint::HuggingFace)),
        ("llama2c-made/gqa_untied/meta", Kind::Directory(DirectoryHint::Meta)),
        ("dormouse/ckpt/latest.bin", Kind::DormouseCheckpoint),
        ("dormouse/ckpt/latest.config.toml", Kind::Text),
        ("dormouse/default.f32.dmexp", Kind::Dmexp { version: 1 }),
    ] {
        let Some(path) = data(name) else { return };
        assert_eq!(recognise_path(&path).unwrap(), kind, "{name}");
    }
}
