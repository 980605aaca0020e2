//! The side of the chip: takes the bytes of the line, and answers requests from a session.

use super::{Chosen, Fact, Facts, Frame, Outgoing, Receiver, Refusal, Reply, Request, Stats, Tested, Ticks, VALUES_LEN, VERSION};
use super::{checksum, top5};
#[cfg(feature = "dormouse")]
use crate::format::arch::dormouse::layout::Decoding;
use crate::format::file::golden::{Golden, Goldens};
use crate::format::{Error, crc32};
use crate::{Sampler, Session, Step, StopReason};
use embedded_io::{Read, Write};

/// What the application knows and a session does not.
#[derive(Clone, Debug)]
pub struct About<'a> {
    /// The firmware's name and version, at most 64 bytes.
    pub firmware: &'a str,
    /// The board's name, at most 64 bytes.
    pub board: &'a str,
    /// The model's fingerprint: the constant of `include_model!`, or [`crate::format::file::ModelFile::fingerprint`].
    pub fingerprint: u32,
    /// The golden vectors of an opened file: [`crate::format::file::ModelFile::golden`].
    pub goldens: Option<Goldens<'a>>,
    /// What a counter of the chip says, if it has one.
    pub ticks: Option<(Ticks, fn() -> u64)>,
    /// Bytes of stack at the deepest point, where the application knows.
    pub stack: Option<fn() -> u32>,
}

/// Where the chip is, so that a request that comes twice is answered from the same state.
#[derive(Clone, Copy, Debug)]
enum Last {
    /// Nothing can be repeated.
    None,
    /// A prompt was added when so many tokens were known, and was so many.
    Prompt { known: u32, tokens: u32 },
    /// The logits after this position are there.
    Logits { position: u32, checksum: u32, top: [(u32, f32); 5] },
    /// The token at this position could not be worked on to its end.
    Refused { position: u32, refusal: Refusal },
    /// This came of the token at this position.
    Next { position: u32, came: Came },
}

/// [`Chosen`] without the bytes.
#[derive(Clone, Copy, Debug)]
enum Came {
    Prompt(u32),
    Token { fed: u32, token: u32 },
    EndOfText(u32),
    ContextFull,
}

/// Answers what hosts ask of a session.
#[derive(Clone, Debug)]
pub struct Probe<'a> {
    about: About<'a>,
    receiver: Receiver,
    /// The text's number; 0 where none was begun.
    text: u32,
    last: Last,
}

impl<'a> Probe<'a> {
    /// A probe of a session whose model `about` speaks of.
    #[must_use]
    pub const fn new(about: About<'a>) -> Self {
        Self { about, receiver: Receiver::new(), text: 0, last: Last::None }
    }

    /// Answers requests until the line has no more bytes or fails.
    pub fn serve<L: Read + Write>(&mut self, session: &mut Session<'_>, line: &mut L) {
        let mut bytes = [0; 16];
        while let Ok(count @ 1..) = line.read(&mut bytes) {
            for byte in bytes.iter().take(count) {
                if !self.receive(session, *byte, line) {
                    return;
                }
            }
        }
    }

    /// Takes the next byte of the line, and answers the request that it completes. False if the line takes no more.
    pub fn receive<W: Write>(&mut self, session: &mut Session<'_>, byte: u8, out: &mut W) -> bool {
        let Self { about, receiver, text, last } = self;
        let Some(frame) = receiver.push(byte) else { return true };
        Answer { about, text, last, session, out, id: frame.id }.to(&frame)
    }
}

/// A request being answered.
struct Answer<'p, 'a, 's, 'm, W> {
    about: &'p About<'a>,
    text: &'p mut u32,
    last: &'p mut Last,
    session: &'s mut Session<'m>,
    out: &'p mut W,
    id: u32,
}

impl<W: Write> Answer<'_, '_, '_, '_, W> {
    fn to(&mut self, frame: &Frame<'_>) -> bool {
        if frame.version != VERSION {
            return self.refuse(Refusal::Version(VERSION));
        }
        let Ok(request) = postcard::from_bytes(frame.message) else { return self.refuse(Refusal::Unknown) };
        match self.obey(&request) {
            Ok(sent) => sent,
            Err(refusal) => self.refuse(refusal),
        }
    }

    #[inline(never)]
    fn send(&mut self, reply: &Reply<'_>) -> bool {
        match Outgoing::new(self.id, reply) {
            Some(frame) => frame.send(self.out),
            None => Outgoing::new(self.id, &Reply::Refused(Refusal::Failed)).is_some_and(|frame| frame.send(self.out)),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> bool {
        self.send(&Reply::Refused(refusal))
    }

    fn obey(&mut self, request: &Request<'_>) -> Result<bool, Refusal> {
        match *request {
            Request::Hello => {
                let About { firmware, board, fingerprint, .. } = *self.about;
                Ok(self.send(&Reply::Hello { firmware, board, fingerprint }))
            }
            Request::Facts => Ok(self.send(&Reply::Facts(self.facts()))),
            Request::Reset { text, sampling } => {
                if text == 0 {
                    return Err(Refusal::Unknown);
                }
                if text != *self.text {
                    let sampler = Sampler::new(sampling.into())?;
                    self.session.set_sampler(sampler);
                    self.begin(text);
                }
                Ok(self.send(&Reply::Done))
            }
            Request::Prompt { text, known, bytes } => self.prompt(text, known, bytes),
            Request::Layers { text, position, token, layers } => self.layers(text, position, token, layers),
            Request::Step { text, position, token } => self.step(text, position, token),
            Request::Next { text, position } => self.next(text, position),
            Request::Read { text, position, layers, offset } => self.read(text, position, layers, offset),
            Request::Tensor { number } => {
                let network = self.session.model().network();
                let bytes = network.tensor_bytes(number).ok_or(Refusal::Range(Fact::Tensor, network.num_tensors()))?;
                let (checksum, bytes) = (crc32::checksum(&[bytes]), bytes.len() as u32);
                Ok(self.send(&Reply::Tensor { checksum, bytes }))
            }
            Request::SelfTest { vector } => {
                let goldens = self.about.goldens.clone();
                let count = goldens.clone().map_or(0, |goldens| goldens.count() as u32);
                let golden = goldens.and_then(|mut goldens| goldens.nth(vector as usize));
                self.test(golden.ok_or(Refusal::Range(Fact::Golden, count))?)
            }
            Request::Stats => {
                let About { ticks, stack, .. } = *self.about;
                let arena = self.session.model().arena_len().map_or(0, |bytes| bytes as u32);
                let stats = Stats { ticks: ticks.map(|(what, read)| (what, read())), stack: stack.map(|read| read()), arena };
                Ok(self.send(&Reply::Stats(stats)))
            }
        }
    }

    fn facts(&self) -> Facts {
        let model = self.session.model();
        let network = model.network();
        Facts {
            dim: network.dim(),
            n_layers: network.n_layers(),
            vocab_size: network.vocab_size(),
            context: model.context(),
            kv: model.kv() as u32,
            tensors: network.num_tensors(),
            goldens: self.about.goldens.clone().map_or(0, |goldens| goldens.count() as u32),
        }
    }

    /// Begins a text; 0 is none.
    fn begin(&mut self, text: u32) {
        self.session.reset();
        *self.text = text;
        *self.last = Last::None;
    }

    /// Where the chip is.
    fn elsewhere(&self) -> Refusal {
        Refusal::Elsewhere { text: *self.text, position: self.session.position() }
    }

    fn same_text(&self, text: u32) -> Result<(), Refusal> {
        if text == *self.text && text != 0 { Ok(()) } else { Err(self.elsewhere()) }
    }

    fn prompt(&mut self, text: u32, known: u32, bytes: &[u8]) -> Result<bool, Refusal> {
        self.same_text(text)?;
        let tokens = match *self.last {
            Last::Prompt { known: before, tokens } if before == known => tokens,
            _ if self.session.tokens().len() as u32 != known => return Err(self.elsewhere()),
            _ => {
                *self.last = Last::None;
                let tokens = self.session.prompt(bytes)?;
                *self.last = Last::Prompt { known, tokens };
                tokens
            }
        };
        Ok(self.send(&Reply::Prompted { tokens }))
    }

    /// Makes `token` the one at `position`, where the session is.
    fn place(&mut self, position: u32, token: u32) -> Result<(), Refusal> {
        match self.session.tokens().get(position as usize) {
            _ if position != self.session.position() => Err(self.elsewhere()),
            Some(known) if *known == token => Ok(()),
            Some(_) => Err(self.elsewhere()),
            None => {
                self.session.push_tokens(&[token])?;
                *self.last = Last::None;
                Ok(())
            }
        }
    }

    /// Does parts of the token at the session's position until so many layers are done; a host that waits hears of each.
    fn advance(&mut self, layers: u32) -> Result<bool, Refusal> {
        let mut sent = true;
        while self.session.layers_done().is_none_or(|done| done < layers) {
            self.session.advance()?;
            sent = sent && self.send(&Reply::Busy);
        }
        Ok(sent)
    }

    fn layers(&mut self, text: u32, position: u32, token: u32, layers: u32) -> Result<bool, Refusal> {
        self.same_text(text)?;
        let n_layers = self.session.model().network().n_layers();
        if layers > n_layers {
            return Err(Refusal::Range(Fact::Layers, n_layers));
        }
        self.place(position, token)?;
        if self.session.layers_done().is_some_and(|done| done > layers) {
            return Err(self.elsewhere());
        }
        *self.last = Last::None;
        let sent = self.advance(layers)?;
        let checksum = checksum(self.session.residual());
        Ok(sent && self.send(&Reply::Layered { checksum }))
    }

    /// Keeps why the token at `position` could not be worked on to its end.
    fn refused(last: &mut Last, position: u32, error: Error) -> Refusal {
        let refusal = error.into();
        *last = Last::Refused { position, refusal };
        refusal
    }

    fn step(&mut self, text: u32, position: u32, token: u32) -> Result<bool, Refusal> {
        self.same_text(text)?;
        let mut sent = true;
        let fed = self.session.tokens().get(position as usize);
        let (checksum, top) = match *self.last {
            Last::Logits { position: of, checksum, top } if of == position && fed == Some(&token) => (checksum, top),
            Last::Refused { position: of, refusal } if of == position && fed == Some(&token) => return Err(refusal),
            _ => {
                self.place(position, token)?;
                // More tokens than this one may be known, of a prompt.
                if self.session.tokens().len() as u32 != position.saturating_add(1) {
                    return Err(self.elsewhere());
                }
                *self.last = Last::None;
                sent = self.advance(self.session.model().network().n_layers())?;
                let logits = match self.session.logits() {
                    Ok(logits) => logits,
                    Err(error) => return Err(Self::refused(self.last, position, error)),
                };
                let (checksum, top) = (checksum(logits), top5(logits));
                *self.last = Last::Logits { position, checksum, top };
                (checksum, top)
            }
        };
        Ok(sent && self.send(&Reply::Stepped { checksum, top }))
    }

    fn next(&mut self, text: u32, position: u32) -> Result<bool, Refusal> {
        self.same_text(text)?;
        let mut sent = true;
        let came = match *self.last {
            Last::Next { position: of, came } if of == position => came,
            Last::Refused { position: of, refusal } if of == position => return Err(refusal),
            _ if position != self.session.position() => return Err(self.elsewhere()),
            _ => {
                *self.last = Last::None;
                let fed = self.session.tokens().get(position as usize).copied().unwrap_or_default();
                let step = loop {
                    match self.session.poll() {
                        Ok(Some(step)) => break step,
                        Ok(None) => sent = sent && self.send(&Reply::Busy),
                        Err(error) => return Err(Self::refused(self.last, position, error)),
                    }
                };
                let came = match step {
                    Step::Prompt { token } => Came::Prompt(token),
                    Step::Token { token, .. } => Came::Token { fed, token },
                    Step::Stop(StopReason::EndOfText(token)) => Came::EndOfText(token),
                    Step::Stop(_) => Came::ContextFull,
                };
                *self.last = Last::Next { position, came };
                came
            }
        };
        let tokenizer = *self.session.model().tokenizer();
        Ok(sent
            && match came {
                Came::Prompt(token) => self.send(&Reply::Next(Chosen::Prompt { token })),
                Came::Token { fed, token } => {
                    let piece = tokenizer.decode(fed, token);
                    self.send(&Reply::Next(Chosen::Token { token, text: piece.as_bytes() }))
                }
                Came::EndOfText(token) => self.send(&Reply::Next(Chosen::EndOfText { token })),
                Came::ContextFull => self.send(&Reply::Next(Chosen::ContextFull)),
            })
    }

    fn read(&mut self, text: u32, position: u32, layers: Option<u32>, offset: u32) -> Result<bool, Refusal> {
        self.same_text(text)?;
        let values = match (layers, *self.last) {
            (None, Last::Logits { position: of, .. }) if of == position => self.session.last_logits(),
            (Some(layers), _) if position == self.session.position() && self.session.layers_done() == Some(layers) => {
                self.session.residual()
            }
            _ => return Err(self.elsewhere()),
        };
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let range = Refusal::Range(Fact::Offset, values.len() as u32);
        let rest = (offset as usize).checked_mul(size_of::<f32>()).and_then(|start| bytes.get(start..)).ok_or(range)?;
        let reply = Outgoing::new(self.id, &Reply::Values(rest.get(..VALUES_LEN).unwrap_or(rest)));
        Ok(reply.is_some_and(|frame| frame.send(self.out)))
    }

    fn test(&mut self, golden: Golden<'_>) -> Result<bool, Refusal> {
        let (model, len) = (self.session.model(), golden.len());
        if golden.kv() != model.kv() {
            return Err(Refusal::OtherKv);
        }
        if len > model.context() {
            return Err(Refusal::NoRoom);
        }
        #[cfg(feature = "dormouse")]
        if model.decoding() == Decoding::Fast && model.network().dormouse().is_some_and(|network| !network.config().is_causal()) {
            return Err(Refusal::OtherDecoding);
        }
        self.begin(0);
        let (mut tokens, mut tested, mut sent) = (golden.tokens(), Tested { positions: 0, wrong: None }, true);
        for known in golden.positions() {
            while self.session.tokens().len() as u32 <= known.position
                && let Some(token) = tokens.next()
            {
                self.session.push_tokens(&[token])?;
            }
            // Until all parts of all of them are done.
            while self.session.advance().is_ok() {
                sent = sent && self.send(&Reply::Busy);
            }
            let logits = self.session.logits()?;
            let (computed, top) = (checksum(logits), top5(logits).map(|(token, _)| token));
            tested.positions = tested.positions.saturating_add(1);
            if tested.wrong.is_none() && (computed != known.crc32 || top != known.top) {
                tested.wrong = Some((known.position, known.crc32, computed));
            }
        }
        self.begin(0);
        Ok(sent && self.send(&Reply::Tested(tested)))
    }
}
