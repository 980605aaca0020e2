//! Blocks that are no commands: programs compile, data can be read.

use crate::blocks::{self, Block};
use dmexp_tests::{line, root, story};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The blocks in this language.
fn in_language(language: &str) -> Vec<Block> {
    let blocks = blocks::documents().into_iter().flat_map(|document| blocks::of_document(&document).unwrap());
    let found: Vec<Block> = blocks.filter(|block| block.language == language).collect();
    assert!(!found.is_empty(), "no document has a block in {language}");
    println!("{language}: {}", found.len());
    found
}

/// What surrounds a block of Rust: names that it takes for granted, as a program around it would have them. What the block says itself goes before them.
const RUST: &str = r#"#![allow(unused)]

mod granted {
    pub use dmexp::probe::*;
    pub use dmexp::*;
    pub use dmexp::format::file::ModelFile;
    pub use static_cell::*;

    include_model!(pub Stories = "FOLDER/stories.dmexp");

    /// A serial port.
    pub struct Uart;

    impl embedded_io::ErrorType for Uart {
        type Error = core::convert::Infallible;
    }

    impl embedded_io::Read for Uart {
        fn read(&mut self, _: &mut [u8]) -> Result<usize, Self::Error> {
            Ok(0)
        }
    }

    impl embedded_io::Write for Uart {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Self::Error> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    /// Threads: this one.
    pub struct Pool;

    impl dmexp::executor::Executor for Pool {
        fn run(&self, work: &(dyn Fn() + Sync)) {
            work();
        }

        fn threads(&self) -> usize {
            1
        }
    }

    /// Any error.
    pub struct Failed;

    impl<E: core::fmt::Debug> From<E> for Failed {
        fn from(_: E) -> Self {
            Self
        }
    }
}

use granted::*;

fn page(mut uart: Uart, file: ModelFile<'_>, pool: Pool, features: [f32; 192], mut session: Session<'_>) -> Result<(), Failed> {
BLOCK    Ok(())
}

fn main() {}
"#;

#[test]
fn rust_compiles() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documents");
    fs::create_dir_all(&folder).unwrap();
    story().export(&folder, "stories.dmexp", "--dtype bf16");
    story().export(&folder, "story.dmexp", "--dtype q8");
    let models = root().join("models").display().to_string();
    let words = format!("--checkpoint {models}/tones.bin --arch {models}/tones.arch.toml --dtype f32");
    line(&folder, &format!("export run {words} --out kws.dmexp --quiet")).ok();
    let cases = trybuild::TestCases::new();
    for block in in_language("rust") {
        let body = block.text.replace("#![no_std]\n", "").replace("= \"", "= \"FOLDER/");
        let program = RUST.replace("BLOCK", &body).replace("FOLDER", folder.to_str().unwrap());
        let path = folder.join(format!("{}_{}.rs", block.document.replace(['/', '.', '-'], "_"), block.line));
        fs::write(&path, program).unwrap();
        cases.pass(path);
    }
}

/// What surrounds a block of C.
const C: &str = "#include \"dmexp.h\"\n\nextern const uint8_t *model_file;\nextern size_t model_file_len;\nDmexpWrite send;\nvoid say(const char *);\n\nvoid page(void);\nvoid page(void) {\n";

#[test]
fn c_compiles() {
    if Command::new("cc").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("not run: there is no cc");
        return;
    }
    let folder = dmexp_tests::folder();
    for block in in_language("c") {
        let path = folder.path().join("page.c");
        fs::write(&path, format!("{C}{}}}\n", block.text)).unwrap();
        let include = root().join("runtime/c/include");
        let output = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
            .arg(include)
            .arg(path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", block.place(), String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn data_can_be_read() {
    for block in in_language("toml") {
        let read: Result<toml::Table, _> = block.text.parse();
        assert!(read.is_ok(), "{}: {}", block.place(), read.unwrap_err());
    }
    for block in in_language("json") {
        let read: Result<serde_json::Value, _> = serde_json::from_str(&block.text);
        assert!(read.is_ok(), "{}: {}", block.place(), read.unwrap_err());
    }
}
