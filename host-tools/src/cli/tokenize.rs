//! `dmexp tokenize`: text to token ids.

use super::args;
use super::failure::Outcome;
use super::model::{Opened, alone, encode};
use super::output::json;
use clap::Args;
use dmexp::tokenizer::Tokenizer;
use dmexp_format::tokenizer::TokenizerKind;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

/// Which tokenizer.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct TokenizerArgs {
    /// The .dmexp file whose tokenizer is used
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// A tokenizer alone, or for a file that carries none: tokenizer.json, tokenizer.model, llama2.c's tokenizer.bin, or the word bytes
    #[arg(long, value_name = "FILE|bytes")]
    tokenizer: Option<OsString>,
}

impl TokenizerArgs {
    /// Lets `work` use the tokenizer.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Tokenizer<'_>) -> Outcome<T>) -> Outcome<T> {
        match (&self.export, &self.tokenizer) {
            (Some(export), name) => work(&Opened::open(export, name.as_deref())?.tokenizer()?),
            (None, Some(name)) => work(&alone(name)?.tokenizer()?),
            // Arguments without either do not get here.
            (None, None) => work(&Tokenizer::NONE),
        }
    }
}

/// Turn text into token ids
///
/// The ids go to stdout with spaces between them, the token that begins a text first where the model wants one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp tokenize --export stories.dmexp --text \"Once upon a time\"
  printf 'Once' | dmexp tokenize --export stories.dmexp --text - --json
  dmexp tokenize --tokenizer tok512.bin --text \"Once\" --no-bos")]
pub(crate) struct Tokenize {
    #[command(flatten)]
    tokenizer: TokenizerArgs,
    /// The text; - is stdin, every byte of it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    text: OsString,
    /// Leaves out the token that begins a text
    #[arg(long)]
    no_bos: bool,
    /// Prints JSON: ids with their pieces
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(command: &Tokenize) -> Outcome {
    let text = args::text_or_stdin(&command.text)?;
    command.tokenizer.with(|tokenizer| {
        let tokens = encode(tokenizer, &text, !command.no_bos)?;
        if command.json {
            let tokens: Vec<Value> = tokens.iter().map(|token| named(tokenizer, *token)).collect();
            return Ok(json(&json!({ "tokens": tokens }))?);
        }
        let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
        writeln!(io::stdout(), "{}", ids.join(" "))?;
        Ok(())
    })
}

/// The piece of a token as the vocabulary has it.
pub(crate) fn piece(tokenizer: &Tokenizer<'_>, token: u32) -> Vec<u8> {
    match (tokenizer.facts().kind, u8::try_from(token)) {
        (TokenizerKind::Bytes, Ok(byte)) => vec![byte],
        _ => tokenizer.piece(token).to_vec(),
    }
}

fn named(tokenizer: &Tokenizer<'_>, token: u32) -> Value {
    match String::from_utf8(piece(tokenizer, token)) {
        Ok(text) => json!({ "id": token, "piece": text }),
        // JSON's text cannot say it exactly.
        Err(error) => json!({ "id": token, "piece": String::from_utf8_lossy(error.as_bytes()), "bytes": error.as_bytes() }),
    }
}
