//! The C interface on this machine: runtime/c/tests/host.c, compiled against the header that is checked in, tells what the command tells, with the same logits.

use dmexp_tests::{floats, folder, logits, root, run, same_bits, story};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The static library, from the messages of the build.
fn library() -> PathBuf {
    let build = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["build", "--quiet", "--locked", "--package", "dmexp-c", "--message-format", "json-render-diagnostics"])
        .output()
        .unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let messages = String::from_utf8(build.stdout).unwrap();
    let library = messages
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|message| message["target"]["name"] == "dmexp_c")
        .find_map(|message| {
            message["filenames"]
                .as_array()?
                .iter()
                .filter_map(|name| name.as_str())
                .map(Path::new)
                .find(|name| name.extension().is_some_and(|end| end == "a"))
                .map(Path::to_owned)
        });
    library.expect("the build names a static library")
}

#[test]
fn a_program_in_c_tells_the_story_of_the_command_with_the_same_logits() {
    if !cfg!(target_os = "linux") {
        println!("left out: the libraries that the program is linked with are named as on Linux");
        return;
    }
    let folder = folder();
    let model = story().export(folder.path(), "story.dmexp", "--dtype q8");
    let program = folder.path().join("host");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(root().join("runtime/c/include"))
        .arg(root().join("runtime/c/tests/host.c"))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let out = folder.path().join("c.f32");
    let ran = Command::new(&program).arg(&model).arg(&out).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let told = String::from_utf8(ran.stdout).unwrap();

    let export = model.display().to_string();
    let words = ["generate", "--export", &export, "--prompt", "Once upon a time", "--steps", "240", "--kv", "f16", "--seed", "1", "--json"];
    let text = run(folder.path(), &words).json()["text"].as_str().unwrap().to_owned();
    assert!(text.len() > 100, "{text}");
    // Streamed to a callback, then step by step.
    assert_eq!(told, format!("{text}\n{text}"));
    assert!(same_bits(&floats(&out), &logits(&model, &[1, 403, 407], "f16")));
}
