//! The programs of examples/ do what they say, on the models that lie beside them.
#![cfg(not(miri))]

use std::path::{Path, PathBuf};
use std::process::Command;

/// What an example prints. Cargo builds examples with the tests of their package.
fn printed(name: &str, words: &[&str]) -> String {
    let folder = std::env::current_exe().unwrap().parent().and_then(Path::parent).unwrap().join("examples");
    let program = folder.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    let ran = Command::new(&program).args(words).output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

fn tiny() -> String {
    let file: PathBuf = [env!("CARGO_MANIFEST_DIR"), "examples", "tiny.dmexp"].iter().collect();
    file.display().to_string()
}

#[test]
fn a_file_and_the_same_model_in_the_program_tell_the_same() {
    let story = printed("story", &[&tiny(), "The bird"]);
    assert_eq!(story, "The bird ate the plum. Tom was sad.");
    assert_eq!(printed("included", &[]), story);
    assert!(printed("story", &[&tiny()]).starts_with("Once upon a time"));
}

#[test]
fn texts_of_a_batch_are_those_of_each_alone() {
    let prompts = ["The bird", "Tom ", "A"];
    let alone: String = prompts.iter().map(|prompt| printed("story", &[&tiny(), prompt]) + "\n").collect();
    assert_eq!(printed("batch", &[&[tiny().as_str()][..], &prompts].concat()), alone);
}

#[test]
fn a_network_names_its_samples() {
    let printed = printed("predict", &[]);
    let named: Vec<_> = printed.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(named, ["rising", "rising", "falling", "falling", "steady", "steady", "noise", "noise"]);
}
