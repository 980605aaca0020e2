//! A device that answers: what it is, and what it computes. Keeps the tokens of its text, so that a device that started anew is brought to where it was.

use super::link::{Link, Timing, Trouble, unlikely_number};
use crate::error::{Class, Error, Result};
use dmexp::probe::{Chosen, Facts, Refusal, Reply, Request, Sampling, Stats, Tested, checksum};
use dmexp::sampler::Settings;

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The firmware's name and version.
    pub firmware: String,
    /// The board's name.
    pub board: String,
    /// The model's fingerprint.
    pub fingerprint: u32,
}

/// The logits of a position, as a device tells them first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stepped {
    /// Their checksum.
    pub checksum: u32,
    /// The five largest with their tokens, best first.
    pub top: [(u32, f32); 5],
}

/// A text that a device wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generated {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// The tokens that were chosen.
    pub tokens: Vec<u32>,
    /// Their bytes.
    pub text: Vec<u8>,
    /// Why no more came; `None` where as many came as were wanted.
    pub stopped: Option<Stopped>,
}

/// Why a device wrote less than it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The model ended its text.
    EndOfText,
    /// Every position is used.
    ContextFull,
}

/// How often a device that lost its text is brought back to where it was within one question.
const RETURNS: u32 = 8;

/// The most bytes of a prompt in one request.
const PROMPT_LEN: usize = 192;

/// A device, and the text that it works on.
#[derive(Debug)]
pub struct Device {
    link: Link,
    hello: Hello,
    facts: Facts,
    /// The number of the text; 0 before the first.
    text: u32,
    /// The tokens of the positions that are done.
    tokens: Vec<u32>,
    /// The token at the position after them and how many of its layers were asked for.
    begun: Option<(u32, u32)>,
    /// The checksums of the logits after `tokens`, and of the residual stream after the layers of `begun`.
    logits: Option<u32>,
    residual: Option<u32>,
}

impl Device {
    /// Asks what answers at the other end.
    ///
    /// # Errors
    /// [`Class::Unreadable`] where nothing does; [`Class::NotAModel`] where it speaks another version.
    pub fn open(mut link: Link) -> Result<Self> {
        let hello = link.ask(&Request::Hello, &mut |reply| match reply {
            Reply::Hello { firmware, board, fingerprint } => {
                Some(Hello { firmware: firmware.to_owned(), board: board.to_owned(), fingerprint })
            }
            _ => None,
        });
        let hello = hello.map_err(told)?;
        let facts = link.ask(&Request::Facts, &mut |reply| match reply {
            Reply::Facts(facts) => Some(facts),
            _ => None,
        });
        let facts = facts.map_err(told)?;
        let text = unlikely_number();
        Ok(Self { link, hello, facts, text, tokens: Vec::new(), begun: None, logits: None, residual: None })
    }

    /// From now on it is waited for like this.
    pub(super) fn wait_as(&mut self, timing: Timing) {
        self.link.set_timing(timing);
    }

    /// What it says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Its model.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Begins a new text.
    ///
    /// # Errors
    /// Those of the line.
    pub fn begin(&mut self) -> Result<()> {
        self.tokens.clear();
        self.begun = None;
        self.begin_text(Settings::GREEDY).map_err(told)
    }

    /// Feeds `token` at the next position through its embedding and so many layers, and returns the checksum of the residual stream.
    ///
    /// # Errors
    /// Those of the line; [`Class::Request`] for what the model has not.
    pub fn layers(&mut self, token: u32, layers: u32) -> Result<u32> {
        self.begun = None;
        let checksum = self.at_its_place(&mut |device| device.ask_layers(token, layers))?;
        self.begun = Some((token, layers));
        self.residual = Some(checksum);
        Ok(checksum)
    }

    /// The residual stream after what [`Device::layers`] did last.
    ///
    /// # Errors
    /// Those of the line; [`Class::Request`] before it was called.
    pub fn residual(&mut self) -> Result<Vec<f32>> {
        let (Some((_, layers)), Some(checksum)) = (self.begun, self.residual) else {
            return Err(Error::new(Class::Request, "no layer was asked for"));
        };
        let (position, count) = (self.tokens.len() as u32, self.facts.dim);
        self.at_its_place(&mut |device| device.read(position, Some(layers), count, checksum))
    }

    /// Feeds `token` at the next position. `None` where its logits are not finite, after which nothing more can be fed.
    ///
    /// # Errors
    /// Those of the line; [`Class::Request`] for what the model has not.
    pub fn step(&mut self, token: u32) -> Result<Option<Stepped>> {
        let stepped = self.at_its_place(&mut |device| match device.ask_step(device.tokens.len() as u32, token) {
            Err(Trouble::Refused(Refusal::NonFinite(_))) => Ok(None),
            other => other.map(Some),
        })?;
        self.begun = None;
        self.tokens.push(token);
        self.logits = stepped.map(|stepped| stepped.checksum);
        Ok(stepped)
    }

    /// The logits after the last step.
    ///
    /// # Errors
    /// Those of the line; [`Class::Request`] where there are none.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        let (Some(position), Some(checksum)) = ((self.tokens.len() as u32).checked_sub(1), self.logits) else {
            return Err(Error::new(Class::Request, "no step was done"));
        };
        let count = self.facts.vocab_size;
        self.at_its_place(&mut |device| device.read(position, None, count, checksum))
    }

    /// The checksum of tensor `number` as it lies in the device's memory.
    ///
    /// # Errors
    /// Those of the line; [`Class::Request`] past the last.
    pub fn tensor(&mut self, number: u32) -> Result<u32> {
        let found = self.link.ask(&Request::Tensor { number }, &mut |reply| match reply {
            Reply::Tensor { checksum, .. } => Some(checksum),
            _ => None,
        });
        found.map_err(told)
    }

    /// Lets the device replay golden vector `vector` of its file, after which the text that was there is over. `None` of a vector for keys and values of another type.
    ///
    /// # Errors
    /// Those of the line; [`Class::Request`] where there is no such vector.
    pub fn self_test(&mut self, vector: u32) -> Result<Option<Tested>> {
        let tested = self.link.ask(&Request::SelfTest { vector }, &mut |reply| match reply {
            Reply::Tested(tested) => Some(tested),
            _ => None,
        });
        self.tokens.clear();
        (self.begun, self.logits) = (None, None);
        match tested {
            Err(Trouble::Refused(Refusal::OtherKv | Refusal::OtherDecoding)) => Ok(None),
            tested => tested.map(Some).map_err(told),
        }
    }

    /// What the device used so far.
    ///
    /// # Errors
    /// Those of the line.
    pub fn stats(&mut self) -> Result<Stats> {
        let stats = self.link.ask(&Request::Stats, &mut |reply| match reply {
            Reply::Stats(stats) => Some(stats),
            _ => None,
        });
        stats.map_err(told)
    }

    /// Lets the device continue `prompt` by at most `max_tokens` tokens, with its own tokenizer and sampler; `each` gets the text as it comes.
    ///
    /// # Errors
    /// Those of the line and of `each`; [`Class::Request`] for settings or a prompt that the device refuses.
    pub fn generate(
        &mut self,
        prompt: &[u8],
        settings: Settings,
        max_tokens: u32,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Generated> {
        let mut shown = 0;
        let mut returns = RETURNS;
        self.tokens.clear();
        (self.begun, self.logits) = (None, None);
        loop {
            match self.generate_once(prompt, settings, max_tokens, &mut shown, each) {
                Err(Trouble::Refused(Refusal::Elsewhere { .. })) if returns > 0 => returns -= 1,
                done => return done.map_err(told),
            }
        }
    }

    /// The text from its beginning; the first `shown` bytes of it were shown.
    fn generate_once(
        &mut self,
        prompt: &[u8],
        settings: Settings,
        max_tokens: u32,
        shown: &mut usize,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Generated, Trouble> {
        self.begin_text(settings)?;
        let mut found = Generated::default();
        let chunks: Vec<&[u8]> = if prompt.is_empty() { vec![prompt] } else { prompt.chunks(PROMPT_LEN).collect() };
        if chunks.len() > 1 {
            // A tokenizer that merges across the cut would give other tokens.
            return Err(Error::new(Class::Request, format!("a prompt for a device has at most {PROMPT_LEN} bytes")).into());
        }
        for bytes in chunks {
            let request = Request::Prompt { text: self.text, known: found.prompt_tokens, bytes };
            found.prompt_tokens += self.link.ask(&request, &mut |reply| match reply {
                Reply::Prompted { tokens } => Some(tokens),
                _ => None,
            })?;
        }
        let mut position = 0;
        while found.tokens.len() < max_tokens as usize {
            let request = Request::Next { text: self.text, position };
            let came = self.link.ask(&request, &mut |reply| match reply {
                Reply::Next(Chosen::Prompt { .. }) => Some(Ok(None)),
                Reply::Next(Chosen::Token { token, text }) => Some(Ok(Some((token, text.to_vec())))),
                Reply::Next(Chosen::EndOfText { .. }) => Some(Err(Stopped::EndOfText)),
                Reply::Next(Chosen::ContextFull) => Some(Err(Stopped::ContextFull)),
                _ => None,
            })?;
            let chosen = match came {
                Ok(chosen) => chosen,
                Err(stopped) => {
                    found.stopped = Some(stopped);
                    break;
                }
            };
            position += 1;
            let Some((token, text)) = chosen else { continue };
            found.tokens.push(token);
            found.text.extend_from_slice(&text);
            if let Some(new) = found.text.get(*shown..)
                && !new.is_empty()
            {
                each(new)?;
                *shown = found.text.len();
            }
        }
        Ok(found)
    }

    fn begin_text(&mut self, settings: Settings) -> Result<(), Trouble> {
        // Never one that the device could have from before; 0 is none.
        self.text = self.text.wrapping_add(1).max(1);
        let request = Request::Reset { text: self.text, sampling: Sampling::from(settings) };
        self.logits = None;
        self.link.ask(&request, &mut |reply| matches!(reply, Reply::Done).then_some(()))
    }

    /// Asks, and where the device is not at this text's place any more, brings it there and asks again.
    fn at_its_place<R>(&mut self, ask: &mut dyn FnMut(&mut Self) -> Result<R, Trouble>) -> Result<R> {
        for _ in 0..RETURNS {
            match ask(self) {
                Err(Trouble::Refused(Refusal::Elsewhere { .. })) => match self.go_back() {
                    Ok(()) | Err(Trouble::Refused(Refusal::Elsewhere { .. })) => {}
                    Err(trouble) => return Err(told(trouble)),
                },
                Err(trouble) => return Err(told(trouble)),
                Ok(answer) => return Ok(answer),
            }
        }
        Err(Error::new(Class::Unreadable, format!("the device lost its text {RETURNS} times within one question"))
            .advise("it may be restarting: look at its power and its watchdog"))
    }

    /// Feeds everything once more, as a new text.
    fn go_back(&mut self) -> Result<(), Trouble> {
        let logits = self.logits;
        self.begin_text(Settings::GREEDY)?;
        let mut last = None;
        for position in 0..self.tokens.len() {
            let token = self.tokens.get(position).copied().unwrap_or_default();
            last = Some(self.ask_step(position as u32, token)?.checksum);
        }
        self.logits = logits;
        if logits.is_some() && last != logits {
            return Err(Error::damaged(
                "the device gives other logits for the same tokens: it is not the same program, or its memory fails",
            )
            .into());
        }
        if let Some((token, layers)) = self.begun {
            self.ask_layers(token, layers)?;
        }
        Ok(())
    }

    fn ask_step(&mut self, position: u32, token: u32) -> Result<Stepped, Trouble> {
        let request = Request::Step { text: self.text, position, token };
        self.link.ask(&request, &mut |reply| match reply {
            Reply::Stepped { checksum, top } => Some(Stepped { checksum, top }),
            _ => None,
        })
    }

    fn ask_layers(&mut self, token: u32, layers: u32) -> Result<u32, Trouble> {
        let request = Request::Layers { text: self.text, position: self.tokens.len() as u32, token, layers };
        self.link.ask(&request, &mut |reply| match reply {
            Reply::Layered { checksum } => Some(checksum),
            _ => None,
        })
    }

    /// Reads `count` values piece by piece; they are those whose checksum was told before.
    fn read(&mut self, position: u32, layers: Option<u32>, count: u32, expected: u32) -> Result<Vec<f32>, Trouble> {
        let mut values: Vec<f32> = Vec::new();
        while values.len() < count as usize {
            let request = Request::Read { text: self.text, position, layers, offset: values.len() as u32 };
            let piece = self.link.ask(&request, &mut |reply| match reply {
                Reply::Values(bytes) => {
                    let (words, rest) = bytes.as_chunks::<4>();
                    (rest.is_empty() && !words.is_empty()).then(|| words.iter().map(|word| f32::from_le_bytes(*word)).collect::<Vec<_>>())
                }
                _ => None,
            })?;
            values.extend(piece);
        }
        if values.len() > count as usize || checksum(&values) != expected {
            return Err(Error::damaged("the values that the device sent are not those whose checksum it told").into());
        }
        Ok(values)
    }
}

/// An error in words.
fn told(trouble: Trouble) -> Error {
    let refusal = match trouble {
        Trouble::Failed(error) => return error,
        Trouble::Refused(refusal) => refusal,
    };
    let request = |what: String| Error::new(Class::Request, what);
    match refusal {
        Refusal::Version(version) => Error::not_a_model(format!("the device speaks version {version} of the probe"))
            .advise("build firmware and dmexp from one version"),
        Refusal::Unknown => Error::not_a_model("the device does not know the request").advise("build firmware and dmexp from one version"),
        Refusal::Elsewhere { position, .. } => {
            Error::new(Class::Unreadable, format!("the device is at position {position} of another text"))
                .advise("let one program at a time ask it")
        }
        Refusal::Range(fact, count) => {
            let fact = format!("{fact:?}").to_lowercase();
            request(format!("the device has no such {fact}: there are {count}"))
        }
        Refusal::NoRoom => request("the device's context has no room for it".to_owned()).advise("use fewer tokens, or a larger --context"),
        Refusal::NonFinite(position) => Error::damaged(format!("the device's logits at position {position} are not finite"))
            .advise("its weights are damaged: flash it again"),
        Refusal::Sampling => request("the device refuses the settings of the sampler".to_owned()),
        Refusal::Prompt => request("the device cannot make tokens of the prompt".to_owned())
            .advise("use a shorter one, with characters that the model knows"),
        Refusal::OtherKv => request("the golden vector was made with keys and values of another type than the device's".to_owned())
            .advise("choose another --kv"),
        Refusal::OtherDecoding => request("the golden vector was made with exact decoding, and the device's is fast".to_owned())
            .advise("build its firmware with exact decoding"),
        Refusal::Failed => Error::damaged("the device's session cannot go on"),
    }
}
