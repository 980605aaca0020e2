//! The board: @TITLE@. Its first serial port, transmit only, and where its program starts.

use core::convert::Infallible;
use embedded_io::{ErrorType, Write};

/// Where the registers of the port are.
const BASE: usize = @BASE@;

/// A writer to the port. Every byte is sent before `write` returns.
pub struct Serial(());

impl Serial {
    /// Turns the transmitter on.
    pub fn new() -> Self {
        set_up();
        Self(())
    }
}

impl ErrorType for Serial {
    type Error = Infallible;
}

impl Write for Serial {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        for &byte in bytes {
            send(byte);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

