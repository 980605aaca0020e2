//! Firmware for QEMU's lm3s6965evb (Cortex-M3): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu lm3s6965evb`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::Memory;
use dmexp_board_app::uart::Pl011;

/// The board's first serial port.
type Serial = Pl011<0x4000_C000>;

dmexp_board_app::board!(Serial, Memory::none());
