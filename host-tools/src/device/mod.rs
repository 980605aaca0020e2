//! Chips that are asked what they compute: the line to them, and the side of the host of `dmexp::probe`. Used by `dmexp compare`.
//!
//! [`open`] finds a device by its name; [`Device`] asks. A line may lose, double, damage and delay what goes over it, and either side may start anew: what comes of it is the right answer or an error.

mod link;
mod qemu;
mod remote;
mod serial;

#[cfg(test)]
mod tests;

pub use link::{Link, Timing};
pub use qemu::Emulated;
pub use remote::{Device, Generated, Hello, Stepped, Stopped};
pub use serial::Serial;

use crate::error::{Class, Error, Result};
use dmexp_format::KvDType;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A line to a device: bytes out, bytes in.
pub trait Transport {
    /// Puts bytes on the line.
    ///
    /// # Errors
    /// The line is gone.
    fn send(&mut self, bytes: &[u8]) -> Result<()>;

    /// What arrived: at least a byte, or none where none came within this time.
    ///
    /// # Errors
    /// The line is gone.
    fn receive(&mut self, within: Duration) -> Result<Vec<u8>>;
}

/// Which device: `qemu:BOARD`, `qemu:BOARD:FIRMWARE.elf`, or a serial port, with `:BAUD` where its speed matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// An emulated board that is started for this, with this firmware or the one that xtask built.
    Emulated {
        /// The board.
        board: String,
        /// The firmware, where it was named.
        firmware: Option<PathBuf>,
    },
    /// A serial port.
    Serial {
        /// The port: `/dev/ttyACM0`, `COM3`.
        port: PathBuf,
        /// Its speed.
        baud: u32,
    },
}

/// Bits a second where nobody says how many: USB does not care.
const BAUD: u32 = 115_200;

impl Name {
    /// Reads a name.
    ///
    /// # Errors
    /// A sentence that says what a name looks like.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("qemu:") {
            let (board, firmware) = match rest.split_once(':') {
                Some((board, firmware)) => (board, Some(firmware)),
                None => (rest, None),
            };
            if board.is_empty() || firmware == Some("") {
                return Err("an emulated board is named qemu:BOARD or qemu:BOARD:FIRMWARE.elf".to_owned());
            }
            return Ok(Self::Emulated { board: board.to_owned(), firmware: firmware.map(PathBuf::from) });
        }
        if text == "cuda" || text.starts_with("cuda:") {
            return Err("a GPU is no board: dmexp generate, logits, score, serve, compare and bench take --device cuda".to_owned());
        }
        if text.is_empty() {
            return Err("name a device: qemu:BOARD, or a serial port like /dev/ttyACM0".to_owned());
        }
        match text.rsplit_once(':') {
            Some((port, baud)) if !port.is_empty() && !baud.is_empty() && baud.bytes().all(|byte| byte.is_ascii_digit()) => {
                match baud.parse() {
                    Ok(baud @ 1..) => Ok(Self::Serial { port: port.into(), baud }),
                    _ => Err(format!("{baud} is no speed of a serial port")),
                }
            }
            _ => Ok(Self::Serial { port: text.into(), baud: BAUD }),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emulated { board, .. } => write!(f, "qemu:{board}"),
            Self::Serial { port, .. } => write!(f, "{}", port.display()),
        }
    }
}

/// What an emulated board is given. A device at a serial port has what was flashed.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The model file that is put into the board's memory; `None` for the model inside the firmware.
    pub model: Option<&'a Path>,
    /// How keys and values are kept.
    pub kv: KvDType,
    /// Positions; `None` for what the model has.
    pub context: Option<u32>,
}

/// Opens a device, starting it where it is emulated, and asks what it is.
///
/// # Errors
/// [`Class::Request`] for an unknown board, or where there is no firmware or no emulator (says which command gets it); [`Class::Unreadable`] where nothing answers;
/// [`Class::NotAModel`] where something else than this version's probe does.
pub fn open(name: &Name, load: &Load<'_>, timing: Timing) -> Result<Device> {
    let told = |error: Error| Error::new(error.class(), format!("{name}: {error}"));
    match name {
        Name::Emulated { board, firmware } => {
            let transport = Emulated::start(board, firmware.as_deref(), load)?;
            Device::open(Link::new(Box::new(transport), timing)).map_err(told)
        }
        Name::Serial { port, baud } => {
            let transport = Serial::open(port, *baud)?;
            // A board that runs says at once who it is: a port with nothing behind it is not waited for as a computation is.
            let first = Timing { silence: timing.silence / 4, ..timing };
            let mut device = Device::open(Link::new(Box::new(transport), first)).map_err(|error| told(error).advise(SERIAL_ADVICE))?;
            device.wait_as(timing);
            Ok(device)
        }
    }
}

/// What to look at where nothing answers at a serial port.
const SERIAL_ADVICE: &str = "see that it is the board's port and speed (PORT:BAUD), that its firmware has the probe, and that no other program has the port open; a slow board needs a longer --patience";

/// The line is gone.
fn gone(why: impl fmt::Display) -> Error {
    Error::new(Class::Unreadable, format!("the line to the device is gone: {why}"))
}
