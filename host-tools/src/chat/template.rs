//! A chat template: the Jinja program that a model's file carries, rendered as Hugging Face's `apply_chat_template` renders it.

use super::Message;
use crate::error::{Error, Result};
use minijinja::value::{Kwargs, Value};
use minijinja::{AutoEscape, Environment, ErrorKind, State, context};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use std::io;

/// Work that a template may do: far more than any template needs for a full context, and over in a moment.
const FUEL: u64 = 50_000_000;
/// The longest template that is read.
const LENGTH_LIMIT: usize = 1 << 20;
/// The name that Jinja's errors use.
const NAME: &str = "chat template";

/// A compiled chat template.
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
}

/// What a template may call tokens by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenNames {
    /// `bos_token`.
    pub bos: String,
    /// `eos_token`.
    pub eos: String,
    /// `pad_token`.
    pub pad: String,
    /// `unk_token`.
    pub unk: String,
}

impl Template {
    /// Compiles `source`.
    ///
    /// Blocks take their line's white space with them (`trim_blocks`, `lstrip_blocks`), nothing is escaped, `break` and `continue` work, and so do Python's methods of strings, lists and dicts.
    /// There is no `strftime_now`: templates that ask whether it is defined go on with a date of their own, and the same conversation gives the same text on any day.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged) with the line that is no Jinja.
    pub fn new(source: &str) -> Result<Self> {
        if source.len() > LENGTH_LIMIT {
            return Err(Error::damaged(format!("the chat template has {} bytes; at most {LENGTH_LIMIT} are read", source.len())));
        }
        let mut environment = Environment::new();
        let syntax = environment.syntax().to_builder().trim_blocks(true).lstrip_blocks(true).build().map_err(|error| failure(&error))?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise);
        environment.add_filter("tojson", to_json);
        environment.add_template_owned(NAME, source.to_owned()).map_err(|error| failure(&error))?;
        Ok(Self { environment })
    }

    /// The text of a conversation; with `generate` it ends where the answer begins.
    ///
    /// # Errors
    /// [`Class::Request`](crate::error::Class::Request) with what the template objects to (some want no system message, or turns in strict alternation) or cannot do.
    pub fn render(&self, messages: &[Message], names: &TokenNames, generate: bool) -> Result<String> {
        let messages: Vec<Value> =
            messages.iter().map(|message| context! { role => message.role.name(), content => message.content.as_str() }).collect();
        let values = context! {
            messages,
            add_generation_prompt => generate,
            bos_token => names.bos.as_str(),
            eos_token => names.eos.as_str(),
            pad_token => names.pad.as_str(),
            unk_token => names.unk.as_str(),
            tools => Value::from(()),
            documents => Value::from(()),
        };
        let template = self.environment.get_template(NAME).map_err(|error| failure(&error))?;
        template.render(values).map_err(|error| failure(&error))
    }
}

fn failure(error: &minijinja::Error) -> Error {
    let line = error.line().map(|line| format!("line {line}"));
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let made = match error.kind() {
        ErrorKind::SyntaxError => Error::damaged(format!("the chat template is no Jinja that this version reads: {detail}")),
        ErrorKind::OutOfFuel => Error::new(crate::error::Class::Request, "the chat template does not come to an end"),
        _ => Error::new(crate::error::Class::Request, format!("the chat template does not take this conversation: {detail}")),
    };
    let made = made.advise("another template can be given with --chat-template FILE");
    match line {
        Some(line) => made.at(line),
        None => made,
    }
}

/// What templates call to refuse a conversation.
fn raise(what: &str) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, what.to_owned()))
}

/// JSON as Python's `json.dumps(value, ensure_ascii=False)` writes it.
#[expect(clippy::needless_pass_by_value, reason = "the form of Jinja's filters")]
fn to_json(_: &State, value: &Value, options: Kwargs) -> std::result::Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    // What is not ASCII always stays as it is, which is what templates ask for.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut text = Vec::new();
    let written = match indent {
        Some(width) => {
            let indent = " ".repeat(width.min(16));
            write_json(&mut text, value, PrettyFormatter::with_indent(indent.as_bytes()))
        }
        None => write_json(&mut text, value, Spaced),
    };
    written.map_err(|error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from(String::from_utf8_lossy(&text).into_owned()))
}

fn write_json<F: Formatter>(text: &mut Vec<u8>, value: &Value, formatter: F) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(text, formatter))
}

/// Python's separators: a space behind commas and colons.
struct Spaced;

impl Spaced {
    fn separate<W: ?Sized + io::Write>(writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
}

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        Self::separate(writer, first)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        Self::separate(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
