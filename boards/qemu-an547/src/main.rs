//! Firmware for QEMU's mps3-an547 (Cortex-M55): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu an547`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::Memory;
use dmexp_board_app::uart::Cmsdk;

/// The board's first serial port.
type Serial = Cmsdk<0x4930_3000>;

fn memory() -> Memory {
    // SAFETY: the board has 2 GB of RAM there that no section is linked into, and this runs once.
    unsafe { Memory::halves(0x6000_0000, 8 << 20) }
}

dmexp_board_app::board!(Serial, memory());
