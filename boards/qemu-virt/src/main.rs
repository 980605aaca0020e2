//! Firmware for QEMU's 32-bit RISC-V machine virt: its serial port and its memory; the rest is the application. Run by `cargo xtask qemu virt-imac` and `virt-imafc`.

#![no_std]
#![no_main]

use core::arch::asm;
use dmexp_board_app::machine::{self, Memory};
use dmexp_board_app::uart::Ns16550;

/// The machine's first serial port.
type Serial = Ns16550<0x1000_0000>;

#[riscv_rt::entry]
fn main() -> ! {
    // SAFETY: `memory.x` leaves these 16 MB of RAM free, and this runs once.
    let memory = unsafe { Memory::halves(0x8100_0000, 8 << 20) };
    machine::start::<Serial>(memory)
}

#[unsafe(export_name = "ExceptionHandler")]
fn exception(_: &riscv_rt::TrapFrame) -> ! {
    let address: u32;
    // SAFETY: reads the register that holds the address of the instruction that trapped.
    unsafe { asm!("csrr {}, mepc", out(reg) address, options(nomem, nostack, preserves_flags)) };
    machine::fault::<Serial>(address)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    machine::panicked::<Serial>()
}
