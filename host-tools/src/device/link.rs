//! A request and its reply: frames over a line that may lose, double, damage and delay them. Called by [`super::Device`].

use super::Transport;
use crate::error::{Class, Error, Result};
use dmexp::probe::{Outgoing, Receiver, Refusal, Reply, Request, VERSION};
use std::time::{Duration, Instant};

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Silence after which a request is sent again.
    pub silence: Duration,
    /// How often it is sent.
    pub tries: u32,
    /// The time that a request may take, however often the device says that it is busy.
    pub limit: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { silence: Duration::from_secs(10), tries: 3, limit: Duration::from_mins(10) }
    }
}

/// The most bytes of what is no frame that are kept for an error.
const NOISE_LEN: usize = 400;

/// What a device may answer before it can be understood.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The device says no.
    Refused(Refusal),
    /// There is no answer.
    Failed(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The line to a device with the number of the next request.
pub struct Link {
    transport: Box<dyn Transport>,
    receiver: Receiver,
    timing: Timing,
    id: u32,
    /// The end of what arrived since the last frame.
    noise: Vec<u8>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("timing", &self.timing).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Link {
    /// A line that nothing was asked over.
    pub fn new(transport: Box<dyn Transport>, timing: Timing) -> Self {
        Self { transport, receiver: Receiver::new(), timing, id: unlikely_number(), noise: Vec::new() }
    }

    /// Waits like this from now on.
    pub(super) fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Asks, again where no answer comes, and gives the answer to `read`, which says `None` of one that does not belong to the request.
    pub(super) fn ask<R>(&mut self, request: &Request<'_>, read: &mut dyn FnMut(Reply<'_>) -> Option<R>) -> Result<R, Trouble> {
        self.id = self.id.wrapping_add(1);
        let frame = Outgoing::new(self.id, request).ok_or_else(|| Error::new(Class::Request, "the request is longer than a frame"))?;
        let started = Instant::now();
        for _ in 0..self.timing.tries {
            let mut bytes = Bytes(Vec::new());
            // A vector takes everything.
            frame.send(&mut bytes);
            self.transport.send(&bytes.0).map_err(|error| self.with_noise(error))?;
            if let Some(answer) = self.wait(started, read)? {
                return answer.map_err(Trouble::Refused);
            }
        }
        let Timing { silence, tries, .. } = self.timing;
        let what = format!("the device does not answer; asked {tries} times and waited {} s each", silence.as_secs_f32());
        Err(self.with_noise(Error::new(Class::Unreadable, what)).into())
    }

    /// Waits for the answer to the last request; `None` after silence.
    fn wait<R>(
        &mut self,
        started: Instant,
        read: &mut dyn FnMut(Reply<'_>) -> Option<R>,
    ) -> Result<Option<std::result::Result<R, Refusal>>> {
        let mut left = self.timing.silence;
        loop {
            if started.elapsed() > self.timing.limit {
                let what = format!("the device was still busy after {} s", self.timing.limit.as_secs());
                return Err(Error::new(Class::Unreadable, what).advise("give it more time with --patience"));
            }
            let since = Instant::now();
            let arrived = self.transport.receive(left).map_err(|error| self.with_noise(error))?;
            if arrived.is_empty() {
                return Ok(None);
            }
            left = left.saturating_sub(since.elapsed());
            for byte in arrived {
                self.noise.push(byte);
                let Some(frame) = self.receiver.push(byte) else { continue };
                self.noise.clear();
                if frame.id != self.id {
                    continue;
                }
                if frame.version != VERSION {
                    let what = format!("the device speaks version {} of the probe, this program version {VERSION}", frame.version);
                    return Err(Error::not_a_model(what).advise("build firmware and dmexp from one version"));
                }
                match postcard::from_bytes(frame.message) {
                    Ok(Reply::Busy) => left = self.timing.silence,
                    Ok(Reply::Refused(refusal)) => return Ok(Some(Err(refusal))),
                    Ok(reply) => match read(reply) {
                        Some(answer) => return Ok(Some(Ok(answer))),
                        None => return Err(Error::damaged("the device's answer belongs to another request")),
                    },
                    Err(_) => return Err(Error::damaged("the device's answer cannot be understood")),
                }
            }
            let excess = self.noise.len().saturating_sub(NOISE_LEN);
            self.noise.drain(..excess);
            if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// The error with what the device wrote that is no frame: most likely a sentence.
    fn with_noise(&self, error: Error) -> Error {
        let written = String::from_utf8_lossy(&self.noise);
        let written = written.trim_matches(|c: char| c == '\0' || c.is_whitespace());
        if written.is_empty() { error } else { Error::new(error.class(), format!("{error}; it wrote: {written}")) }
    }
}

/// A number that another run of this program is not likely to have.
pub(super) fn unlikely_number() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (now.as_nanos() as u32).wrapping_mul(0x9E37_79B9) ^ std::process::id().rotate_left(16)
}

/// Bytes to be sent at once.
struct Bytes(Vec<u8>);

impl embedded_io::ErrorType for Bytes {
    type Error = std::convert::Infallible;
}

impl embedded_io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::result::Result<usize, Self::Error> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::result::Result<(), Self::Error> {
        Ok(())
    }
}
