//! What the tests of malformed files share: right files, edits of them, and what their refusals must look like.

use dmexp_tests::damage::{index_start, payload_start, put, record, seal, seal_payload, word};
use dmexp_tests::{Ran, Source, files, folder, line, root, run, story, tiny};
use std::fs;
use std::sync::OnceLock;

/// Exports a model once and returns its bytes.
pub(super) fn made<'a>(cell: &'a OnceLock<Vec<u8>>, source: &Source, more: &str) -> &'a [u8] {
    cell.get_or_init(|| fs::read(source.export(folder().path(), "good.dmexp", more)).unwrap())
}

/// The tiny model in format 2.
pub(super) fn good() -> Vec<u8> {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    made(&FILE, &tiny(), "--dtype f32").to_vec()
}

/// The tiny model in format 1.
pub(super) fn good_v1() -> Vec<u8> {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    made(&FILE, &tiny(), "--dtype f32 --format 1").to_vec()
}

/// The story model, which has a tokenizer of pieces, in format 2.
pub(super) fn good_story() -> Vec<u8> {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    made(&FILE, &story(), "--dtype bf16").to_vec()
}

/// That what was printed has all of `parts`.
#[track_caller]
pub(super) fn has(ran: &Ran, parts: &[&str]) {
    let said = format!("{}{}", String::from_utf8_lossy(&ran.out), ran.err);
    assert!(!said.contains("panicked"), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

/// That `generate` and `export verify` refuse `bytes` as `bad.dmexp` with all of `parts`, that `export info` survives it, and that no file appears.
#[track_caller]
pub(super) fn refused(bytes: &[u8], parts: &[&str]) {
    refused_with(bytes, "", parts);
}

#[track_caller]
pub(super) fn refused_with(bytes: &[u8], tokenizer: &str, parts: &[&str]) {
    let folder = folder();
    fs::write(folder.path().join("bad.dmexp"), bytes).unwrap();
    let ran = line(folder.path(), &format!("generate --export bad.dmexp --steps 1 --check {tokenizer}"));
    // Faults of the payload are left to `verify` to name.
    let said = ran.refused(&["bad.dmexp"]);
    assert!(said.contains("dmexp export verify shows what") || parts.iter().all(|part| said.contains(part)), "{parts:?} is not in: {said}");
    let verify = line(folder.path(), "export verify bad.dmexp");
    assert_eq!(verify.code, Some(1), "{verify:?}");
    has(&verify, &[&["bad.dmexp"], parts].concat());
    let info = line(folder.path(), "export info bad.dmexp --tensors");
    assert!(info.code == Some(0) || info.code == Some(1), "{info:?}");
    has(&info, &["bad.dmexp"]);
    assert_eq!(files(folder.path()), ["bad.dmexp"]);
}

/// That an edit of the right file of format 2 is refused; the checksum of fixed part, header and index is made right after it.
#[track_caller]
pub(super) fn edit_refused(edit: impl Fn(&mut Vec<u8>), parts: &[&str]) {
    let mut bytes = good();
    edit(&mut bytes);
    seal(&mut bytes);
    refused(&bytes, parts);
}

/// The same for a word of the index, at a place from its start.
#[track_caller]
pub(super) fn index_refused(at: usize, value: u32, parts: &[&str]) {
    let at_index = |bytes: &mut Vec<u8>| {
        let at = index_start(bytes) + at;
        put(bytes, at, &value.to_le_bytes());
    };
    edit_refused(at_index, parts);
}

/// The same for a part of a tensor's record.
#[track_caller]
pub(super) fn record_refused(tensor: usize, at: usize, value: &[u8], parts: &[&str]) {
    let in_record = |bytes: &mut Vec<u8>| {
        let at = record(bytes, tensor) + at;
        put(bytes, at, value);
    };
    edit_refused(in_record, parts);
}

/// That the right file of format 1 is refused with text of its header replaced.
#[track_caller]
pub(super) fn header_v1_refused(from: &str, to: &str, parts: &[&str]) {
    let bytes = good_v1();
    let header = std::str::from_utf8(&bytes[24..24 + word(&bytes, 8) as usize]).unwrap();
    assert!(header.contains(from), "{from:?} is not in the header");
    let header = header.replacen(from, to, 1);
    let mut changed = bytes[..24].to_vec();
    put(&mut changed, 8, &(header.len() as u32).to_le_bytes());
    changed.extend(header.bytes());
    changed.extend(&bytes[24 + word(&bytes, 8) as usize..]);
    refused_with(&changed, "--tokenizer bytes", parts);
}

/// That the exporter refuses an edit of a checkpoint, and leaves no file.
#[track_caller]
pub(super) fn checkpoint_refused(edit: impl Fn(&mut Vec<u8>), parts: &[&str]) {
    let folder = folder();
    let mut bytes = fs::read(tiny().checkpoint).unwrap();
    edit(&mut bytes);
    fs::write(folder.path().join("bad.bin"), bytes).unwrap();
    line(folder.path(), "export run --checkpoint bad.bin --tokenizer bytes --out m.dmexp").refused(&[&["bad.bin"], parts].concat());
    assert_eq!(files(folder.path()), ["bad.bin"]);
}

/// That the exporter refuses an edit of the story model's tokenizer, and leaves no file.
#[track_caller]
pub(super) fn tokenizer_refused(edit: impl Fn(&mut Vec<u8>), parts: &[&str]) {
    let folder = folder();
    let mut bytes = fs::read(root().join("models/story.tokenizer.bin")).unwrap();
    edit(&mut bytes);
    fs::write(folder.path().join("bad.tok"), bytes).unwrap();
    let checkpoint = story().checkpoint.display().to_string();
    let words = ["export", "run", "--checkpoint", &checkpoint, "--tokenizer", "bad.tok", "--out", "m.dmexp"];
    run(folder.path(), &words).refused(&[&["bad.tok"], parts].concat());
    assert_eq!(files(folder.path()), ["bad.tok"]);
}

/// Where the bytes of a tensor start.
pub(super) fn tensor_start(bytes: &[u8], tensor: usize) -> usize {
    payload_start(bytes) + word(bytes, record(bytes, tensor) + 32) as usize
}

/// The number of a tensor by name, from the index.
pub(super) fn tensor(bytes: &[u8], name: &str) -> usize {
    let index = index_start(bytes);
    let names = index + word(bytes, index + 32) as usize;
    let is_it = |number: &usize| {
        let record = record(bytes, *number);
        bytes[names + word(bytes, record) as usize..].starts_with(name.as_bytes()) && word(bytes, record + 4) as u16 == name.len() as u16
    };
    (0..word(bytes, index + 8) as usize).find(is_it).expect("a tensor of that name")
}

/// That the right file, without its header (whose figures would be the first to disagree), is refused with an f32 of a tensor replaced.
#[track_caller]
pub(super) fn edit_payload_refused(name: &str, element: usize, value: f32, parts: &[&str]) {
    static STRIPPED: OnceLock<Vec<u8>> = OnceLock::new();
    let stripped = STRIPPED.get_or_init(|| {
        let folder = folder();
        fs::write(folder.path().join("good.dmexp"), good()).unwrap();
        line(folder.path(), "export strip good.dmexp --out stripped.dmexp").ok();
        fs::read(folder.path().join("stripped.dmexp")).unwrap()
    });
    let mut bytes = stripped.clone();
    let at = tensor_start(&bytes, tensor(&bytes, name)) + 4 * element;
    put(&mut bytes, at, &value.to_le_bytes());
    seal_payload(&mut bytes);
    refused(&bytes, parts);
}
