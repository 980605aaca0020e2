//! `dmexp generate --chat`: a conversation, one turn a line of stdin.

use super::args;
use super::failure::{Failure, Outcome, request};
use super::figures::Pace;
use super::generate::{Generate, Text, note, stop_strings};
use super::model::{Opened, needed};
use super::output::{bytes, count};
use dmexp::tokenizer::Tokenizer;
use dmexp::{Sampler, Session, Step, StopReason, StopStrings};
use dmexp_format::host::Header;
use dmexp_tools::chat::{self, Conversation, Template};
use dmexp_tools::error::{Error, shown_path};
use dmexp_tools::input::TEXT_LIMIT;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const HELP: &str = "a line is a turn; end a line with \\ to go on in the next; Ctrl-C stops an answer, Ctrl-D ends the conversation";

/// Runs the command.
pub(super) fn run(command: &Generate) -> Outcome {
    let system = command.system.as_ref().map(|text| utf8(command.text(text)?, "--system")).transpose()?;
    let first = command.prompt.as_ref().map(|text| utf8(command.text(text)?, "--prompt")).transpose()?;
    let stops = command.stops()?;
    let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
    let stops = stop_strings(&stops)?;
    let settings = command.settings();
    let opened = command.model.open()?;
    command.checked()?;
    let mut cpu = command.model.cpu(&opened, command.on)?;
    let model = *cpu.model();
    let tokenizer = *model.tokenizer();
    needed(&tokenizer, opened.loaded.path())?;
    let template = template(command, &opened)?;
    let conversation = Conversation::new(template, chat::names(&tokenizer), chat::specials(&tokenizer), system);
    let arena_bytes = cpu.arena_bytes();
    let session = cpu.session(Sampler::new(settings)?)?.ignoring_end_of_text(command.ignore_eos);
    let unused = if settings.temperature == 0.0 { " (not used: --temp 0 draws nothing)" } else { "" };
    note(format_args!("seed: {}{unused}", settings.seed));
    let signals = Signals::new()?;
    let mut talk = Talk {
        command,
        opened: &opened,
        tokenizer,
        conversation,
        session,
        stops,
        signals,
        prefill: Pace::default(),
        decode: Pace::default(),
    };
    let stdin = io::stdin().lock();
    let terminal = stdin.is_terminal();
    if terminal {
        note(format_args!("{HELP}"));
    }
    let turns = talk.all(first, stdin, terminal)?;
    opened.loaded.unchanged()?;
    note(format_args!("{}; prefill: {}; decode: {}", count(turns, "turn"), talk.prefill, talk.decode));
    note(format_args!("arena: {}, for {} positions with keys and values in {}", bytes(arena_bytes as u64), model.context(), model.kv()));
    Ok(())
}

fn utf8(bytes: Vec<u8>, what: &str) -> Outcome<String> {
    String::from_utf8(bytes)
        .map_err(|_| request(format!("the text of {what} is not UTF-8"), "chat templates take text alone: give it in UTF-8"))
}

/// The template that was named, or the file's own.
fn template(command: &Generate, opened: &Opened) -> Outcome<Template> {
    if let Some(template) = own_template(opened, command.chat_template.as_deref())? {
        return Ok(template);
    }
    let what = format!("{} carries no chat template", shown_path(opened.loaded.path()));
    Err(request(what, "give the model's own with --chat-template FILE (a Jinja text), or leave --chat out"))
}

/// The template in the file `named`, or else the model's own, if it has one.
pub(super) fn own_template(opened: &Opened, named: Option<&Path>) -> Outcome<Option<Template>> {
    if let Some(path) = named {
        let text = utf8(args::file_or_stdin(&path.as_os_str().to_owned())?, &shown_path(path))?;
        if text.trim().is_empty() {
            // It would be a prompt of nothing, and the answer one to no question.
            return Err(Error::not_a_model("is empty: no chat template").in_file(path).into());
        }
        return Ok(Some(Template::new(&text).map_err(|error| error.in_file(path))?));
    }
    let file = opened.loaded.file()?;
    let own = file
        .header_text()
        .filter(|_| file.version() == 2)
        .and_then(|text| Header::parse(text).ok())
        .and_then(|(header, _)| header.tokenizer.chat_template);
    let made = own.map(|text| Template::new(&text).map_err(|error| error.in_file(opened.loaded.path())));
    Ok(made.transpose()?)
}

/// Ctrl-C stops an answer; while the program waits for the next turn it ends the program.
struct Signals {
    stop: Arc<AtomicBool>,
    waiting: Arc<AtomicBool>,
}

impl Signals {
    fn new() -> Outcome<Self> {
        let signals = Self { stop: Arc::default(), waiting: Arc::default() };
        let signal = signal_hook::consts::SIGINT;
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&signals.waiting))?;
        signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
        Ok(signals)
    }

    fn wait<T>(&self, input: impl FnOnce() -> T) -> T {
        self.waiting.store(true, Ordering::SeqCst);
        let read = input();
        self.waiting.store(false, Ordering::SeqCst);
        self.stop.store(false, Ordering::SeqCst);
        read
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A conversation under way.
struct Talk<'s> {
    command: &'s Generate,
    opened: &'s Opened,
    tokenizer: Tokenizer<'s>,
    conversation: Conversation,
    session: Session<'s>,
    stops: StopStrings<'s>,
    signals: Signals,
    prefill: Pace,
    decode: Pace,
}

impl Talk<'_> {
    /// All turns until the input ends; returns how many.
    fn all(&mut self, first: Option<String>, mut input: impl BufRead, terminal: bool) -> Outcome<u64> {
        let mut turns = 0;
        let mut next = first;
        loop {
            let text = match next.take() {
                Some(text) => text,
                None => match self.signals.wait(|| read_turn(&mut input, terminal))? {
                    Some(text) => text,
                    None => return Ok(turns),
                },
            };
            if text.trim().is_empty() {
                continue;
            }
            self.ask(text)?;
            self.answer()?;
            turns += 1;
        }
    }

    /// Feeds the session what is new.
    fn ask(&mut self, text: String) -> Outcome {
        let turn = self.conversation.ask(text)?;
        if turn.fresh {
            self.session.reset();
        }
        let tokens = chat::encode(&self.tokenizer, &turn.feed, turn.fresh)?;
        let (known, context) = (self.session.tokens().len(), self.session.model().context());
        if tokens.len() > context as usize - known {
            let what = format!("the context is full: it has {context} positions, {known} are used, and this turn takes {}", tokens.len());
            return Err(request(what, "begin a new conversation, ask in fewer words, or give more --context where the model allows it"));
        }
        self.session.push_tokens(&tokens)?;
        Ok(())
    }

    /// Prints the model's answer as it comes, and adds it to the conversation.
    fn answer(&mut self) -> Outcome {
        let mut text = Text::new(false, self.stops.clone());
        let before = self.session.tokens().len();
        let end = self.generate(&mut text);
        let ended = text.end();
        let (end, new) = end?;
        ended?;
        // Of a text that a stop text cut short the session knows more, of one that fills the context less.
        let exact = !matches!(end, End::StopText) && self.session.tokens().len() == before + new as usize;
        self.conversation.answer(text.shown, exact);
        match end {
            End::OfText | End::StopText => {}
            End::Interrupted => note(format_args!("stopped by Ctrl-C after {}", count(u64::from(new), "new token"))),
            End::Steps => note(format_args!("stopped after {}, as --steps says", count(u64::from(new), "new token"))),
            End::ContextFull => {
                let context = self.session.model().context();
                note(format_args!("the context is full: all {context} positions are used, and the answer ends here"));
            }
        }
        Ok(())
    }

    fn generate(&mut self, text: &mut Text<'_>) -> Outcome<(End, u32)> {
        let mut new = 0;
        loop {
            if self.signals.stopped() {
                return Ok((End::Interrupted, new));
            }
            if self.command.steps.is_some_and(|steps| new >= steps) {
                return Ok((End::Steps, new));
            }
            let start = Instant::now();
            let step = self.session.step().map_err(|error| Failure::Told(self.opened.loaded.explain(error)))?;
            let pace = if new == 0 { &mut self.prefill } else { &mut self.decode };
            pace.tokens += 1;
            pace.seconds += start.elapsed().as_secs_f64();
            match step {
                Step::Prompt { .. } => {}
                Step::Token { text: piece, .. } => {
                    new += 1;
                    if text.push(piece.as_bytes())? {
                        return Ok((End::StopText, new));
                    }
                }
                Step::Stop(StopReason::ContextFull) => return Ok((End::ContextFull, new)),
                _ => return Ok((End::OfText, new)),
            }
        }
    }
}

/// Why an answer is over.
enum End {
    OfText,
    StopText,
    Steps,
    Interrupted,
    ContextFull,
}

/// The next turn: a line, and more of them while each ends with `\`. `None` at the end of the input.
fn read_turn(input: &mut impl BufRead, terminal: bool) -> Outcome<Option<String>> {
    let mut turn = Vec::new();
    let mut sign = "> ";
    loop {
        if terminal {
            // If stderr is closed, nobody is left to prompt.
            let _ = write!(io::stderr(), "{sign}").and_then(|()| io::stderr().flush());
        }
        let begun = !turn.is_empty();
        let room = TEXT_LIMIT.saturating_sub(turn.len() as u64);
        let read = input.by_ref().take(room + 1).read_until(b'\n', &mut turn);
        let read = read.map_err(|error| Error::unreadable(Path::new("stdin"), error))?;
        if turn.len() as u64 > TEXT_LIMIT {
            return Err(request(format!("a turn has more than {TEXT_LIMIT} bytes"), "give a text that fits the model's context"));
        }
        if read == 0 && !begun {
            if terminal {
                note(format_args!(""));
            }
            return Ok(None);
        }
        let ended = read > 0 && turn.pop_if(|byte| *byte == b'\n').is_some();
        if ended {
            turn.pop_if(|byte| *byte == b'\r');
        }
        if ended && turn.last() == Some(&b'\\') {
            turn.pop();
            turn.push(b'\n');
            sign = "... ";
            continue;
        }
        return utf8(turn, "this turn").map(Some);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(input: &[u8]) -> Vec<String> {
        let mut input = input;
        std::iter::from_fn(|| read_turn(&mut input, false).unwrap()).collect()
    }

    #[test]
    fn a_line_is_a_turn_and_a_backslash_joins_it_with_the_next() {
        assert_eq!(turns(b"one\ntwo\r\n\nlast"), ["one", "two", "", "last"]);
        assert_eq!(turns(b"one\\\ntwo\\\r\nthree\nfour\\"), ["one\ntwo\nthree", "four\\"]);
        assert_eq!(turns(b"one\\\n"), ["one\n"]);
        assert_eq!(turns(b""), [""; 0]);
        let long = vec![b'x'; 100_000];
        assert_eq!(turns(&long)[0].len(), 100_000);
    }

    #[test]
    fn a_turn_that_is_no_text_is_refused() {
        assert!(read_turn(&mut &b"a\xff\n"[..], false).is_err());
    }
}
