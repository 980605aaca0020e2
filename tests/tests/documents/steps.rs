//! Which step of `cargo xtask test` does what a command does that is too long for a test.

use dmexp_tests::root;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What stands for a long command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Stands {
    /// A step of `cargo xtask test`.
    Step(String),
    /// Nothing: it takes hours, or measures this machine. What is left to test of it stands beside it.
    Nothing(&'static str),
}

/// Commands whose place is taken by the step of the same name, with the board's name behind it.
const BY_BOARD: &[&str] = &["qemu", "bits", "size", "probe"];

/// The beginnings of other commands, and what stands for them.
const OTHERS: &[(&str, &str)] = &[
    ("cargo xtask c", "c"),
    // The story on both sides is that of the emulated board's step, the logits those of the other.
    ("cargo xtask demo", "bits-an386"),
    // The test of tests is all of its steps; that there are any is what this says.
    ("cargo xtask test", "tests"),
    ("cargo build --profile chip --package dmexp-c", "c"),
    ("cargo test ", "tests"),
    // Real boards, whose projects are the firmware of this repository.
    ("cargo build --release", "real-boards"),
];

/// The beginnings of commands that nothing stands for.
const NOTHING: &[(&str, &str)] = &[
    ("cargo run --release -p dmexp-train", "46 minutes of training; `cargo test -p dmexp-train` tests the trainer"),
    ("cargo xtask bench", "minutes of measuring this machine; the steps `marks-*` hold what is counted"),
    ("python3 narrowing.py", "minutes in another implementation, which is not part of the repository"),
    ("dmexp compare dtypes", "minutes on a model of the size nano"),
];

/// What stands for a long command; `None` where nothing here knows it.
pub(crate) fn stands_for(command: &str) -> Option<Stands> {
    let words: Vec<&str> = command.split_whitespace().collect();
    if let ["cargo", "xtask", task, board, ..] = words[..]
        && BY_BOARD.contains(&task)
    {
        return Some(Stands::Step(format!("{task}-{board}")));
    }
    if let ["cargo", "xtask", "test", "--only", step, ..] = words[..] {
        return Some(Stands::Step(step.to_owned()));
    }
    if let Some(board) = words.iter().find_map(|word| word.strip_prefix("qemu:")) {
        return Some(Stands::Step(format!("probe-{board}")));
    }
    if words.starts_with(&["dmexp", "new", "firmware"]) || words[0] == "cd" || words[..] == ["cargo", "run", "--release"] {
        // One step a way in which boards differ: most are like this one.
        let own = ["microbit", "virt-imac"].into_iter().find(|board| command.contains(board));
        return Some(Stands::Step(format!("new-firmware-{}", own.unwrap_or("an386"))));
    }
    let step = OTHERS.iter().find(|(beginning, _)| begins(command, beginning)).map(|(_, step)| Stands::Step((*step).to_owned()));
    // The more exact beginnings come first.
    step.or_else(|| NOTHING.iter().find(|(beginning, _)| begins(command, beginning)).map(|(_, why)| Stands::Nothing(why)))
}

/// Whether a command begins with these words.
fn begins(command: &str, beginning: &str) -> bool {
    command.strip_prefix(beginning).is_some_and(|rest| beginning.ends_with(' ') || rest.is_empty() || rest.starts_with([' ', '/']))
}

/// The program of the tasks, built once.
pub(crate) fn xtask() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let this = std::env::current_exe().expect("this program has a path");
        let target = this.ancestors().nth(3).expect("it lies in a target folder");
        let mut build = Command::new(env!("CARGO"));
        build.current_dir(root()).args(["build", "--quiet", "--locked", "--package", "xtask", "--target-dir"]).arg(target);
        assert!(build.status().expect("cargo runs").success(), "xtask does not build");
        target.join("debug/xtask").with_extension(std::env::consts::EXE_EXTENSION)
    })
}

/// What the tasks print.
pub(crate) fn xtask_prints(words: &[&str]) -> String {
    let output = Command::new(xtask()).current_dir(root()).args(words).output().expect("xtask starts");
    assert!(output.status.success(), "xtask {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
