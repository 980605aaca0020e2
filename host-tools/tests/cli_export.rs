//! `dmexp export run`, `info`, `verify` and `strip`, by running the real binary. Tests named `report_N` are entry N of the collected reports of what users ran into.

mod cli_support;

use cli_support::{Shape, TINY, any, checkpoint, files, flip, folder, line, run, shared, stories, tiny, tokenizer_bin};
use std::fs;

#[test]
fn nothing_that_was_read_is_replaced() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("m")).unwrap();
    fs::write(path("m/tiny.bin"), checkpoint(&Shape { vocab: 261, ..TINY }, any)).unwrap();
    fs::write(path("m/tokenizer.bin"), tokenizer_bin(&[" ", "a"])).unwrap();
    fs::write(path("m/generation_config.json"), "{}").unwrap();
    fs::write(path("text"), "Once upon a time. ".repeat(40)).unwrap();
    let before = files(&path("m"));
    let replaced = "is what is read";
    for out in ["m/tiny.bin", "m/tokenizer.bin", "m/../m/tokenizer.bin", "m/generation_config.json"] {
        for tokenizer in ["m", "m/tokenizer.bin", "none"] {
            let line = line(folder.path(), &format!("export run --checkpoint m/tiny.bin --tokenizer {tokenizer} --out {out}"));
            line.refused(1, &[out, replaced]);
        }
        for plot in ["--csv", "--svg"] {
            let line = line(folder.path(), &format!("compare dtypes m/tiny.bin --tokenizer m --text text {plot} {out}"));
            line.refused(1, &[out, replaced]);
        }
    }
    line(folder.path(), "compare dtypes m/tiny.bin --tokenizer m --text text --csv t --svg ./t")
        .refused(1, &["--csv and --svg name one file"]);
    assert_eq!((files(&path("m")), files(folder.path())), (before, vec!["m".to_owned(), "text".to_owned()]));
}

#[test]
fn an_export_reports_what_it_wrote() {
    let folder = folder();
    fs::write(folder.path().join("tiny.bin"), checkpoint(&TINY, any)).unwrap();
    let ran = line(folder.path(), "export run --checkpoint tiny.bin --tokenizer bytes --tensors").ok();
    // The default: bf16, named after the checkpoint, in the current folder, and said so.
    assert_eq!(files(folder.path()), ["tiny.bf16.dmexp", "tiny.bin"]);
    for part in [
        "tiny.bf16.dmexp",
        "parameters",
        "max_abs",
        "min_nonzero_abs",
        "flushed to 0",
        "subnormal",
        "of the source",
        "fingerprint",
        "layers.0.attention.wq.weight",
        "8 x 8",
    ] {
        assert!(ran.text().contains(part), "{part}: {}", ran.text());
    }
    let json = line(folder.path(), "export run --checkpoint tiny.bin --tokenizer bytes --json --tensors --dtype f32 --out a.dmexp").json();
    let bytes = fs::metadata(folder.path().join("a.dmexp")).unwrap().len();
    assert_eq!(json["file_bytes"], bytes);
    assert_eq!(json["source_bytes"], fs::metadata(folder.path().join("tiny.bin")).unwrap().len());
    assert_eq!((json["dtype"].as_str(), json["format"].as_u64(), json["golden"].as_u64()), (Some("f32"), Some(2), Some(2)));
    assert_eq!(json["num_tensors"].as_u64().unwrap() as usize, json["tensors"].as_array().unwrap().len());
    assert!(json["max_abs"].as_f64().unwrap() <= 1.0 && json["flushed"] == 0);
    let quiet =
        line(folder.path(), "export run --checkpoint tiny.bin --tokenizer bytes --quiet --no-golden --sha256 --align 256 --out q.dmexp")
            .ok();
    assert_eq!((quiet.out.len(), quiet.err.as_str()), (0, ""));
    let info = line(folder.path(), "export info q.dmexp --json").json();
    assert_eq!((info["alignment"].as_u64(), info["golden"].as_array().map(Vec::len)), (Some(256), Some(0)));
    assert_eq!(info["header"]["provenance"]["sha256"].as_str().map(str::len), Some(64));
}

#[test]
fn the_same_input_gives_the_same_file() {
    let folder = folder();
    fs::write(folder.path().join("tiny.bin"), checkpoint(&TINY, any)).unwrap();
    for out in ["a.dmexp", "b.dmexp"] {
        line(folder.path(), &format!("export run --checkpoint tiny.bin --tokenizer bytes --out {out}")).ok();
    }
    assert_eq!(fs::read(folder.path().join("a.dmexp")).unwrap(), fs::read(folder.path().join("b.dmexp")).unwrap());
}

#[test]
fn element_types_have_all_their_names_and_others_are_refused() {
    let folder = folder();
    fs::write(folder.path().join("tiny.bin"), checkpoint(&TINY, any)).unwrap();
    for (names, dtype) in
        [(&["f32", "fp32", "float32"][..], "f32"), (&["f16", "fp16", "float16", "half"], "f16"), (&["bf16", "bfloat16", "BF16"], "bf16")]
    {
        for name in names {
            let json =
                line(folder.path(), &format!("export run --checkpoint tiny.bin --no-golden --out x.dmexp --json --dtype {name}")).json();
            assert_eq!(json["dtype"], dtype, "{name}");
        }
    }
    line(folder.path(), "export run --checkpoint tiny.bin --dtype f64").refused(2, &["f64", "bf16", "half"]);
    line(folder.path(), "export run --checkpoint tiny.bin --format 3").refused(2, &["format 3", "1 and 2"]);
    line(folder.path(), "export run --checkpoint tiny.bin --align 24 --out y.dmexp").refused(1, &["24", "power of two"]);
    line(folder.path(), "export run --checkpoint tiny.bin --bos 300 --tokenizer bytes").refused(1, &["300", "0 to 255"]);
    line(folder.path(), "export run --checkpoint tiny.bin --bos 1").refused(1, &["--bos goes with --tokenizer bytes"]);
}

#[test]
fn a_refused_export_leaves_what_was_there() {
    let folder = folder();
    let large = |place: usize| if place == 256 * 8 + 8 + 3 { 70000.0 } else { any(place) };
    fs::write(folder.path().join("large.bin"), checkpoint(&TINY, large)).unwrap();
    fs::write(folder.path().join("out.dmexp"), "what was there").unwrap();
    let refused = line(folder.path(), "export run --checkpoint large.bin --dtype f16 --out out.dmexp");
    refused.refused(1, &["layers.0.attention.wq.weight", "element 3", "70000", "bf16"]);
    assert_eq!(fs::read(folder.path().join("out.dmexp")).unwrap(), b"what was there");
    assert_eq!(files(folder.path()), ["large.bin", "out.dmexp"]);
    line(folder.path(), "export run --checkpoint large.bin --dtype bf16 --out out.dmexp").ok();
    line(folder.path(), "export verify out.dmexp").ok();
    line(folder.path(), "export run --checkpoint large.bin --out large.bin").refused(1, &["large.bin", "would be replaced"]);
    line(folder.path(), "export run --checkpoint large.bin --out no/such.dmexp").refused(1, &["no/such.dmexp"]);
}

#[cfg(unix)]
#[test]
fn neither_ctrl_c_nor_sigterm_leaves_a_file() {
    for signal in ["-INT", "-TERM"] {
        stopped_by(signal);
    }
}

#[cfg(unix)]
fn stopped_by(signal: &str) {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    let folder = folder();
    // A hole of half a gigabyte: large enough to be interrupted.
    let shape = cli_support::Shape { dim: 2048, hidden: 5632, layers: 1, heads: 32, kv_heads: 32, vocab: 32000, seq: 64 };
    let file = fs::File::create(folder.path().join("big.bin")).unwrap();
    shape.write_hole(&file);
    let arguments = "export run --checkpoint big.bin --dtype f32 --out out.dmexp";
    let child = cli_support::dmexp(folder.path()).args(arguments.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while files(folder.path()).len() < 2 {
        assert!(start.elapsed() < Duration::from_mins(1), "the export did not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("stopped") && err.lines().count() == 1, "{err}");
    assert_eq!(files(folder.path()), ["big.bin"]);
}

#[test]
fn info_shows_all_of_the_header() {
    let folder = folder();
    tiny(folder.path());
    let ran = line(folder.path(), "export info tiny.dmexp --tensors").ok();
    for part in [
        "format 2",
        "architecture",
        "llama",
        "checksum ok",
        "fingerprint",
        "config.dim = 8",
        "config.rope_theta = ",
        "tokenizer.kind = \"bytes\"",
        "tokenizer.bos = 0",
        "provenance.source = \"tiny.bin\"",
        "golden vector",
        "tok_embeddings.weight",
        "256 x 8",
        "max_abs",
    ] {
        assert!(ran.text().contains(part), "{part}: {}", ran.text());
    }
    let json = line(folder.path(), "export info tiny.dmexp --json --tensors").json();
    assert_eq!(json["payload"]["ok"], true);
    assert_eq!(json["header"]["config"]["dim"], 8);
    assert_eq!(json["header"]["tensors"].as_array().unwrap().len(), json["tensors"].as_array().unwrap().len());
    assert_eq!(json["unknown_keys"], serde_json::json!([]));
    assert_eq!(json["golden"].as_array().unwrap().len(), 2);
    // The ranges are those of the values as stored.
    let embedding = &json["tensors"][0];
    let largest = (0..256 * 8).map(|place| any(place).abs()).fold(0.0, f32::max);
    assert_eq!(embedding["max_abs"].as_f64().unwrap() as f32, largest);
    line(folder.path(), "export info tiny.bin").refused(1, &["is a llama2.c checkpoint", "dmexp export run"]);
}

#[test]
fn info_and_verify_find_a_flipped_bit() {
    let folder = folder();
    tiny(folder.path());
    flip(&folder.path().join("tiny.dmexp"), |len| len - 9);
    let info = line(folder.path(), "export info tiny.dmexp");
    assert_eq!(info.code, Some(1));
    assert!(info.text().contains("CHECKSUM MISMATCH"), "{}", info.text());
    let verify = line(folder.path(), "export verify tiny.dmexp");
    assert_eq!(verify.code, Some(1));
    assert!(verify.text().contains("FAILED") && verify.text().contains("1 failed"), "{}", verify.text());
    let verify = run(folder.path(), &["export", "verify", "tiny.dmexp", "--json"]);
    assert_eq!((verify.code, verify.err.as_str()), (Some(1), ""));
    let json: serde_json::Value = serde_json::from_slice(&verify.out).unwrap();
    assert_eq!(json["passed"], false);
    // In the head the container itself is refused.
    tiny(folder.path());
    flip(&folder.path().join("tiny.dmexp"), |_| 100);
    let verify = line(folder.path(), "export verify tiny.dmexp");
    assert_eq!(verify.code, Some(1));
    assert!(verify.text().contains("FAILED"), "{verify:?}");
    line(folder.path(), "export info tiny.dmexp").refused(1, &["tiny.dmexp", "checksum"]);
}

#[test]
fn verify_says_of_every_check_what_came_out() {
    let folder = folder();
    tiny(folder.path());
    let ran = line(folder.path(), "export verify tiny.dmexp").ok();
    for part in ["golden vectors: 2 replayed", "weights are finite", "0 failed", "not checked"] {
        assert!(ran.text().contains(part), "{part}: {}", ran.text());
    }
    let json = line(folder.path(), "export verify tiny.dmexp --json").json();
    let checks = json["checks"].as_array().unwrap();
    assert!(json["passed"] == true && checks.len() > 5);
    assert!(checks.iter().all(|check| check["outcome"] == "ok" || check["why"].is_string()), "{checks:?}");
    line(folder.path(), "export verify tiny.bin").refused(1, &["is a llama2.c checkpoint"]);
    line(folder.path(), "export verify none").refused(1, &["cannot be read"]);
}

#[test]
fn a_stripped_file_computes_the_same() {
    let folder = folder();
    tiny(folder.path());
    let ran = line(folder.path(), "export strip tiny.dmexp --out small.dmexp").ok();
    assert!(ran.text().contains("less"), "{}", ran.text());
    assert!(fs::metadata(folder.path().join("small.dmexp")).unwrap().len() < fs::metadata(folder.path().join("tiny.dmexp")).unwrap().len());
    line(folder.path(), "export verify small.dmexp").ok();
    let [whole, small] = ["tiny", "small"].map(|name| line(folder.path(), &format!("export info {name}.dmexp --json")).json());
    assert_eq!(whole["fingerprint"], small["fingerprint"]);
    assert_eq!(small["stripped"], true);
    for key in ["dim", "hidden_dim", "norm_eps", "rope_layout", "tied_embeddings"] {
        assert_eq!(whole["header"]["config"][key], small["header"]["config"][key], "{key}");
    }
    let [whole, small] = ["tiny", "small"].map(|name| line(folder.path(), &format!("generate --export {name}.dmexp --seed 5")).ok());
    assert_eq!(whole.out, small.out);
    line(folder.path(), "export run --checkpoint tiny.bin --format 1 --dtype f32 --out one.dmexp --quiet").ok();
    line(folder.path(), "export strip one.dmexp --out x.dmexp").refused(1, &["format 1"]);
    line(folder.path(), "export strip tiny.dmexp --out ./tiny.dmexp").refused(1, &["would be replaced"]);
    line(folder.path(), "export strip tiny.dmexp --out no/x.dmexp").refused(1, &["no/x.dmexp"]);
}

#[test]
fn format_1_is_listed_and_verified() {
    let folder = folder();
    tiny(folder.path());
    let json = line(folder.path(), "export run --checkpoint tiny.bin --format 1 --dtype bf16 --out one.dmexp --json").json();
    let (file, params) = (json["file_bytes"].as_u64().unwrap(), json["num_params"].as_u64().unwrap());
    let info = line(folder.path(), "export info one.dmexp --json --tensors").json();
    assert_eq!(info["format"], 1);
    assert_eq!(file, 24 + info["header_bytes"].as_u64().unwrap() + 2 * params);
    assert!(info["tensors"].as_array().unwrap().iter().all(|tensor| tensor["dtype"] == "bf16"));
    let text = line(folder.path(), "export info one.dmexp").ok();
    assert!(text.text().contains("dim = 8"), "{}", text.text());
    line(folder.path(), "export verify one.dmexp").ok();
    line(folder.path(), "export run --checkpoint tiny.bin --format 1 --align 64 --out z.dmexp").refused(1, &["format 1 has no alignment"]);
}

#[test]
fn files_of_dormouse_are_listed_and_verified() {
    for name in ["default", "dense", "gr", "mhc", "mor", "nokda", "plain"] {
        let Some(file) = shared(&format!("dormouse/{name}.f32.dmexp")) else { return };
        let folder = folder();
        let of = |command: &str, flags: &[&str]| {
            let mut arguments = vec!["export".as_ref(), command.as_ref(), file.as_os_str()];
            arguments.extend(flags.iter().map(std::ffi::OsStr::new));
            run(folder.path(), &arguments)
        };
        let json = of("info", &["--json", "--tensors"]).json();
        assert_eq!(
            (json["architecture"].as_str(), json["format"].as_u64(), json["payload"]["ok"].as_bool()),
            (Some("dormouse"), Some(1), Some(true)),
            "{name}"
        );
        assert_eq!(json["tensors"].as_array().unwrap().len() as u64, json["num_tensors"].as_u64().unwrap());
        let text = of("info", &[]).ok();
        assert!(text.text().contains("max_seq_len"), "all of the configuration is shown: {}", text.text());
        assert!(text.text().contains("iterations of one block") && text.text().contains("parameters by part"), "{}", text.text());
        assert!(text.text().contains("memory to run") && json["runs_here"] == true, "{}", text.text());
        let verify = of("verify", &[]).ok();
        assert!(verify.text().contains("0 failed"), "{}", verify.text());
    }
}

#[test]
fn report_8_10_what_is_no_checkpoint_or_no_tokenizer_is_named() {
    let folder = folder();
    tiny(folder.path());
    for (name, bytes, says) in
        [("empty", &b""[..], "empty file"), ("text", b"hello\n", "text file"), ("short", &[0, 0, 0, 1, 0, 0, 0, 1][..], "short")]
    {
        fs::write(folder.path().join(name), bytes).unwrap();
        line(folder.path(), &format!("export run --checkpoint {name} --out x.dmexp")).refused(1, &[name, says]);
    }
    line(folder.path(), "export run --checkpoint . --out x.dmexp").refused(1, &["a folder"]);
    line(folder.path(), "export run --checkpoint tiny.dmexp --out x.dmexp").refused(1, &["a .dmexp file", "dmexp generate"]);
    fs::write(folder.path().join("tok.bin"), tokenizer_bin(&[" ", "a"])).unwrap();
    line(folder.path(), "export run --checkpoint tiny.bin --tokenizer tok.bin --out x.dmexp").refused(1, &["261 pieces", "256 tokens"]);
    line(folder.path(), "export run --checkpoint tiny.bin --tokenizer tiny.bin --out x.dmexp").refused(1, &["not a tokenizer"]);
    line(folder.path(), "export run --checkpoint tiny.bin --tokenizer tok.bin --out tok.bin").refused(1, &["would be replaced"]);
    assert!(!folder.path().join("x.dmexp").exists());
}

#[test]
fn report_11_weights_that_are_no_numbers_are_refused() {
    let folder = folder();
    for (value, says) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let weight = |place: usize| if place == 8 { value } else { any(place) };
        fs::write(folder.path().join("nan.bin"), checkpoint(&TINY, weight)).unwrap();
        line(folder.path(), "export run --checkpoint nan.bin --out x.dmexp").refused(1, &["tok_embeddings.weight", "element 8", says]);
        assert_eq!(files(folder.path()), ["nan.bin"]);
    }
}

#[test]
fn report_20_a_tokenizer_that_lies_is_refused() {
    let folder = folder();
    let (Some(model), Some(tokenizer)) = (shared("stories260K/stories260K.bin"), shared("stories260K/tok512.bin")) else { return };
    let good = fs::read(tokenizer).unwrap();
    let edited = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        edit(&mut bytes);
        bytes
    };
    let put = |at: usize, word: u32| move |bytes: &mut Vec<u8>| bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
    let cases: [(&str, Vec<u8>); 7] = [
        ("longest 1", edited(&put(0, 1))),
        ("longest 2^31", edited(&put(0, 1 << 31))),
        ("length -1", edited(&put(8, u32::MAX))),
        ("length 2^30", edited(&put(8, 1 << 30))),
        ("score NaN", edited(&put(4, f32::NAN.to_bits()))),
        ("cut", good[..good.len() - 3].to_vec()),
        ("too few pieces", tokenizer_bin(&[])),
    ];
    for (name, bytes) in cases {
        let path = folder.path().join("tok.bin");
        fs::write(&path, bytes).unwrap();
        let mut arguments =
            ["export", "run", "--tokenizer", "tok.bin", "--out", "x.dmexp", "--checkpoint"].map(std::ffi::OsString::from).to_vec();
        arguments.push(model.clone().into());
        let ran = run(folder.path(), &arguments);
        assert!(ran.code == Some(1) && ran.err.contains("tok.bin"), "{name}: {ran:?}");
        assert_eq!(files(folder.path()), ["tok.bin"], "{name}");
    }
}

#[test]
fn every_type_of_the_reference_model_verifies() {
    for dtype in ["f32", "f16", "bf16"] {
        let folder = folder();
        if stories(folder.path(), dtype).is_none() {
            return;
        }
        let ran = line(folder.path(), "export verify stories.dmexp").ok();
        assert!(ran.text().contains("golden vectors: 2 replayed"), "{}", ran.text());
    }
}
