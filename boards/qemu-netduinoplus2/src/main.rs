//! Firmware for QEMU's netduinoplus2 (STM32F405, Cortex-M4F): its serial port and its memory; the rest is the application. Run by `cargo xtask qemu netduinoplus2`.

#![no_std]
#![no_main]

use dmexp_board_app::machine::Memory;
use dmexp_board_app::uart::Stm32;

/// The chip's first serial port.
type Serial = Stm32<0x4001_1000>;

dmexp_board_app::board!(Serial, Memory::none());
