//! Firmware for QEMU's `sifive_e` (RV32IMAC): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu sifive_e`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::Memory;
use dmexp_board_app::uart::SiFive;

/// The chip's first serial port.
type Serial = SiFive<0x1001_3000>;

dmexp_board_app::board!(Serial, Memory::none());
