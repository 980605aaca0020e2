//! `dmexp logits`: what a model says of every position of a given text.

use super::args;
use super::dormouse_run;
use super::failure::{Outcome, request};
use super::model::{ModelArgs, encode, known, needed};
use super::output::{bytes, count, float, json, quoted, table};
use super::run_on::RunOn;
use super::signals::cancel_flag;
use super::tokenize::piece;
use clap::{Args, ValueEnum};
use dmexp::tokenizer::Tokenizer;
use dmexp::{Model, Sampler, Session};
use dmexp_format::tokenizer::TokenizerKind;
use dmexp_tools::decode::golden::top5;
use dmexp_tools::decode::{Decoder, window_logits};
use dmexp_tools::error::{Class, Error, Result, shown_path};
use dmexp_tools::target::Target;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Compute the logits at every position of a text
///
/// Feeds the given tokens one by one, whatever the model would choose (teacher forcing). With --out the logits are written as raw little-endian f32, one row a position with a number for every token; without it the five largest are shown.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp logits --export stories.dmexp --tokens 1,403,407
  dmexp logits --export stories.dmexp --tokens 1,403,407 --out logits.f32
  dmexp logits --export stories.dmexp --text \"Once upon a time\" --kv f32 --json")]
#[group(id = "what", required = true, multiple = false, args = ["tokens", "text"])]
pub(crate) struct Logits {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    on: RunOn,
    /// Token ids with commas or spaces between them; - is stdin. Nothing is put before them
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    tokens: Option<OsString>,
    /// A text, with the token before it that begins a text; - is stdin
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<OsString>,
    /// dormouse models: prefix gives each row as generation would see it, from the bytes up to it; full gives all rows of one window, where bytes that come after change them, too
    #[arg(long, value_name = "prefix|full", default_value = "prefix")]
    convention: Convention,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Which bytes a position's logits know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Convention {
    /// Those up to it.
    Prefix,
    /// All of the window.
    Full,
}

impl Convention {
    /// The word for it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Full => "full",
        }
    }
}

/// The logits of all positions of `tokens`, which begin a text, by this convention. With [`Convention::Full`] the session is one of full decoding.
pub(crate) fn rows(
    session: &mut Session<'_>,
    convention: Convention,
    tokens: &[u32],
    each: &mut dyn FnMut(u32, &[f32]) -> Result<()>,
) -> Result<()> {
    if convention == Convention::Prefix {
        return Decoder::logits(session, tokens, each);
    }
    window_logits(session, tokens, each)
}

/// Whether this convention is the other one for this model: where no state goes on from one iteration to the next they are the same.
pub(crate) fn told_apart(convention: Convention, model: &Model<'_>) -> Convention {
    match model.network().dormouse() {
        Some(network) if network.config().is_causal() => Convention::Prefix,
        _ => convention,
    }
}

/// The best tokens at a position.
struct Row {
    position: u32,
    token: u32,
    best: Vec<(u32, f32)>,
}

/// Runs the command.
pub(crate) fn run(command: &Logits) -> Outcome {
    let opened = command.model.open()?;
    let target = command.out.as_deref().map(|out| Target::new(out, command.model.files())).transpose()?;
    let mut cpu = command.model.cpu_for(&opened, command.convention, command.on)?;
    let model = *cpu.model();
    let vocab_size = model.network().vocab_size();
    let tokens = match (&command.tokens, &command.text) {
        (Some(tokens), _) => args::tokens_or_stdin(tokens)?,
        (None, Some(text)) => {
            needed(model.tokenizer(), opened.loaded.path())?;
            encode(model.tokenizer(), &args::text_or_stdin(text)?, true)?
        }
        (None, None) => Vec::new(),
    };
    known(&tokens, vocab_size)?;
    if tokens.is_empty() {
        return Err(request("there are no tokens", "give a text that is not empty"));
    }
    if tokens.len() as u64 > u64::from(model.context()) {
        let what = format!("there are {} tokens, the context has {} positions", tokens.len(), model.context());
        return Err(request(what, "give fewer, or more --context where the model allows it"));
    }
    // A file may take long to write: stopped half way it is taken away.
    let cancel = target.as_ref().map(|_| cancel_flag()).transpose()?;
    let mut session = cpu.session(Sampler::greedy())?;
    let mut rows = Vec::new();
    let mut feed = |out: &mut dyn Write| {
        self::rows(&mut session, told_apart(command.convention, &model), &tokens, &mut |position, logits| {
            if cancel.as_ref().is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
                return Err(Error::new(Class::Cancelled, "stopped: nothing was written"));
            }
            for logit in logits {
                out.write_all(&logit.to_le_bytes())
                    .map_err(|error| Error::unwritable(command.out.as_deref().unwrap_or("-".as_ref()), error))?;
            }
            let best = top5(logits).into_iter().filter_map(|token| Some((token, *logits.get(token as usize)?)));
            rows.push(Row { position, token: tokens.get(position as usize).copied().unwrap_or_default(), best: best.collect() });
            Ok(())
        })?;
        opened.loaded.unchanged()
    };
    match &target {
        Some(target) => target.write(feed)?,
        None => feed(&mut io::sink())?,
    }
    if command.json {
        return Ok(json(&json!({
            "export": command.model.export.to_string_lossy(),
            "vocab_size": vocab_size,
            "device": command.on.device.to_string(),
            "context": model.context(),
            "kv": model.kv().name(),
            "convention": command.convention.name(),
            "dormouse": dormouse_run::settings_json(&model),
            "out": command.out.as_ref().map(|out| out.to_string_lossy()),
            "positions": rows.iter().map(as_json).collect::<Vec<_>>(),
        }))?);
    }
    let mut stdout = io::stdout().lock();
    match &command.out {
        Some(out) => {
            let written = rows.len() as u64 * u64::from(vocab_size) * 4;
            writeln!(stdout, "{}: {} of {vocab_size} f32, {}", shown_path(out), count(rows.len() as u64, "row"), bytes(written))?;
        }
        None => writeln!(stdout, "{}", best(&rows, model.tokenizer()))?,
    }
    Ok(stdout.flush()?)
}

fn as_json(row: &Row) -> Value {
    let best = row.best.iter().map(|(token, logit)| json!({ "token": token, "logit": float(*logit) }));
    json!({ "position": row.position, "token": row.token, "top5": best.collect::<Vec<_>>() })
}

/// The five best tokens of every position, best first.
fn best(rows: &[Row], tokenizer: &Tokenizer<'_>) -> String {
    let name = |token: u32| match tokenizer.facts().kind {
        TokenizerKind::None => token.to_string(),
        _ => format!("{token} {}", quoted(&piece(tokenizer, token))),
    };
    let lines = rows.iter().map(|row| {
        let mut best = row.best.iter().map(|(token, logit)| format!("{} {logit:.4}", name(*token)));
        let mut next = || best.next().unwrap_or_default();
        [row.position.to_string(), name(row.token), next(), next(), next(), next(), next()]
    });
    table(["position", "token", "best", "second", "third", "fourth", "fifth"], &[0], lines)
}
