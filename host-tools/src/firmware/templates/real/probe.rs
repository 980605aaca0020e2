//! What the firmware does with the feature `probe`, in place of the story: it answers `dmexp compare` and `dmexp device`.

use crate::model::{ARENA, Line, Model};
use core::fmt;
use dmexp::format::Error;
use dmexp::probe::{About, Probe};
use dmexp::{Sampler, Session};
use embassy_futures::yield_now;
use embedded_io::{ErrorKind, ErrorType, Write};

/// Answers for ever, or writes one line that says why there is no session. `read` waits for a byte; what it loses is asked for again. Called once.
pub(crate) async fn run(write: impl FnMut(&[u8]) -> bool, read: impl FnMut() -> Option<u8>) {
    let mut line = Line(write);
    if let Err(error) = answer(&mut line, read).await {
        let _ = fmt::write(&mut line, format_args!("dmexp: {error}\n"));
    }
}

async fn answer(line: &mut Line<impl FnMut(&[u8]) -> bool>, mut read: impl FnMut() -> Option<u8>) -> Result<(), Error> {
    let mut session = Session::new(Model::bind(), ARENA.take(), Sampler::greedy())?;
    let mut probe = Probe::new(About {
        firmware: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")),
        board: env!("CARGO_BIN_NAME"),
        fingerprint: Model::FINGERPRINT,
        goldens: Some(Model::goldens()),
        ticks: None,
        stack: None,
    });
    loop {
        if let Some(byte) = read() {
            probe.receive(&mut session, byte, line);
        }
        yield_now().await;
    }
}

impl<W> ErrorType for Line<W> {
    type Error = ErrorKind;
}

impl<W: FnMut(&[u8]) -> bool> Write for Line<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        if (self.0)(bytes) { Ok(bytes.len()) } else { Err(ErrorKind::Other) }
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}
