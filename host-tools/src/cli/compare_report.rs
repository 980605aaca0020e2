//! What `dmexp compare --device` found, as a table and as JSON.

use super::output::{count, quoted, style, table};
use super::tokenize::piece;
use anstyle::AnsiColor;
use dmexp::tokenizer::Tokenizer;
use dmexp_format::tokenizer::TokenizerKind;
use dmexp_tools::compare::divergence::Divergence;
use dmexp_tools::compare::machines::{Found, Place};
use dmexp_tools::compare::side::About;
use dmexp_tools::compare::verdict::place_in_words;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// What is reported: the reference first, then the device.
pub(crate) struct Report<'r> {
    pub(crate) found: &'r Found,
    pub(crate) about: [&'r About; 2],
    pub(crate) names: &'r [String; 2],
    pub(crate) tokenizer: Option<Tokenizer<'r>>,
    pub(crate) tensor: &'r dyn Fn(u32) -> String,
    pub(crate) verdict: &'r str,
}

impl Report<'_> {
    /// A token as it is shown.
    fn token(&self, token: u32) -> String {
        match &self.tokenizer {
            Some(tokenizer) if tokenizer.facts().kind != TokenizerKind::None => format!("{token} {}", quoted(&piece(tokenizer, token))),
            _ => token.to_string(),
        }
    }

    /// The text of tokens, where there is a tokenizer.
    fn text(&self, tokens: &[u32]) -> Option<Vec<u8>> {
        let tokenizer = self.tokenizer.as_ref().filter(|tokenizer| tokenizer.facts().kind != TokenizerKind::None)?;
        let mut previous = tokenizer.facts().bos;
        let mut text = Vec::new();
        for token in tokens {
            text.extend_from_slice(tokenizer.decode(previous, *token).as_bytes());
            previous = *token;
        }
        Some(text)
    }
}

/// Prints the positions, the sums, the greedy texts and the verdict.
pub(crate) fn print(report: &Report<'_>) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    let found = report.found;
    for (role, about, name) in [("reference", report.about[0], &report.names[0]), ("device", report.about[1], &report.names[1])] {
        let firmware = about.firmware.as_ref().map_or_else(String::new, |(firmware, board)| format!(", {firmware} on {board}"));
        writeln!(out, "{role:<9}  {name}{firmware}, model {:08x}, keys and values in {}", about.fingerprint, about.kv)?;
    }
    let rows = (0..).zip(&found.positions).map(|(number, position): (u32, _)| {
        let figure =
            |pick: fn(&Divergence) -> f64| position.divergence.as_ref().map_or_else(|| "not finite".to_owned(), |d| scientific(pick(d)));
        let best = position.best.map(|best| best.map_or_else(|| "-".to_owned(), |token| report.token(token)));
        let [reference, device] = best;
        let device = if device == reference { "the same".to_owned() } else { device };
        [
            number.to_string(),
            report.token(position.token),
            if position.same { "equal" } else { "DIFFER" }.to_owned(),
            figure(|d| d.max_abs_delta),
            figure(|d| d.mean_abs_delta),
            figure(|d| d.kl),
            reference,
            device,
        ]
    });
    let header = ["position", "token", "bits", "max delta", "mean delta", "KL", "best", "device's best"];
    writeln!(out, "{}", table(header, &[0, 3, 4, 5], rows))?;
    let same = found.positions.iter().filter(|position| position.same).count();
    write!(out, "{} of {} with the same bits", same, count(found.positions.len() as u64, "position"))?;
    if let Some(Divergence { max_abs_delta, mean_abs_delta, kl, top1, .. }) = found.divergence {
        write!(
            out,
            "; max delta {}, mean delta {}, KL {} nats a token, top-1 {:.2}%",
            scientific(max_abs_delta),
            scientific(mean_abs_delta),
            scientific(kl),
            100.0 * top1
        )?;
    }
    writeln!(out)?;
    if let Some(first) = found.first {
        writeln!(out, "first difference: position {}, {}", first.position, place_in_words(first.place, found.part))?;
    }
    if found.tensors.compared > 0 {
        writeln!(out, "tensors: {} compared where they lie, {} differ", found.tensors.compared, found.tensors.wrong.len())?;
    }
    if let Some([one, other]) = &found.greedy {
        let equal = one.iter().zip(other).take_while(|(a, b)| a == b).count();
        writeln!(out, "greedy texts: the first {equal} of {} are the same", count(one.len().max(other.len()) as u64, "token"))?;
        let shown = |tokens: &[u32]| report.text(tokens).map_or_else(|| format!("{tokens:?}"), |text| quoted(&text));
        if one == other {
            writeln!(out, "  both       {}", shown(one))?;
        } else {
            writeln!(out, "  reference  {}\n  device     {}", shown(one), shown(other))?;
        }
    }
    let colour = style(if found.is_same() { AnsiColor::Green } else { AnsiColor::Red });
    writeln!(out, "{colour}{}{colour:#}", report.verdict)?;
    out.flush()
}

fn scientific(number: f64) -> String {
    if number == 0.0 { "0".to_owned() } else { format!("{number:.3e}") }
}

/// The same as JSON; numbers that are not finite are null.
pub(crate) fn report_json(report: &Report<'_>, export: &Path) -> Value {
    let found = report.found;
    let side = |number: usize| {
        let about = report.about[number];
        json!({
            "name": report.names[number],
            "firmware": about.firmware.as_ref().map(|(firmware, _)| firmware),
            "board": about.firmware.as_ref().map(|(_, board)| board),
            "fingerprint": format!("{:08x}", about.fingerprint),
            "context": about.context,
            "kv": about.kv.name(),
        })
    };
    let figures = |divergence: Option<Divergence>| {
        divergence.map(|Divergence { max_abs_delta, mean_abs_delta, kl, top1, .. }| {
            json!({ "max_abs_delta": max_abs_delta, "mean_abs_delta": mean_abs_delta, "kl": kl, "top1": top1 })
        })
    };
    let positions = (0..).zip(&found.positions).map(|(number, position): (u32, _)| {
        json!({
            "position": number,
            "token": position.token,
            "same": position.same,
            "divergence": figures(position.divergence),
            "best": position.best,
            "layers": found.layers.get(number as usize),
        })
    });
    let first = found.first.map(|first| {
        let (stage, layer) = match first.place {
            Place::Embedding => ("embedding", None),
            Place::Layer(layer) => ("layer", Some(layer)),
            Place::Logits => ("logits", None),
            Place::Unknown => ("unknown", None),
        };
        json!({ "position": first.position, "stage": stage, "layer": layer })
    });
    let wrong: Vec<String> = found.tensors.wrong.iter().map(|number| (report.tensor)(*number)).collect();
    json!({
        "export": export.to_string_lossy(),
        "reference": side(0),
        "device": side(1),
        "equal": found.is_same(),
        "verdict": report.verdict,
        "first_difference": first,
        "tensors": { "compared": found.tensors.compared, "differ": wrong },
        "total": figures(found.divergence),
        "greedy": found.greedy.as_ref().map(|[one, other]| json!({ "reference": one, "device": other })),
        "positions": positions.collect::<Vec<_>>(),
    })
}
