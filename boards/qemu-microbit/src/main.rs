//! Firmware for QEMU's microbit (Cortex-M0): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu microbit`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::{self, Memory};
use dmexp_board_app::uart::Nrf51;

/// The board's first serial port.
type Serial = Nrf51<0x4000_2000>;

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
