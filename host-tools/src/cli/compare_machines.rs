//! `dmexp compare --export M --device D`: whether a device, or another file, computes what the reference does.

use super::args;
use super::compare_report::{Report, print, report_json};
use super::failure::{Failure, Outcome, request};
use super::model::{ModelArgs, Opened, encode, known, needed};
use super::output::json;
use super::run_on::{Processor, RunOn, gpu_name};
use super::signals::{cancel_flag, one_is_a_result};
use clap::Args;
use dmexp_tools::compare::heat;
use dmexp_tools::compare::machines::{Play, continued, play};
use dmexp_tools::compare::side::{Host, Remote, Side};
use dmexp_tools::compare::transcript::{self, Transcript};
use dmexp_tools::compare::verdict::{Names, verdict};
use dmexp_tools::decode::Cpu;
use dmexp_tools::device::{self, Load, Name, Timing};
use dmexp_tools::error::{Class, Error, shown_path};
use dmexp_tools::input::{self, TEXT_LIMIT};
use dmexp_tools::target::Target;
use indicatif::{ProgressBar, ProgressDrawTarget};
use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a side runs on.
#[derive(Clone, Debug)]
enum Machine {
    Processor(Processor),
    Device(Name),
}

impl Machine {
    fn is_gpu(&self) -> bool {
        matches!(self, Self::Processor(Processor::Cuda(_)))
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processor(processor) => processor.fmt(f),
            Self::Device(name) => name.fmt(f),
        }
    }
}

fn machine(text: &str) -> Result<Machine, String> {
    match Processor::named(text) {
        Some(processor) => processor.map(Machine::Processor),
        None => Name::parse(text).map(Machine::Device),
    }
}

/// What is compared.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Machines {
    /// The machine in question: qemu:BOARD or qemu:BOARD:FIRMWARE.elf, which is started and given the file; a serial port with a board that was flashed, as /dev/ttyACM0 or /dev/ttyUSB0:115200; cpu; or a GPU: cuda or cuda:NUMBER
    #[arg(long, value_name = "DEVICE", value_parser = machine)]
    device: Machine,
    /// What it is compared with: cpu, a GPU (cuda), or another device
    #[arg(long, value_name = "DEVICE", value_parser = machine, default_value = "cpu", conflicts_with = "replay")]
    reference: Machine,
    /// The file that the reference runs, where it is another
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    reference_export: Option<PathBuf>,
    /// Compares with a transcript of a device instead
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Writes a transcript of what the device computes
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Asks for the model inside an emulated board's firmware, and does not load the file
    #[arg(long)]
    flashed: bool,
    /// Plays the tokens of this file's text
    #[arg(long, value_name = "FILE", group = "what")]
    text: Option<PathBuf>,
    /// Plays this text, and what the reference makes of it, up to --positions tokens
    #[arg(long, value_name = "TEXT", group = "what", allow_hyphen_values = true)]
    prompt: Option<OsString>,
    /// Plays these tokens: ids with commas or spaces between them; - is stdin
    #[arg(long, value_name = "IDS", group = "what", allow_hyphen_values = true)]
    tokens: Option<OsString>,
    /// How many positions are played at most
    #[arg(long, value_name = "N", default_value = "64", value_parser = args::from_one)]
    positions: u32,
    /// How many tokens both sides continue the text by at most, each by its own choice; 0 for none
    #[arg(long, value_name = "N", default_value = "32", value_parser = args::number)]
    greedy: u32,
    /// Compares the residual stream after every layer of every position, not only where the logits differ first
    #[arg(long)]
    trace: bool,
    /// Draws how far apart the sides are, by position and layer; implies --trace
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Seconds that a silent device is waited for before it is asked again; three times in all
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = args::from_one)]
    patience: u32,
    /// Prints JSON
    #[arg(long)]
    json: bool,
    /// Shows no progress
    #[arg(long)]
    quiet: bool,
}

/// Runs the command: what keeps it from comparing is another exit code than a difference.
pub(crate) fn run(model: &ModelArgs, command: &Machines) -> Outcome {
    one_is_a_result();
    compare(model, command).map_err(|failure| match failure {
        Failure::Told(error) if error.class() != Class::Cancelled => Failure::NotCompared(error),
        Failure::Output(error) if error.kind() != ErrorKind::BrokenPipe => {
            Failure::NotCompared(Error::new(Class::Unwritable, format!("the output cannot be written: {error}")))
        }
        other => other,
    })
}

fn compare(args: &ModelArgs, command: &Machines) -> Outcome {
    let opened = args.open()?;
    // A GPU has room for one side of a file: a second one opens it anew.
    let again = command.replay.is_none() && [&command.device, &command.reference].iter().all(|side| side.is_gpu());
    let reference_path = command.reference_export.as_deref().or_else(|| again.then_some(args.export.as_path()));
    let reference_opened = reference_path.map(|path| Opened::open(path, args.tokenizer.as_deref())).transpose()?;
    let reference_file = reference_opened.as_ref().unwrap_or(&opened);
    let targets = Targets::new(args, command)?;

    let (mut cpu, mut reference_cpu) = (None, None);
    let mut device = side(args, command, &command.device, &opened, &mut cpu)?;
    let mut replay = command.replay.as_deref().map(Transcript::open).transpose()?;
    let recorded = replay.as_ref().map(Transcript::tokens);
    let mut reference_side;
    let reference: &mut dyn Side = if let Some(replay) = &mut replay {
        same_model(replay, reference_file)?;
        replay
    } else {
        reference_side = side(args, command, &command.reference, reference_file, &mut reference_cpu)?;
        reference_side.as_mut()
    };

    let tokens = tokens(command, &opened, reference, recorded)?;
    let is_dormouse = opened.loaded.model()?.network().dormouse().is_some();
    let wanted = Play {
        part: if is_dormouse { "iteration" } else { "layer" },
        tokens: &tokens.tokens,
        greedy: (tokens.prompt, command.greedy),
        trace: command.trace || command.svg.is_some() || command.record.is_some(),
        keep: command.record.is_some(),
    };
    let cancel = cancel_flag()?;
    let hidden = command.quiet || command.json;
    let bar = ProgressBar::with_draw_target(None, if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() });
    let found = play([reference, device.as_mut()], &wanted, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
        if cancel.load(Ordering::Relaxed) { Err(Error::new(Class::Cancelled, "stopped")) } else { Ok(()) }
    });
    bar.finish_and_clear();
    let found = found?;
    std::iter::once(&opened).chain(&reference_opened).try_for_each(|opened| opened.loaded.unchanged())?;

    let file = opened.loaded.file()?;
    let tensor = |number: u32| file.tensor_name(number).map_or_else(|| format!("tensor {number}"), str::to_owned);
    let (reference_about, about) = (reference.about(), device.about());
    let one_file = reference_about.fingerprint == about.fingerprint;
    let names = distinct(reference_about.name.clone(), about.name.clone());
    let sentence = verdict(&found, Names { reference: &names[0], device: &names[1], one_file }, &tensor);
    if let Some(target) = &targets.record {
        target.write(|out| transcript::write(out, about, &found.kept).map_err(|error| target.failed(error)))?;
    }
    if let Some(target) = &targets.svg {
        let image = heat::svg(&found, [&names[0], &names[1]])?;
        target.write(|out| out.write_all(image.as_bytes()).map_err(|error| target.failed(error)))?;
    }
    let tokenizer = opened.tokenizer().ok();
    let report = Report { found: &found, about: [reference_about, about], names: &names, tokenizer, tensor: &tensor, verdict: &sentence };
    if command.json {
        json(&report_json(&report, &args.export))?;
    } else {
        print(&report)?;
    }
    if found.is_same() { Ok(()) } else { Err(Failure::FoundWrong) }
}

/// Where files go, looked at before any work is done.
struct Targets {
    record: Option<Target>,
    svg: Option<Target>,
}

impl Targets {
    fn new(model: &ModelArgs, command: &Machines) -> Outcome<Self> {
        let read = [&command.reference_export, &command.replay, &command.text].into_iter().flatten().map(PathBuf::as_path);
        let sources: Vec<&Path> = model.files().chain(read).collect();
        let target = |path: &Option<PathBuf>| path.as_deref().map(|path| Target::new(path, sources.iter().copied())).transpose();
        let targets = Self { record: target(&command.record)?, svg: target(&command.svg)? };
        match (&targets.record, &targets.svg) {
            (Some(record), Some(svg)) if record.is_that_of(svg) => Err(request("--record and --svg name one file", "name two")),
            _ => Ok(targets),
        }
    }
}

/// Two names that tell the sides apart.
fn distinct(reference: String, device: String) -> [String; 2] {
    if reference == device { [format!("{reference} as the reference"), device] } else { [reference, device] }
}

/// A side, ready to play. `cpu` holds the memory of one that is this machine.
fn side<'s, 'o: 's>(
    args: &ModelArgs,
    command: &Machines,
    machine: &Machine,
    opened: &'o Opened,
    cpu: &'s mut Option<Cpu<'o>>,
) -> Outcome<Box<dyn Side + 's>> {
    match machine {
        Machine::Processor(Processor::Cpu) => {
            let cpu = cpu.insert(args.cpu(opened, RunOn::default())?);
            Ok(Box::new(Host::new(&opened.loaded, cpu)?))
        }
        Machine::Processor(gpu @ Processor::Cuda(number)) => {
            let cpu = cpu.insert(args.cpu(opened, RunOn::cuda(*number))?);
            let name = gpu_name(opened).map_or_else(|| gpu.to_string(), |name| format!("{gpu} ({name})"));
            Ok(Box::new(Host::elsewhere(&opened.loaded, cpu, name)?))
        }
        Machine::Device(name) => {
            let model = if command.flashed { None } else { Some(opened.loaded.path()) };
            args.dormouse.fits_device(matches!(name, Name::Emulated { .. }) && model.is_some())?;
            let silence = Duration::from_secs(command.patience.into());
            let timing = Timing { silence, limit: 60 * silence, ..Timing::default() };
            let load = Load { model, kv: args.kv, context: args.context };
            let remote = Remote::new(name.to_string(), device::open(name, &load, timing)?)?;
            same_model(&remote, opened)?;
            Ok(Box::new(remote))
        }
    }
}

/// Refuses a device that has another model than the file: their difference would say nothing.
fn same_model(side: &dyn Side, opened: &Opened) -> Outcome {
    let (found, wanted) = (side.about().fingerprint, opened.loaded.file()?.fingerprint());
    if found == wanted {
        return Ok(());
    }
    let path = shown_path(opened.loaded.path());
    let what = format!("{} has the model with the fingerprint {found:08x}, {path} has {wanted:08x}", side.about().name);
    Err(Error::mismatch(what).advise("flash it with that file, or name the file that it has").into())
}

/// What is played: tokens, and how many of them are the prompt of the greedy texts.
struct Tokens {
    tokens: Vec<u32>,
    prompt: usize,
}

/// Tokens of a text that both sides continue by their own choice.
const PROMPT: usize = 8;

fn tokens(command: &Machines, opened: &Opened, reference: &mut dyn Side, recorded: Option<Vec<u32>>) -> Outcome<Tokens> {
    let most = command.positions as usize;
    let model = opened.loaded.model()?;
    let of_text = |text: &[u8]| {
        let tokenizer = opened.tokenizer()?;
        needed(&tokenizer, opened.loaded.path())?;
        encode(&tokenizer, text, true)
    };
    let mut tokens = match (&command.text, &command.prompt, &command.tokens, recorded) {
        (Some(path), ..) => of_text(&input::read(path, TEXT_LIMIT)?)?,
        (_, Some(prompt), ..) => of_text(&args::text_or_stdin(prompt)?)?,
        (_, _, Some(tokens), _) => args::tokens_or_stdin(tokens)?,
        (.., Some(recorded)) => recorded,
        _ => return Err(request("there is nothing to play", "name a text: --prompt, --text, or --tokens")),
    };
    known(&tokens, model.network().vocab_size())?;
    let prompt = if command.prompt.is_some() { tokens.len() } else { PROMPT.min(tokens.len()) };
    tokens.truncate(most);
    if command.prompt.is_some() && reference.is_free() && tokens.len() < most {
        let more = (most - tokens.len()) as u32;
        tokens.extend(continued(reference, &tokens, more)?);
        tokens.truncate(reference.about().context as usize);
    }
    Ok(Tokens { prompt: prompt.min(tokens.len()), tokens })
}
