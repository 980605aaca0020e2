//! `dmexp predict`: numbers through a small network.

use super::failure::{Outcome, request};
use super::output::{json, shown};
use clap::Args;
use dmexp::format::arch::sequential::{Op, Usage};
use dmexp::{Prediction, Predictor};
use dmexp_tools::decode::Loaded;
use dmexp_tools::error::{Class, Error, shown_path};
use dmexp_tools::input::{self, NUMBERS_LIMIT};
use dmexp_tools::predict::{self, Tensor};
use dmexp_tools::target::Target;
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

/// Classes that are named of one row.
const SHOWN: usize = 3;

/// Run a small network on numbers
///
/// For sequential models (dmexp export run --arch). The results have the bits that a chip computes. Inputs have the shape of the model, or that shape behind a batch axis. Of .csv a line is a sample, or as many lines as a sample has rows; of recurrent models all lines up to an empty one are a sample. A model with several inputs takes JSON: a list of {"shape": [..], "data": [..]}, one for each.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp predict --export kws.dmexp --input word.npy
  dmexp predict --export mlp.dmexp --input rows.csv --out results.csv
  dmexp predict --export graph.dmexp --input both.json --json
  sensor | dmexp predict --export lstm.dmexp --watch")]
pub(crate) struct Predict {
    /// The .dmexp file of a sequential model
    #[arg(long, value_name = "FILE")]
    export: PathBuf,
    /// The numbers: .npy, .csv or .json; - is JSON or CSV from stdin
    #[arg(long, value_name = "FILE", required_unless_present = "watch")]
    input: Option<PathBuf>,
    /// Reads stdin line by line and prints the result after each. Recurrent models take one step a line and keep their state; others take one sample a line
    #[arg(long, conflicts_with_all = ["input", "out"])]
    watch: bool,
    /// The file to write: .npy, .csv or .json
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Prints JSON: {"outputs": [{"shape": [..], "data": [..]}]}
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(command: &Predict) -> Outcome {
    let loaded = Loaded::open(&command.export)?;
    let predictor = predict::predictor(&loaded)?;
    // These files are small, and a damaged weight gives numbers that look like others.
    loaded.file()?.verify_payload().map_err(|error| loaded.explain(error))?;
    let Some(input) = &command.input else { return watch(command, &loaded, predictor) };
    let to = match &command.out {
        None => None,
        Some(out) => Some((Kind::of(out)?, Target::new(out, [command.export.as_path(), input.as_path()])?)),
    };
    let inputs = read(input, &predictor)?;
    let outputs = predict::predict(&predictor, &inputs).map_err(|error| named(error, input))?;
    loaded.unchanged()?;
    if let Some((kind, target)) = to {
        let bytes = kind.bytes(&predictor, &outputs)?;
        target.write(|out| out.write_all(&bytes).map_err(|error| target.failed(error)))?;
    }
    if command.json {
        return Ok(json(&as_json(&predictor, &outputs))?);
    }
    if command.out.is_none() {
        let mut out = io::stdout().lock();
        print(&mut out, &predictor, &outputs)?;
        out.flush()?;
    }
    Ok(())
}

/// How numbers are written, by the ending of the file's name.
#[derive(Clone, Copy)]
enum Kind {
    Npy,
    Csv,
    Json,
}

impl Kind {
    fn of(path: &Path) -> Outcome<Self> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            Some("npy") => Ok(Self::Npy),
            Some("csv" | "tsv" | "txt") => Ok(Self::Csv),
            Some("json") => Ok(Self::Json),
            _ => Err(request(format!("{}: the ending says no format", shown_path(path)), "name a file that ends in .npy, .csv or .json")),
        }
    }

    fn bytes(self, predictor: &Predictor<'_>, outputs: &[Tensor]) -> Outcome<Vec<u8>> {
        match (self, outputs) {
            (Self::Json, outputs) => Ok(format!("{:#}\n", as_json(predictor, outputs)).into_bytes()),
            (Self::Npy, [one]) => Ok(predict::write_npy(one)),
            (Self::Csv, [one]) => Ok(predict::write_csv(one).into_bytes()),
            (_, several) => {
                Err(request(format!("the model has {} outputs, and this format holds one array", several.len()), "write .json"))
            }
        }
    }
}

fn named(error: Error, path: &Path) -> Error {
    if error.path().as_os_str().is_empty() { error.in_file(path) } else { error }
}

fn read(path: &Path, predictor: &Predictor<'_>) -> Outcome<Vec<Tensor>> {
    let (kind, bytes) = if path.as_os_str() == "-" {
        let bytes = input::all_of(io::stdin().lock(), Path::new("stdin"), NUMBERS_LIMIT)?;
        let first = bytes.iter().copied().find(|byte| !byte.is_ascii_whitespace());
        (if matches!(first, Some(b'[' | b'{')) { Kind::Json } else { Kind::Csv }, bytes)
    } else {
        (Kind::of(path)?, input::read(path, NUMBERS_LIMIT)?)
    };
    let text = || {
        std::str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes)).map_err(|_| Error::damaged("is not text").in_file(path))
    };
    let inputs = match kind {
        Kind::Json => predict::read_json(text()?),
        Kind::Npy => predict::read_npy(&bytes).map(|(tensor, note)| {
            if let Some(note) = note {
                // If stderr is closed, nobody is left to tell.
                let _ = writeln!(io::stderr(), "note: {}: {note}", shown_path(path));
            }
            vec![tensor]
        }),
        Kind::Csv => match (predictor.input_shape(0), predictor.input_shape(1)) {
            (Some(shape), None) => predict::read_csv(text()?, shape, predict::length_is_free(predictor)).map(|tensor| vec![tensor]),
            _ => {
                return Err(request(
                    format!("the model takes {} inputs, and lines of numbers are one", predictor.num_inputs()),
                    "give JSON",
                ));
            }
        },
    };
    Ok(inputs.map_err(|error| named(error, path))?)
}

/// What the elements of the first output mean, where it is one list of classes.
fn classes(predictor: &Predictor<'_>) -> Vec<String> {
    let is_list = predictor.output_shape(0).is_some_and(|shape| shape.rank() == 1);
    if is_list { (0..).map_while(|number| predictor.label(number)).map(str::to_owned).collect() } else { Vec::new() }
}

/// The classes with their values, the largest first, ties in their order.
fn ranked<'c>(classes: &'c [String], row: &[f32]) -> Vec<(&'c str, f32)> {
    let mut ranked: Vec<_> = classes.iter().map(String::as_str).zip(row.iter().copied()).collect();
    ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    ranked
}

fn rows(output: &Tensor) -> impl Iterator<Item = &[f32]> {
    let count = output.shape.first().copied().unwrap_or(1).max(1);
    output.data.chunks((output.data.len() / count).max(1))
}

fn as_json(predictor: &Predictor<'_>, outputs: &[Tensor]) -> Value {
    let mut value = predict::write_json(outputs);
    let classes = classes(predictor);
    if let (false, Some(first)) = (classes.is_empty(), outputs.first()) {
        let best = rows(first).filter_map(|row| ranked(&classes, row).first().map(|(class, _)| json!(class)));
        value["classes"] = best.collect();
    }
    value
}

fn print(out: &mut impl Write, predictor: &Predictor<'_>, outputs: &[Tensor]) -> io::Result<()> {
    let classes = classes(predictor);
    for (number, output) in outputs.iter().enumerate() {
        if outputs.len() > 1 {
            writeln!(out, "output {number}, {}:", predict::shown(&output.shape))?;
        }
        if number == 0 && !classes.is_empty() {
            for row in rows(output) {
                let best: Vec<_> =
                    ranked(&classes, row).iter().take(SHOWN).map(|(class, value)| format!("{} {value}", shown(class))).collect();
                writeln!(out, "{}", best.join(", "))?;
            }
        } else {
            write!(out, "{}", predict::write_csv(output))?;
        }
    }
    Ok(())
}

/// A result after each line of stdin.
fn watch(command: &Predict, loaded: &Loaded, predictor: Predictor<'_>) -> Outcome {
    if predictor.num_inputs() != 1 {
        return Err(request(
            format!("the model takes {} inputs, and a line of numbers is one", predictor.num_inputs()),
            "use --input with JSON",
        ));
    }
    let recurrent = predict::has(loaded, |op| matches!(op, Op::SimpleRnn | Op::Lstm | Op::Gru))?;
    let predictor = predictor.with_usage(Usage { streaming: recurrent, ..Usage::default() });
    let refused = |error: dmexp::format::Error| match error {
        dmexp::format::Error::CannotStream { layer } if layer < u32::MAX => {
            let op = loaded.file().ok().and_then(|file| file.sequential().ok()?.layer(layer)).map_or(Op::Identity, |layer| layer.op);
            let what = format!("layer {layer} ({op:?}) needs the whole sequence, so the model cannot take it step by step");
            Error::new(Class::Request, what).advise("use --input").in_file(&command.export)
        }
        error => loaded.explain(error),
    };
    let mut memory = vec![0u32; predictor.arena_len().map_err(refused)?.div_ceil(4)];
    let mut prediction = Prediction::new(predictor, memory.as_mut_slice()).map_err(refused)?;
    let mut out = io::stdout().lock();
    for (number, line) in (1..).zip(io::stdin().lock().lines()) {
        let line = line.map_err(|error| Error::unreadable(Path::new("stdin"), error))?;
        let Some(values) = predict::csv_line(number, &line)? else { continue };
        let input = prediction.input_mut(0);
        if values.len() != input.len() {
            let what = format!("has {} numbers; a {} is {}", values.len(), if recurrent { "step" } else { "sample" }, input.len());
            return Err(Error::mismatch(what).at(format!("line {number}")).into());
        }
        input.copy_from_slice(&values);
        prediction.run().map_err(|error| Error::from(error).at(format!("line {number}")))?;
        let outputs: Vec<Tensor> = (0..)
            .map_while(|output| {
                let shape = prediction.output_shape(output)?;
                let sizes = shape.as_slice().iter().map(|size| *size as usize);
                Some(Tensor { shape: std::iter::once(1).chain(sizes).collect(), data: prediction.output(output).to_vec() })
            })
            .collect();
        if command.json {
            writeln!(out, "{}", as_json(prediction.predictor(), &outputs))?;
        } else {
            print(&mut out, prediction.predictor(), &outputs)?;
        }
        out.flush()?;
    }
    Ok(())
}
