//! Firmware for QEMU's lm3s6965evb (Cortex-M3): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu lm3s6965evb`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::{self, Memory};
use dmexp_board_app::uart::Pl011;

/// The board's first serial port.
type Serial = Pl011<0x4000_C000>;

#[cortex_m_rt::entry]
fn main() -> ! {
    machine::start::<Serial>(Memory::none())
}

#[cortex_m_rt::exception]
unsafe fn HardFault(frame: &cortex_m_rt::ExceptionFrame) -> ! {
    machine::fault::<Serial>(frame.pc())
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    machine::panicked::<Serial>()
}
