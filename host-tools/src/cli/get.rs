//! `dmexp export get`: a weight by its path.

use super::failure::Outcome;
use super::output::{float, json, table};
use clap::Args;
use dmexp_tools::decode::Loaded;
use dmexp_tools::predict::{Tensor, shown, write_csv, write_npy};
use dmexp_tools::target::Target;
use dmexp_tools::weights::{WeightInfo, weight, weight_paths};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// Show a weight of a .dmexp file, or list all of them
///
/// The array has the shape and the order that its source has: of a sequential model those of RustyML, kernels with the inputs first. Weights stored in fewer bits are widened. Without a path, lists paths and shapes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp export get kws.dmexp
  dmexp export get kws.dmexp 0.kernel --npy kernel.npy
  dmexp export get kws.dmexp 8.bias --json")]
pub(crate) struct Get {
    /// The .dmexp file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The weight: the layer's number and the array's name; of other models the tensor's name
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// Writes the array as a file that numpy.load reads
    #[arg(long, value_name = "FILE", requires = "path")]
    npy: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(command: &Get) -> Outcome {
    let loaded = Loaded::open(&command.file)?;
    let Some(path) = &command.path else {
        let all = weight_paths(&loaded)?;
        if command.json {
            return Ok(json(&all.iter().map(as_json).collect())?);
        }
        let rows = all.iter().map(|info| [info.path.clone(), shape(info), info.dtype.to_string(), kind(info).to_owned()]);
        writeln!(io::stdout(), "{}", table(["path", "shape", "stored as", "kind"], &[], rows))?;
        return Ok(());
    };
    let (info, data) = weight(&loaded, path)?;
    loaded.unchanged()?;
    let tensor = Tensor::new(info.shape.iter().map(|size| *size as usize).collect(), data)?;
    if let Some(npy) = &command.npy {
        let target = Target::new(npy, [command.file.as_path()])?;
        target.write(|out| out.write_all(&write_npy(&tensor)).map_err(|error| target.failed(error)))?;
    }
    if command.json {
        let mut value = as_json(&info);
        value["data"] = tensor.data.iter().map(|number| float(*number)).collect();
        return Ok(json(&value)?);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{path}: {}, stored as {}, {}", shape(&info), info.dtype, kind(&info))?;
    if command.npy.is_none() {
        // A line for each row of the last axis.
        let columns = tensor.shape.last().copied().unwrap_or(1).max(1);
        let rows = tensor.data.len() / columns;
        write!(out, "{}", write_csv(&Tensor { shape: vec![rows, columns], data: tensor.data }))?;
    }
    out.flush()?;
    Ok(())
}

fn shape(info: &WeightInfo) -> String {
    shown(&info.shape.iter().map(|size| *size as usize).collect::<Vec<_>>())
}

const fn kind(info: &WeightInfo) -> &'static str {
    if info.trainable { "trainable" } else { "not trainable" }
}

fn as_json(info: &WeightInfo) -> Value {
    json!({ "path": info.path, "shape": info.shape, "dtype": info.dtype.name(), "trainable": info.trainable })
}
