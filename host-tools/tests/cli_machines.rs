//! `dmexp compare --device`, by running the real binary: two files on this machine, transcripts, and what cannot be compared. Emulated boards are compared by `cargo xtask probe --check`.

mod cli_support;

use cli_support::{Ran, Shape, any, checkpoint, files, folder, line};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const MADE: Shape = Shape { dim: 16, hidden: 24, layers: 3, heads: 2, kv_heads: 1, vocab: 256, seq: 32 };

/// A folder with `a.dmexp`, and `b.dmexp`, one weight of which is another.
fn prepared() -> tempfile::TempDir {
    let folder = folder();
    for (name, scale) in [("a", 1.0), ("b", -1.0)] {
        // The embeddings, the norms, wq and wk lie before: this is in wv of layer 1.
        let kv_dim = 8;
        let wv = 256 * 16 + 3 * 16 + 3 * 16 * 16 + 3 * 16 * kv_dim + 16 * kv_dim;
        let weight = |place: usize| 0.5 * any(place) * if place == wv + 5 { scale } else { 1.0 };
        fs::write(folder.path().join(format!("{name}.bin")), checkpoint(&MADE, weight)).unwrap();
        line(folder.path(), &format!("export run --checkpoint {name}.bin --tokenizer bytes --dtype f32 --out {name}.dmexp --quiet")).ok();
    }
    folder
}

fn compare(folder: &Path, rest: &str) -> Ran {
    line(folder, &format!("compare --device cpu {rest}"))
}

fn found(ran: &Ran, code: i32) -> Value {
    assert_eq!((ran.code, ran.err.as_str()), (Some(code), ""), "{ran:?}");
    serde_json::from_slice(&ran.out).expect("stdout is JSON")
}

#[test]
fn a_file_is_equal_to_itself() {
    let folder = prepared();
    let ran = compare(folder.path(), "--export a.dmexp --tokens 1,2,3,4,5,6 --greedy 4 --trace --json");
    let found = found(&ran, 0);
    assert_eq!((&found["equal"], &found["first_difference"]), (&json!(true), &Value::Null));
    assert_eq!(found["positions"].as_array().unwrap().len(), 6);
    for position in found["positions"].as_array().unwrap() {
        assert_eq!((&position["same"], &position["layers"]), (&json!(true), &json!([0.0, 0.0, 0.0, 0.0])));
        assert_eq!(position["divergence"], json!({ "max_abs_delta": 0.0, "mean_abs_delta": 0.0, "kl": 0.0, "top1": 1.0 }));
    }
    assert_eq!(found["greedy"]["reference"], found["greedy"]["device"]);
    assert_eq!(found["greedy"]["device"].as_array().unwrap().len(), 4);
    let ran = compare(folder.path(), "--export a.dmexp --tokens 1,2,3 --quiet").ok();
    assert!(ran.text().contains("3 of 3 positions with the same bits") && ran.text().contains("Equal: "), "{}", ran.text());
}

#[test]
fn the_first_difference_of_two_files_is_found_and_the_tensor_named() {
    let folder = prepared();
    let arguments = "--export b.dmexp --reference-export a.dmexp --tokens 1,2,3,4 --greedy 3";
    let plain = found(&compare(folder.path(), &format!("{arguments} --json")), 1);
    let traced = found(&compare(folder.path(), &format!("{arguments} --json --trace")), 1);
    for found in [&plain, &traced] {
        assert_eq!(found["first_difference"], json!({ "position": 0, "stage": "layer", "layer": 1 }), "{found}");
        assert_eq!(found["tensors"]["differ"], json!(["layers.1.attention.wv.weight"]));
        assert!(found["total"]["max_abs_delta"].as_f64().unwrap() > 0.0 && found["total"]["kl"].as_f64().unwrap() > 0.0);
    }
    let layers = traced["positions"][0]["layers"].as_array().unwrap();
    assert_eq!((&layers[0], &layers[1]), (&json!(0.0), &json!(0.0)));
    assert!(layers[2].as_f64().unwrap() > 0.0);
    assert_eq!(plain["positions"][0]["layers"], Value::Null);
    let ran = compare(folder.path(), &format!("{arguments} --quiet --svg layers.svg"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for part in ["DIFFER", "first difference: position 0, layer 1", "layers.1.attention.wv.weight", "two files", "greedy texts"] {
        assert!(ran.text().contains(part), "{part}: {}", ran.text());
    }
    let svg = fs::read_to_string(folder.path().join("layers.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("embedding") && svg.contains("layer 2") && svg.contains("logits"), "{svg}");
}

/// Gives a line the checksum of what it says now: a device that computed it would have recorded it so.
fn seal(line: &mut Value, position: u32, lines: &[&str]) {
    let head: Value = serde_json::from_str(lines[0]).unwrap();
    let number = |value: &Value| value.as_u64().unwrap() as u32;
    let layers: Vec<u32> = line["layers"].as_array().unwrap().iter().map(number).collect();
    let start = [number(&head["fingerprint"]), position, number(&line["token"]), layers.len() as u32];
    let numbers: Vec<u8> = start.into_iter().chain(layers).flat_map(u32::to_le_bytes).collect();
    line["crc32"] = json!(dmexp_format::crc32::checksum(&[&numbers, line["logits"].as_str().unwrap().as_bytes()]));
}

#[test]
fn a_transcript_is_compared_with_what_is_computed_later() {
    let folder = prepared();
    compare(folder.path(), "--export a.dmexp --tokens 1,2,3,4 --record t.jsonl --quiet").ok();
    let same = found(&compare(folder.path(), "--export a.dmexp --replay t.jsonl --json"), 0);
    assert_eq!((same["positions"].as_array().unwrap().len(), &same["reference"]["name"]), (4, &json!("this machine as recorded")));
    // The fingerprint of another file is another, also where the file has the same shape.
    compare(folder.path(), "--export b.dmexp --replay t.jsonl").refused(2, &["fingerprint", "b.dmexp"]);
    // What cannot have been recorded is refused, by its line.
    let recorded = fs::read_to_string(folder.path().join("t.jsonl")).unwrap();
    let lines: Vec<&str> = recorded.lines().collect();
    let strange = lines[2].replacen("\"token\":2", "\"token\":256", 1);
    let (added, missing) = ([&lines[..], &lines[4..]].concat(), [&lines[..2], &lines[3..]].concat());
    let with = [&lines[..2], &[strange.as_str()], &lines[3..]].concat();
    for (lines, parts) in [(added, ["checksum", "at line 6"]), (missing, ["checksum", "at line 3"]), (with, ["256", "at line 3"])] {
        fs::write(folder.path().join("damaged.jsonl"), lines.join("\n")).unwrap();
        compare(folder.path(), "--export a.dmexp --replay damaged.jsonl").refused(2, &[&["damaged.jsonl"], &parts[..]].concat());
    }
    // What was recorded is changed: found where it was.
    let text = fs::read_to_string(folder.path().join("t.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut changed: Value = serde_json::from_str(lines[3]).unwrap();
    let sum = changed["layers"][2].as_u64().unwrap();
    changed["layers"][2] = json!(sum ^ 1);
    let logits = changed["logits"].as_str().unwrap().to_owned();
    changed["logits"] = json!(logits.replacen(&logits[..8], "0000803f", 1));
    seal(&mut changed, 2, &lines);
    let changed = changed.to_string();
    let text = [lines[0], lines[1], lines[2], changed.as_str(), lines[4]].join("\n");
    fs::write(folder.path().join("t.jsonl"), text).unwrap();
    let other = found(&compare(folder.path(), "--export a.dmexp --replay t.jsonl --json"), 1);
    assert_eq!(other["first_difference"], json!({ "position": 2, "stage": "layer", "layer": 1 }));
    assert_eq!((&other["tensors"]["compared"], &other["greedy"]), (&json!(0), &Value::Null));
}

#[test]
fn what_cannot_be_compared_has_an_exit_code_of_its_own() {
    let folder = prepared();
    fs::write(folder.path().join("text.txt"), "hello").unwrap();
    let with = |rest: &str| line(folder.path(), &format!("compare {rest}"));
    with("--export a.dmexp --device cpu").refused(2, &["nothing to play"]);
    with("--export none.dmexp --device cpu --tokens 1").refused(2, &["none.dmexp"]);
    with("--export a.bin --device cpu --tokens 1").refused(2, &["a.bin"]);
    with("--export a.dmexp --device cpu --tokens 256").refused(2, &["256"]);
    with("--export a.dmexp --device cpu --tokens 1 --text text.txt").refused(2, &["--text"]);
    with("--export a.dmexp --device cuda:x --tokens 1").refused(2, &["GPU", "cuda:0"]);
    with("--export a.dmexp --device cpu --tokens 1 --reference cuda:").refused(2, &["GPU", "cuda:0"]);
    with("--export a.dmexp --device qemu:nothing --tokens 1").refused(2, &["nothing", "an386"]);
    with("--export a.dmexp --device qemu:an386 --tokens 1").refused(2, &["cargo xtask probe an386"]);
    with("--export a.dmexp --device qemu:an386:none.elf --tokens 1").refused(2, &["none.elf", "cargo xtask probe an386"]);
    with("--export a.dmexp --device none/tty --tokens 1").refused(2, &["none/tty", "serial port"]);
    with("--export a.dmexp --device cpu --replay text.txt").refused(2, &["text.txt", "no transcript"]);
    with("--export a.dmexp --device cpu --tokens 1 --record a.dmexp").refused(2, &["a.dmexp"]);
    with("--export a.dmexp --device cpu --tokens 1 --svg x --record x").refused(2, &["one file"]);
    with("--export a.dmexp --tokens 1").refused(2, &["--device"]);
    assert_eq!(files(folder.path()), ["a.bin", "a.dmexp", "b.bin", "b.dmexp", "text.txt"]);
}
