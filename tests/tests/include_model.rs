//! `include_model!`: what compiles runs and gives the logits of the file; what is wrong does not compile, with the message that stands beside each program in `ui`.

use dmexp_tests::damage::{index_start, payload_start, put, record, replace, seal, seal_payload, word};
use dmexp_tests::{data, line, root, run, tiny};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use trybuild::TestCases;

/// Where the programs in `ui` find their model files, made anew by every run.
fn fixtures() -> PathBuf {
    let folder = root().join("tests/ui/generated");
    fs::create_dir_all(&folder).unwrap();
    let good = fs::read(tiny().export(&folder, "tiny.dmexp", "--dtype f32")).unwrap();
    tiny().export(&folder, "tiny_bf16.dmexp", "--dtype bf16");
    tiny().export(&folder, "tiny_q8.dmexp", "--dtype q8 --group 8");
    tiny().export(&folder, "tiny_q4.dmexp", "--dtype q4 --group 8");
    for (dtype, name) in [("f32", "tones.dmexp"), ("q8", "tones_q8.dmexp")] {
        let models = root().join("models").display().to_string();
        let words = format!("--checkpoint {models}/tones.bin --arch {models}/tones.arch.toml --samples {models}/tones.samples.json");
        line(&folder, &format!("export run {words} --dtype {dtype} --out {name} --quiet")).ok();
    }
    line(&folder, "export strip tiny.dmexp --out tiny_stripped.dmexp").ok();
    let mut one = fs::read(tiny().export(&folder, "tiny_v1.dmexp", "--dtype f32 --format 1")).unwrap();
    replace(&mut one, "hidden_dim = 36", "hidden_dim = 40");
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    write("shape_v1.dmexp", &one);
    write("empty.dmexp", &[]);
    // Of the stripped form where the message has numbers in it: they do not change with what the header says of its writer.
    let stripped = fs::read(folder.join("tiny_stripped.dmexp")).unwrap();
    write("truncated.dmexp", &stripped[..stripped.len() - 100]);
    let edited = |good: &[u8], edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.to_vec();
        edit(&mut bytes);
        bytes
    };
    write("flipped.dmexp", &edited(&stripped, &|bytes| *bytes.last_mut().unwrap() ^= 1));
    write("flipped_index.dmexp", &edited(&stripped, &|bytes| bytes[40] ^= 1));
    let broken = |bytes: &mut Vec<u8>| {
        let at = payload_start(bytes) + word(bytes, record(bytes, 2) + 32) as usize + 4 * 5;
        put(bytes, at, &f32::NAN.to_le_bytes());
        seal_payload(bytes);
    };
    // Without the header, whose figures would be the first to disagree.
    write("not_finite.dmexp", &edited(&stripped, &broken));
    let shape = |bytes: &mut Vec<u8>| {
        replace(bytes, "hidden_dim = 36", "hidden_dim = 40");
        let config = index_start(bytes) + 64;
        put(bytes, config + 4, &40u32.to_le_bytes());
        seal(bytes);
    };
    write("shape.dmexp", &edited(&good, &shape));
    if let Some(models) = data("dormouse") {
        let export = |stem: &str, name: &str, more: &str| {
            let checkpoint = models.join(format!("{stem}.f32.dmexp")).display().to_string();
            let words = ["export", "run", "--quiet", "--checkpoint", &checkpoint, "--out", name];
            run(&folder, &words.into_iter().chain(more.split(' ')).collect::<Vec<_>>()).ok();
        };
        export("default", "dormouse.dmexp", "--format 2 --dtype f32");
        export("default", "dormouse_t2.dmexp", "--dtype t2");
        export("default", "dormouse_v1.dmexp", "--dtype f32");
        export("plain", "dormouse_plain.dmexp", "--format 2 --dtype f32");
        export("gr", "dormouse_gr.dmexp", "--format 2 --dtype f32");
    }
    folder
}

/// The programs get the folder in an environment variable too, so they run in a second process, which has it from its start.
const VARIABLE: &str = "DMEXP_FIXTURES";

#[test]
fn programs() {
    if std::env::var_os(VARIABLE).is_some() {
        let folders = if data("dormouse").is_some() { &["ui", "ui/dormouse"][..] } else { &["ui"] };
        // What must not compile apart from what must: without a program to run, all are checked in one call of cargo.
        let (passing, failing) = (TestCases::new(), TestCases::new());
        for folder in folders {
            passing.pass(format!("{folder}/pass_*.rs"));
            failing.compile_fail(format!("{folder}/fail_*.rs"));
        }
        return;
    }
    let again =
        Command::new(std::env::current_exe().unwrap()).args(["--exact", "programs", "--nocapture"]).env(VARIABLE, fixtures()).output();
    let again = again.unwrap();
    println!("{}{}", String::from_utf8_lossy(&again.stdout), String::from_utf8_lossy(&again.stderr));
    assert!(again.status.success());
}

/// A program whose `dmexp` was built without the model's element type: a crate of its own, as features are chosen in its manifest.
#[test]
fn a_missing_element_type_is_named_by_its_feature() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("without_bf16");
    fs::create_dir_all(folder.join("src")).unwrap();
    tiny().export(&folder, "bf16.dmexp", "--dtype bf16");
    tiny().export(&folder, "f32.dmexp", "--dtype f32");
    let runtime = root().join("runtime");
    let manifest = format!(
        "[package]\nname = \"without-bf16\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         dmexp = {{ path = {:?}, default-features = false, features = [\"llama\", \"f32\", \"kv-f16\", \"macros\"] }}\n",
        runtime.display().to_string()
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let check = |model: &str| {
        let program = format!("dmexp::include_model!(Tiny = \"../{model}.dmexp\");\nfn main() {{\n    let _ = Tiny::bind();\n}}\n");
        fs::write(folder.join("src/main.rs"), program).unwrap();
        let output = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--target", "host-tuple"])
            .current_dir(&folder)
            // Where trybuild compiles what the macro needs for its programs: once for both.
            .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tests").join("trybuild"))
            .output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (built, said) = check("bf16");
    assert!(!built && said.contains("this model has weights in bf16: build `dmexp` with the feature `bf16`"), "{said}");
    let (built, said) = check("f32");
    assert!(built, "{said}");
}
