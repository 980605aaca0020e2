//! Firmware for QEMU's mps2-an500 (Cortex-M7F): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu an500`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::Memory;
use dmexp_board_app::uart::Cmsdk;

/// The board's first serial port.
type Serial = Cmsdk<0x4000_4000>;

fn memory() -> Memory {
    // SAFETY: the board has 16 MB of RAM there that no section is linked into, and this runs once.
    unsafe { Memory::halves(0x6000_0000, 8 << 20) }
}

dmexp_board_app::board!(Serial, memory());
