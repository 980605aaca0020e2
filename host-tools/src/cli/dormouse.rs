//! Where `dmexp export run` finds a checkpoint, and what dormouse's checkpoints take besides.

use super::failure::{Outcome, request};
use clap::Args;
use dmexp_tools::checkpoint::{self, Checkpoint, DormouseConfig, dormouse};
use std::path::{Path, PathBuf};

/// The checkpoint, by its path or by folder and name as dormouse has it.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct SourceArgs {
    /// The training checkpoint: a file, or the folder of a Hugging Face model or of Meta's
    #[arg(long, value_name = "PATH", conflicts_with_all = ["ckpt_dir", "ckpt_name"])]
    checkpoint: Option<PathBuf>,
    /// The folder of dormouse's checkpoints [default: checkpoints]
    #[arg(long, value_name = "FOLDER")]
    ckpt_dir: Option<PathBuf>,
    /// The name of dormouse's checkpoint, without .bin [default: latest]
    #[arg(long, value_name = "NAME")]
    ckpt_name: Option<String>,
}

impl SourceArgs {
    /// The checkpoint.
    pub(crate) fn path(&self) -> PathBuf {
        self.checkpoint.clone().unwrap_or_else(|| self.named(".bin"))
    }

    /// What the name of the export begins with.
    pub(crate) fn stem(&self) -> PathBuf {
        match &self.checkpoint {
            // A folder's name has no extension, whatever dots are in it.
            Some(path) if path.is_dir() => path.file_name().unwrap_or_else(|| "model".as_ref()).into(),
            Some(path) => path.file_stem().unwrap_or_else(|| "model".as_ref()).into(),
            None => self.named(""),
        }
    }

    fn named(&self, extension: &str) -> PathBuf {
        let folder = self.ckpt_dir.as_deref().unwrap_or_else(|| Path::new("checkpoints"));
        folder.join(format!("{}{extension}", self.ckpt_name.as_deref().unwrap_or("latest")))
    }
}

/// What only dormouse's models take.
#[derive(Debug, Args)]
pub(crate) struct DormouseArgs {
    /// A dormouse checkpoint without a .config.toml: the preset that it was trained with (small, nano, base, p150, plain9m, mor)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["arch", "onto"])]
    preset: Option<String>,
    /// With a preset, or with small if none is named: a value of the model's configuration; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with_all = ["arch", "onto"])]
    set: Vec<String>,
    /// Leaves out the tensors of a dormouse model that inference never reads (dormouse itself does not load such a file)
    #[arg(long)]
    strip: bool,
    /// Writes the ternary factors of a dormouse model as their codes: the same function, which narrowing then leaves as it is
    #[arg(long)]
    canonical: bool,
    /// What the recurrence of a dormouse model was trained with, recorded in format 2 [default: 1 for models of before 2026-10-02, else 1 / sqrt of the head's width]
    #[arg(long, value_name = "X", value_parser = super::dormouse_run::scale, allow_negative_numbers = true)]
    kda_scale: Option<f32>,
}

impl DormouseArgs {
    /// Opens the checkpoint.
    pub(crate) fn open(&self, path: &Path) -> Outcome<Checkpoint> {
        if self.preset.is_none() && self.set.is_empty() {
            return Ok(checkpoint::open(path)?);
        }
        let config = DormouseConfig::from_preset(self.preset.as_deref().unwrap_or("small"), &self.set)?;
        Ok(dormouse::open_as(path, config)?)
    }

    /// Whether format 1 can hold what was asked for.
    pub(crate) fn fits_format_1(&self) -> Outcome {
        if self.kda_scale.is_some() {
            return Err(request("format 1 does not record --kda-scale", "name it when the file is run, or export --format 2"));
        }
        Ok(())
    }

    /// Does what was asked for with the tensors.
    pub(crate) fn change(&self, checkpoint: &mut Checkpoint) -> Outcome {
        if self.strip {
            let dropped = checkpoint.strip_unread()?;
            checkpoint
                .notes
                .push(format!("{dropped} tensors that inference never reads were left out: dormouse itself does not load this file"));
        }
        if let Some(scale) = self.kda_scale {
            checkpoint.set_kda_scale(scale)?;
        }
        if self.canonical {
            let layers = checkpoint.canonical_factors()?;
            checkpoint.notes.push(format!("the factors of {layers} layers are written as their ternary codes"));
        }
        Ok(())
    }
}
