//! Firmware for QEMU's 32-bit RISC-V machine virt: its serial port and its memory; the rest is the application. Run by `cargo xtask qemu virt-imac` and `virt-imafc`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::Memory;
use dmexp_board_app::uart::Ns16550;

/// The machine's first serial port.
type Serial = Ns16550<0x1000_0000>;

fn memory() -> Memory {
    // SAFETY: `memory.x` leaves these 16 MB of RAM free, and this runs once.
    unsafe { Memory::halves(0x8100_0000, 8 << 20) }
}

dmexp_board_app::board!(Serial, memory());
