//! Runs a firmware under QEMU within a time limit. Used by `qemu`, `bench` and `test`.

use crate::board::Board;
use crate::failure::{Failure, Outcome};
use crate::setup::Emulator;
use crate::{process, setup};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How to run.
#[derive(Default)]
pub(crate) struct Options<'a> {
    /// The firmware's command line, after its name.
    pub(crate) arguments: &'a [String],
    /// The value of QEMU's `-plugin`.
    pub(crate) plugin: Option<OsString>,
    /// A file to put into the board's memory.
    pub(crate) load: Option<Load>,
    /// Whether the firmware's output is also passed on as it comes.
    pub(crate) stream: bool,
}

/// A file to put into the board's memory, `shift` bytes past the address that the board keeps for that.
pub(crate) struct Load {
    pub(crate) file: PathBuf,
    pub(crate) shift: u64,
}

/// Runs `elf` to its end and returns everything it wrote.
///
/// A firmware that exits with another status than 0, or that does not end within `limit`, is a failure.
pub(crate) fn run(board: &Board, elf: &Path, limit: Duration, options: &Options<'_>) -> Outcome<Vec<u8>> {
    let mut command = qemu_command(board, elf, options)?;
    let mut child =
        command.spawn().map_err(|error| Failure::cannot_run(format!("cannot start `{}`: {error}", process::shown(&command))))?;
    let pipe = child.stdout.take();
    let stream = options.stream;
    let reader = std::thread::spawn(move || collect(pipe, stream));
    let ended = wait(&mut child, limit);
    let written = reader.join().map_err(|_| Failure::cannot_run("the thread that reads the emulator's output broke"))?;
    let told = match options.arguments {
        [] => format!("the firmware of {}", board.name),
        words => format!("the firmware of {} with `{}`", board.name, words.join(" ")),
    };
    match ended? {
        None => {
            Err(Failure::found_wrong(format!("{told} did not end within {} s and was stopped; --timeout allows more", limit.as_secs())))
        }
        Some(status) if status.success() => Ok(written),
        Some(status) => {
            if !stream {
                eprint!("{}", String::from_utf8_lossy(&written));
            }
            Err(Failure::found_wrong(format!("{told} ended with {status}")))
        }
    }
}

fn qemu_command(board: &Board, elf: &Path, options: &Options<'_>) -> Outcome<Command> {
    let mut command = Command::new(setup::emulator(board.emulator)?);
    let mut semihosting = format!("enable=on,target=native,arg={}", board.name);
    for argument in options.arguments {
        // A comma is doubled: QEMU's own rule.
        semihosting += ",arg=";
        semihosting += &argument.replace(',', ",,");
    }
    command
        .args(["-machine", board.machine])
        .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
        .args(["-semihosting-config", &semihosting])
        .arg("-kernel")
        .arg(elf)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if board.emulator == Emulator::Riscv32 {
        command.args(["-bios", "none"]);
    }
    if let Some(load) = &options.load {
        let Some(base) = board.load_address else {
            return Err(Failure::cannot_run(format!("{} has no memory for a model that is loaded apart", board.name)));
        };
        let address = base + load.shift;
        let file = load.file.display().to_string().replace(',', ",,");
        command.args(["-device", &format!("loader,file={file},addr={address:#x},force-raw=on")]);
    }
    if let Some(plugin) = &options.plugin {
        command.arg("-plugin").arg(plugin);
    }
    Ok(command)
}

/// Reads to the end; passes each piece on at once when asked to.
fn collect(pipe: Option<impl Read>, stream: bool) -> Vec<u8> {
    let mut written = Vec::new();
    let mut piece = [0; 4096];
    if let Some(mut pipe) = pipe {
        while let Ok(count @ 1..) = pipe.read(&mut piece) {
            written.extend_from_slice(&piece[..count]);
            if stream {
                // A reader that went away is no reason to stop: the run is still checked.
                let mut out = std::io::stdout();
                let _ = out.write_all(&piece[..count]).and_then(|()| out.flush());
            }
        }
    }
    written
}

/// Waits for the end; `None` when the limit came first and the child was stopped.
fn wait(child: &mut Child, limit: Duration) -> Outcome<Option<ExitStatus>> {
    let start = Instant::now();
    let lost = |error| Failure::cannot_run(format!("lost the emulator: {error}"));
    loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            child.kill().map_err(lost)?;
            child.wait().map_err(lost)?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
