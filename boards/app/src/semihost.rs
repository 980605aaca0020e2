//! The semihosting calls that emulated boards need: the command line and the exit status. Called by `machine`.

use semihosting::sys::arm_compat::syscall::{OperationNumber, ParamRegW, syscall};

/// The longest command line that is read, with its closing NUL.
pub(crate) const COMMAND_LINE_LEN: usize = 64;

/// Reads the emulator's command line into `buffer` and returns what follows the first word (the program's name), trimmed.
/// Empty when there is no command line or when it is longer than the buffer.
pub(crate) fn command(buffer: &mut [u8; COMMAND_LINE_LEN]) -> &[u8] {
    let room = buffer.len();
    let mut block = [ParamRegW::buf(buffer.as_mut_slice()), ParamRegW::usize(room)];
    // SAFETY: SYS_GET_CMDLINE takes a block of two words, a buffer and its length, and writes at most that many bytes; both are
    // borrowed for the whole call.
    let status = unsafe { syscall(OperationNumber::SYS_GET_CMDLINE, ParamRegW::block(&mut block)) };
    if status.usize() != 0 {
        return &[];
    }
    let len = buffer.iter().position(|byte| *byte == 0).unwrap_or(room);
    let line = buffer.get(..len).unwrap_or(&[]);
    let program = line.iter().position(|byte| *byte == b' ').unwrap_or(len);
    line.get(program..).unwrap_or(&[]).trim_ascii()
}

/// Ends the emulation with this exit status.
pub(crate) fn exit(code: i32) -> ! {
    semihosting::process::exit(code)
}
