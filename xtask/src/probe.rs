//! `cargo xtask probe`: firmware that `dmexp compare` can ask, and the check that it finds what is wrong with a device.

use crate::board::{self, Board, Floats};
use crate::failure::{Failure, Outcome};
use crate::models::{self, STORY};
use crate::{device_check, made, paths, process, qemu};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) const HELP: &str = "\
Usage: cargo xtask probe [OPTIONS] [BOARD...]

Builds the firmware of BOARD (without one, of every board) with the feature `probe` and puts it at target/probe/BOARD.elf, where
`dmexp compare --device qemu:BOARD` looks for it.

Options:
  --check          Then compare them with the host, and an386 once more with faults that are planted, each of which must be found
";

/// The feature of a board's firmware that answers `dmexp compare`.
pub(crate) const FEATURE: &str = "probe";

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    let (flags, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word == "--check");
    for board in board::named(words)? {
        if !flags.is_empty() {
            check(board)?;
            continue;
        }
        println!("{}", firmware(board, answering(board), board.name)?.display());
    }
    Ok(())
}

/// The features of firmware that answers: on the board that reads files of dormouse models, with that.
fn answering(board: &Board) -> &'static [&'static str] {
    if board.name == made::BOARD { &[FEATURE, "dormouse"] } else { &[FEATURE] }
}

/// Builds the firmware of one board and returns where it lies.
fn firmware(board: &Board, features: &[&str], name: &str) -> Outcome<PathBuf> {
    let elf = board::build(board, features, &board.model.export(qemu::DEFAULT_DTYPE)?)?;
    let folder = paths::root().join("target/probe");
    let copy = folder.join(format!("{name}.elf"));
    let failed = |error| Failure::cannot_run(format!("{}: {error}", copy.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    std::fs::copy(&elf, &copy).map_err(failed)?;
    Ok(copy)
}

/// A fault that is planted, and where it must be found.
struct Fault {
    name: &'static str,
    /// Changes the bytes of the device's file; what it returns is the position, the stage, the layer, and the tensors that must be named.
    plant: fn(&mut File) -> Outcome<Expected>,
}

struct Expected {
    position: u32,
    stage: &'static str,
    layer: Option<u32>,
    tensors: Vec<String>,
}

const FAULTS: &[Fault] = &[
    Fault { name: "one bit of a weight is flipped", plant: flip_a_bit },
    Fault { name: "the rotation is that of another theta", plant: other_theta },
    Fault { name: "an entry of the f16 table is off by one", plant: off_by_one },
];

/// The board that faults are planted on.
const FAULTY: &str = "an386";

/// Compares an emulated board with the host: with a file in its memory where it has some for that, otherwise with the model inside its firmware.
pub(crate) fn check(board: &Board) -> Outcome {
    let model = board.model.export(if board.load_address.is_some() { "f16" } else { qemu::DEFAULT_DTYPE })?;
    firmware(board, answering(board), board.name)?;
    let device = format!("qemu:{}", board.name);
    let short = ["--positions", "4", "--greedy", "2"];
    let few: &[&str] = if board.floats == Floats::Software { &short } else { &[] };
    let found = compare(&model, &model, &device, &[&["--kv", board.story_kv], few].concat())?;
    expect(&found, &[("equal", json!(true)), ("first_difference", Value::Null)])?;
    println!("{}", found["verdict"].as_str().unwrap_or_default());
    // There are vectors for keys and values in f32 and f16, as long as slow floats have no time for.
    if board.story_kv != "q8" && (board.floats == Floats::Hardware || board.model == models::TINY) {
        self_test(board, &device)?;
    }
    if board.name == FAULTY {
        with_a_gpu(&model, &device)?;
        faults(board, &model, &device)
    } else {
        Ok(())
    }
}

/// A GPU, for which the stand-in of its driver computes, against the board.
fn with_a_gpu(model: &Path, device: &str) -> Outcome {
    let Some(driver) = device_check::stand_in()? else {
        println!("skipped: there is no stand-in of CUDA's driver on this machine");
        return Ok(());
    };
    let mut command = models::dmexp()?;
    command.current_dir(paths::root()).env("LD_LIBRARY_PATH", driver).args(["compare", "--reference", "cuda", "--device", device]);
    command.args(["--prompt", "Once upon a time", "--positions", "8", "--json", "--export"]).arg(model);
    let found = parsed(&process::capture(&mut command)?)?;
    expect(&found, &[("equal", json!(true)), ("first_difference", Value::Null)])?;
    println!("{}", found["verdict"].as_str().unwrap_or_default());
    Ok(())
}

/// The model inside the firmware replays the golden vectors of its file.
fn self_test(board: &Board, device: &str) -> Outcome {
    let mut command = models::dmexp()?;
    command.current_dir(paths::root()).args(["device", "self-test", device, "--kv", board.story_kv, "--json"]);
    expect(&parsed(&process::capture(&mut command)?)?, &[("passed", json!(true))])?;
    println!("{}: the built-in model passes its self-test", board.name);
    Ok(())
}

/// Compares with faults, each of which must be found where it is.
fn faults(board: &Board, model: &Path, device: &str) -> Outcome {
    for fault in FAULTS {
        let mut file = File::read(model)?;
        let expected = (fault.plant)(&mut file)?;
        let path = paths::root().join("target/probe/fault.dmexp");
        std::fs::write(&path, &file.bytes).map_err(|error| Failure::cannot_run(format!("{}: {error}", path.display())))?;
        let found = compare(&path, model, device, &[])?;
        expect_difference(&found, &expected)?;
        println!("{}: {}", fault.name, found["verdict"].as_str().unwrap_or_default());
    }

    // Every weight is right, and the arithmetic is not.
    let elf = firmware(board, &[FEATURE, "dormouse", "seeded-rounding"], "seeded-rounding")?;
    let found = compare(model, model, &format!("{device}:{}", elf.display()), &[])?;
    expect_difference(&found, &Expected { position: 0, stage: "layer", layer: Some(0), tensors: Vec::new() })?;
    let verdict = found["verdict"].as_str().unwrap_or_default();
    if !verdict.contains("arithmetic") {
        return Err(Failure::found_wrong(format!("a chip that rounds otherwise is not said to: {verdict}")));
    }
    println!("floats are rounded towards zero: {verdict}");
    replay(model, device)
}

/// What a device computes is recorded, and is found equal to it.
fn replay(model: &Path, device: &str) -> Outcome {
    let transcript = paths::root().join("target/probe/transcript.jsonl");
    let transcript = transcript.to_string_lossy();
    compare(model, model, device, &["--record", &transcript])?;
    let mut again = models::dmexp()?;
    again.current_dir(paths::root()).args(["compare", "--device", device, "--replay", &transcript, "--json", "--export"]).arg(model);
    let found = parsed(&process::capture(&mut again)?)?;
    expect(&found, &[("equal", json!(true)), ("first_difference", Value::Null)])
}

/// The made dormouse model on a board whose firmware has it built in and reads such files: it computes the host's bits in both forms and finds its golden vector, and a fault is found in the
/// iteration of its loop that it is in.
pub(crate) fn check_dormouse(board: &Board) -> Outcome {
    let model = made::export("t2")?;
    let elf = board::build(board, &[FEATURE, "built-in-dormouse"], &model)?;
    let device = format!("qemu:{}:{}", board.name, elf.display());
    let few = ["--positions", "6", "--greedy", "2"];
    for more in [&[][..], &["--flashed", "--context", "16"]] {
        let found = compare(&model, &model, &device, &[&few[..], more].concat())?;
        expect(&found, &[("equal", json!(true)), ("first_difference", Value::Null)])?;
        println!("{}", found["verdict"].as_str().unwrap_or_default());
    }
    let mut file = File::read(&model)?;
    let (name, bytes) = file.tensor("loop_block.iter_embed")?;
    // The sign of an element of the third row, of f32.
    let row = bytes.len() / 4;
    bytes[2 * row + 3] ^= 0x80;
    let path = model.with_extension("fault.dmexp");
    std::fs::write(&path, &file.bytes).map_err(|error| Failure::cannot_run(format!("{}: {error}", path.display())))?;
    let found = compare(&path, &model, &device, &few)?;
    expect_difference(&found, &Expected { position: 0, stage: "layer", layer: Some(2), tensors: vec![name] })?;
    let verdict = found["verdict"].as_str().unwrap_or_default();
    println!("{verdict}");
    if !verdict.contains("iteration 2") {
        return Err(Failure::found_wrong(format!("the iteration is not named: {verdict}")));
    }
    let mut asked = models::dmexp()?;
    asked.current_dir(paths::root()).args(["device", "self-test", &device, "--export"]).arg(&model);
    println!("{}", process::capture(&mut asked)?.trim_end());
    Ok(())
}

/// Runs `dmexp compare` with the device's file and the reference's, and returns what it prints; it exits with 0 where nothing differs and with 1 otherwise.
fn compare(device_file: &Path, file: &Path, device: &str, more: &[&str]) -> Outcome<Value> {
    let mut command = models::dmexp()?;
    command.current_dir(paths::root()).args(["compare", "--device", device, "--json", "--prompt", "Once upon a time"]);
    let usual: &[&str] = if more.contains(&"--positions") { &[] } else { &["--positions", "16", "--greedy", "8"] };
    command.args(usual).args(more).arg("--export").arg(device_file);
    if device_file != file {
        command.arg("--reference-export").arg(file);
    }
    let output = command.output().map_err(|error| Failure::cannot_run(format!("cannot start `{}`: {error}", process::shown(&command))))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.is_empty() {
        return Err(Failure::found_wrong(format!("`{}` said:\n{}", process::shown(&command), process::said(&output))));
    }
    let found = parsed(&text)?;
    let code = i32::from(found["equal"] != json!(true));
    if output.status.code() != Some(code) {
        return Err(Failure::found_wrong(format!("`{}` ended with {}, not {code}", process::shown(&command), output.status)));
    }
    Ok(found)
}

fn parsed(text: &str) -> Outcome<Value> {
    serde_json::from_str(text).map_err(|error| Failure::found_wrong(format!("dmexp printed no JSON: {error}")))
}

fn expect(found: &Value, wanted: &[(&str, Value)]) -> Outcome {
    match wanted.iter().find(|(key, value)| found[key] != *value) {
        None => Ok(()),
        Some((key, value)) => Err(Failure::found_wrong(format!("{key} is {}, not {value}; {}", found[key], found["verdict"]))),
    }
}

fn expect_difference(found: &Value, expected: &Expected) -> Outcome {
    let Expected { position, stage, layer, tensors } = expected;
    let first = json!({ "position": position, "stage": stage, "layer": layer });
    expect(found, &[("equal", json!(false)), ("first_difference", first)])?;
    if found["tensors"]["differ"] == json!(tensors) && found["tensors"]["compared"].as_u64() > Some(0) {
        return Ok(());
    }
    Err(Failure::found_wrong(format!("the tensors that differ are {}, not {tensors:?}", found["tensors"])))
}

/// A model file, and where its tensors are.
struct File {
    bytes: Vec<u8>,
    tensors: Vec<(String, std::ops::Range<usize>)>,
}

impl File {
    fn read(path: &Path) -> Outcome<Self> {
        let info = parsed(&process::capture(models::dmexp()?.args(["export", "info", "--tensors", "--json"]).arg(path))?)?;
        let number = |value: &Value| value.as_u64().unwrap_or(0) as usize;
        let start = number(&info["payload"]["offset"]);
        let tensors = info["tensors"].as_array().into_iter().flatten().map(|tensor| {
            let at = start + number(&tensor["offset"]);
            (tensor["name"].as_str().unwrap_or_default().to_owned(), at..at + number(&tensor["bytes"]))
        });
        let bytes = std::fs::read(path).map_err(|error| Failure::cannot_run(format!("{}: {error}", path.display())))?;
        Ok(Self { bytes, tensors: tensors.collect() })
    }

    /// The name and the bytes of the tensor whose name ends so.
    fn tensor(&mut self, end: &str) -> Outcome<(String, &mut [u8])> {
        let (name, range) = self
            .tensors
            .iter()
            .find(|(name, _)| name.ends_with(end))
            .ok_or_else(|| Failure::cannot_run(format!("the model has no tensor whose name ends with {end}")))?;
        let bytes = self.bytes.get_mut(range.clone()).ok_or_else(|| Failure::found_wrong(format!("{name} does not lie in the file")))?;
        Ok((name.clone(), bytes))
    }
}

/// The sign of one element of a matrix of layer 3: its value vector is another at the first position.
fn flip_a_bit(file: &mut File) -> Outcome<Expected> {
    let (name, bytes) = file.tensor("layers.3.attention.wv.weight")?;
    bytes[2 * 100 + 1] ^= 0x80;
    Ok(Expected { position: 0, stage: "layer", layer: Some(3), tensors: vec![name] })
}

/// Frequencies of theta 5,000: nothing is rotated at position 0.
fn other_theta(file: &mut File) -> Outcome<Expected> {
    let (name, bytes) = file.tensor("inv_freq")?;
    let count = bytes.len() / 4;
    for (place, slot) in bytes.chunks_exact_mut(4).enumerate() {
        let frequency = 5000f64.powf(-(place as f64) / count as f64) as f32;
        slot.copy_from_slice(&frequency.to_le_bytes());
    }
    Ok(Expected { position: 1, stage: "layer", layer: Some(0), tensors: vec![name] })
}

/// Every f16 of one code is read as the next one: the code of the largest element in the embedding of the text's first token.
fn off_by_one(file: &mut File) -> Outcome<Expected> {
    let (_, bytes) = file.tensor("tok_embeddings.weight")?;
    let columns = 64;
    let row = STORY.first_token as usize * columns * 2;
    let code = |pair: &[u8]| u16::from_le_bytes([pair[0], pair[1]]);
    let wrong = bytes[row..row + 2 * columns].chunks_exact(2).map(code).max_by_key(|code| code & 0x7fff).unwrap_or_default();
    let mut tensors = Vec::new();
    for (name, range) in &file.tensors {
        let is_matrix = name.ends_with(".weight") && !name.ends_with("norm.weight");
        let mut hit = false;
        for pair in file.bytes[range.clone()].chunks_exact_mut(2).filter(|_| is_matrix) {
            if code(pair) == wrong {
                pair.copy_from_slice(&(wrong + 1).to_le_bytes());
                hit = true;
            }
        }
        if hit {
            tensors.push(name.clone());
        }
    }
    Ok(Expected { position: 0, stage: "embedding", layer: None, tensors })
}
