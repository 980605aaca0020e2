//! `dmexp device`: what a chip with the probe says of itself, and its own self-test and texts.

use super::args;
use super::failure::{Failure, Outcome, request};
use super::generate::{Text, note, stop_strings};
use super::output::{count, facts, float, grouped, json, shown};
use clap::{Args, Subcommand};
use dmexp::probe::{Stats, Ticks};
use dmexp::sampler::Settings;
use dmexp_format::KvDType;
use dmexp_tools::decode::{Loaded, any_seed};
use dmexp_tools::device::{self, Device, Load, Name, Stopped, Timing};
use dmexp_tools::error::{Class, Error, shown_path};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Ask a chip with the probe what it is, for its self-test, or for a text
#[derive(Debug, Subcommand)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  dmexp device info /dev/ttyACM0
  dmexp device self-test qemu:an386 --export stories.dmexp
  dmexp device generate /dev/ttyACM0 --prompt \"Once upon a time\" --steps 64 --temp 0
  dmexp device stats /dev/ttyUSB0:9600 --json"
)]
pub(crate) enum Ask {
    Info(Info),
    SelfTest(SelfTest),
    Generate(Generate),
    Stats(AskStats),
}

/// Which device, and what an emulated one is given.
#[derive(Debug, Args)]
struct Chip {
    /// qemu:BOARD or qemu:BOARD:FIRMWARE.elf, which is started; or a serial port, as /dev/ttyACM0 or /dev/ttyUSB0:115200
    #[arg(value_name = "DEVICE", value_parser = Name::parse)]
    device: Name,
    /// The file that the device must have; an emulated board with memory for one is given it [default: the model inside the firmware]
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// How an emulated board keeps keys and values: f32, f16 or q8
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = args::kv)]
    kv: KvDType,
    /// How many positions an emulated board has room for [default: what the model was trained for]
    #[arg(long, value_name = "N", value_parser = args::from_one)]
    context: Option<u32>,
    /// Seconds that a silent device is waited for before it is asked again; three times in all
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = args::from_one)]
    patience: u32,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Show a device's firmware and model
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dmexp device info qemu:an386 --json")]
pub(crate) struct Info {
    #[command(flatten)]
    chip: Chip,
}

/// Let a device replay the golden vectors of its model file
///
/// A vector is for one type of keys and values: those for another than the device's are passed over, and counted.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  dmexp device self-test qemu:an386 --export stories.dmexp

Exit codes: 0 all vectors give the stored bits; 1 one does not, or none could be replayed.")]
pub(crate) struct SelfTest {
    #[command(flatten)]
    chip: Chip,
}

/// Let a device continue a text, with its own tokenizer and sampler
///
/// The text goes to stdout as it comes, the prompt first; how it ended and what it took go to stderr. The settings are those of dmexp generate, and with the same seed so is the text.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  dmexp device generate qemu:an386 --prompt \"Once upon a time\" --steps 64 --seed 7")]
pub(crate) struct Generate {
    #[command(flatten)]
    chip: Chip,
    /// The text to continue, at most 192 bytes [default: none]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<OsString>,
    /// How many new tokens at most
    #[arg(long, value_name = "N", default_value = "64", value_parser = args::from_one)]
    steps: u32,
    /// Divides the logits: 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value = "0.8", value_parser = args::temperature)]
    temp: f32,
    /// Draws among the likeliest tokens that have more than this share of the probability together; 1 is off
    #[arg(long, value_name = "P", default_value = "0.9", value_parser = args::top_p)]
    top_p: f32,
    /// Draws among this many of the likeliest tokens; 0 is off
    #[arg(long, value_name = "K", default_value = "0", value_parser = args::number)]
    top_k: u32,
    /// Where the random numbers begin [default: another every time]
    #[arg(long, value_name = "N", value_parser = args::seed)]
    seed: Option<u64>,
}

/// Show the memory and the instructions or cycles that a device has used since it started
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  dmexp device stats /dev/ttyACM0")]
pub(crate) struct AskStats {
    #[command(flatten)]
    chip: Chip,
}

/// Runs the command.
pub(crate) fn run(command: &Ask) -> Outcome {
    match command {
        Ask::Info(Info { chip }) => info(chip, &mut chip.open()?),
        Ask::SelfTest(SelfTest { chip }) => self_test(chip, &mut chip.open()?),
        Ask::Generate(command) => generate(command),
        Ask::Stats(AskStats { chip }) => stats(chip, &mut chip.open()?),
    }
}

impl Chip {
    /// Opens the device, whose model must be that of the file, where one is named.
    fn open(&self) -> Outcome<Device> {
        let wanted = match &self.export {
            None => None,
            Some(path) => Some((path, Loaded::open(path)?.file()?.fingerprint())),
        };
        let load = Load { model: self.export.as_deref(), kv: self.kv, context: self.context };
        let silence = Duration::from_secs(self.patience.into());
        let device = device::open(&self.device, &load, Timing { silence, limit: 60 * silence, ..Timing::default() })?;
        let found = device.hello().fingerprint;
        match wanted {
            Some((path, wanted)) if wanted != found => {
                let what = format!("{} has the model with the fingerprint {found:08x}, {} has {wanted:08x}", self.device, shown_path(path));
                Err(Error::mismatch(what).advise("flash it with that file, or name the file that it has").into())
            }
            _ => Ok(device),
        }
    }
}

fn info(chip: &Chip, device: &mut Device) -> Outcome {
    let (hello, model) = (device.hello(), device.facts());
    let kv = model.kv().map_or_else(|| format!("type {}", model.kv), |kv| kv.name().to_owned());
    if chip.json {
        return Ok(json(&json!({
            "device": chip.device.to_string(),
            "firmware": hello.firmware,
            "board": hello.board,
            "fingerprint": format!("{:08x}", hello.fingerprint),
            "dim": model.dim,
            "n_layers": model.n_layers,
            "vocab_size": model.vocab_size,
            "context": model.context,
            "kv": kv,
            "tensors": model.tensors,
            "goldens": model.goldens,
        }))?);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", chip.device)?;
    let rows = [
        ("firmware", shown(&hello.firmware)),
        ("board", shown(&hello.board)),
        ("model", format!("{:08x}", hello.fingerprint)),
        ("dim", grouped(model.dim.into())),
        ("layers", grouped(model.n_layers.into())),
        ("vocabulary", grouped(model.vocab_size.into())),
        ("context", format!("{} with keys and values in {kv}", count(model.context.into(), "position"))),
        ("tensors", grouped(model.tensors.into())),
        ("golden vectors", grouped(model.goldens.into())),
    ];
    facts(&mut out, &rows)?;
    Ok(out.flush()?)
}

fn self_test(chip: &Chip, device: &mut Device) -> Outcome {
    let vectors = device.facts().goldens;
    if vectors == 0 {
        let advice = "give an emulated board a file with --export; firmware tells the probe of the vectors of its file (About::goldens)";
        return Err(request(format!("{} has no golden vectors", chip.device), advice));
    }
    let (mut tested, mut lines) = (Vec::new(), Vec::new());
    let (mut replayed, mut wrong) = (0, 0);
    for vector in 0..vectors {
        let found = device.self_test(vector)?;
        let (result, line) = match found {
            None => ("other_kv", "passed over: for keys and values of another type".to_owned()),
            Some(found) => {
                replayed += 1;
                let positions = count(found.positions.into(), "position");
                match found.wrong {
                    None => ("same", format!("{positions} with the stored bits")),
                    Some((position, stored, computed)) => {
                        wrong += 1;
                        (
                            "differs",
                            format!("DIFFERS at position {position} of {positions}: {stored:08x} is stored, {computed:08x} computed"),
                        )
                    }
                }
            }
        };
        tested.push(json!({
            "vector": vector,
            "result": result,
            "positions": found.map(|found| found.positions),
            "wrong": found.and_then(|found| found.wrong).map(|(position, stored, computed)| json!({
                "position": position, "stored": format!("{stored:08x}"), "computed": format!("{computed:08x}"),
            })),
        }));
        lines.push(format!("vector {vector}: {line}"));
    }
    if replayed == 0 {
        let what = format!("{} has {}, all for keys and values of another type", chip.device, count(vectors.into(), "golden vector"));
        return Err(request(what, "choose another --kv"));
    }
    if chip.json {
        json(&json!({ "device": chip.device.to_string(), "passed": wrong == 0, "vectors": tested }))?;
    } else {
        let mut out = io::stdout().lock();
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        writeln!(out, "self-test of {}: {}", chip.device, if wrong == 0 { "passed" } else { "FAILED" })?;
        out.flush()?;
    }
    if wrong == 0 { Ok(()) } else { Err(Failure::FoundWrong) }
}

fn generate(command: &Generate) -> Outcome {
    let Generate { chip, steps, temp, top_p, top_k, .. } = command;
    let seed = command.seed.unwrap_or_else(any_seed);
    let settings = Settings { temperature: *temp, top_p: *top_p, top_k: *top_k, seed, ..Settings::GREEDY };
    let prompt = command.prompt.as_deref().map_or_else(|| Ok(Vec::new()), args::bytes_of)?;
    let mut device = chip.open()?;
    let before = device.stats()?;

    let mut text = Text::new(chip.json, stop_strings(&[])?);
    text.prompt(&prompt)?;
    let mut failed = None;
    let found = device.generate(&prompt, settings, *steps, &mut |piece| {
        text.push(piece).map(drop).map_err(|error| {
            failed = Some(error);
            Error::new(Class::Cancelled, "the output takes no more")
        })
    });
    // A line that was begun is ended, whatever happened.
    let ended = text.end();
    if let Some(error) = failed {
        return Err(error.into());
    }
    let found = found?;
    ended?;
    let used = device.stats()?;
    let stopped = match found.stopped {
        None => "max_tokens",
        Some(Stopped::EndOfText) => "end_of_text",
        Some(Stopped::ContextFull) => "context_full",
    };
    if chip.json {
        return Ok(json(&json!({
            "device": chip.device.to_string(),
            "prompt": String::from_utf8_lossy(&prompt),
            "prompt_tokens": found.prompt_tokens,
            "tokens": found.tokens,
            "text": String::from_utf8_lossy(&found.text),
            "stop": stopped,
            "settings": { "temp": float(settings.temperature), "top_p": float(settings.top_p), "top_k": settings.top_k, "seed": seed },
            "stats": stats_json(&used, Some(&before)),
        }))?);
    }
    let why = match found.stopped {
        None => "as many as asked for",
        Some(Stopped::EndOfText) => "the model ended the text",
        Some(Stopped::ContextFull) => "all positions of the context are used",
    };
    note(format_args!("seed: {seed}; {}; stopped: {why}", count(found.tokens.len() as u64, "new token")));
    note(format_args!("{}", stats_line(&used, Some(&before))));
    Ok(())
}

fn stats(chip: &Chip, device: &mut Device) -> Outcome {
    let used = device.stats()?;
    if chip.json {
        return Ok(json(&json!({ "device": chip.device.to_string(), "stats": stats_json(&used, None) }))?);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}: {}", chip.device, stats_line(&used, None))?;
    Ok(out.flush()?)
}

/// What was counted, since `before` where there is one; a counter that started anew in between says nothing.
fn ticks(stats: &Stats, before: Option<&Stats>) -> Option<(&'static str, u64)> {
    let (kind, now) = stats.ticks?;
    let name = match kind {
        Ticks::Instructions => "instructions",
        Ticks::Cycles => "cycles",
    };
    let then = before.and_then(|before| before.ticks).map_or(0, |(_, then)| then);
    Some((name, now.checked_sub(then)?))
}

fn stats_json(stats: &Stats, before: Option<&Stats>) -> Value {
    let counted = ticks(stats, before);
    json!({
        "ticks": counted.map(|(_, number)| number),
        "ticks_of": counted.map(|(name, _)| name),
        "stack_bytes": stats.stack,
        "arena_bytes": stats.arena,
    })
}

fn stats_line(stats: &Stats, before: Option<&Stats>) -> String {
    let counted =
        ticks(stats, before).map_or_else(|| "nothing is counted".to_owned(), |(name, number)| format!("{} {name}", grouped(number)));
    let stack = stats.stack.map_or_else(|| "stack not known".to_owned(), |stack| format!("stack {} bytes", grouped(stack.into())));
    format!("{counted}; {stack}; arena {} bytes", grouped(stats.arena.into()))
}
