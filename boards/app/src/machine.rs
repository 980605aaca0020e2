//! An emulated board as the application sees it, its start and its ends. Called by the `main` of each board crate.

#[cfg(feature = "measure")]
use crate::core_of;
#[cfg(any(feature = "measure", feature = "probe"))]
use crate::stack;
use crate::uart::{Port, Uart};
use crate::{Board, Command, run, semihost, text};
use embedded_io::Write;

/// Memory of a board that no section is linked into.
pub struct Memory {
    loaded: &'static [u8],
    spare: &'static mut [u32],
}

impl Memory {
    /// No such memory: models are built in, and sessions live in the story's arena.
    #[must_use]
    pub const fn none() -> Self {
        Self { loaded: &[], spare: &mut [] }
    }

    /// Two pieces of `half` bytes from `address` on: the lower for a model file that QEMU loads, the upper for arenas.
    ///
    /// # Safety
    /// `address` is a multiple of 4, RAM lies at all of both pieces, nothing else uses it, and this is called once.
    #[must_use]
    pub const unsafe fn halves(address: usize, half: usize) -> Self {
        let loaded = core::ptr::with_exposed_provenance(address);
        let spare = core::ptr::with_exposed_provenance_mut(address + half);
        // SAFETY: by the caller's word; the pieces do not overlap, and every bit pattern is a byte or a word.
        unsafe { Self { loaded: core::slice::from_raw_parts(loaded, half), spare: core::slice::from_raw_parts_mut(spare, half / 4) } }
    }
}

/// A board with the serial port `P`.
struct Machine<P> {
    uart: Uart<P>,
    memory: Memory,
}

impl<P: Port> Board for Machine<P> {
    type Output = Uart<P>;

    fn output(&mut self) -> &mut Uart<P> {
        &mut self.uart
    }

    #[cfg(feature = "measure")]
    fn count_begin(&self) {
        core_of::count_begin();
    }

    #[cfg(feature = "measure")]
    fn count_end(&self) {
        core_of::count_end();
    }

    #[cfg(feature = "measure")]
    fn stack_peak(&self) -> usize {
        stack::peak()
    }

    fn spare_memory(&mut self) -> (&'static [u8], &'static mut [u32]) {
        let Memory { loaded, spare } = core::mem::replace(&mut self.memory, Memory::none());
        (loaded, spare)
    }
}

/// Does the command on the emulator's command line and ends the emulation. Call it first thing in `main`.
pub fn start<P: Port>(memory: Memory) -> ! {
    #[cfg(any(feature = "measure", feature = "probe"))]
    stack::paint();
    semihost::exit(run(&mut Machine::<P> { uart: Uart::new(), memory }, command().as_ref()))
}

/// What is to be done, by the emulator's command line.
#[inline(never)]
fn command() -> Option<Command> {
    let mut line = [0; semihost::COMMAND_LINE_LEN];
    Command::parse(semihost::command(&mut line))
}

/// Ends the emulation at once, with the address of the instruction that faulted, instead of hanging until the time limit.
pub fn fault<P: Port>(address: u32) -> ! {
    let mut uart = Uart::<P>::new();
    let Ok(()) = uart.write_all(b"dmexp: hard fault at 0x");
    let Ok(()) = text::write_hex32(&mut uart, address);
    let Ok(()) = uart.write_all(b"\n");
    semihost::exit(102)
}

/// What a panic handler does. Never linked: `cargo xtask size` fails when something can panic, and finds this by its text too.
pub fn panicked<P: Port>() -> ! {
    let mut uart = Uart::<P>::new();
    let Ok(()) = uart.write_all(b"dmexp: the firmware panicked\n");
    semihost::exit(101)
}
