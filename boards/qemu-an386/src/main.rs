//! Firmware for QEMU's mps2-an386 (Cortex-M4F): the UART, the markers and the stack of this board; the rest is the
//! application. Run by `cargo xtask qemu an386`.

#![no_std]
#![no_main]

mod uart;

use dmexp_board_app::{Board, cortex_m, run, semihost, text};
use embedded_io::Write;
use uart::Uart;

/// This board, as the application sees it.
struct An386 {
    uart: Uart,
}

impl Board for An386 {
    type Output = Uart;

    fn output(&mut self) -> &mut Uart {
        &mut self.uart
    }

    fn count_begin(&self) {
        cortex_m::count_begin();
    }

    fn count_end(&self) {
        cortex_m::count_end();
    }

    fn stack_peak(&self) -> usize {
        cortex_m::stack_peak()
    }
}

#[cortex_m_rt::entry]
fn main() -> ! {
    cortex_m::paint_stack();
    let mut line = [0; semihost::COMMAND_LINE_LEN];
    let command = semihost::command(&mut line);
    let mut board = An386 { uart: Uart::new() };
    let code = match run(&mut board, command) {
        Ok(()) => 0,
        Err(failure) => failure.exit_code(),
    };
    semihost::exit(code)
}

/// A fault ends the emulation at once, with the address of the instruction, instead of hanging until the time limit.
#[cortex_m_rt::exception]
unsafe fn HardFault(frame: &cortex_m_rt::ExceptionFrame) -> ! {
    let mut uart = Uart::new();
    let Ok(()) = uart.write_all(b"dmexp: hard fault at 0x");
    let Ok(()) = text::write_hex32(&mut uart, frame.pc());
    let Ok(()) = uart.write_all(b"\n");
    semihost::exit(102)
}

/// Never linked: `cargo xtask size` fails when something can panic, and finds this handler by its text too.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    let mut uart = Uart::new();
    let Ok(()) = uart.write_all(b"dmexp: the firmware panicked\n");
    semihost::exit(101)
}
