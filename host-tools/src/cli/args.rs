//! Arguments that several commands take: how they are read, strictly, and what is said of a wrong one.

use super::failure::{Outcome, request};
use dmexp::sampler::Settings;
use dmexp::simd::Level;
use dmexp_format::{DType, KvDType};
use dmexp_tools::decode::Load;
use dmexp_tools::input::{self, TEXT_LIMIT};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// `--kv`.
pub(crate) fn kv(text: &str) -> Result<KvDType, String> {
    match text {
        "f32" => Ok(KvDType::F32),
        "f16" => Ok(KvDType::F16),
        "q8" => Ok(KvDType::Q8),
        _ => Err("keys and values are kept as f32, f16 or q8".to_owned()),
    }
}

/// `--dtype`, with dormouse's other names for the same types.
pub(crate) fn dtype(text: &str) -> Result<DType, String> {
    dmexp_tools::export::parse_dtype(text).map_err(|error| error.to_string())
}

/// `--temp`.
pub(crate) fn temperature(text: &str) -> Result<f32, String> {
    setting(text, |temperature, settings| Settings { temperature, ..settings })
}

/// `--top-p`.
pub(crate) fn top_p(text: &str) -> Result<f32, String> {
    if matches!(text.parse(), Ok(0.0_f32)) {
        return Err("0 would keep no token at all; --temp 0 always takes the likeliest, --top-p 1 turns top-p off".to_owned());
    }
    setting(text, |top_p, settings| Settings { top_p, ..settings })
}

/// `--min-p`.
pub(crate) fn min_p(text: &str) -> Result<f32, String> {
    setting(text, |min_p, settings| Settings { min_p, ..settings })
}

/// `--repeat-penalty`.
pub(crate) fn repeat_penalty(text: &str) -> Result<f32, String> {
    setting(text, |repeat_penalty, settings| Settings { repeat_penalty, ..settings })
}

/// A number that the sampler takes.
fn setting(text: &str, put: impl FnOnce(f32, Settings) -> Settings) -> Result<f32, String> {
    let number = text.parse().map_err(|_| "not a number".to_owned())?;
    put(number, Settings::GREEDY).check().map_err(|error| error.to_string())?;
    Ok(number)
}

/// `--seed`.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) => Err("from 0 the random numbers would all be 0; 1 or more".to_owned()),
        Ok(seed) => Ok(seed),
        Err(_) => Err(format!("a whole number from 1 to {}", u64::MAX)),
    }
}

/// A count of tokens or positions, or an id.
pub(crate) fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a whole number from 0 to {}", u32::MAX))
}

/// Like [`number`], from 1.
pub(crate) fn from_one(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("a whole number from 1 to {}", u32::MAX)),
        Ok(number) => Ok(number),
    }
}

/// `--simd`.
pub(crate) fn level(text: &str) -> Result<Level, String> {
    let found = Level::ALL.into_iter().find(|level| level.name() == text);
    found.ok_or_else(|| format!("one of {}", Level::ALL.map(Level::name).join(", ")))
}

/// `--load`.
pub(crate) fn load(text: &str) -> Result<Load, String> {
    let found = Load::ALL.into_iter().find(|load| load.name() == text);
    found.ok_or_else(|| format!("one of {}", Load::ALL.map(Load::name).join(", ")))
}

/// `--threads`.
pub(crate) fn threads(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(threads @ 1..=MOST_THREADS) => Ok(threads),
        _ => Err(format!("a whole number from 1 to {MOST_THREADS}")),
    }
}

/// More than any machine has cores that one model keeps busy.
const MOST_THREADS: u32 = 1024;

/// Token ids, with commas or white space between them.
pub(crate) fn tokens(text: &str) -> Outcome<Vec<u32>> {
    let mut tokens = Vec::new();
    for part in text.split(',') {
        let before = tokens.len();
        for word in part.split_whitespace() {
            let token = word.parse().map_err(|_| request(format!("{word:?} in the list of tokens is no token id"), LIST))?;
            tokens.push(token);
        }
        if tokens.len() == before {
            let what = if text.trim().is_empty() { "the list of tokens is empty" } else { "a token is missing beside a comma" };
            return Err(request(what, LIST));
        }
    }
    Ok(tokens)
}

const LIST: &str = "give ids like 1,403,407 or \"1 403 407\"";

/// The bytes of an argument: on Unix any, elsewhere UTF-8.
pub(crate) fn bytes_of(argument: &OsStr) -> Outcome<Vec<u8>> {
    if cfg!(unix) {
        return Ok(argument.as_encoded_bytes().to_vec());
    }
    match argument.to_str() {
        Some(text) => Ok(text.as_bytes().to_vec()),
        None => Err(request("an argument is not valid Unicode", "put the text into a file")),
    }
}

/// Everything that comes from stdin.
pub(crate) fn stdin() -> Outcome<Vec<u8>> {
    Ok(input::all_of(std::io::stdin().lock(), Path::new("stdin"), TEXT_LIMIT)?)
}

/// An argument that is a text, or `-` for stdin.
pub(crate) fn text_or_stdin(argument: &OsStr) -> Outcome<Vec<u8>> {
    if argument == "-" { stdin() } else { bytes_of(argument) }
}

/// An argument that is a list of tokens, or `-` for stdin.
pub(crate) fn tokens_or_stdin(argument: &OsStr) -> Outcome<Vec<u32>> {
    let bytes = text_or_stdin(argument)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => tokens(text),
        Err(_) => Err(request("the list of tokens is not text", LIST)),
    }
}

/// The bytes of a file, or of stdin for `-`.
pub(crate) fn file_or_stdin(path: &OsString) -> Outcome<Vec<u8>> {
    if path == "-" {
        return stdin();
    }
    Ok(input::read(Path::new(path), TEXT_LIMIT)?)
}

/// Replaces `\n`, `\r`, `\t`, `\\`, `\"` and `\xNN`.
pub(crate) fn unescape(text: &[u8]) -> Outcome<Vec<u8>> {
    const KNOWN: &str = "the escapes are \\n \\r \\t \\\\ \\\" and \\xNN with two hexadecimal digits";
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        plain.push(match rest.next() {
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(same @ (b'\\' | b'"')) => same,
            Some(b'x') => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                match (digit(), digit()) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Err(request("\\x without two hexadecimal digits", KNOWN)),
                }
            }
            Some(other) => return Err(request(format!("the escape \\{} is not known", other.escape_ascii()), KNOWN)),
            None => return Err(request("a \\ at the end of the text", KNOWN)),
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_tokens_are_read_strictly() {
        assert_eq!(tokens("1,403,407").unwrap(), [1, 403, 407]);
        assert_eq!(tokens(" 1 403\n407 ").unwrap(), [1, 403, 407]);
        assert_eq!(tokens("1, 2 3,4").unwrap(), [1, 2, 3, 4]);
        for wrong in ["", " ", ",", "1,", ",1", "1,,2", "a", "-1", "1.0", "1;2", "4294967296", "0x10"] {
            assert!(tokens(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn escapes_are_read_strictly() {
        assert_eq!(unescape(br#"a\n\t\r\\\"\x41\xfF"#).unwrap(), b"a\n\t\r\\\"A\xff");
        assert_eq!(unescape("é".as_bytes()).unwrap(), "é".as_bytes());
        for wrong in [r"\", r"\q", r"\x", r"\x4", r"\xg0"] {
            assert!(unescape(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        assert_eq!(temperature("0.8"), Ok(0.8));
        assert_eq!(temperature("0"), Ok(0.0));
        for wrong in ["nan", "inf", "-1", "abc", "", "1e999"] {
            assert!(temperature(wrong).is_err(), "{wrong}");
        }
        assert!(temperature("1e-45").is_ok(), "tends to greedy, as the sampler says");
        assert_eq!(top_p("1"), Ok(1.0));
        assert!(top_p("0").unwrap_err().contains("--temp 0"));
        for wrong in ["-0.1", "1.1", "nan", "x"] {
            assert!(top_p(wrong).is_err(), "{wrong}");
        }
        assert!(min_p("1").is_err() && min_p("0.5").is_ok());
        assert!(repeat_penalty("0").is_err() && repeat_penalty("1.1").is_ok());
    }

    #[test]
    fn seeds_are_whole_u64() {
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(seed("99999999999"), Ok(99_999_999_999));
        for wrong in ["0", "-1", "18446744073709551616", "1.5", "", "time"] {
            assert!(seed(wrong).is_err(), "{wrong}");
        }
    }
}
