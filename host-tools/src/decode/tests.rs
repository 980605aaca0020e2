//! Tests of loading, running and verifying; exports of random checkpoints serve as files.

pub(crate) mod accelerator;
pub(crate) mod batch;
mod copies;
mod levels;
mod memory;

use super::*;
use crate::checkpoint;
use crate::error::Class;
use crate::export::tests::{SMALL, Shape, data, export, open, options, tokenizer};
use crate::export::{Format, Options};
use dmexp::{Sampler, Step, StopReason};
use dmexp_format::arch::llama::LlamaConfig;
use dmexp_format::host::{self, Figures, Header, Payload, Provenance, TensorEntry, TensorSpec, write_v2};
use dmexp_format::{DType, KvDType};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use tempfile::TempDir;

fn exported(format: Format) -> (TempDir, Loaded) {
    let folder = TempDir::new().unwrap();
    let report = export(&open(SMALL.random()), &options(&folder, DType::F16, format)).unwrap();
    let loaded = Loaded::open(&report.out).unwrap();
    (folder, loaded)
}

#[test]
fn what_is_no_dmexp_is_named_with_the_command_that_converts_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.bin");
    fs::write(&path, SMALL.random()).unwrap();
    for error in [Loaded::open(&path).unwrap_err(), verify_all(&path).unwrap_err()] {
        assert_eq!(error.class(), Class::NotAModel);
        let text = error.to_string();
        assert!(text.contains("llama2.c checkpoint, version 0") && text.contains("dmexp export run --checkpoint"), "{text}");
    }
    // The command does what it says.
    let out = folder.path().join("model.dmexp");
    export(&checkpoint::open(&path).unwrap(), &Options::new(&out)).unwrap();
    assert!(Loaded::open(&out).is_ok());

    assert!(Loaded::open(folder.path()).unwrap_err().to_string().contains("a folder"));
    assert_eq!(Loaded::open(&folder.path().join("none")).unwrap_err().class(), Class::Unreadable);
    let empty = folder.path().join("empty");
    fs::write(&empty, b"").unwrap();
    assert!(Loaded::open(&empty).unwrap_err().to_string().contains("an empty file"));
}

#[test]
fn a_cut_file_is_damaged_and_says_by_how_much() {
    let (_folder, loaded) = exported(Format::V2);
    let mut bytes = loaded.bytes().to_vec();
    bytes.truncate(bytes.len() - 4);
    let error = Loaded::from_bytes(Path::new("cut.dmexp"), bytes).unwrap_err();
    assert_eq!(error.class(), Class::Damaged);
    assert!(error.to_string().starts_with("cut.dmexp: "), "{error}");
    assert!(error.to_string().contains(&(loaded.bytes().len()).to_string()), "{error}");
}

#[test]
fn a_format_1_file_runs_with_a_tokenizer_of_its_own() {
    let (_folder, loaded) = exported(Format::V1);
    let arrays = TokenizerArrays::new(&tokenizer(300));
    let with = CpuOptions { tokenizer: Some(arrays.tokenizer().unwrap()), ..CpuOptions::default() };
    let mut cpu = Cpu::new(&loaded, &with).unwrap();
    let mut session = cpu.session(Sampler::greedy()).unwrap();
    assert!(session.prompt(b"p260").unwrap() > 1);
    let mut cpu = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    assert!(cpu.session(Sampler::greedy()).unwrap().prompt(b"p260").is_err());
    let other = TokenizerArrays::new(&tokenizer(301));
    let error = Cpu::new(&loaded, &CpuOptions { tokenizer: Some(other.tokenizer().unwrap()), ..CpuOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("300 tokens") && error.to_string().contains("301 pieces"), "{error}");
}

#[test]
fn contexts_and_tokens_outside_their_range_are_requests_that_fail() {
    let (_folder, loaded) = exported(Format::V2);
    for context in [0, 41] {
        let error = Cpu::new(&loaded, &CpuOptions { context: Some(context), ..CpuOptions::default() }).unwrap_err();
        assert_eq!(error.class(), Class::Request, "{error}");
    }
    let mut cpu = Cpu::new(&loaded, &CpuOptions { context: Some(4), ..CpuOptions::default() }).unwrap();
    assert_eq!(cpu.arena_bytes(), cpu.model().arena_len().unwrap().next_multiple_of(4));
    let mut session = cpu.session(Sampler::greedy()).unwrap();
    let decoder: &mut dyn Decoder = &mut session;
    assert_eq!((decoder.vocab_size(), decoder.context(), decoder.position()), (300, 4, 0));
    let mut positions = Vec::new();
    let mut note = |position, row: &[f32]| {
        assert_eq!(row.len(), 300);
        positions.push(position);
        Ok(())
    };
    assert_eq!(decoder.logits(&[1, 2, 3, 4, 5], &mut note).unwrap_err().class(), Class::Request);
    assert_eq!(decoder.feed(&[300]).unwrap_err().class(), Class::Request);
    assert_eq!(decoder.feed(&[]).unwrap_err().class(), Class::Request);
    decoder.logits(&[1, 2, 3], &mut note).unwrap();
    assert_eq!(positions, [0, 1, 2]);
    decoder.reset();
    assert_eq!(decoder.position(), 0);
    let again = decoder.feed(&[1, 2, 3]).unwrap().to_vec();
    decoder.reset();
    decoder.feed(&[1, 2]).unwrap();
    assert_eq!(decoder.feed(&[3]).unwrap(), again);
}

/// What firmware writes text to.
struct Text(Vec<u8>);

impl embedded_io::ErrorType for Text {
    type Error = std::convert::Infallible;
}

impl embedded_io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Self::Error> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

fn with_text() -> (TempDir, Loaded) {
    let folder = TempDir::new().unwrap();
    let mut source = open(SMALL.random());
    source.tokenizer = Some(tokenizer(300));
    let report = export(&source, &options(&folder, DType::F32, Format::V2)).unwrap();
    let loaded = Loaded::open(&report.out).unwrap();
    (folder, loaded)
}

#[test]
fn a_text_that_is_over_stays_over_until_there_is_more() {
    let (_folder, loaded) = with_text();
    let mut cpu = Cpu::new(&loaded, &CpuOptions { context: Some(5), ..CpuOptions::default() }).unwrap();
    let mut session = cpu.session(Sampler::greedy()).unwrap().ignoring_end_of_text(true);
    let full = session.generate("a", 100, &mut Text(Vec::new())).unwrap();
    assert_eq!(full.stop, StopReason::ContextFull);
    let again = session.generate("", 100, &mut Text(Vec::new())).unwrap();
    assert_eq!((again.prompt_tokens, again.tokens, again.stop), (0, 0, StopReason::ContextFull));
    session.push_tokens(&[]).unwrap();
    assert!(matches!(session.step(), Ok(Step::Stop(StopReason::ContextFull))));
    assert!(session.prompt(b"a").is_err());
    assert!(matches!(session.step(), Ok(Step::Stop(StopReason::ContextFull))));
    session.reset();
    assert!(matches!(session.step(), Err(dmexp::format::Error::NoPrompt)));
    assert_eq!(session.generate("a", 100, &mut Text(Vec::new())).unwrap(), full);
}

#[test]
fn a_prompt_that_fits_a_short_context_is_taken_and_a_longer_one_is_said_to_be_too_long() {
    let (_folder, loaded) = with_text();
    for kv in [KvDType::F16, KvDType::F32] {
        for context in 1..6 {
            let mut cpu = Cpu::new(&loaded, &CpuOptions { context: Some(context), kv, tokenizer: None }).unwrap();
            let mut session = cpu.session(Sampler::greedy()).unwrap();
            // Begin, the space before the text, and a token a byte.
            for bytes in 1..8 {
                session.reset();
                let tokens = bytes + 2;
                match session.prompt(&vec![b'z'; bytes as usize]) {
                    Ok(added) => assert!(added == tokens && tokens <= context),
                    Err(dmexp::format::Error::PromptTooLong { tokens: found, room }) => {
                        assert!((found, room) == (u64::from(tokens), u64::from(context)) && tokens > context);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
}

#[test]
fn another_models_tokenizer_is_refused_by_the_runtime_itself() {
    let (_folder, loaded) = exported(Format::V1);
    let model = loaded.model().unwrap();
    let other = TokenizerArrays::new(&tokenizer(301));
    let error = model.with_tokenizer(other.tokenizer().unwrap()).unwrap_err();
    assert!(error.to_string().contains("301") && error.to_string().contains("300"), "{error}");
    let own = TokenizerArrays::new(&tokenizer(300));
    assert!(model.with_tokenizer(own.tokenizer().unwrap()).is_ok());
    assert!(model.with_tokenizer(dmexp::tokenizer::Tokenizer::NONE).is_ok());
}

#[test]
fn verification_lists_what_it_checked_and_what_not() {
    let (_folder, loaded) = exported(Format::V2);
    let report = verify_all(loaded.path()).unwrap();
    assert!(report.passed());
    let left: Vec<_> =
        report.checks.iter().filter(|check| matches!(check.outcome, Outcome::NotMade(_))).map(|check| check.name.as_str()).collect();
    assert_eq!(left, ["flushed"]);
    assert!(report.unknown_keys.is_empty());
    let stripped = loaded.path().with_extension("stripped");
    fs::write(&stripped, host::strip(loaded.bytes()).unwrap()).unwrap();
    let report = verify_all(&stripped).unwrap();
    assert!(report.passed(), "{report:?}");
    assert!(report.checks.iter().any(|check| check.name.starts_with("header and index") && matches!(check.outcome, Outcome::NotMade(_))));
    assert_eq!(Loaded::open(&stripped).unwrap().file().unwrap().fingerprint(), loaded.file().unwrap().fingerprint());
}

#[test]
fn files_of_dormouse_open_verify_and_run() {
    let Some(folder) = data("dormouse") else { return };
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "dmexp") {
            let report = verify_all(&path).unwrap();
            assert!(report.passed(), "{}: {report:?}", path.display());
            assert!(report.checks.iter().any(|check| check.name.starts_with("model") && matches!(check.outcome, Outcome::Passed)));
            let loaded = Loaded::open(&path).unwrap();
            let mut cpu = Cpu::new(&loaded, &CpuOptions { context: Some(8), ..CpuOptions::default() }).unwrap();
            let mut session = cpu.session(Sampler::greedy()).unwrap();
            session.prompt(b"once").unwrap();
            assert_eq!(session.logits().unwrap().len(), 256);
            count += 1;
        }
    }
    assert!(count > 3);
}

/// Takes the head of a file, and fails when the payload comes.
struct Head(Vec<u8>);

impl Write for Head {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            self.0.extend_from_slice(piece);
            Ok(piece.len())
        } else {
            Err(io::Error::other("enough"))
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The head of a model of 1 GB, and the length of the whole file.
fn large() -> (Vec<u8>, u64) {
    let shape = Shape {
        dim: 4096,
        hidden_dim: 11_008,
        n_layers: 2,
        n_heads: 32,
        n_kv_heads: 32,
        vocab_size: 32_000,
        tied: true,
        max_seq_len: 2048,
    };
    let small = open(SMALL.random());
    let checkpoint::Config::Llama(source) = &small.config else { panic!("it is a Llama") };
    let model = LlamaConfig {
        dim: shape.dim as u32,
        hidden_dim: shape.hidden_dim as u32,
        n_layers: shape.n_layers as u32,
        n_heads: 32,
        n_kv_heads: 32,
        head_dim: 128,
        vocab_size: shape.vocab_size as u32,
        max_seq_len: 2048,
        ..source.config
    };
    let mut end = 0u64;
    let mut tensors = Vec::new();
    for number in 0..=model.weight_tensors() {
        let wanted = model.tensor(number).unwrap();
        let dtype = if wanted.kind.is_matrix() { DType::Bf16 } else { DType::F32 };
        let trainable = number < model.weight_tensors();
        let spec = TensorSpec { name: wanted.to_string(), dtype, dims: wanted.dims, group: 0, trainable, transposed: false };
        let offset = end.next_multiple_of(64);
        end = offset + spec.bytes();
        tensors.push(TensorEntry { spec, offset, crc32: 0, figures: Some(Figures::NONE) });
    }
    let settings = host::LlamaSettings { model, rope_theta: None, rope_scaling: std::collections::BTreeMap::new() };
    let payload = Payload { tensors, crc32: 0, bytes: end };
    let header = Header::new(host::Config::Llama(settings), host::Tokenizer::NONE, Provenance::default(), payload).unwrap();
    let mut head = Head(Vec::new());
    write_v2(&mut head, &header, 64, |_, out| out.write_all(&[0])).unwrap_err();
    let len = head.0.len() as u64 + end;
    (head.0, len)
}

/// Kilobytes of the file that this process has in memory.
fn resident(path: &Path) -> Option<u64> {
    let maps = fs::read_to_string("/proc/self/smaps").ok()?;
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(&*path.to_string_lossy()));
    let rss = lines.find_map(|line| line.strip_prefix("Rss:"))?;
    rss.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[test]
fn opening_and_binding_a_gigabyte_touches_little_of_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("large.dmexp");
    let (head, len) = large();
    assert!(len > 1_000_000_000, "{len}");
    fs::write(&path, head).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(len).unwrap();
    let loaded = Loaded::open(&path).unwrap();
    let cpu = Cpu::new(&loaded, &CpuOptions { context: Some(8), kv: KvDType::F16, tokenizer: None }).unwrap();
    let Some(kilobytes) = resident(&path) else {
        println!("left out: this system does not say what of a file is in memory");
        return;
    };
    println!("{kilobytes} KiB of {len} bytes are in memory, {} bytes of arena", cpu.arena_bytes());
    assert!(kilobytes > 0 && kilobytes < 900, "{kilobytes}");
}

#[test]
fn a_step_in_parts_has_the_bits_of_a_step() {
    let (_folder, loaded) = exported(Format::V2);
    let prompt = [1, 40, 7];
    let whole = {
        let mut cpu = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
        let mut session = cpu.session(Sampler::greedy()).unwrap().ignoring_end_of_text(true);
        session.push_tokens(&prompt).unwrap();
        while !matches!(session.step().unwrap(), Step::Stop(_)) {}
        session.tokens().to_vec()
    };
    let mut cpu = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    let layers = cpu.model().network().n_layers();
    let mut session = cpu.session(Sampler::greedy()).unwrap().ignoring_end_of_text(true);
    assert!(session.poll().is_err(), "no prompt");
    session.push_tokens(&prompt).unwrap();
    let (mut calls, mut found) = (0, Vec::new());
    loop {
        calls += 1;
        match session.poll().unwrap() {
            None => continue,
            Some(Step::Prompt { token }) => assert_eq!((token, calls), (prompt[found.len()], 1 + layers)),
            Some(Step::Token { .. }) => assert_eq!(calls, 2 + layers),
            Some(_) => break,
        }
        found.push(calls);
        calls = 0;
    }
    assert_eq!((session.tokens(), found.len() as u32), (whole.as_slice(), session.model().context()));

    // Begun by parts, finished by a step.
    session.reset();
    session.push_tokens(&prompt).unwrap();
    while session.position() < 2 {
        session.poll().unwrap();
    }
    assert!(session.poll().unwrap().is_none());
    session.step().unwrap();
    assert_eq!(session.tokens(), &whole[..4]);
}

#[test]
fn the_residual_stream_is_seen_after_every_layer_and_the_logits_stay_the_same() {
    let (_folder, loaded) = exported(Format::V2);
    let tokens = [1, 40, 7, 299];
    let mut cpu = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    let config = *cpu.model().network().llama().unwrap().config();
    let mut session = cpu.session(Sampler::greedy()).unwrap();
    let whole: Vec<Vec<f32>> = tokens.iter().map(|token| Decoder::feed(&mut session, &[*token]).unwrap().to_vec()).collect();
    session.reset();
    for (token, logits) in tokens.iter().zip(&whole) {
        session.push_tokens(&[*token]).unwrap();
        let mut seen: Vec<Vec<f32>> = Vec::new();
        for done in 0..=config.n_layers {
            assert_eq!(session.advance().unwrap(), done);
            assert_eq!(session.residual().len(), config.dim as usize);
            assert!(seen.last().is_none_or(|last| last != session.residual()), "a layer changes the stream");
            seen.push(session.residual().to_vec());
        }
        assert!(session.advance().is_err(), "no part is left");
        assert_eq!(session.logits().unwrap(), logits);
        assert!(session.logits().is_err());
    }
    // Tokens that come while the last one's logits are still to be computed.
    session.reset();
    session.push_tokens(&tokens[..1]).unwrap();
    while session.advance().is_ok() {}
    session.push_tokens(&tokens[1..]).unwrap();
    assert_eq!((session.advance().unwrap(), session.position()), (0, 1));
    assert_eq!(session.logits().unwrap(), whole[3]);
}

#[test]
fn seeds_differ_and_are_exact_as_floats() {
    assert_ne!(any_seed(), any_seed());
    assert!((0..100).all(|_| (1..1 << 52).contains(&any_seed())));
}
