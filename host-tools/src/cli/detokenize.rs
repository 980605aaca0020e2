//! `dmexp detokenize`: token ids to text.

use super::args;
use super::failure::Outcome;
use super::model::known;
use super::output::json;
use super::tokenize::TokenizerArgs;
use clap::Args;
use dmexp_format::tokenizer::NO_TOKEN;
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};

/// Turn token ids into text
///
/// The text goes to stdout byte for byte, with a newline behind it. Tokens that begin or end a text have no text themselves.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp detokenize --export stories.dmexp --tokens 1,403,407
  dmexp tokenize --export stories.dmexp --text \"Once\" | \\
    dmexp detokenize --export stories.dmexp --tokens -")]
pub(crate) struct Detokenize {
    #[command(flatten)]
    tokenizer: TokenizerArgs,
    /// Token ids with commas or spaces between them; - is stdin
    #[arg(long, value_name = "IDS", allow_hyphen_values = true)]
    tokens: OsString,
    /// Prints JSON; bytes that are no UTF-8 become U+FFFD there
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(command: &Detokenize) -> Outcome {
    let tokens = args::tokens_or_stdin(&command.tokens)?;
    command.tokenizer.with(|tokenizer| {
        known(&tokens, tokenizer.facts().n_pieces)?;
        let mut text = Vec::new();
        let mut previous = NO_TOKEN;
        for token in &tokens {
            text.extend_from_slice(tokenizer.decode(previous, *token).as_bytes());
            previous = *token;
        }
        if command.json {
            return Ok(json(&json!({ "text": String::from_utf8_lossy(&text) }))?);
        }
        text.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&text)?;
        Ok(out.flush()?)
    })
}
