//! An emulated board: QEMU, started with a firmware that has the probe, the line being its first serial port.

use super::{Load, Transport, gone};
use crate::error::{Class, Error, Result};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A board that QEMU emulates.
struct Board {
    name: &'static str,
    program: &'static str,
    machine: &'static str,
    /// Where a model file is loaded; `None` where the board has no memory for one.
    load_address: Option<u64>,
}

const ARM: &str = "qemu-system-arm";
const RISCV: &str = "qemu-system-riscv32";

const fn board(name: &'static str, program: &'static str, machine: &'static str, load_address: Option<u64>) -> Board {
    Board { name, program, machine, load_address }
}

/// The boards of this repository's folder `boards`.
const BOARDS: &[Board] = &[
    board("an386", ARM, "mps2-an386", Some(0x2100_0000)),
    board("an500", ARM, "mps2-an500", Some(0x6000_0000)),
    board("an505", ARM, "mps2-an505", Some(0x8000_0000)),
    board("an547", ARM, "mps3-an547", Some(0x6000_0000)),
    board("netduinoplus2", ARM, "netduinoplus2", None),
    board("an385", ARM, "mps2-an385", Some(0x2100_0000)),
    board("an385-v6m", ARM, "mps2-an385", Some(0x2100_0000)),
    board("lm3s6965evb", ARM, "lm3s6965evb", None),
    board("microbit", ARM, "microbit", None),
    board("virt-imac", RISCV, "virt", Some(0x8100_0000)),
    board("virt-imafc", RISCV, "virt", Some(0x8100_0000)),
    board("sifive_e", RISCV, "sifive_e", None),
];

/// A running emulator, ended when this is dropped.
#[derive(Debug)]
pub struct Emulated {
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
}

impl Emulated {
    /// Starts `board` with `firmware`, or with the one that `cargo xtask probe` built in the repository that this is called in.
    ///
    /// # Errors
    /// [`Class::Request`]: the board is not known, there is no firmware, or no emulator; each says what to do.
    pub fn start(name: &str, firmware: Option<&Path>, load: &Load<'_>) -> Result<Self> {
        let Some(board) = BOARDS.iter().find(|board| board.name == name) else {
            let known: Vec<_> = BOARDS.iter().map(|board| board.name).collect();
            return Err(Error::new(Class::Request, format!("there is no emulated board {name:?}"))
                .advise(format!("there are {}", known.join(", "))));
        };
        let firmware = match firmware {
            Some(path) if path.is_file() => path.to_path_buf(),
            Some(path) => {
                return Err(Error::new(Class::Unreadable, "there is no such firmware").advise(build_advice(name)).in_file(path));
            }
            None => built_firmware(name).ok_or_else(|| {
                Error::new(Class::Request, format!("there is no firmware with the probe for {name}")).advise(build_advice(name))
            })?,
        };
        let mut child = command(board, &firmware, load)?
            .spawn()
            .map_err(|error| Error::new(Class::Request, format!("{} cannot be started: {error}", board.program)))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return Err(gone("it has no pipes")) };
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let (mut output, mut piece) = (output, vec![0; 4096]);
            while let Ok(count @ 1..) = output.read(&mut piece) {
                if sender.send(piece.get(..count).unwrap_or_default().to_vec()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, output: receiver })
    }

    /// How it ended, where it did.
    fn end(&mut self) -> Error {
        match self.child.wait() {
            Ok(status) => gone(format!("the emulator ended with {status}")),
            Err(error) => gone(error),
        }
    }
}

impl Transport for Emulated {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        // An emulator that ended takes nothing more: what it said before, and how it ended, is found when its answer is read.
        let _ = self.input.write_all(bytes).and_then(|()| self.input.flush());
        Ok(())
    }

    fn receive(&mut self, within: Duration) -> Result<Vec<u8>> {
        match self.output.recv_timeout(within) {
            Ok(bytes) => Ok(bytes),
            Err(RecvTimeoutError::Timeout) => Ok(Vec::new()),
            Err(RecvTimeoutError::Disconnected) => Err(self.end()),
        }
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        // It does not end by itself, and nobody is left to tell if this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(board: &Board, firmware: &Path, load: &Load<'_>) -> Result<Command> {
    let mut words = vec![board.name.to_owned()];
    let mut loader = None;
    // A board without memory for another model is asked for the one inside its firmware.
    if let (Some(model), Some(address)) = (load.model, board.load_address) {
        let len = std::fs::metadata(model).map_err(|error| Error::unreadable(model, error))?.len();
        words.extend(["file".to_owned(), "0".to_owned(), len.to_string()]);
        let mut option = OsString::from("loader,file=");
        option.push(doubled(model)?);
        option.push(format!(",addr={address:#x},force-raw=on"));
        loader = Some(option);
    }
    words.extend(["probe".to_owned(), load.kv.name().to_owned()]);
    words.extend(load.context.map(|context| context.to_string()));
    let mut command = Command::new(emulator(board.program)?);
    command
        .args(["-machine", board.machine, "-display", "none", "-monitor", "none", "-serial", "stdio"])
        .args(["-semihosting-config", &format!("enable=on,target=native,arg={}", words.join(",arg="))])
        .arg("-kernel")
        .arg(firmware);
    if board.program == RISCV {
        command.args(["-bios", "none"]);
    }
    if let Some(loader) = loader {
        command.arg("-device").arg(loader);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    Ok(command)
}

/// A path as QEMU's options want it: commas doubled.
fn doubled(path: &Path) -> Result<String> {
    let text = path
        .to_str()
        .ok_or_else(|| Error::new(Class::Request, "QEMU takes paths of Unicode alone").advise("rename the file").in_file(path))?;
    Ok(text.replace(',', ",,"))
}

fn build_advice(board: &str) -> String {
    format!("build it with `cargo xtask probe {board}`, or name one: qemu:{board}:FIRMWARE.elf")
}

/// The folders from the one that this was started in upwards.
fn folders() -> Vec<PathBuf> {
    std::env::current_dir().map(|folder| folder.ancestors().map(Path::to_path_buf).collect()).unwrap_or_default()
}

/// The firmware that `cargo xtask probe` left in the repository around the current folder.
fn built_firmware(board: &str) -> Option<PathBuf> {
    folders().into_iter().map(|folder| folder.join(format!("target/probe/{board}.elf"))).find(|path| path.is_file())
}

/// The emulator: on PATH, or the one that `cargo xtask setup` got.
fn emulator(program: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = folders().into_iter().map(|folder| folder.join("target/tools/qemu/root/usr/bin"));
    std::env::split_paths(&path).chain(own).map(|folder| folder.join(program)).find(|candidate| candidate.is_file()).ok_or_else(|| {
        Error::new(Class::Request, format!("{program} is not on PATH")).advise("install QEMU, or run `cargo xtask setup` in the repository")
    })
}
