//! Firmware for QEMU's mps2-an385 (Cortex-M3): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu an385`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::{self, Memory};
use dmexp_board_app::uart::Cmsdk;

/// The board's first serial port.
type Serial = Cmsdk<0x4000_4000>;

#[cortex_m_rt::entry]
fn main() -> ! {
    // SAFETY: the board has 16 MB of RAM there that no section is linked into, and this runs once.
    let memory = unsafe { Memory::halves(0x2100_0000, 8 << 20) };
    machine::start::<Serial>(memory)
}

#[cortex_m_rt::exception]
unsafe fn HardFault(frame: &cortex_m_rt::ExceptionFrame) -> ! {
    machine::fault::<Serial>(frame.pc())
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    machine::panicked::<Serial>()
}
