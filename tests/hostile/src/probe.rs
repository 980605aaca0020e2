//! The line between a chip and its host: arbitrary bytes and arbitrary messages, to either side.

use crate::{Outcome, seeds};
use dmexp::probe::{About, Outgoing, Probe, Receiver, Reply, Request};
use dmexp::{Model, Sampler, Session};
use dmexp_format::file::ModelFile;
use dmexp_tools::device::{Device, Link, Timing, Transport};
use dmexp_tools::error::{Class, Error, Result};
use std::sync::LazyLock;
use std::time::Duration;

/// The file that the chip has.
static FILE: LazyLock<Vec<u8>> = LazyLock::new(seeds::chip);

/// Cuts an input into pieces: a byte for what each is, a byte for its length, and so many bytes.
struct Pieces<'b>(&'b [u8]);

impl<'b> Iterator for Pieces<'b> {
    type Item = (u8, &'b [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([kind, len], rest) = self.0.split_first_chunk::<2>()?;
        let (piece, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        self.0 = rest;
        Some((*kind, piece))
    }
}

/// What a side wrote.
#[derive(Default)]
struct Written(Vec<u8>);

impl embedded_io::ErrorType for Written {
    type Error = core::convert::Infallible;
}

impl embedded_io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Self::Error> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A message as it lies on the line.
fn framed(id: u32, message: &impl serde::Serialize) -> Vec<u8> {
    let mut line = Written::default();
    if let Some(frame) = Outgoing::new(id, message) {
        frame.send(&mut line);
    }
    line.0
}

/// What a chip does with pieces: bytes as they are, or requests that are put into frames.
///
/// # Panics
/// If it answers with what is no reply, or to what was not asked.
pub(crate) fn device(bytes: &[u8]) -> Outcome {
    let file = ModelFile::open(&FILE).expect("it is right");
    let model = Model::bind(&file).expect("it is right").with_context(8);
    let mut memory = vec![0u32; model.arena_len().expect("it is right").div_ceil(4)];
    let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy()).expect("it is right");
    let goldens = Some(file.golden());
    let about = About { firmware: "made", board: "made", fingerprint: 1, goldens, ticks: None, stack: None };
    let mut probe = Probe::new(about);
    let mut written = Written::default();
    let mut asked = 0;
    for (kind, piece) in Pieces(bytes).take(64) {
        let request: Option<Request<'_>> = if kind & 1 == 0 { None } else { postcard::from_bytes(piece).ok() };
        let line = request.map_or_else(|| piece.to_vec(), |request| framed(u32::from(kind), &request));
        asked += usize::from(request.is_some());
        for byte in line {
            assert!(probe.receive(&mut session, byte, &mut written), "the line takes everything");
        }
    }
    let mut receiver = Receiver::new();
    let mut answers = 0;
    for byte in &written.0 {
        if let Some(frame) = receiver.push(*byte) {
            let reply: Reply<'_> = postcard::from_bytes(frame.message).expect("a chip sends replies");
            answers += usize::from(!matches!(reply, Reply::Busy));
        }
    }
    assert!(answers >= asked.saturating_sub(raw_zeros(bytes)), "{answers} answers to {asked} requests");
    Outcome::accepted(&written.0)
}

/// Raw pieces may leave the line within a frame, which then swallows the next.
fn raw_zeros(bytes: &[u8]) -> usize {
    Pieces(bytes).take(64).filter(|(kind, piece)| kind & 1 == 0 || postcard::from_bytes::<Request<'_>>(piece).is_err()).count()
}

/// A device that plays the pieces: bytes as they are, replies in frames with the right number or another, silence.
struct Played {
    pieces: Vec<(u8, Vec<u8>)>,
    receiver: Receiver,
    id: u32,
}

impl Transport for Played {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        for byte in bytes {
            if let Some(frame) = self.receiver.push(*byte) {
                postcard::from_bytes::<Request<'_>>(frame.message).expect("a host sends requests");
                self.id = frame.id;
            }
        }
        Ok(())
    }

    fn receive(&mut self, _within: Duration) -> Result<Vec<u8>> {
        let Some((kind, piece)) = self.pieces.pop() else { return Err(Error::new(Class::Unreadable, "the line is gone")) };
        let reply: Option<Reply<'_>> = if kind & 1 == 0 { None } else { postcard::from_bytes(&piece).ok() };
        let id = if kind & 2 == 0 { self.id } else { u32::from(kind) };
        Ok(reply.map_or_else(|| piece.clone(), |reply| framed(id, &reply)))
    }
}

/// What a host does with pieces that a device sends; the first byte says what it asks.
pub(crate) fn host(bytes: &[u8]) -> Outcome {
    let Some((ask, rest)) = bytes.split_first() else { return Outcome::Refused };
    let mut pieces: Vec<(u8, Vec<u8>)> = Pieces(rest).take(256).map(|(kind, piece)| (kind, piece.to_vec())).collect();
    pieces.reverse();
    let timing = Timing { silence: Duration::from_millis(1), tries: 2, limit: Duration::from_secs(1) };
    let link = Link::new(Box::new(Played { pieces, receiver: Receiver::new(), id: 0 }), timing);
    match Device::open(link).and_then(|device| asked(device, *ask)) {
        Ok(()) => Outcome::accepted(&bytes),
        // It may quote what the device wrote, in one line.
        Err(error) => Outcome::refused_by_command(&error),
    }
}

fn asked(mut device: Device, ask: u8) -> Result<()> {
    match ask % 4 {
        0 => {
            device.begin()?;
            for token in 0..3 {
                if device.step(token)?.is_some() {
                    let logits = device.logits()?;
                    assert_eq!(logits.len(), device.facts().vocab_size as usize);
                }
            }
        }
        1 => {
            device.begin()?;
            device.layers(1, 1)?;
            device.residual()?;
        }
        2 => {
            device.tensor(0)?;
            device.self_test(0)?;
            device.stats()?;
        }
        _ => {
            let settings = dmexp::sampler::Settings::GREEDY;
            device.generate(b"Once", settings, 5, &mut |_| Ok(()))?;
        }
    }
    Ok(())
}
