//! `docs/format/read_dmexp.py`, a reader in another language written from the documents: it finds in every file what the runtime finds.

use dmexp::format::file::ModelFile;
use dmexp_tests::{data, folder, line};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What the reader says of a file, or `None`, with a line saying so, where there is no Python that has what it needs.
fn python() -> Option<&'static str> {
    let there = Command::new("python3").args(["-c", "import tomllib"]).output().is_ok_and(|output| output.status.success());
    if !there {
        println!("python3 with tomllib (3.11 or later) is not here: docs/format/read_dmexp.py was not tried");
    }
    there.then_some("python3")
}

fn read(python: &str, file: &Path, tensor: Option<&str>) -> Output {
    Command::new(python).arg(root().join("docs/format/read_dmexp.py")).arg(file).args(tensor).output().unwrap()
}

/// Every tensor of the file, or the smaller half of them where there are many, value by value.
fn compare(python: &str, path: &Path) {
    let bytes = fs::read(path).unwrap();
    let file = ModelFile::open(&bytes).unwrap();
    let listed = String::from_utf8(read(python, path, None).stdout).unwrap();
    assert_eq!(listed.lines().count() as u32, file.num_tensors(), "{}", path.display());
    let mut types = std::collections::BTreeSet::new();
    for tensor in file.tensors() {
        assert!(listed.contains(&format!("{}  {}  {:?}", tensor.name, tensor.view.dtype(), tensor.view.dims().as_slice())), "{listed}");
        // One of each type and rank: a Python takes its time to start.
        if !types.insert((tensor.view.dtype().code(), tensor.view.dims().rank())) {
            continue;
        }
        let printed = String::from_utf8(read(python, path, Some(tensor.name)).stdout).unwrap();
        let found: Vec<f32> = printed.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let element = |index: usize| tensor.view.get_u32(index).map_or_else(|| tensor.view.get_f32(index), |id| id as f32);
        let expected = (0..tensor.view.dims().count() as usize)
            .map(|index| if tensor.view.dtype().code() == 6 { f32::from(tensor.view.bytes()[index]) } else { element(index) });
        assert!(found.iter().copied().eq(expected), "{}: {}", path.display(), tensor.name);
    }
}

#[test]
fn another_reader_finds_the_same_in_both_formats() {
    let Some(python) = python() else { return };
    let folder = folder();
    let tiny = root().join("models/tiny.bin").display().to_string();
    for (name, words) in [("one", "f32 --format 1"), ("half", "f16 --format 1"), ("bf16", "bf16"), ("q8", "q8 --group 16"), ("q4", "q4")] {
        line(folder.path(), &format!("export run --checkpoint {tiny} --tokenizer bytes --bos 0 --dtype {words} --out {name}.dmexp")).ok();
        compare(python, &folder.path().join(format!("{name}.dmexp")));
    }
    // What has no checksum over it is refused in a sentence, too.
    let one = fs::read(folder.path().join("one.dmexp")).unwrap();
    for (from, to) in [("dtype = \"f32\"", "dtype = \"f99\""), ("dims = [", "dims = {"), ("name = ", "nime = "), ("format", "f\u{1}rmat")] {
        let mut bytes = one.clone();
        let at = bytes.windows(from.len()).position(|piece| piece == from.as_bytes()).unwrap();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        fs::write(folder.path().join("damaged.dmexp"), bytes).unwrap();
        let output = read(python, &folder.path().join("damaged.dmexp"), None);
        assert!(!output.status.success() && output.stderr.starts_with(b"the header is damaged"), "{to}: {output:?}");
    }
    let mut bytes = fs::read(folder.path().join("q8.dmexp")).unwrap();
    for at in [40, bytes.len() - 1] {
        bytes[at] ^= 1;
        fs::write(folder.path().join("damaged.dmexp"), &bytes).unwrap();
        let output = read(python, &folder.path().join("damaged.dmexp"), None);
        assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("checksum"), "{output:?}");
        bytes[at] ^= 1;
    }
}

#[test]
fn another_reader_finds_the_same_in_files_of_dormouse() {
    let (Some(python), Some(dormouse)) = (python(), data("dormouse")) else { return };
    let folder = folder();
    for name in ["expected.f32", "expected.f16", "expected.bf16"] {
        compare(python, &dormouse.join("ckpt").join(format!("{name}.dmexp")));
    }
    let source = dormouse.join("ckpt/expected.f32.dmexp").display().to_string();
    line(folder.path(), &format!("export run --checkpoint {source} --dtype t2 --out codes.dmexp")).ok();
    compare(python, &folder.path().join("codes.dmexp"));
}
