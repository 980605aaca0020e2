//! A device at a serial port.

use super::{Transport, gone};
use crate::error::{Class, Error, Result};
use serial2::SerialPort;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// An open serial port: eight bits, no parity, one stop bit, nothing translated.
#[derive(Debug)]
pub struct Serial {
    port: SerialPort,
}

impl Serial {
    /// Opens `port` at this speed.
    ///
    /// # Errors
    /// [`Class::Unreadable`], with the port's name and those that there are.
    pub fn open(port: &Path, baud: u32) -> Result<Self> {
        let opened = SerialPort::open(port, baud).map_err(|source| {
            let ports = SerialPort::available_ports().unwrap_or_default();
            let names: Vec<String> = ports.iter().map(|port| port.display().to_string()).collect();
            let there = if names.is_empty() { "there is no serial port".to_owned() } else { format!("there are {}", names.join(", ")) };
            Error::new(Class::Unreadable, format!("cannot be opened as a serial port: {source}")).advise(there).in_file(port)
        })?;
        // What arrived before this is nobody's answer.
        opened.discard_buffers().map_err(gone)?;
        Ok(Self { port: opened })
    }
}

impl Transport for Serial {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.port.write_all(bytes).and_then(|()| self.port.flush()).map_err(gone)
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>> {
        self.port.set_read_timeout(within).map_err(gone)?;
        let mut bytes = vec![0; 4096];
        loop {
            match self.port.read(&mut bytes) {
                Ok(0) => return Err(gone("it ended")),
                Ok(count) => {
                    bytes.truncate(count);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(Vec::new()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(gone(error)),
            }
        }
    }
}
