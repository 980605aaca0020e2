//! Opening a large file reads its head alone: a made file of 1 GB, of which less than 1 MB comes into memory.
#![cfg(target_os = "linux")]

mod cli_support;
#[allow(dead_code, unreachable_pub, reason = "the end-to-end tests use the rest")]
#[path = "../../tests/src/damage.rs"]
mod damage;

use cli_support::{folder, line, run};
use damage::{index_start, payload_start, put, seal, word};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

/// A file of format 2 whose embedding has 64 columns and 3.9 million rows of zeros: 1 GB that takes no room on the disk.
fn make(path: &Path) -> u64 {
    // A right file of the tiny model is the pattern; its index gets other numbers. Stripped, as the header would have to follow.
    let folder = folder();
    let tiny = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tiny.bin");
    let words = ["export", "run", "--checkpoint", tiny, "--tokenizer", "bytes", "--bos", "0", "--dtype", "f32", "--no-golden"];
    run(folder.path(), &[&words[..], &["--out", "whole.dmexp", "--quiet"]].concat()).ok();
    line(folder.path(), "export strip whole.dmexp --out m.dmexp").ok();
    let mut bytes = fs::read(folder.path().join("m.dmexp")).unwrap();
    let index = index_start(&bytes);
    let (config, tensors) = (index + word(&bytes, index + 16) as usize, index + word(&bytes, index + 12) as usize);
    let (dim, old_rows) = (word(&bytes, config), word(&bytes, config + 24));
    let rows = 1_000_000_000 / (4 * dim);
    assert_eq!((word(&bytes, tensors + 8), word(&bytes, tensors + 12)), (old_rows, dim), "the embedding is the first tensor");
    let more = u64::from(rows - old_rows) * u64::from(dim);
    let add = |bytes: &mut [u8], at: usize, more: u64| {
        let old = u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        put(bytes, at, &(old + more).to_le_bytes());
    };
    put(&mut bytes, config + 24, &rows.to_le_bytes());
    put(&mut bytes, tensors + 8, &rows.to_le_bytes());
    add(&mut bytes, tensors + 40, 4 * more);
    for tensor in 1..word(&bytes, index + 8) as usize {
        // The next multiple of 64 of everything that comes after.
        add(&mut bytes, tensors + 56 * tensor + 32, (4 * more).next_multiple_of(64));
    }
    add(&mut bytes, index + 52, more);
    // No tokenizer: its vocabulary would have to be as large.
    let facts = index + word(&bytes, index + 24) as usize;
    let none = dmexp::format::tokenizer::TokenizerFacts::NONE.to_record();
    put(&mut bytes, facts, &none);
    add(&mut bytes, 12, (4 * more).next_multiple_of(64));
    seal(&mut bytes);
    let mut file = File::create(path).unwrap();
    let payload = payload_start(&bytes);
    file.write_all(&bytes[..payload]).unwrap();
    let len = payload as u64 + u64::from_le_bytes(*bytes[12..].first_chunk().unwrap());
    file.set_len(len).unwrap();
    len
}

/// Bytes of the mapped file that are in memory: its `Rss` in this process's map of memory.
fn resident(path: &Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.display().to_string();
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(&name));
    let rss = lines.find_map(|line| line.strip_prefix("Rss:")).expect("the file is mapped");
    1024 * rss.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap()
}

#[test]
fn opening_and_binding_a_gigabyte_reads_less_than_a_megabyte() {
    let folder = folder();
    let path = folder.path().join("large.dmexp");
    let len = make(&path);
    assert!(len > 1_000_000_000, "{len}");
    let loaded = dmexp_tools::decode::Loaded::open(&path).unwrap();
    let model = loaded.model().unwrap();
    assert_eq!(model.network().llama().unwrap().config().dim, 24);
    let touched = resident(&path.canonicalize().unwrap());
    println!("{len} bytes opened and bound: {touched} bytes of the file are in memory");
    assert!(touched < 1_000_000, "{touched}");
}
