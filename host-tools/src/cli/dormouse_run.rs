//! What commands that run a model take for models of dormouse alone.

use super::failure::{Outcome, request};
use super::output::float;
use clap::Args;
use dmexp::Model;
use dmexp::models::dormouse::Factors;
use dmexp_format::arch::dormouse::Attention;
use dmexp_format::layout::Decoding;
use dmexp_tools::decode::DormouseOptions;
use serde_json::{Value, json};

/// What a file of dormouse does not say, and how it is decoded.
#[derive(Debug, Default, Args)]
pub(crate) struct DormouseRunArgs {
    /// dormouse models: how bytes before the last are treated. exact gives the bits of full, which computes everything again for every byte; fast never goes back, which is an approximation
    /// [default: exact]
    #[arg(long, value_name = "MODE", value_parser = decoding)]
    decoding: Option<Decoding>,
    /// dormouse models: what the recurrence's results are multiplied by, which their files do not say [default: 1 for files of before 2026-10-02, else 1 / sqrt of the head's width]
    #[arg(long, value_name = "X", value_parser = scale, allow_negative_numbers = true)]
    kda_scale: Option<f32>,
    /// dormouse models: ternary factors as dormouse's generate takes them, raw, or those of the experts as training in fp8 had them [default: ternary]
    #[arg(long, value_name = "ternary|raw|fp8", value_parser = factors)]
    factors: Option<Factors>,
}

impl DormouseRunArgs {
    /// For the library.
    pub(crate) fn options(&self) -> DormouseOptions {
        DormouseOptions { decoding: self.decoding, kda_scale: self.kda_scale, factors: self.factors }
    }

    /// Refuses what a device would not do as well, and would be blamed for; `is_loaded` where it is given the file.
    pub(crate) fn fits_device(&self, is_loaded: bool) -> Outcome {
        if self.kda_scale.is_some() || self.factors.is_some() {
            let advice = "leave them out; dmexp export run --format 2 --kda-scale records the scale";
            return Err(request("a device is not told --kda-scale or --factors: it takes both as its file has them", advice));
        }
        if is_loaded && self.decoding == Some(Decoding::Fast) {
            let advice = "leave --decoding fast out, or ask with --flashed for a model that firmware has inside";
            return Err(request("a file in an emulated board's memory is decoded exactly", advice));
        }
        Ok(())
    }
}

/// What a model of dormouse is run with, in a line; `None` for other models.
pub(crate) fn settings(model: &Model<'_>) -> Option<String> {
    let network = model.network().dormouse()?;
    let scale = match (network.config().attention, network.kda_scale_is_recorded()) {
        (Attention::Kda, true) => format!("; kda scale: {}", network.kda_scale()),
        (Attention::Kda, false) => format!("; kda scale: {} (the file does not say; --kda-scale changes it)", network.kda_scale()),
        _ => String::new(),
    };
    Some(format!("decoding: {}; factors: {}{scale}", model.decoding().name(), name(network.factors())))
}

/// The same as JSON; null for other models.
pub(crate) fn settings_json(model: &Model<'_>) -> Value {
    model.network().dormouse().map_or(Value::Null, |network| {
        json!({
            "decoding": model.decoding().name(),
            "factors": name(network.factors()),
            "kda_scale": float(network.kda_scale()),
            "kda_scale_recorded": network.kda_scale_is_recorded(),
        })
    })
}

fn decoding(text: &str) -> Result<Decoding, String> {
    let known = [Decoding::Exact, Decoding::Full, Decoding::Fast];
    known.into_iter().find(|known| known.name() == text).ok_or_else(|| "the modes are exact, full and fast".to_owned())
}

pub(super) fn scale(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(scale) if scale.is_finite() && scale > 0.0 => Ok(scale),
        _ => Err("it is a number above 0".to_owned()),
    }
}

fn factors(text: &str) -> Result<Factors, String> {
    let known = [Factors::Ternary, Factors::Raw, Factors::Fp8];
    known.into_iter().find(|known| name(*known) == text).ok_or_else(|| "they are taken as ternary, raw or fp8".to_owned())
}

const fn name(factors: Factors) -> &'static str {
    match factors {
        Factors::Raw => "raw",
        Factors::Fp8 => "fp8",
        _ => "ternary",
    }
}
