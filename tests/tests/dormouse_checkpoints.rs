//! dormouse's training checkpoints through the real command, with exactly the words of dormouse's own exporter, against the exports that are expected of them (../shared/data/dormouse/ckpt).

use dmexp::format::crc32::checksum;
use dmexp_tests::{data, dmexp, files, folder, line, root, run};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A folder with `checkpoints/`: latest and noteacher, each with its snapshot.
fn checkpoints() -> Option<TempDir> {
    let shared = data("dormouse/ckpt")?;
    let folder = folder();
    let to = folder.path().join("checkpoints");
    fs::create_dir(&to).unwrap();
    for (from, name) in [
        ("latest.bin", "latest.bin"),
        ("latest.config.toml", "latest.config.toml"),
        ("latest.txt", "latest.txt"),
        ("noteacher.bin", "noteacher.bin"),
        ("latest.config.toml", "noteacher.config.toml"),
    ] {
        fs::write(to.join(name), fs::read(shared.join(from)).unwrap()).unwrap();
    }
    Some(folder)
}

/// Header and payload of a format-1 file.
fn parts(path: &Path) -> (toml::Table, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let len = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    (std::str::from_utf8(&bytes[24..24 + len]).unwrap().parse().unwrap(), bytes[24 + len..].to_vec())
}

fn expected(dtype: &str) -> (toml::Table, Vec<u8>) {
    parts(&data(&format!("dormouse/ckpt/expected.{dtype}.dmexp")).unwrap())
}

#[test]
fn the_command_of_dormouse_gives_the_file_of_dormouse() {
    let Some(folder) = checkpoints() else { return };
    let before = files(&folder.path().join("checkpoints"));
    for name in ["latest", "noteacher"] {
        for dtype in ["bf16", "f16", "f32"] {
            let ran = line(folder.path(), &format!("export run --ckpt-dir checkpoints --ckpt-name {name} --dtype {dtype}")).succeeded();
            let out = format!("checkpoints/{name}.{dtype}.dmexp");
            assert!(ran.text().starts_with(&format!("{out} is now a .dmexp of checkpoints/{name}.bin\n")), "{}", ran.text());
            assert_eq!(ran.err, "");
            let ((mut header, payload), (mut wanted, wanted_payload)) = (parts(&folder.path().join(&out)), expected(dtype));
            assert!(payload == wanted_payload, "{name} {dtype}");
            assert_eq!(header["source"].as_str(), Some(format!("checkpoints/{name}.bin@step20").as_str()));
            // dormouse's exporter measures the values as stored; these files were made by another writer, which states those before narrowing.
            for key in ["source", "max_abs", "min_nonzero_abs"] {
                let (found, expected) = (header.remove(key).unwrap(), wanted.remove(key).unwrap());
                assert!(dtype != "f32" || key == "source" || found == expected, "{key}: {found} {expected}");
            }
            assert_eq!(header, wanted, "{name} {dtype}");
            let verified = line(folder.path(), &format!("export verify {out}")).succeeded();
            assert!(verified.text().contains(" 0 failed"), "{}", verified.text());
        }
    }
    // Nothing but the six files came, and what is not named is dormouse's own default.
    let after = files(&folder.path().join("checkpoints"));
    assert_eq!(after.len(), before.len() + 6, "{after:?}");
    let bf16 = fs::read(folder.path().join("checkpoints/latest.bf16.dmexp")).unwrap();
    line(folder.path(), "export run --ckpt-name latest --quiet").ok();
    assert!(fs::read(folder.path().join("checkpoints/latest.bf16.dmexp")).unwrap() == bf16);
}

#[test]
fn files_that_state_the_figures_before_narrowing_verify() {
    for (dtype, before) in [("f32", false), ("f16", true), ("bf16", true)] {
        let Some(path) = data(&format!("dormouse/ckpt/expected.{dtype}.dmexp")) else { return };
        let verified = run(folder().path(), &["export", "verify", &path.display().to_string()]).succeeded();
        assert!(verified.text().contains(" 0 failed"), "{}", verified.text());
        assert_eq!(verified.text().contains("as they were before narrowing"), before, "{}", verified.text());
    }
}

#[test]
fn stripped_and_canonical_exports_are_what_they_say() {
    let Some(folder) = checkpoints() else { return };
    let words = "export run --ckpt-name latest --dtype bf16 --strip --out stripped.dmexp --json";
    let report: Value = line(folder.path(), words).json();
    assert_eq!((&report["num_tensors"], &report["num_params"]), (&Value::from(45), &Value::from(34_733)));
    let (header, _) = parts(&folder.path().join("stripped.dmexp"));
    let names: Vec<_> = header["tensors"].as_array().unwrap().iter().map(|tensor| tensor["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.iter().all(|name| !name.starts_with("aux.") && !name.contains("mor_router")), "{names:?}");
    // Written as codes, bf16 and f32 hold the same factors.
    let mut factors = Vec::new();
    for dtype in ["f32", "bf16"] {
        let out = format!("canonical.{dtype}.dmexp");
        let ran = line(folder.path(), &format!("export run --ckpt-name latest --dtype {dtype} --canonical --out {out}")).succeeded();
        assert!(ran.err.contains("the factors of 8 layers are written as their ternary codes"), "{}", ran.err);
        factors.push(codes(&folder.path().join(&out)));
    }
    assert!(!factors[0].is_empty() && factors[0] == factors[1]);
    assert!(factors[0].iter().all(|code| matches!(*code, -1.0 | 0.0 | 1.0)));
}

/// Every value of every `u` and `v`, from f32 or bf16.
fn codes(path: &Path) -> Vec<f32> {
    let (header, payload) = parts(path);
    let size = if header["dtype"].as_str() == Some("f32") { 4 } else { 2 };
    let mut rest = payload.as_slice();
    let mut found = Vec::new();
    for tensor in header["tensors"].as_array().unwrap() {
        let count: usize =
            tensor["dims"].as_array().unwrap().iter().map(|size| usize::try_from(size.as_integer().unwrap()).unwrap()).product();
        let (bytes, others) = rest.split_at(count * size);
        rest = others;
        let name = tensor["name"].as_str().unwrap();
        if name.ends_with(".Tsct.u") || name.ends_with(".Tsct.v") {
            // The two bytes of a bf16 are the upper ones of its f32.
            let value = |bytes: &[u8]| {
                if size == 4 { f32::from_le_bytes(bytes.try_into().unwrap()) } else { f32::from_le_bytes([0, 0, bytes[0], bytes[1]]) }
            };
            found.extend(bytes.chunks_exact(size).map(value));
        }
    }
    assert!(rest.is_empty());
    found
}

const SETTINGS: &str =
    "--set d_model=32 --set n_heads=4 --set head_dim=8 --set d_ffn=48 --set max_seq_len=64 --set rank=8 --set engram_rows=60";

#[test]
fn a_preset_is_wanted_where_there_is_no_snapshot_and_nowhere_else() {
    let Some(folder) = checkpoints() else { return };
    let with_preset = format!("export run --ckpt-name noteacher --dtype f32 --preset small {SETTINGS} --quiet");
    line(folder.path(), &with_preset).refused(&["noteacher.config.toml", "--preset", "leave them out"]);
    fs::remove_file(folder.path().join("checkpoints/noteacher.config.toml")).unwrap();
    line(folder.path(), "export run --ckpt-name noteacher").refused(&["noteacher.config.toml", "--preset", "--set"]);
    line(folder.path(), "export run --ckpt-name noteacher --preset nano").refused(&["embedding.weight", "[256, 32]", "[256, 512]"]);
    line(folder.path(), &with_preset).ok();
    let (_, payload) = parts(&folder.path().join("checkpoints/noteacher.f32.dmexp"));
    assert!(payload == expected("f32").1);
    // What is left out of a preset is the preset small's.
    line(folder.path(), &format!("export run --ckpt-name noteacher --dtype f16 {SETTINGS} --quiet")).ok();
    assert!(parts(&folder.path().join("checkpoints/noteacher.f16.dmexp")).1 == expected("f16").1);
}

/// The form before version 2: three numbers, no magic.
#[test]
fn the_older_container_gives_the_same_export() {
    let Some(folder) = checkpoints() else { return };
    let path = folder.path().join("checkpoints/noteacher.bin");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, [&bytes[8..32], &bytes[48..]].concat()).unwrap();
    let ran = line(folder.path(), "export run --ckpt-name noteacher --dtype bf16").succeeded();
    assert_eq!(ran.err, "");
    assert!(parts(&folder.path().join("checkpoints/noteacher.bf16.dmexp")).1 == expected("bf16").1);
}

#[test]
fn what_is_read_is_never_replaced_and_no_refusal_leaves_a_file() {
    let Some(folder) = checkpoints() else { return };
    let all = || {
        files(&folder.path().join("checkpoints")).into_iter().map(|name| fs::read(folder.path().join("checkpoints").join(name)).unwrap())
    };
    let before: Vec<_> = all().collect();
    for out in ["checkpoints/latest.bin", "checkpoints/latest.config.toml", "checkpoints/../checkpoints/latest.config.toml"] {
        line(folder.path(), &format!("export run --ckpt-name latest --out {out}")).refused(&[out, "would be replaced"]);
    }
    for (words, parts) in [
        ("--ckpt-name none", &["checkpoints/none.bin", "cannot be read"][..]),
        ("--ckpt-dir nowhere", &["nowhere/latest.bin"]),
        ("--ckpt-name latest --dtype t2 --format 1", &["format 1", "export format 2"]),
        ("--ckpt-name latest --dtype q8 --format 1", &["format 1", "f32, f16 or bf16"]),
        ("--ckpt-name latest --tensor *=f32 --format 1", &["format 1", "f32, f16 or bf16"]),
        ("--ckpt-name latest --tensor lm_head*=f32", &["no matrix of this model", "always codes"]),
        ("--ckpt-name latest --align 64", &["no alignment"]),
        ("--ckpt-name latest --sha256", &["SHA-256", "leave them out"]),
        ("--ckpt-name latest --quality checkpoints/latest.txt", &["dormouse", "dmexp compare dtypes"]),
        ("--ckpt-name latest --tokenizer bytes", &["dormouse takes bytes", "--tokenizer"]),
    ] {
        line(folder.path(), &format!("export run {words}")).refused(parts);
    }
    assert!(all().eq(before));
    assert_eq!(files(folder.path()), ["checkpoints"]);
}

/// A progress bar is for terminals: elsewhere nothing but the JSON comes.
#[test]
fn the_report_in_json_has_the_figures_of_the_file() {
    let Some(folder) = checkpoints() else { return };
    let report: Value = line(folder.path(), "export run --ckpt-dir checkpoints --ckpt-name latest --dtype f16 --json --tensors").json();
    let path = folder.path().join("checkpoints/latest.f16.dmexp");
    assert_eq!(report["out"], "checkpoints/latest.f16.dmexp");
    assert_eq!(report["file_bytes"], fs::metadata(&path).unwrap().len());
    assert_eq!(report["source_bytes"], fs::metadata(folder.path().join("checkpoints/latest.bin")).unwrap().len());
    let (header, _) = parts(&path);
    assert_eq!(report["num_tensors"].as_i64(), header["num_tensors"].as_integer());
    assert_eq!(report["num_params"].as_i64(), header["num_params"].as_integer());
    assert_eq!((&report["format"], &report["dtype"]), (&Value::from(1), &Value::from("f16")));
    for (line, tensor) in report["tensors"].as_array().unwrap().iter().zip(header["tensors"].as_array().unwrap()) {
        assert_eq!(line["name"].as_str(), tensor["name"].as_str());
    }
}

#[test]
fn commands_that_run_models_say_what_a_checkpoint_is_and_what_converts_it() {
    let Some(folder) = checkpoints() else { return };
    for words in [
        "generate --export checkpoints/latest.bin",
        "export info checkpoints/latest.bin",
        "logits --export checkpoints/latest.bin --tokens 1 --out l",
    ] {
        let said = line(folder.path(), words).refused(&["training checkpoint of dormouse"]);
        // The command that it names does it.
        let command = said.split_once("convert it: dmexp ").expect("a command").1;
        let mut process = dmexp(folder.path());
        assert!(process.args(command.split_whitespace()).output().unwrap().status.success(), "{command}");
    }
    // What is for dormouse is refused elsewhere.
    let story = root().join("models/story.bin").display().to_string();
    for (option, value) in [("--preset", "small"), ("--set", "rank=8")] {
        run(folder.path(), &["export", "run", "--checkpoint", &story, option, value, "--out", "o"])
            .refused(&["dormouse", "leave them out"]);
    }
    for option in ["--strip", "--canonical"] {
        run(folder.path(), &["export", "run", "--checkpoint", &story, option, "--out", "o"]).refused(&[option, "dormouse"]);
    }
    assert!(!files(folder.path()).contains(&"o".to_owned()));
}

/// Format 2 holds factors as codes: from the checkpoint or from dormouse's own export, in any type, it computes what format 1 does in f32, bit for bit, and is smaller.
#[test]
fn codes_are_the_same_function_wherever_they_come_from() {
    let Some(folder) = checkpoints() else { return };
    let export = |words: &str| {
        line(folder.path(), &format!("export run {words}")).ok();
    };
    export("--ckpt-name latest --dtype f32 --out one.dmexp");
    export("--ckpt-name latest --dtype f32 --format 2 --out two.dmexp");
    export("--checkpoint one.dmexp --dtype f32 --format 2 --out again.dmexp");
    export("--checkpoint one.dmexp --dtype t2 --out codes.dmexp");
    export("--checkpoint one.dmexp --dtype bf16 --canonical --out narrow.dmexp");
    let logits = |name: &str| {
        line(folder.path(), &format!("logits --export {name} --text pack_my_box --out {name}.f32")).ok();
        fs::read(folder.path().join(format!("{name}.f32"))).unwrap()
    };
    let floats = |name: &str| -> Vec<f32> { logits(name).as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect() };
    assert_eq!(logits("one.dmexp"), logits("two.dmexp"));
    assert_eq!(logits("one.dmexp"), logits("again.dmexp"));
    let off = |name: &str| floats("one.dmexp").iter().zip(floats(name)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off("codes.dmexp") < 2e-3 && off("narrow.dmexp") < 2e-3, "{} {}", off("codes.dmexp"), off("narrow.dmexp"));
    let size = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
    assert!(size("codes.dmexp") < size("two.dmexp"), "{} {}", size("codes.dmexp"), size("two.dmexp"));
    for name in ["two.dmexp", "codes.dmexp"] {
        line(folder.path(), &format!("export verify {name}")).ok();
        let stripped = format!("export strip {name} --out stripped.dmexp");
        line(folder.path(), &stripped).ok();
        assert_eq!(logits("stripped.dmexp"), logits(name));
    }
    line(folder.path(), "logits --export codes.dmexp --text abc --factors raw").refused(&["codes of its ternary factors", "format 1"]);
    let table =
        line(folder.path(), "compare dtypes one.dmexp --text checkpoints/latest.config.toml --window-bytes 48 --greedy 8 --json").json();
    let mean = |name: &str| {
        let row = table["rows"].as_array().unwrap().iter().find(|row| row["dtype"] == name).unwrap();
        row["mean_abs_delta"].as_f64().unwrap()
    };
    // So small a model has hardly a factor at its threshold, so narrowing costs little either way; what it costs a larger one is in docs/dormouse.md.
    for name in ["f16", "f16 canonical", "bf16", "bf16 canonical", "t2", "q8"] {
        assert!(mean(name) > 0.0 && mean(name) < 2e-3, "{name}: {table}");
    }
}

/// What format 1 has no checksum over and dormouse loads in silence: each edit of a header is refused by name, by all that read the file.
#[test]
fn edited_headers_are_refused() {
    let Some(folder) = checkpoints() else { return };
    line(folder.path(), "export run --ckpt-name latest --dtype f32 --out one.dmexp").ok();
    let bytes = fs::read(folder.path().join("one.dmexp")).unwrap();
    let refused = |edited: Vec<u8>, parts: &[&str]| {
        fs::write(folder.path().join("edited.dmexp"), edited).unwrap();
        line(folder.path(), "logits --export edited.dmexp --tokens 1,2 --out l").refused(parts);
        let verified = line(folder.path(), "export verify edited.dmexp");
        assert!(verified.code == Some(1) && verified.text().contains("1 failed"), "{parts:?}: {verified:?}");
    };
    let eps = "norm_eps = 0.0010000000474974513";
    for (from, to, parts) in [
        (eps, "norm_eps = 0.0", &["norm_eps = 0 must be more than 0"][..]),
        (eps, "norm_eps = -0.001", &["norm_eps = -0.001"]),
        (eps, "norm_eps = nan", &["norm_eps", "finite"]),
        ("use_mor = false\nmor_k = 2", "use_mor = true\nmor_k = 5", &["mor_k = 5"]),
        ("use_mor = false\nmor_k = 2", "use_mor = true\nmor_k = 0", &["mor_k = 0"]),
        ("mor_k = 2", "mor_k = 2\nnew_arm = true", &["unknown key"]),
        ("use_tsct = true", "use_tsct = false", &["inner.Tsct.u", "not the one that the configuration calls for"]),
        ("n_heads = 4", "n_heads = 2", &["q_proj.weight", "[32, 32]", "[32, 16]"]),
        ("num_params = 41142", "num_params = 41143", &["num_params = 41143", "41142"]),
        ("num_tensors = 54", "num_tensors = 53", &["num_tensors = 53", "54"]),
        ("d_model = 32", "d_model = 4294967295", &["d_model = 4294967295 is larger than allowed"]),
        ("d_model = 32", "d_model = 99999999999999999999", &["d_model", "larger than allowed"]),
        ("head_dim = 8", "head_dim = 4294967295", &["head_dim = 4294967295 is larger than allowed"]),
        ("vocab = 256", "vocab = 1000000000", &["vocab = 1000000000 is larger than allowed"]),
        ("max_iter = 4", "max_iter = 1000000000", &["max_iter = 1000000000 is larger than allowed"]),
        ("max_seq_len = 64", "max_seq_len = 4294967295", &["max_seq_len = 4294967295 is larger than allowed"]),
        ("n_experts = 3", "n_experts = 4000000000", &["n_experts = 4000000000 is larger than allowed"]),
        ("engram_rows = 60", "engram_rows = 4294967295", &["engram_rows = 4294967295 is larger than allowed"]),
        ("dims = [256, 32]", "dims = [4294967295, 4294967295]", &["tensor 0", "larger than allowed"]),
        ("dims = [256, 32]", "dims = [4294967296, 32]", &["tensor 0", "larger than allowed"]),
    ] {
        refused(edited(&bytes, from, to, &[]), parts);
    }
    // Tensors that are not called for: an arm of another version, and one that is there already.
    for (name, parts) in [
        ("loop_block.new_arm.weight", &["loop_block.new_arm.weight", "not the one that the configuration calls for"][..]),
        ("norm.weight", &["the same name"]),
    ] {
        let counted = edited(&bytes, "num_params = 41142", "num_params = 41143", &[]);
        let counted = edited(&counted, "num_tensors = 54", "num_tensors = 55", &[]);
        let first = "[[tensors]]\nname = \"embedding.weight\"\ndims = [256, 32]\noverflowed = 0\n";
        let more = format!("[[tensors]]\nname = \"{name}\"\ndims = [1]\noverflowed = 0\n\n{first}");
        refused(edited(&counted, first, &more, &1f32.to_le_bytes()), parts);
    }
}

/// Where no tensor shows what a key was, the file is as good as the one that was exported: `verify` says which keys these are, and gives the checksum that tells the two apart.
#[test]
fn verify_names_the_keys_that_a_file_of_format_1_cannot_vouch_for() {
    let Some(folder) = checkpoints() else { return };
    line(folder.path(), "export run --ckpt-name latest --dtype f32 --out one.dmexp").ok();
    let bytes = fs::read(folder.path().join("one.dmexp")).unwrap();
    let mut reports = vec![line(folder.path(), "export verify one.dmexp").succeeded().text().to_owned()];
    for (from, to, said) in [
        ("norm_eps = 0.001", "norm_eps = 0.002", "norm_eps"),
        ("mor_k = 2", "mor_k = 3", "mor_k"),
        ("use_engram = true", "use_engram = false", "use_engram (here false)"),
        ("use_kda = true", "use_kda = false", "use_kda (here false)"),
        ("use_mor = false", "use_mor = true", "use_mor (here true)"),
        ("max_seq_len = 64", "max_seq_len = 65", "max_seq_len"),
    ] {
        fs::write(folder.path().join("edited.dmexp"), edited(&bytes, from, to, &[])).unwrap();
        let report = line(folder.path(), "export verify edited.dmexp").succeeded();
        let about = report.text().lines().find(|line| line.contains("no tensor shows")).unwrap_or_default();
        assert!(about.starts_with("not checked") && about.contains(said), "{to}: {}", report.text());
        let checksum = about.split_once("CRC-32, ").unwrap().1;
        let checksum = checksum.split_once(',').unwrap().0.to_owned();
        assert!(reports.iter().all(|other| !other.contains(&checksum)), "{to}: {checksum}");
        reports.push(report.text().to_owned());
    }
}

/// A file of format 1 with a piece of its header replaced and `front` before its payload, lengths and checksum made right.
fn edited(bytes: &[u8], from: &str, to: &str, front: &[u8]) -> Vec<u8> {
    let (text, payload) = bytes[24..].split_at(u32::from_le_bytes(*bytes[8..].first_chunk().unwrap()) as usize);
    let text = std::str::from_utf8(text).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    let (text, payload) = (text.replace(from, to), [front, payload].concat());
    let mut edited = bytes[..8].to_vec();
    edited.extend((text.len() as u32).to_le_bytes());
    edited.extend((payload.len() as u64).to_le_bytes());
    edited.extend(checksum(&[&payload]).to_le_bytes());
    edited.extend(text.into_bytes());
    edited.extend(payload);
    edited
}
