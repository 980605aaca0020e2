//! Firmware for QEMU's microbit (Cortex-M0): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu microbit`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::Memory;
use dmexp_board_app::uart::Nrf51;

/// The board's first serial port.
type Serial = Nrf51<0x4000_2000>;

dmexp_board_app::board!(Serial, Memory::none());
