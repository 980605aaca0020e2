//! What a device computed, in a file: one line of JSON with what it is, then one a position. Written by `dmexp compare --record`, and a side of a comparison with `--replay`.

use super::machines::Kept;
use super::side::{About, Side};
use crate::error::{Class, Error, Result};
use dmexp::probe::checksum;
use dmexp_format::{KvDType, crc32};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// The version of the file.
const VERSION: u32 = 1;

/// The most bytes of the first line: what has more before its end is no transcript.
const HEAD_LEN: u64 = 10_000;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    dmexp_transcript: u32,
    name: String,
    firmware: Option<(String, String)>,
    fingerprint: u32,
    dim: u32,
    n_layers: u32,
    vocab_size: u32,
    context: u32,
    kv: String,
    /// Lines after this one: a file that was cut has fewer.
    positions: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    token: u32,
    /// Checksums of the residual stream after the embedding and each layer.
    layers: Vec<u32>,
    /// Little-endian f32 in hexadecimal digits; null where they are not finite.
    logits: Option<String>,
    /// [`Line::seal`].
    crc32: u32,
}

impl Line {
    /// The checksum of what was recorded at a position, so that a damaged transcript is not taken for a device that computes something else.
    fn seal(&self, fingerprint: u32, position: u32) -> u32 {
        let numbers = [fingerprint, position, self.token, self.layers.len() as u32].into_iter().chain(self.layers.iter().copied());
        let numbers: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        crc32::checksum(&[&numbers, self.logits.as_deref().unwrap_or("null").as_bytes()])
    }
}

/// Writes what a side computed.
///
/// # Errors
/// What `out` returns.
pub fn write(out: &mut dyn Write, about: &About, kept: &[Kept]) -> std::io::Result<()> {
    let About { name, firmware, fingerprint, dim, n_layers, vocab_size, context, kv, .. } = about.clone();
    let kv = kv.name().to_owned();
    let head = Head {
        dmexp_transcript: VERSION,
        name,
        firmware,
        fingerprint,
        dim,
        n_layers,
        vocab_size,
        context,
        kv,
        positions: kept.len() as u32,
    };
    serde_json::to_writer(&mut *out, &head)?;
    for (position, Kept { token, layers, logits }) in (0..).zip(kept) {
        let mut line = Line { token: *token, layers: layers.clone(), logits: logits.as_deref().map(digits), crc32: 0 };
        line.crc32 = line.seal(fingerprint, position);
        out.write_all(b"\n")?;
        serde_json::to_writer(&mut *out, &line)?;
    }
    out.write_all(b"\n")
}

/// A transcript as a side: it plays the tokens that were recorded, and no others.
#[derive(Debug)]
pub struct Transcript {
    about: About,
    positions: Vec<Kept>,
    /// Positions that were played.
    position: usize,
}

impl Transcript {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Class::Unreadable`]; [`Class::NotAModel`] for what is no transcript, or of another version; [`Class::Damaged`] with the line where it is wrong.
    pub fn open(path: &Path) -> Result<Self> {
        let unreadable = |error| Error::unreadable(path, error);
        let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
        let mut first = Vec::new();
        file.by_ref().take(HEAD_LEN).read_until(b'\n', &mut first).map_err(unreadable)?;
        let head: Head = serde_json::from_slice(&first)
            .map_err(|_| Error::not_a_model("is no transcript of a device").advise("make one with --record").in_file(path))?;
        if head.dmexp_transcript != VERSION {
            let what = format!("is a transcript of version {}, this program reads version {VERSION}", head.dmexp_transcript);
            return Err(Error::not_a_model(what).advise("record it again").in_file(path));
        }
        let damaged =
            |number: usize, what: String| Error::damaged(what).at(format!("line {number}")).advise("record it again").in_file(path);
        let kv = [KvDType::F32, KvDType::F16, KvDType::Q8].into_iter().find(|kv| kv.name() == head.kv);
        let kv = kv.ok_or_else(|| damaged(1, format!("{:?} is no type of keys and values", head.kv)))?;
        let mut positions = Vec::new();
        for (number, line) in (2..).zip(file.lines()) {
            let line: Line = serde_json::from_str(&line.map_err(unreadable)?).map_err(|error| damaged(number, error.to_string()))?;
            let logits = match &line.logits {
                None => None,
                Some(text) => Some(
                    values(text)
                        .filter(|values| values.len() as u64 == u64::from(head.vocab_size))
                        .ok_or_else(|| damaged(number, format!("the logits are not {} f32", head.vocab_size)))?,
                ),
            };
            let layers = line.layers.len() as u64;
            if layers != 0 && layers != u64::from(head.n_layers) + 1 {
                return Err(damaged(number, format!("there are {layers} checksums of layers, the model has {} layers", head.n_layers)));
            }
            if line.token >= head.vocab_size {
                return Err(damaged(number, format!("token {} is not in the vocabulary of {}", line.token, head.vocab_size)));
            }
            if line.crc32 != line.seal(head.fingerprint, positions.len() as u32) {
                return Err(damaged(number, format!("is not what was recorded at position {}: its checksum is another", positions.len())));
            }
            positions.push(Kept { token: line.token, layers: line.layers, logits });
        }
        if positions.is_empty() || positions.len() as u64 != u64::from(head.positions) {
            let why = if positions.len() as u64 > u64::from(head.positions) { "lines were added" } else { "the file is cut" };
            let what = format!("there are {} positions, of {} that were recorded: {why}", positions.len(), head.positions);
            return Err(damaged(positions.len() + 1, what));
        }
        let Head { name, firmware, fingerprint, dim, n_layers, vocab_size, context, .. } = head;
        let name = format!("{name} as recorded");
        let about = About { name, firmware, fingerprint, dim, n_layers, vocab_size, context, kv, tensors: 0 };
        Ok(Self { about, positions, position: 0 })
    }

    /// The tokens that were played.
    pub fn tokens(&self) -> Vec<u32> {
        self.positions.iter().map(|position| position.token).collect()
    }

    /// What was recorded of the next position.
    fn next(&self, token: u32) -> Result<&Kept> {
        match self.positions.get(self.position) {
            Some(kept) if kept.token == token => Ok(kept),
            found => {
                let there = found.map_or_else(|| "nothing".to_owned(), |kept| format!("token {}", kept.token));
                let what = format!("the transcript has {there} at position {}, not token {token}", self.position);
                Err(Error::new(Class::Request, what).advise("play the tokens that were recorded: leave --text, --prompt and --tokens out"))
            }
        }
    }
}

impl Side for Transcript {
    fn about(&self) -> &About {
        &self.about
    }

    fn begin(&mut self) -> Result<()> {
        self.position = 0;
        Ok(())
    }

    fn layers(&mut self, token: u32, layers: u32) -> Result<Option<u32>> {
        Ok(self.next(token)?.layers.get(layers as usize).copied())
    }

    fn residual(&mut self) -> Result<Option<Vec<f32>>> {
        Ok(None)
    }

    fn step(&mut self, token: u32) -> Result<Option<u32>> {
        let checksum = self.next(token)?.logits.as_deref().map(checksum);
        self.position += 1;
        Ok(checksum)
    }

    fn logits(&mut self) -> Result<Vec<f32>> {
        let last = self.position.checked_sub(1).and_then(|last| self.positions.get(last));
        last.and_then(|kept| kept.logits.clone()).ok_or_else(|| Error::new(Class::Request, "no step was done"))
    }

    fn tensor(&mut self, _: u32) -> Result<Option<u32>> {
        Ok(None)
    }

    fn is_free(&self) -> bool {
        false
    }
}

fn digits(values: &[f32]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(8 * values.len());
    for value in values {
        // A string takes everything.
        let _ = write!(text, "{:08x}", value.to_bits().swap_bytes());
    }
    text
}

fn values(text: &str) -> Option<Vec<f32>> {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    let value = |word: &[u8; 8]| {
        let word = std::str::from_utf8(word).ok().filter(|word| word.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        Some(f32::from_bits(u32::from_str_radix(word, 16).ok()?.swap_bytes()))
    };
    words.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About {
            name: "qemu:an386".to_owned(),
            firmware: Some(("app 1".to_owned(), "board".to_owned())),
            fingerprint: 7,
            dim: 4,
            n_layers: 1,
            vocab_size: 3,
            context: 8,
            kv: KvDType::F16,
            tensors: 5,
        }
    }

    #[test]
    fn a_transcript_that_is_cut_anywhere_is_refused() {
        let kept = [1, 2, 0].map(|token| Kept { token, layers: vec![5, 6], logits: Some(vec![1.0, 2.0, 3.0]) });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut bytes = Vec::new();
        write(&mut bytes, &about(), &kept).unwrap();
        // Without its last newline it is whole.
        for len in 0..bytes.len() - 1 {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let error = Transcript::open(&path).unwrap_err();
            assert!(matches!(error.class(), Class::NotAModel | Class::Damaged), "{len}: {error}");
        }
        // What has no end of line is not read to its end.
        std::fs::write(&path, vec![b'{'; 100_000]).unwrap();
        assert_eq!(Transcript::open(&path).unwrap_err().class(), Class::NotAModel);
    }

    #[test]
    fn a_transcript_is_read_as_it_was_written() {
        let kept = [
            Kept { token: 1, layers: vec![5, 6], logits: Some(vec![1.5, -0.0, f32::MIN_POSITIVE]) },
            Kept { token: 2, layers: Vec::new(), logits: None },
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let mut bytes = Vec::new();
        write(&mut bytes, &about(), &kept).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let mut read = Transcript::open(&path).unwrap();
        assert_eq!(read.positions, kept);
        assert_eq!(read.positions[0].logits.as_ref().unwrap()[1].to_bits(), (-0.0f32).to_bits());
        assert_eq!((read.about().name.as_str(), read.about().kv, read.about().tensors), ("qemu:an386 as recorded", KvDType::F16, 0));
        assert_eq!((read.layers(1, 0).unwrap(), read.layers(1, 1).unwrap(), read.layers(1, 2).unwrap()), (Some(5), Some(6), None));
        assert_eq!(read.step(1).unwrap(), Some(checksum(&[1.5, -0.0, f32::MIN_POSITIVE])));
        assert!(read.step(3).unwrap_err().to_string().contains("token 2 at position 1"));
        assert_eq!(read.step(2).unwrap(), None);
        assert!(read.step(2).unwrap_err().to_string().contains("nothing at position 2"));

        let text = String::from_utf8(bytes).unwrap();
        for (from, to, part) in [
            ("\"f16\"", "\"f17\"", "f17"),
            ("[5,6]", "[5]", "1 checksums"),
            ("0000c03f", "0000c0", "3 f32"),
            ("0000c03f", "0000c03g", "3 f32"),
            ("{\"token\":2", "{\"tok\":2", "line 3"),
        ] {
            assert!(text.contains(from), "{text}");
            std::fs::write(&path, text.replace(from, to)).unwrap();
            let error = Transcript::open(&path).unwrap_err();
            assert!(error.class() == Class::Damaged && error.to_string().contains(part), "{error}");
        }
        // One changed digit of what is well formed.
        for (from, to) in
            [("0000c03f", "0000c13f"), ("[5,6]", "[5,7]"), ("\"token\":2", "\"token\":0"), ("fingerprint\":7", "fingerprint\":8")]
        {
            assert!(text.contains(from), "{text}");
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let error = Transcript::open(&path).unwrap_err();
            assert!(error.class() == Class::Damaged && error.to_string().contains("checksum"), "{error}");
        }
        for (text, class) in
            [("{}", Class::NotAModel), ("", Class::NotAModel), (&text.replace("transcript\":1", "transcript\":2"), Class::NotAModel)]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Transcript::open(&path).unwrap_err().class(), class);
        }
    }
}
