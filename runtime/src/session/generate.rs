//! A text in one call: from a prompt to a writer, whole characters at a time.

use super::{Session, Step, StopReason};
use crate::format::Error;
use crate::stop::{Progress, StopStrings};
use crate::tokenizer::Utf8Stream;
use crate::write::write_all;

/// What [`Session::generate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Tokens of the prompt, begin-of-text included.
    pub prompt_tokens: u32,
    /// New tokens.
    pub tokens: u32,
    /// Why it ended.
    pub stop: StopReason,
}

impl Session<'_> {
    /// Continues `prompt` by at most `max_tokens` tokens and writes the new text to `out`, whole characters at a time.
    ///
    /// # Errors
    /// Those of [`Session::prompt`] and [`Session::step`]; [`Error::Output`] if `out` fails.
    #[inline(never)]
    pub fn generate(&mut self, prompt: &str, max_tokens: u32, out: &mut impl embedded_io::Write) -> Result<Generated, Error> {
        let prompt_tokens = self.prompt(prompt.as_bytes())?;
        self.stops.reset();
        let mut utf8 = Utf8Stream::new();
        let (mut tokens, mut over) = (0, false);
        #[cfg(not(target_os = "none"))]
        if max_tokens > 0 {
            self.feed_blocks();
        }
        let stop = loop {
            if tokens == max_tokens {
                break StopReason::MaxTokens;
            }
            match self.step()? {
                Step::Prompt { .. } => {}
                Step::Stop(reason) => break reason,
                Step::Token { text, .. } => {
                    tokens += 1;
                    if !utf8.push_bytes(text.as_bytes(), &mut |text| show(&mut self.stops, out, text, &mut over)) {
                        return Err(Error::Output);
                    }
                    if over {
                        break StopReason::StopString;
                    }
                }
            }
        };
        let ended = utf8.finish_bytes(&mut |text| show(&mut self.stops, out, text, &mut over))
            && (over || self.stops.finish_bytes(&mut |text| write_all(out, text)));
        if !ended {
            return Err(Error::Output);
        }
        Ok(Generated { prompt_tokens, tokens, stop: if over { StopReason::StopString } else { stop } })
    }
}

/// Gives `text` to `out` as far as no stop string comes up; `over` says that one did, and what follows it is dropped. False if `out` fails.
fn show(stops: &mut StopStrings<'_>, out: &mut impl embedded_io::Write, text: &[u8], over: &mut bool) -> bool {
    if *over {
        return true;
    }
    let progress = stops.push_bytes(text, &mut |text| write_all(out, text));
    *over = progress == Progress::Stopped;
    progress != Progress::Refused
}
