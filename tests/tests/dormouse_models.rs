//! Models of dormouse through the real command: golden vectors, where two machines first differ, and requests that make no sense.

use dmexp_tests::damage::{index_start, payload_start, put, record, replace, seal, seal_payload, word};
use dmexp_tests::{data, files, folder, line, run, tiny};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with a model in format 2.
fn exported(stem: &str, more: &str) -> Option<(TempDir, PathBuf)> {
    let checkpoint = data(&format!("dormouse/{stem}.f32.dmexp"))?;
    let folder = folder();
    let path = folder.path().join("m.dmexp");
    let words = ["export", "run", "--quiet", "--checkpoint", &checkpoint.display().to_string(), "--out", "m.dmexp"].map(str::to_owned);
    let words: Vec<String> = words.into_iter().chain(more.split(' ').map(str::to_owned)).collect();
    run(folder.path(), &words.iter().map(String::as_str).collect::<Vec<_>>()).ok();
    Some((folder, path))
}

fn tensor(folder: &Path, name: &str) -> usize {
    let info = line(folder, "export info m.dmexp --json --tensors").json();
    info["tensors"].as_array().unwrap().iter().position(|tensor| tensor["name"] == name).unwrap()
}

#[test]
fn golden_vectors_are_replayed_and_tell_what_no_tensor_shows() {
    for (stem, dtype) in [("default", "f32"), ("default", "t2"), ("plain", "bf16"), ("gr", "q8")] {
        let Some((folder, path)) = exported(stem, &format!("--format 2 --dtype {dtype}")) else { return };
        let verified = line(folder.path(), "export verify m.dmexp").succeeded();
        assert!(verified.text().contains("golden vectors: 1 replayed"), "{stem} {dtype}: {}", verified.text());
        // Keys and values in f16, which this architecture has not.
        let mut bytes = fs::read(&path).unwrap();
        let at = index_start(&bytes);
        let golden = at + word(&bytes, at + 40) as usize;
        put(&mut bytes, golden, &1u32.to_le_bytes());
        seal(&mut bytes);
        fs::write(folder.path().join("halves.dmexp"), bytes).unwrap();
        line(folder.path(), "logits --export halves.dmexp --tokens 1 --out l").refused(&["golden"]);
        // What is added under a root, in header and index alike: every tensor is as it was.
        let mut bytes = fs::read(&path).unwrap();
        replace(&mut bytes, "norm_eps = 0.001", "norm_eps = 0.002");
        let config = index_start(&bytes) + 64;
        put(&mut bytes, config + 4 * 8, &0.002f32.to_le_bytes());
        seal(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let verified = line(folder.path(), "export verify m.dmexp");
        assert!(verified.code == Some(1) && verified.text().contains("golden vectors"), "{stem} {dtype}: {verified:?}");
    }
}

#[test]
fn a_comparison_names_the_iteration_and_the_tensor() {
    for stem in ["default", "gr"] {
        let Some((folder, path)) = exported(stem, "--format 2 --dtype f32") else { return };
        let good = fs::read(&path).unwrap();
        let compared =
            |more: &str| line(folder.path(), &format!("compare --export bad.dmexp --device cpu --reference-export m.dmexp {more}"));
        fs::write(folder.path().join("bad.dmexp"), &good).unwrap();
        assert_eq!(compared("--prompt once --positions 12 --trace --json").json()["equal"], true, "{stem}");
        for (name, place, words) in [
            ("embedding.weight", "embedding", "in the embedding"),
            ("loop_block.shared_attn.gdn2.q_proj.weight", "layer", "in iteration 0"),
            ("loop_block.iter_embed", "layer", "in iteration 2"),
            ("lm_head.inner.Tsct.s", "logits", "in the logits"),
        ] {
            let mut bytes = good.clone();
            // Element 65 is in the row of iteration 2, and in no byte's that is in the text.
            let (tensor, element) = (tensor(folder.path(), name), if name == "embedding.weight" { 32 * usize::from(b'n') } else { 65 });
            let element = if name.starts_with("lm_head") { 3 } else { element };
            let at = payload_start(&bytes) + word(&bytes, record(&bytes, tensor) + 32) as usize + 4 * element;
            bytes[at + 3] ^= 0x80;
            seal_payload(&mut bytes);
            fs::write(folder.path().join("bad.dmexp"), bytes).unwrap();
            let told = compared("--prompt once --positions 6 --greedy 2 --trace");
            assert_eq!(told.code, Some(1), "{told:?}");
            assert!(told.text().contains(words) && told.text().contains(&format!("{name} has other bytes there")), "{told:?}");
            let found: Value = serde_json::from_slice(&compared("--prompt once --positions 6 --greedy 0 --json").out).unwrap();
            let first = &found["first_difference"];
            let position = u32::from(name == "embedding.weight");
            assert_eq!((&first["stage"], &first["position"]), (&Value::from(place), &Value::from(position)), "{stem} {name}: {first}");
        }
    }
}

#[test]
fn requests_that_make_no_sense_are_refused_in_words() {
    let Some((folder, _)) = exported("default", "--format 2 --dtype f32") else { return };
    let one = data("dormouse/default.f32.dmexp").unwrap().display().to_string();
    tiny().export(folder.path(), "tiny.dmexp", "--dtype f32");
    let before = files(folder.path());
    for (words, parts) in [
        ("generate --export m.dmexp --prompt once --factors raw", &["factors"][..]),
        ("generate --export m.dmexp --prompt once --context 65", &["65", "64"]),
        ("logits --export m.dmexp --tokens 256 --out l", &["256"]),
        ("logits --export tiny.dmexp --tokens 1 --convention full --out l", &["no model of dormouse"]),
        ("generate --export tiny.dmexp --prompt once --kda-scale 1", &["no model of dormouse"]),
        ("generate --export tiny.dmexp --prompt once --factors raw", &["no model of dormouse"]),
        ("generate --export tiny.dmexp --prompt once --decoding fast", &["no model of dormouse"]),
        ("generate --export tiny.dmexp --prompt once --compat", &["dormouse"]),
        ("generate --export m.dmexp --prompt once --steps 62", &["--steps 61"]),
        ("new firmware --board an386 --model m.dmexp project", &["dormouse", "include_model!"]),
        ("plan m.dmexp --board an386", &["dormouse", "export info"]),
    ] {
        line(folder.path(), words).refused(parts);
        assert_eq!(files(folder.path()), before, "{words}");
    }
    // What a device would not do as well would be blamed on its arithmetic.
    for words in ["--kda-scale 1", "--factors ternary", "--decoding fast"] {
        let told = line(folder.path(), &format!("compare --export m.dmexp --device qemu:an386 --prompt once {words}"));
        assert!(told.code == Some(2) && told.err.contains("leave"), "{told:?}");
    }
    let words = ["export", "run", "--checkpoint", &one, "--dtype", "f32", "--kda-scale", "1", "--out", "o.dmexp"];
    run(folder.path(), &words).refused(&["format 1", "--kda-scale", "--format 2"]);
    assert_eq!(files(folder.path()), before);
    let checkpoint = tiny().checkpoint.display().to_string();
    let words = ["compare", "dtypes", &checkpoint, "--tokenizer", "bytes", "--text", &checkpoint, "--convention", "full"];
    run(folder.path(), &words).refused(&["--convention full is for models of dormouse"]);
    // A prompt that is longer than the context, by both conventions.
    let long = "x".repeat(65);
    for words in
        [vec!["generate", "--export", &one, "--prompt", &long], vec!["logits", "--export", &one, "--text", &long, "--convention", "full"]]
    {
        run(folder.path(), &words).refused(&["65", "64"]);
    }
    // The context ends a text, whatever was asked for; every byte of a prompt is taken, also what is no text.
    let ran = line(folder.path(), "generate --export m.dmexp --prompt once --temp 0 --json").json();
    let lengths = ["prompt_tokens", "tokens"].map(|key| ran[key].as_array().map(Vec::len));
    assert_eq!(lengths, [Some(4), Some(61)], "{ran}");
    fs::write(folder.path().join("odd"), [0, 0xff, b'\n', 0xc3]).unwrap();
    let scored = line(folder.path(), "score --export m.dmexp --text odd --json").json();
    assert_eq!(scored["scores"][0]["bytes_scored"], 3);
}
