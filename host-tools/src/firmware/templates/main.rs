//! Tells a story with the model in model.dmexp through the board's serial port, then ends the emulation.

#![no_std]
#![no_main]

mod board;

use board::{Serial, entry};
use dmexp::format::Error;
use dmexp::sampler::Settings;
use dmexp::{Arena, Sampler, Session, include_model};
use embedded_io::Write;
use static_cell::ConstStaticCell;

// Checked while this compiles: a damaged file does not build, nor one for which Cargo.toml lacks a feature of dmexp.
include_model!(Model = "../model.dmexp", context = @CONTEXT@, kv = @KV@, board = "@NAME@", section = ".dmexp_model");

/// The memory that a session of this model needs, to the byte.
static ARENA: ConstStaticCell<Arena<{ Model::ARENA_LEN }>> = ConstStaticCell::new(Arena::new());

/// What the text begins with.
const PROMPT: &str = @PROMPT@;

/// New tokens at most.
const TOKENS: u32 = 240;

#[entry]
fn main() -> ! {
    let mut serial = Serial::new();
    let status = match tell(&mut serial) {
        Ok(()) => 0,
        Err(error) => {
            let Ok(()) = writeln!(serial, "dmexp: {error}") else { end(2) };
            1
        }
    };
    end(status)
}

fn tell(serial: &mut Serial) -> Result<(), Error> {
    let Ok(()) = serial.write_all(PROMPT.as_bytes());
    let sampler = Sampler::new(Settings { temperature: 0.8, top_p: 0.9, seed: 1, ..Settings::GREEDY })?;
    let mut session = Session::new(Model::bind(), ARENA.take(), sampler)?;
    session.generate(PROMPT, TOKENS, serial)?;
    let Ok(()) = serial.write_all(b"\n");
    Ok(())
}

/// Ends the emulation. On a chip without a debugger this would be the place to sleep.
fn end(status: i32) -> ! {
    semihosting::process::exit(status)
}

/// Says what broke and ends the emulation.
fn broken(what: &[u8]) -> ! {
    let Ok(()) = Serial::new().write_all(what);
    end(101)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    broken(b"the firmware panicked\n")
}
