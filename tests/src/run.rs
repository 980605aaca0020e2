//! Running the real `dmexp`, built once a test program from this repository.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// What a run of the command gave.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Stdout.
    pub out: Vec<u8>,
    /// Stderr.
    pub err: String,
}

impl Ran {
    /// Stdout as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("stdout is UTF-8")
    }

    /// That it succeeded.
    ///
    /// # Panics
    /// If it did not.
    #[must_use = "what it printed"]
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// That it succeeded; what it printed does not matter.
    ///
    /// # Panics
    /// If it did not.
    #[track_caller]
    pub fn ok(self) {
        assert_eq!(self.code, Some(0), "{self:?}");
    }

    /// The JSON value on stdout, the last one where there are several, with nothing on stderr.
    ///
    /// # Panics
    /// If there is anything else.
    #[track_caller]
    pub fn json(self) -> Value {
        let ran = self.succeeded();
        assert_eq!(ran.err, "");
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(&ran.out).into_iter().collect();
        values.expect("stdout is JSON and nothing else").pop().expect("a value is printed")
    }

    /// That it was refused: exit code 1, nothing on stdout, one line on stderr that has all of `parts`. Returns that line.
    ///
    /// # Panics
    /// If it was not.
    #[track_caller]
    pub fn refused(self, parts: &[&str]) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(self.out.is_empty() && self.err.lines().count() == 1 && self.err.starts_with("dmexp: "), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
        self.err.trim_end().to_owned()
    }
}

/// The command, to be run in `folder`.
///
/// # Panics
/// If it cannot be built.
pub fn dmexp(folder: &Path) -> Command {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(BINARY.get_or_init(build));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// Builds the command with the profile of this program, beside this program, and returns where it lies. `DMEXP_BIN` names another one to be tested, such as one for 32 bits.
fn build() -> PathBuf {
    if let Some(binary) = std::env::var_os("DMEXP_BIN") {
        return std::path::absolute(binary).expect("DMEXP_BIN is a path");
    }
    // target/PROFILE/deps/this-program
    let this = std::env::current_exe().expect("this program has a path");
    let target = this.ancestors().nth(3).expect("it lies in a target folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(crate::root()).args(["build", "--quiet", "--package", "dmexp-tools", "--bin", "dmexp", "--target-dir"]).arg(target);
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        build.arg("--release");
        "release"
    };
    assert!(build.status().expect("cargo runs").success(), "dmexp does not build");
    target.join(profile).join("dmexp").with_extension(std::env::consts::EXE_EXTENSION)
}

/// Runs the command with these words.
///
/// # Panics
/// If it cannot be started.
pub fn run<S: AsRef<OsStr>>(folder: &Path, words: &[S]) -> Ran {
    ran(dmexp(folder).args(words).output().expect("dmexp starts"))
}

/// Runs the command with the words of a line.
///
/// # Panics
/// If it cannot be started.
pub fn line(folder: &Path, words: &str) -> Ran {
    run(folder, &words.split_whitespace().collect::<Vec<_>>())
}

/// Runs the command with `input` on stdin; short enough for a pipe.
///
/// # Panics
/// If it cannot be started.
pub fn piped<S: AsRef<OsStr>>(folder: &Path, words: &[S], input: &[u8]) -> Ran {
    let mut command = dmexp(folder);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("dmexp starts");
    child.stdin.take().expect("stdin is a pipe").write_all(input).expect("dmexp reads");
    ran(child.wait_with_output().expect("dmexp ends"))
}

fn ran(Output { status, stdout, stderr }: Output) -> Ran {
    Ran { code: status.code(), out: stdout, err: String::from_utf8(stderr).expect("stderr is UTF-8") }
}
