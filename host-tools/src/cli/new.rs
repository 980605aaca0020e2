//! `dmexp new firmware`: a firmware project for one board with one model.

use super::args;
use super::failure::{Outcome, request};
use super::output::{bytes, facts, grouped, json, table};
use clap::Args;
use dmexp_format::KvDType;
use dmexp_tools::error::{Error, drives_terminal, shown_path};
use dmexp_tools::firmware::{self, Board, Request, Source};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Write a small firmware project that runs a model on a board
///
/// The folder holds what cargo needs to build it, and a copy of the model, which is checked once more while the firmware compiles. It appears when it is whole; a folder with something in it is
/// never touched. A model that has no room on the board is refused, with the context that would fit.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp new firmware --board an386 --model stories.dmexp
  dmexp new firmware --board microbit --model tiny.dmexp --kv q8 hello
  dmexp new firmware --list")]
pub(crate) struct Firmware {
    /// The folder to make [default: the board's name and -firmware]
    #[arg(value_name = "DIR", conflicts_with = "list")]
    out: Option<PathBuf>,
    /// The board, by a name of --list
    #[arg(long, value_name = "NAME", value_parser = board, required_unless_present = "list", conflicts_with = "list")]
    board: Option<&'static Board>,
    /// The .dmexp file to run on it
    #[arg(long, value_name = "FILE", required_unless_present = "list", conflicts_with = "list")]
    model: Option<PathBuf>,
    /// How many positions there is room for [default: what the model was trained for]
    #[arg(long, value_name = "N", value_parser = args::from_one, allow_negative_numbers = true)]
    context: Option<u32>,
    /// How keys and values are kept: f32, f16 or q8
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = args::kv)]
    kv: KvDType,
    /// What the text begins with [default: "Once upon a time", or nothing where the context is short]
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// A checkout of dmexp to build with [default: the one that this command runs in, else the one that it was built from, else the released crate of its version]
    #[arg(long, value_name = "DIR")]
    dmexp: Option<PathBuf>,
    /// Lists the boards
    #[arg(long)]
    list: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

fn board(name: &str) -> Result<&'static Board, String> {
    Board::find(name).ok_or_else(|| {
        let known: Vec<_> = firmware::ALL.iter().map(|board| board.name).collect();
        format!("the boards are {}", known.join(", "))
    })
}

/// Runs the command.
pub(crate) fn run(command: &Firmware) -> Outcome {
    let (Some(board), Some(model)) = (command.board, &command.model) else { return list(command.json) };
    let dmexp = match &command.dmexp {
        Some(folder) => Source::in_folder(folder)?,
        None => Source::around(&std::env::current_dir().map_err(|source| Error::unreadable(Path::new("."), source))?),
    };
    if command.prompt.as_deref().is_some_and(|prompt| prompt.contains('\0')) {
        return Err(request("a prompt with a NUL character cannot stand in a program's text", "leave it out"));
    }
    let out = command.out.clone().unwrap_or_else(|| PathBuf::from(format!("{}-firmware", board.name)));
    let asked = Request { board, model, context: command.context, kv: command.kv, prompt: command.prompt.as_deref(), dmexp };
    let plan = firmware::write(&asked, &out)?;
    let model_bytes = plan.model_bytes;
    let arena_bytes = plan.layout.total_bytes as u64;
    let dmexp = match &asked.dmexp {
        Source::Path(folder) => folder.to_string_lossy(),
        Source::Registry(version) => format!("version {version}").into(),
    };
    if command.json {
        let value = json!({
            "out": out.to_string_lossy(),
            "board": board.name,
            "target": board.target(),
            "context": plan.context,
            "kv": asked.kv.name(),
            "model_bytes": model_bytes,
            "arena_bytes": arena_bytes,
            "dmexp": dmexp,
        });
        return Ok(json(&value)?);
    }
    let mut text = io::stdout().lock();
    writeln!(text, "{}: firmware for {}", shown_path(&out), board.title())?;
    let ram = plan.board.banks.first().map_or(0, |(_, bytes)| *bytes);
    let rows = [
        ("model", format!("{} of {} that the code leaves", bytes(model_bytes), grouped(plan.model_room))),
        (
            "arena",
            format!("{} of {} of RAM, {} of which are kept for the stack", bytes(arena_bytes), grouped(ram), grouped(plan.board.kept)),
        ),
        ("context", format!("{} positions, keys and values in {}", plan.context, asked.kv)),
        ("dmexp", format!("of {dmexp}; another checkout: --dmexp")),
    ];
    facts(&mut text, &rows)?;
    writeln!(text, "next:\n  cd {}\n  {}", word(out.as_os_str().as_encoded_bytes()), board.next())?;
    Ok(())
}

/// A word as a shell takes it: in quotes where it has to be, in those of `$'..'`, which bash and zsh know, where a terminal would obey a part of it or it is no text.
fn word(bytes: &[u8]) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/.-_+,:@\\".contains(c);
    match str::from_utf8(bytes) {
        Ok(text) if text.chars().all(plain) => text.to_owned(),
        Ok(text) if !text.contains(drives_terminal) => format!("'{}'", text.replace('\'', r"'\''")),
        _ => format!("$'{}'", bytes.escape_ascii()),
    }
}

/// The boards.
fn list(as_json: bool) -> Outcome {
    if as_json {
        let boards = firmware::ALL.iter().map(|board| {
            let plan = board.plan();
            json!({
                "name": board.name,
                "title": board.title(),
                "target": board.target(),
                "machine": board.machine(),
                "flash_bytes": plan.code,
                "model_bytes": (plan.model > 0).then_some(plan.model),
                "ram_bytes": plan.banks.first().map(|(_, bytes)| bytes),
            })
        });
        return Ok(json(&boards.collect::<Value>())?);
    }
    let rows = firmware::ALL.iter().map(|board| [board.name.to_owned(), board.target().to_owned(), board.title()]);
    writeln!(io::stdout(), "{}", table(["board", "target", ""], &[], rows))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn folders_are_named_as_a_shell_takes_them() {
        assert_eq!(word(b"../an386-firmware"), "../an386-firmware");
        assert_eq!(word(b"my board"), "'my board'");
        assert_eq!(word(b"it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(word(b"\x1b[31m it's \xff"), r"$'\x1b[31m it\'s \xff'");
    }
}
