//! The board's first serial port: the UART of Arm's Cortex-M System Design Kit, transmit only. Called by `main.rs`.

use core::convert::Infallible;
use embedded_io::{ErrorType, Write};

/// Address of UART 0; its registers are words.
const BASE: usize = 0x4000_4000;
/// Register DATA: the byte to send.
const DATA: *mut u32 = BASE as *mut u32;
/// Register STATE: bit 0 says that the transmit buffer is full.
const STATE: *const u32 = (BASE + 0x04) as *const u32;
/// Register CTRL: bit 0 enables the transmitter.
const CONTROL: *mut u32 = (BASE + 0x08) as *mut u32;
/// Register BAUDDIV: the clock divider, 16 or more.
const DIVIDER: *mut u32 = (BASE + 0x10) as *mut u32;

/// A writer to UART 0. Every byte is sent before `write` returns.
pub(crate) struct Uart(());

impl Uart {
    /// Turns the transmitter on.
    pub(crate) fn new() -> Self {
        // SAFETY: both are registers of this board's UART 0, word-aligned; this firmware has one thread and no interrupts.
        unsafe {
            DIVIDER.write_volatile(16);
            CONTROL.write_volatile(1);
        }
        Self(())
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl Write for Uart {
    // Kept out of line: unrolled copies at every call would cost kilobytes of flash.
    #[inline(never)]
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        for &byte in bytes {
            // SAFETY: registers of UART 0, as in `new`.
            unsafe {
                while STATE.read_volatile() & 1 != 0 {}
                DATA.write_volatile(u32::from(byte));
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    // The provided method panics on a writer that takes nothing; this one always takes everything.
    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.write(bytes).map(|_| ())
    }
}
