//! Firmware for QEMU's mps2-an386 (Cortex-M4F): the UART, the markers and the stack of this board; the rest is the
//! application. Run by `cargo xtask qemu an386`.

#![no_std]
#![no_main]

mod uart;

use dmexp_board_app::{Board, cortex_m, run, semihost, text};
use embedded_io::Write;
use uart::Uart;

/// Half of the board's second RAM, in bytes.
const HALF: usize = 8 << 20;
/// The lower half: a model file that QEMU loads.
const LOADED: *const u8 = 0x2100_0000 as *const u8;
/// The upper half: arenas.
const SPARE: *mut u32 = (0x2100_0000 + HALF) as *mut u32;

/// This board, as the application sees it.
struct An386 {
    uart: Uart,
    memory_taken: bool,
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

    fn spare_memory(&mut self) -> (&'static [u8], &'static mut [u32]) {
        if core::mem::replace(&mut self.memory_taken, true) {
            return (&[], &mut []);
        }
        // SAFETY: the board has 16 MB of RAM at 0x2100_0000 that no section is linked into; the two halves do not overlap, every bit pattern
        // is a byte or a word, and the flag lets them out once.
        unsafe { (core::slice::from_raw_parts(LOADED, HALF), core::slice::from_raw_parts_mut(SPARE, HALF / 4)) }
    }
}

#[cortex_m_rt::entry]
fn main() -> ! {
    cortex_m::paint_stack();
    let mut line = [0; semihost::COMMAND_LINE_LEN];
    let command = semihost::command(&mut line);
    let mut board = An386 { uart: Uart::new(), memory_taken: false };
    semihost::exit(run(&mut board, command))
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
