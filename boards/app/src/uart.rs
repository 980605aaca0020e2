//! The serial ports of the emulated boards, polled. Called by the board crates, each with the port that its machine has.

use core::convert::Infallible;
use core::marker::PhantomData;
use embedded_io::{ErrorType, Read, Write};

/// A serial port at a fixed address.
///
/// # Safety
/// An implementation touches nothing but the registers of its own device. Whoever uses one on a board sees to it that the device is
/// at that address and that nothing else drives it; these firmwares have one thread and no interrupts.
pub unsafe trait Port {
    /// Turns transmitter and receiver on.
    fn set_up();

    /// Sends one byte and returns when the port took it.
    fn send(byte: u8);

    /// The next byte that arrived; `None` where none did.
    fn receive() -> Option<u8>;
}

/// Writes the 32-bit register at `address`.
fn write32(address: usize, value: u32) {
    // SAFETY: called by the ports alone, with the word-aligned addresses of their registers.
    unsafe { (address as *mut u32).write_volatile(value) }
}

/// Reads the 32-bit register at `address`.
fn read32(address: usize) -> u32 {
    // SAFETY: as in `write32`.
    unsafe { (address as *const u32).read_volatile() }
}

/// The UART of Arm's Cortex-M System Design Kit: Arm's own boards.
pub struct Cmsdk<const BASE: usize>;

// SAFETY: registers DATA 0, STATE 4, CTRL 8 and BAUDDIV 16 of the device.
unsafe impl<const BASE: usize> Port for Cmsdk<BASE> {
    fn set_up() {
        // The divider must be 16 or more; bits 0 and 1 of CTRL enable transmitter and receiver.
        write32(BASE + 0x10, 16);
        write32(BASE + 0x08, 3);
    }

    fn send(byte: u8) {
        while read32(BASE + 0x04) & 1 != 0 {}
        write32(BASE, u32::from(byte));
    }

    fn receive() -> Option<u8> {
        if read32(BASE + 0x04) & 2 == 0 { None } else { Some(read32(BASE) as u8) }
    }
}

/// Arm's PL011: the Stellaris boards.
pub struct Pl011<const BASE: usize>;

// SAFETY: registers DR 0, FR 0x18, LCRH 0x2C and CR 0x30 of the device.
unsafe impl<const BASE: usize> Port for Pl011<BASE> {
    fn set_up() {
        // Eight bits a character; the device, its transmitter and its receiver on.
        write32(BASE + 0x2C, 0x60);
        write32(BASE + 0x30, 0x301);
    }

    fn send(byte: u8) {
        while read32(BASE + 0x18) & 0x20 != 0 {}
        write32(BASE, u32::from(byte));
    }

    fn receive() -> Option<u8> {
        if read32(BASE + 0x18) & 0x10 != 0 { None } else { Some(read32(BASE) as u8) }
    }
}

/// The UART of the nRF51.
pub struct Nrf51<const BASE: usize>;

// SAFETY: registers STARTRX 0x000, STARTTX 0x008, RXDRDY 0x108, TXDRDY 0x11C, ENABLE 0x500, RXD 0x518 and TXD 0x51C of the device.
unsafe impl<const BASE: usize> Port for Nrf51<BASE> {
    fn set_up() {
        write32(BASE + 0x500, 4);
        write32(BASE, 1);
        write32(BASE + 0x008, 1);
    }

    fn send(byte: u8) {
        write32(BASE + 0x51C, u32::from(byte));
        while read32(BASE + 0x11C) == 0 {}
        write32(BASE + 0x11C, 0);
    }

    fn receive() -> Option<u8> {
        if read32(BASE + 0x108) == 0 {
            return None;
        }
        write32(BASE + 0x108, 0);
        Some(read32(BASE + 0x518) as u8)
    }
}

/// The 16550, with registers of a byte side by side: QEMU's RISC-V machine `virt`.
pub struct Ns16550<const BASE: usize>;

// SAFETY: registers THR and RBR 0, LCR 3 and LSR 5 of the device, each a byte.
unsafe impl<const BASE: usize> Port for Ns16550<BASE> {
    fn set_up() {
        // SAFETY: see the implementation's. Eight bits a character.
        unsafe { ((BASE + 3) as *mut u8).write_volatile(3) }
    }

    fn send(byte: u8) {
        // SAFETY: see the implementation's.
        unsafe {
            while ((BASE + 5) as *const u8).read_volatile() & 0x20 == 0 {}
            (BASE as *mut u8).write_volatile(byte);
        }
    }

    fn receive() -> Option<u8> {
        // SAFETY: see the implementation's.
        unsafe { if ((BASE + 5) as *const u8).read_volatile() & 1 == 0 { None } else { Some((BASE as *const u8).read_volatile()) } }
    }
}

/// The USART of the STM32F2 and STM32F4.
pub struct Stm32<const BASE: usize>;

// SAFETY: registers SR 0, DR 4 and CR1 0x0C of the device.
unsafe impl<const BASE: usize> Port for Stm32<BASE> {
    fn set_up() {
        // The device, its transmitter and its receiver on; the emulated one asks for no clock and no divider.
        write32(BASE + 0x0C, 1 << 13 | 1 << 3 | 1 << 2);
    }

    fn send(byte: u8) {
        while read32(BASE) & 0x80 == 0 {}
        write32(BASE + 0x04, u32::from(byte));
    }

    fn receive() -> Option<u8> {
        if read32(BASE) & 0x20 == 0 { None } else { Some(read32(BASE + 0x04) as u8) }
    }
}

/// The UART of `SiFive`'s FE310.
pub struct SiFive<const BASE: usize>;

// SAFETY: registers TXDATA 0, RXDATA 4, TXCTRL 8 and RXCTRL 0x0C of the device.
unsafe impl<const BASE: usize> Port for SiFive<BASE> {
    fn set_up() {
        write32(BASE + 0x08, 1);
        write32(BASE + 0x0C, 1);
    }

    fn send(byte: u8) {
        // The top bit is set while the queue is full.
        while read32(BASE) >> 31 != 0 {}
        write32(BASE, u32::from(byte));
    }

    fn receive() -> Option<u8> {
        // The top bit is set while nothing arrived.
        let found = read32(BASE + 0x04);
        if found >> 31 == 0 { Some(found as u8) } else { None }
    }
}

/// The port `P`, to write to and read from. Every byte is sent before `write` returns, and `read` waits for one.
pub struct Uart<P>(PhantomData<P>);

impl<P: Port> Uart<P> {
    pub(crate) fn new() -> Self {
        P::set_up();
        Self(PhantomData)
    }
}

impl<P> ErrorType for Uart<P> {
    type Error = Infallible;
}

impl<P: Port> Write for Uart<P> {
    // Kept out of line: unrolled copies at every call would cost kilobytes of flash.
    #[inline(never)]
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        for &byte in bytes {
            P::send(byte);
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

impl<P: Port> Read for Uart<P> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Infallible> {
        let Some(place) = bytes.first_mut() else { return Ok(0) };
        loop {
            if let Some(byte) = P::receive() {
                *place = byte;
                return Ok(1);
            }
        }
    }
}
