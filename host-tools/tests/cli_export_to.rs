//! `dmexp export to` on the real binary.

mod cli_support;

use cli_support::{TINY, any, checkpoint, files, folder, line, shared};
use std::path::Path;

/// `m.dmexp` of a made checkpoint, `m.bin`.
fn model(folder: &Path) {
    std::fs::write(folder.join("m.bin"), checkpoint(&TINY, any)).unwrap();
    line(folder, "export run --checkpoint m.bin --dtype f32 --out m.dmexp --quiet").ok();
}

#[test]
fn a_file_goes_there_and_back_to_the_same_bytes() {
    let folder = folder();
    model(folder.path());
    for (format, out) in [("safetensors", "hf"), ("llama2c-v0", "again.bin")] {
        let ran = line(folder.path(), &format!("export to --format {format} m.dmexp --out {out}")).ok();
        assert!(ran.text().starts_with(&format!("{out}: {format}, 11 tensors, ")), "{ran:?}");
        line(folder.path(), &format!("export run --checkpoint {out} --dtype f32 --out {format}.dmexp --quiet")).ok();
        let logits = |file: &str| line(folder.path(), &format!("logits --export {file} --tokens 1,2,3 --out logits")).ok();
        logits("m.dmexp");
        let expected = std::fs::read(folder.path().join("logits")).unwrap();
        logits(&format!("{format}.dmexp"));
        assert!(std::fs::read(folder.path().join("logits")).unwrap() == expected && !expected.is_empty());
    }
    let json = line(folder.path(), "export to --format safetensors m.dmexp --out hf2 --json").json();
    assert_eq!((json["format"].as_str(), json["num_tensors"].as_u64(), json["out"].as_str()), (Some("safetensors"), Some(11), Some("hf2")));
    assert_eq!(files(&folder.path().join("hf2")), ["config.json", "model.safetensors"]);
}

#[test]
fn refusals_say_what_and_leave_nothing() {
    let folder = folder();
    model(folder.path());
    let before = files(folder.path());
    line(folder.path(), "export to --format gguf m.dmexp --out x").refused(2, &["safetensors", "llama2c-v0"]);
    line(folder.path(), "export to --format safetensors m.bin --out x").refused(1, &["llama2.c checkpoint", "dmexp export run"]);
    line(folder.path(), "export to --format safetensors m.dmexp --out m.bin").refused(1, &["is no folder"]);
    line(folder.path(), "export to --format llama2c-v0 m.dmexp --out m.dmexp").refused(1, &["is what is read"]);
    assert_eq!(files(folder.path()), before);
    if shared("stories260K").is_some() {
        line(folder.path(), "export run --checkpoint m.bin --dtype q8 --out q.dmexp --quiet").ok();
        line(folder.path(), "export to --format llama2c-v0 q.dmexp --out x").refused(1, &["as q8", "f32, f16 or bf16"]);
    }
}

#[cfg(unix)]
#[test]
fn a_signal_while_a_folder_is_written_leaves_nothing() {
    use cli_support::dmexp;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    let folder = folder();
    // A hole of 160 MB: long enough to be stopped in.
    let shape = cli_support::Shape { dim: 1024, hidden: 1024, layers: 1, heads: 8, kv_heads: 8, vocab: 32_000, seq: 32 };
    shape.write_hole(&std::fs::File::create(folder.path().join("m.bin")).unwrap());
    line(folder.path(), "export run --checkpoint m.bin --dtype f32 --no-golden --out m.dmexp --quiet").ok();
    let before = files(folder.path());
    let mut child = dmexp(folder.path())
        .args(["export", "to", "--format", "safetensors", "m.dmexp", "--out", "hf"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while files(folder.path()) == before {
        assert!(child.try_wait().unwrap().is_none(), "ended before it wrote anything");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("stopped: nothing was written"), "{text}");
    assert_eq!(files(folder.path()), before);
}
