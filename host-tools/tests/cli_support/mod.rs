//! What the tests of the command line share: running the real binary, models made on the spot, and the shared reference data where it is there.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a run of the binary gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("stdout is UTF-8")
    }

    /// The JSON value on stdout, the last one where there are several, with nothing on stderr.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{}", self.text());
        let values: Result<Vec<_>, _> = serde_json::Deserializer::from_slice(&self.out).into_iter().collect();
        values.expect("stdout is JSON and nothing else").pop().expect("a value is printed")
    }

    /// Stdout as JSON values, one a line.
    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        self.text().lines().map(|line| serde_json::from_str(line).expect("a line is a JSON value")).collect()
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Refused with this exit code, one line on stderr that has all of `parts`, no backtrace, and nothing on stdout.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.starts_with("dmexp: "), "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        if code == 1 {
            assert_eq!(self.err.lines().count(), 1, "{self:?}");
        }
        for part in parts {
            assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        }
        assert!(self.out.is_empty(), "{self:?}");
        self
    }
}

/// The binary, to be run in `folder`.
pub(crate) fn dmexp(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dmexp"));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

pub(crate) fn run<S: AsRef<OsStr>>(folder: &Path, arguments: &[S]) -> Ran {
    ran(dmexp(folder).args(arguments).output().expect("the binary starts"))
}

/// Runs a line of arguments without spaces in them.
pub(crate) fn line(folder: &Path, line: &str) -> Ran {
    run(folder, &line.split_whitespace().collect::<Vec<_>>())
}

/// Runs with `input` on stdin.
pub(crate) fn piped<S: AsRef<OsStr>>(folder: &Path, arguments: &[S], input: &[u8]) -> Ran {
    use std::io::Write;
    let mut child = dmexp(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // Short enough for any pipe.
    child.stdin.take().expect("stdin is a pipe").write_all(input).expect("the binary reads");
    ran(child.wait_with_output().expect("the binary ends"))
}

pub(crate) fn ran(Output { status, stdout, stderr }: Output) -> Ran {
    Ran { code: status.code(), out: stdout, err: String::from_utf8(stderr).expect("stderr is UTF-8") }
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// The files in a folder, sorted.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A file of the shared reference data; `None`, and a line that says so, where there is none.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name);
    if !path.exists() {
        eprintln!("skipped: {name} of the shared reference data is not here");
        return None;
    }
    Some(path)
}

/// stories260K with its tokenizer as `stories.dmexp` in `folder`, its weights in `dtype`.
pub(crate) fn stories(folder: &Path, dtype: &str) -> Option<()> {
    let (checkpoint, tokenizer) = (shared("stories260K/stories260K.bin")?, shared("stories260K/tok512.bin")?);
    let mut command = dmexp(folder);
    command.args(["export", "run", "--out", "stories.dmexp", "--quiet", "--dtype", dtype, "--checkpoint"]);
    ran(command.arg(checkpoint).arg("--tokenizer").arg(tokenizer).output().unwrap()).ok();
    Some(())
}

/// The shape of a made llama2.c checkpoint.
pub(crate) struct Shape {
    pub(crate) dim: usize,
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) vocab: usize,
    pub(crate) seq: usize,
}

pub(crate) const TINY: Shape = Shape { dim: 8, hidden: 12, layers: 1, heads: 2, kv_heads: 1, vocab: 256, seq: 32 };

impl Shape {
    fn header(&self) -> Vec<u8> {
        let fields = [self.dim, self.hidden, self.layers, self.heads, self.kv_heads, self.vocab, self.seq];
        fields.iter().flat_map(|field| (*field as i32).to_le_bytes()).collect()
    }

    /// How many weights there are.
    fn weights(&self) -> usize {
        let kv_dim = self.dim / self.heads * self.kv_heads;
        let layer = 2 * self.dim + 2 * self.dim * self.dim + 2 * self.dim * kv_dim + 3 * self.dim * self.hidden;
        self.vocab * self.dim + self.layers * layer + self.dim
    }

    /// The tables of cosines and sines that stand behind the weights in version 0.
    fn rotations(&self) -> Vec<u8> {
        let half = self.dim / self.heads / 2;
        let angle = |place: usize| (place / half) as f64 * 10000f64.powf(-((place % half) as f64) / half as f64);
        let angles = || (0..self.seq * half).map(angle);
        angles().map(f64::cos).chain(angles().map(f64::sin)).flat_map(|value| (value as f32).to_le_bytes()).collect()
    }

    /// A checkpoint of this shape, version 1, whose weights are all 0 and take no room on the disk.
    pub(crate) fn write_hole(&self, mut file: &std::fs::File) {
        use std::io::Write;
        file.write_all(b"24ka\x01\0\0\0").unwrap();
        file.write_all(&self.header()).unwrap();
        file.write_all(&[1]).unwrap();
        file.set_len((256 + 4 * self.weights()) as u64).unwrap();
    }
}

/// A llama2.c checkpoint, version 0, with these weights by their place.
pub(crate) fn checkpoint(shape: &Shape, weight: impl Fn(usize) -> f32) -> Vec<u8> {
    let mut bytes = shape.header();
    bytes.extend((0..shape.weights()).flat_map(|place| weight(place).to_le_bytes()));
    bytes.extend(shape.rotations());
    bytes
}

/// Some weight between -1 and 1 for every place.
pub(crate) fn any(place: usize) -> f32 {
    let mixed = (place as u32).wrapping_mul(0x9E37_79B9) ^ (place as u32) << 7;
    (mixed.wrapping_mul(0x85EB_CA6B) >> 8) as f32 / 8_388_608.0 - 1.0
}

/// `tiny.bin` with random weights, and `tiny.dmexp` of it with bytes as tokens, byte 0 beginning every text.
pub(crate) fn tiny(folder: &Path) {
    std::fs::write(folder.join("tiny.bin"), checkpoint(&TINY, any)).unwrap();
    line(folder, "export run --checkpoint tiny.bin --tokenizer bytes --bos 0 --dtype f32 --out tiny.dmexp --quiet").ok();
}

/// A tokenizer.bin: unknown, begin, end, the bytes, and these pieces.
pub(crate) fn tokenizer_bin(pieces: &[&str]) -> Vec<u8> {
    let mut all: Vec<String> = ["<unk>", "\n<s>\n", "\n</s>\n"].map(str::to_owned).to_vec();
    all.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    all.extend(pieces.iter().map(|piece| (*piece).to_owned()));
    let longest = all.iter().map(String::len).max().unwrap_or(0) as u32;
    let mut bytes = longest.to_le_bytes().to_vec();
    for (place, piece) in all.iter().enumerate() {
        bytes.extend((-(place as f32)).to_le_bytes());
        bytes.extend((piece.len() as u32).to_le_bytes());
        bytes.extend(piece.as_bytes());
    }
    bytes
}

/// `end.dmexp`: a model that always chooses token 2, the end of a text, as its embedding is twice as long as the others.
pub(crate) fn ending(folder: &Path) {
    let shape = Shape { dim: 4, hidden: 4, layers: 1, heads: 2, kv_heads: 2, vocab: 260, seq: 16 };
    let weight = |place: usize| match (place / 4, place % 4) {
        (2, 0) => 2.0,
        (0..260, 0) => 1.0,
        (0..260, _) => 0.0,
        // Norm gains matter, the layers add nothing.
        _ if place == 260 * 4 + 2 * 4 + 4 * 16 + 3 * 16 => 1.0,
        _ => 0.0,
    };
    std::fs::write(folder.join("end.bin"), checkpoint(&shape, weight)).unwrap();
    std::fs::write(folder.join("tok.bin"), tokenizer_bin(&[" "])).unwrap();
    line(folder, "export run --checkpoint end.bin --tokenizer tok.bin --out end.dmexp --quiet").ok();
}

/// Changes a byte of a file.
pub(crate) fn flip(path: &Path, place: impl FnOnce(usize) -> usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let place = place(bytes.len());
    bytes[place] ^= 0x40;
    std::fs::write(path, bytes).unwrap();
}
