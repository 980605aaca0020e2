//! `dmexp generate`: continues a text.

use super::args;
use super::dormouse_run;
use super::failure::{Failure, Outcome, request};
use super::figures::Pace;
use super::json_lines::{Lines, line};
use super::model::{ModelArgs, encode, needed};
use super::output::{bytes, count, float};
use super::run_on::{RunOn, gpu_line};
use clap::Args;
use dmexp::format::Error as FormatError;
use dmexp::sampler::Settings;
use dmexp::tokenizer::Utf8Stream;
use dmexp::{Sampler, Session, Step, StopReason, StopStrings};
use dmexp_tools::decode::{any_seed, verify_all};
use dmexp_tools::error::Error;
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

/// New tokens where nothing else is asked for and the context has room for them.
const DEFAULT_STEPS: u32 = 256;

/// Continue a text with a model
///
/// The text goes to stdout as it comes, whole characters at a time, the prompt first. The seed, the reason for stopping, speeds and memory go to stderr.
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp generate --export stories.dmexp --prompt \"Once upon a time\"
  dmexp generate --export stories.dmexp --prompt \"Lily\" --steps 64 --temp 0
  dmexp generate --export stories.dmexp --prompt-file start.txt --seed 42 --stop \"The end\"
  dmexp generate --export stories.dmexp --prompt 'One\\nTwo\\n' --escapes --stop '\\n\\n'
  dmexp generate --export stories.dmexp --prompt Lily --json --logprobs 3
  dmexp generate --export stories.dmexp --prompt \"Lily\" --device cuda
  dmexp generate --export smollm2.dmexp --chat --system \"Answer in one sentence.\"

In a chat Ctrl-C stops an answer, and the end of the input (Ctrl-D) ends the program.")]
pub(crate) struct Generate {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    #[command(flatten)]
    pub(super) on: RunOn,
    /// The text to continue [default: none]; with --chat the first turn
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(super) prompt: Option<OsString>,
    /// A file with the text to continue, byte for byte; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "prompt", allow_hyphen_values = true)]
    prompt_file: Option<OsString>,
    /// How many new tokens at most [default: what the context has room for, 256 at most; with --chat what it has room for]
    #[arg(long, value_name = "N", value_parser = args::number, allow_negative_numbers = true)]
    pub(super) steps: Option<u32>,
    /// How many positions at most, the prompt's counted: llama2.c's -n
    #[arg(long, value_name = "N", value_parser = args::from_one, conflicts_with = "steps", allow_negative_numbers = true)]
    positions: Option<u32>,
    /// Divides the logits: 0 always takes the likeliest token, more is more varied
    #[arg(long, value_name = "T", default_value = "0.8", value_parser = args::temperature, allow_negative_numbers = true)]
    temp: f32,
    /// Draws among the likeliest tokens that have more than this share of the probability together; 1 is off
    #[arg(long, value_name = "P", default_value = "0.9", value_parser = args::top_p, allow_negative_numbers = true)]
    top_p: f32,
    /// Draws among this many of the likeliest tokens; 0 is off
    #[arg(long, value_name = "K", default_value = "0", value_parser = args::number, allow_negative_numbers = true)]
    top_k: u32,
    /// Draws among tokens that have at least this part of the likeliest one's probability; 0 is off
    #[arg(long, value_name = "P", default_value = "0", value_parser = args::min_p, allow_negative_numbers = true)]
    min_p: f32,
    /// Makes the tokens among the last 64 less likely; 1 is off
    #[arg(long, value_name = "X", default_value = "1", value_parser = args::repeat_penalty, allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// Where the random numbers begin: the same seed gives the same text on any machine [default: another every time]
    #[arg(long, value_name = "N", value_parser = args::seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Ends before this text; may be given more than once
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    stop: Vec<OsString>,
    /// Goes on where the model says that the text is over
    #[arg(long)]
    pub(super) ignore_eos: bool,
    /// Reads \n, \r, \t, \\, \" and \xNN in --prompt and --stop as what they stand for
    #[arg(long)]
    escapes: bool,
    /// dormouse models: writes as dormouse's own generate does, which puts a printable character in the place of any other byte that is drawn, and goes on with that
    #[arg(long, conflicts_with = "chat")]
    compat: bool,
    /// Makes every check of the file first, as dmexp export verify does
    #[arg(long)]
    check: bool,
    /// Leaves the prompt out of the output
    #[arg(long)]
    no_echo: bool,
    /// Prints lines of JSON instead of the text: one for each new token as it comes, and one at the end with all there is to say (docs/generate.md)
    #[arg(long)]
    json: bool,
    /// With --json: tells in each line how probable the token was (natural logarithms, by the model's own logits), and the N likeliest in its place
    #[arg(long, value_name = "N", requires = "json", value_parser = args::number, allow_negative_numbers = true)]
    logprobs: Option<u32>,
    /// Holds a conversation: each line of stdin is a turn (one that ends with \ goes on in the next), put into the model's chat template
    #[arg(long, conflicts_with_all = ["prompt_file", "positions", "no_echo", "json"])]
    chat: bool,
    /// With --chat: what the model is told before the first turn
    #[arg(long, value_name = "TEXT", requires = "chat", allow_hyphen_values = true)]
    pub(super) system: Option<OsString>,
    /// With --chat: a Jinja template to use instead of the file's own
    #[arg(long, value_name = "FILE", requires = "chat")]
    pub(super) chat_template: Option<PathBuf>,
}

impl Generate {
    pub(super) fn text(&self, argument: &OsString) -> Outcome<Vec<u8>> {
        let bytes = args::bytes_of(argument)?;
        if self.escapes { args::unescape(&bytes) } else { Ok(bytes) }
    }

    fn prompt(&self) -> Outcome<Vec<u8>> {
        match (&self.prompt, &self.prompt_file) {
            (Some(text), _) => self.text(text),
            (None, Some(file)) => args::file_or_stdin(file),
            (None, None) => Ok(Vec::new()),
        }
    }

    pub(super) fn stops(&self) -> Outcome<Vec<String>> {
        let stops = self.stop.iter().map(|stop| {
            let bytes = self.text(stop)?;
            String::from_utf8(bytes).map_err(|_| request("a stop text is not UTF-8", "give it in UTF-8"))
        });
        stops.collect()
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            temperature: self.temp,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            seed: self.seed.unwrap_or_else(any_seed),
            ..Settings::GREEDY
        }
    }

    /// Makes every check of the file if --check asks for it.
    pub(super) fn checked(&self) -> Outcome {
        if !self.check || verify_all(&self.model.export)?.passed() {
            return Ok(());
        }
        let advice = "dmexp export verify shows what; export it again";
        Err(Error::damaged("does not pass its checks").advise(advice).in_file(&self.model.export).into())
    }

    /// How many new tokens behind a prompt of `known` tokens, and whether that is what was asked for rather than what there is room for.
    fn budget(&self, known: u32, context: u32) -> Outcome<(u32, bool)> {
        if known > context {
            let what = format!("the prompt has {known} tokens, the context has room for {context}");
            return Err(request(what, "shorten the prompt, or give more --context where the model allows it"));
        }
        // The last new token is not fed again, so it needs no position.
        let room = context - known + 1;
        if let Some(steps) = self.steps {
            if steps > room {
                let needed = u64::from(known) + u64::from(steps) - 1;
                let what = format!("{steps} new tokens after {known} of the prompt take {needed} positions, the context has {context}");
                return Err(request(what, format!("ask for at most --steps {room}")));
            }
            return Ok((steps, true));
        }
        let Some(positions) = self.positions else { return Ok((room.min(DEFAULT_STEPS), room > DEFAULT_STEPS)) };
        if positions > context {
            return Err(request(
                format!("{positions} positions are asked for, the context has {context}"),
                format!("ask for at most --positions {context}"),
            ));
        }
        let Some(steps) = (positions + 1).checked_sub(known) else {
            let what = format!("the prompt has {known} tokens, but only {positions} positions are asked for");
            return Err(request(what, format!("ask for --positions {known} or more")));
        };
        Ok((steps, true))
    }
}

/// Runs the command.
pub(crate) fn run(command: &Generate) -> Outcome {
    if command.chat {
        return super::chat::run(command);
    }
    let prompt = command.prompt()?;
    let stops = command.stops()?;
    let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
    let stops = stop_strings(&stops)?;
    let settings = command.settings();
    let opened = command.model.open()?;
    command.checked()?;
    let mut cpu = command.model.cpu(&opened, command.on)?;
    let model = *cpu.model();
    needed(model.tokenizer(), opened.loaded.path())?;
    if command.compat && model.network().dormouse().is_none() {
        return Err(request("--compat is for models of dormouse", "leave it out"));
    }
    let known = encode(model.tokenizer(), &prompt, true)?;
    if known.is_empty() {
        return Err(request("the prompt is empty, and the model has no token that begins a text", "give a --prompt"));
    }
    let (budget, asked) = command.budget(known.len() as u32, model.context())?;
    let arena_bytes = cpu.arena_bytes();
    let sampler = Sampler::new(settings)?;
    let mut session = cpu.session(sampler)?.ignoring_end_of_text(command.ignore_eos);
    session.push_tokens(&known)?;
    if !command.json {
        let unused = if settings.temperature == 0.0 { " (not used: --temp 0 draws nothing)" } else { "" };
        note(format_args!("seed: {}{unused}", settings.seed));
        for line in dormouse_run::settings(&model).into_iter().chain(gpu_line(&opened)) {
            note(format_args!("{line}"));
        }
    }
    let mut text = Text::new(command.json, stops);
    if !command.no_echo {
        text.prompt(&prompt)?;
    }
    let last = known.last().copied().unwrap_or_default();
    let lines = command.json.then(|| Lines::new(*model.tokenizer(), last, command.logprobs));
    let run = generate(&mut session, (budget, asked), command.compat, (&mut text, lines)).map_err(|error| match error {
        Trouble::Model(error) => Failure::Told(opened.loaded.explain(error)),
        Trouble::Output(error) => Failure::Output(error),
    });
    let told = text.shown.len();
    // A line that was begun is ended, whatever happened.
    let ended = text.end();
    let run = run?;
    ended?;
    opened.loaded.unchanged()?;
    let prefill = Pace { tokens: run.fed, seconds: run.prefill };
    let decode = Pace { tokens: run.decoded, seconds: run.decode };
    if command.json {
        line(&json!({
            "event": "end",
            "export": command.model.export.to_string_lossy(),
            "prompt": String::from_utf8_lossy(&prompt),
            "prompt_tokens": known,
            "text": text.shown,
            "rest": text.shown.get(told..),
            "tokens": run.tokens,
            "counts": { "prompt": known.len(), "new": run.tokens.len() },
            "stop": { "reason": run.stop.0, "token": run.stop.1 },
            "settings": {
                "temp": float(settings.temperature),
                "top_p": float(settings.top_p),
                "top_k": settings.top_k,
                "min_p": float(settings.min_p),
                "repeat_penalty": float(settings.repeat_penalty),
                "repeat_last_n": settings.repeat_last_n,
                "seed": settings.seed,
            },
            "device": command.on.device.to_string(),
            "context": model.context(),
            "kv": model.kv().name(),
            "arena_bytes": arena_bytes,
            "dormouse": dormouse_run::settings_json(&model),
            "compat": command.compat,
            "prefill": prefill.json(),
            "decode": decode.json(),
        }))?;
        return Ok(());
    }
    let reason = match run.stop {
        ("end_of_text", Some(token)) => format!("the model ended the text (token {token})"),
        ("stop_string", _) => "a --stop text came up".to_owned(),
        ("context_full", _) => format!("all {} positions of the context are used", model.context()),
        _ if command.steps.is_none() && command.positions.is_none() => "as many as there are without --steps".to_owned(),
        _ => "as many as asked for".to_owned(),
    };
    note(format_args!("{}; stopped: {reason}", count(run.tokens.len() as u64, "new token")));
    note(format_args!("prefill: {prefill}; decode: {decode}"));
    let kept = if model.network().dormouse().is_some() { String::new() } else { format!(" with keys and values in {}", model.kv()) };
    note(format_args!("arena: {}, for {} positions{kept}", bytes(arena_bytes as u64), model.context()));
    Ok(())
}

/// A line on stderr. If that is closed, nobody is left to tell.
pub(super) fn note(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The texts of --stop.
pub(super) fn stop_strings<'s>(stops: &'s [&'s str]) -> Outcome<StopStrings<'s>> {
    StopStrings::new(stops).map_err(|error| request(error.to_string(), "give each --stop a text of 1 to 64 bytes"))
}

/// The reason for stopping, by the name it has in JSON, and the token that it is about.
type Stop = (&'static str, Option<u32>);

/// What was generated.
struct Run {
    tokens: Vec<u32>,
    stop: Stop,
    /// Tokens fed until the first new one was known, and the seconds they took.
    fed: u64,
    prefill: f64,
    /// Tokens after the first, and the seconds they took.
    decoded: u64,
    decode: f64,
}

enum Trouble {
    Model(FormatError),
    Output(io::Error),
}

impl From<FormatError> for Trouble {
    fn from(error: FormatError) -> Self {
        Self::Model(error)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn generate(
    session: &mut Session<'_>,
    (budget, asked): (u32, bool),
    compat: bool,
    (text, mut lines): (&mut Text<'_>, Option<Lines<'_>>),
) -> Result<Run, Trouble> {
    let mut run = Run { tokens: Vec::new(), stop: ("max_tokens", None), fed: 0, prefill: 0.0, decoded: 0, decode: 0.0 };
    let mut first = true;
    let start = Instant::now();
    if budget > 0 {
        run.fed = u64::from(session.feed_blocks());
        run.prefill = start.elapsed().as_secs_f64();
    }
    while (run.tokens.len() as u64) < u64::from(budget) {
        let (start, position) = (Instant::now(), session.position());
        let step = match &mut lines {
            Some(lines) => lines.step(session)?,
            None => session.step()?,
        };
        let seconds = start.elapsed().as_secs_f64();
        if first {
            run.fed += u64::from(session.position() - position);
            run.prefill += seconds;
        } else {
            run.decode += seconds;
        }
        match step {
            Step::Prompt { .. } => continue,
            Step::Token { token, text: piece } => {
                run.decoded += u64::from(!first);
                let replaced = printable(token).filter(|_| compat);
                if let Some(byte) = replaced {
                    session.replace_last(u32::from(byte))?;
                }
                let token = replaced.map_or(token, u32::from);
                let bytes = replaced.as_ref().map_or(piece.as_bytes(), std::slice::from_ref);
                run.tokens.push(token);
                let told = text.shown.len();
                let over = text.push(bytes)?;
                if let Some(lines) = &mut lines {
                    lines.token(token, bytes, text.shown.get(told..).unwrap_or_default())?;
                }
                if over {
                    run.stop = ("stop_string", None);
                    return Ok(run);
                }
            }
            Step::Stop(StopReason::EndOfText(token)) => {
                run.stop = ("end_of_text", Some(token));
                return Ok(run);
            }
            _ => {
                run.stop = ("context_full", None);
                return Ok(run);
            }
        }
        first = false;
    }
    if !asked {
        run.stop = ("context_full", None);
    }
    Ok(run)
}

/// What dormouse's own `generate` writes in the place of a byte that is no printable ASCII character; `None` for one that is.
fn printable(byte: u32) -> Option<u8> {
    if (32..=126).contains(&byte) { None } else { Some(32 + (byte % 95) as u8) }
}

/// Where text goes: to stdout at once, or, where it is kept for JSON, nowhere yet.
pub(super) struct Text<'s> {
    kept: bool,
    /// All text so far but the prompt.
    pub(super) shown: String,
    utf8: Utf8Stream,
    stops: StopStrings<'s>,
    over: bool,
}

impl<'s> Text<'s> {
    pub(super) fn new(kept: bool, stops: StopStrings<'s>) -> Self {
        Self { kept, shown: String::new(), utf8: Utf8Stream::new(), stops, over: false }
    }

    /// The prompt. Stop texts in it do not count. A character that it begins may be ended by the model.
    pub(super) fn prompt(&mut self, prompt: &[u8]) -> io::Result<()> {
        if self.kept {
            return Ok(());
        }
        self.utf8.push(prompt, write)?;
        io::stdout().flush()
    }

    /// New text. True if a stop text came up.
    pub(super) fn push(&mut self, piece: &[u8]) -> io::Result<bool> {
        let Self { kept, shown, utf8, stops, over } = self;
        utf8.push(piece, |text| take(*kept, shown, stops, over, text))?;
        io::stdout().flush()?;
        Ok(*over)
    }

    /// The end of the text: what was held back, and a newline.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let Self { kept, shown, utf8, stops, over } = self;
        utf8.finish(|text| take(*kept, shown, stops, over, text))?;
        if !*over {
            stops.finish(|text| put(*kept, shown, text))?;
        }
        if !*kept {
            write("\n")?;
        }
        io::stdout().flush()
    }
}

/// Passes text through the stop texts; after one came up nothing passes.
fn take(kept: bool, shown: &mut String, stops: &mut StopStrings<'_>, over: &mut bool, text: &str) -> io::Result<()> {
    if !*over {
        *over = stops.push(text, |text| put(kept, shown, text))?;
    }
    Ok(())
}

fn put(kept: bool, shown: &mut String, text: &str) -> io::Result<()> {
    shown.push_str(text);
    if kept { Ok(()) } else { write(text) }
}

fn write(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        generate: Generate,
    }

    fn budget(arguments: &[&str], known: u32) -> Result<(u32, bool), String> {
        let line = Line::try_parse_from([&["generate", "--export", "x"], arguments].concat()).map_err(|error| error.to_string())?;
        line.generate.budget(known, 512).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn steps_count_new_tokens_and_positions_count_the_prompt_too() {
        assert_eq!(budget(&["--steps", "64"], 5), Ok((64, true)));
        assert_eq!(budget(&["--steps", "0"], 5), Ok((0, true)));
        // The last new token takes no position.
        assert_eq!(budget(&["--steps", "508"], 5), Ok((508, true)));
        assert!(budget(&["--steps", "509"], 5).unwrap_err().contains("513"));
        // As llama2.c: with begin-of-text alone, n positions give n tokens.
        assert_eq!(budget(&["--positions", "256"], 1), Ok((256, true)));
        assert_eq!(budget(&["--positions", "256"], 6), Ok((251, true)));
        assert_eq!(budget(&["--positions", "6"], 7), Ok((0, true)));
        assert!(budget(&["--positions", "5"], 7).unwrap_err().contains("7 tokens"));
        assert!(budget(&["--positions", "513"], 1).unwrap_err().contains("512"));
    }

    #[test]
    fn without_a_count_there_are_256_or_as_many_as_fit() {
        assert_eq!(budget(&[], 1), Ok((256, true)));
        assert_eq!(budget(&[], 257), Ok((256, false)));
        assert_eq!(budget(&[], 512), Ok((1, false)));
        assert!(budget(&[], 513).unwrap_err().contains("513 tokens"));
    }

    #[test]
    fn counts_that_are_none_are_refused() {
        for wrong in ["abc", "-1", "1.5", "", "4294967296"] {
            assert!(budget(&["--steps", wrong], 1).is_err(), "{wrong}");
            assert!(budget(&["--positions", wrong], 1).is_err(), "{wrong}");
        }
        assert!(budget(&["--positions", "0"], 1).is_err());
        assert!(budget(&["--steps", "1", "--positions", "1"], 1).is_err());
    }
}
