//! `cargo xtask device-check`: what `tests/device_check/run.sh` takes, in one folder for a machine with a GPU. And the stand-in of CUDA's driver, for what is compared with it here.

use crate::failure::{Failure, Outcome};
use crate::{paths, process};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const HELP: &str = "\
Usage: cargo xtask device-check [OPTIONS]

Builds dmexp and what else the check of a GPU takes, and puts all of it into target/device-check. There, or on another machine with that
folder, NVIDIA's driver and neither network nor toolchain:

  bash target/device-check/run.sh

It takes less than five minutes; the beginning of run.sh says what it does.

Options:
  --stand-in       Only print the folder with the stand-in of CUDA's driver, for LD_LIBRARY_PATH; kernels/mock says what it can be told
";

/// What lies in the repository and goes with the programs.
const FILES: &[&str] = &["tests/device_check/run.sh", "tests/device_check/hashes.txt", "models/story.bin", "models/story.tokenizer.bin"];

/// The programs, and their packages.
const PROGRAMS: &[(&str, &str)] = &[("dmexp", "dmexp-tools"), ("made-checkpoint", "dmexp-tests")];

/// What the folder may weigh: it is copied to another machine.
const MOST_BYTES: u64 = 32 << 20;

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    match words.into_iter().next() {
        None => {}
        Some(word) if word == "--stand-in" => {
            let folder = stand_in()?.ok_or_else(|| Failure::cannot_run("the stand-in takes a C++ compiler and Linux on x86-64"))?;
            println!("{}", folder.display());
            return Ok(());
        }
        Some(word) => {
            return Err(Failure::cannot_run(format!("{} is no option of `cargo xtask device-check`", word.to_string_lossy())));
        }
    }
    let folder = paths::root().join("target/device-check");
    let failed = |error| Failure::cannot_run(format!("{}: {error}", folder.display()));
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => std::fs::create_dir_all(&folder).map_err(failed)?,
    }
    for file in FILES {
        let file = paths::root().join(file);
        std::fs::copy(&file, folder.join(file.file_name().unwrap_or_default())).map_err(failed)?;
    }
    let mut newest = (0, 0);
    for (program, package) in PROGRAMS {
        let mut build = process::cargo();
        build.current_dir(paths::root()).args(["build", "--release", "--locked", "--quiet", "--package", package, "--bin", program]);
        let built = process::built(&mut build, program)?;
        let stripped = folder.join(program);
        process::run(Command::new("strip").arg("-o").arg(&stripped).arg(&built))?;
        newest = newest.max(c_library(&std::fs::read(&stripped).map_err(failed)?));
    }
    let bytes = weight(&folder).map_err(failed)?;
    if bytes > MOST_BYTES {
        return Err(Failure::found_wrong(format!("target/device-check has {bytes} bytes, more than the {MOST_BYTES} it may have")));
    }
    println!("target/device-check: {bytes} bytes; takes x86-64 Linux with glibc {}.{} or newer, and NVIDIA's driver", newest.0, newest.1);
    println!("there: bash target/device-check/run.sh");
    Ok(())
}

fn weight(folder: &Path) -> std::io::Result<u64> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}

/// The newest version of the C library whose functions a program asks for.
fn c_library(program: &[u8]) -> (u32, u32) {
    let version = |text: &[u8]| {
        let (text, _) = text.split_at(text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.')?);
        let mut numbers = std::str::from_utf8(text).ok()?.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    let name = b"GLIBC_";
    let found = program.windows(name.len()).enumerate().filter(|(_, window)| window == name);
    found.filter_map(|(at, _)| version(program.get(at + name.len()..)?)).max().unwrap_or((0, 0))
}

/// The folder of the stand-in of CUDA's driver, for `LD_LIBRARY_PATH`; `None` where this machine cannot make one.
pub(crate) fn stand_in() -> Outcome<Option<PathBuf>> {
    let mut build = process::cargo();
    build.current_dir(paths::root()).args(["build", "--locked", "--quiet", "--package", "dmexp-mockcuda"]);
    let printed = process::capture(build.args(["--message-format", "json-render-diagnostics"]))?;
    let mut folders = printed.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).filter_map(|message| {
        let ours = message["reason"] == "build-script-executed" && message["package_id"].as_str()?.contains("mock");
        let folder = Path::new(message["out_dir"].as_str()?).join("mockcuda_folder");
        (ours && folder.join("libcuda.so.1").is_file()).then_some(folder)
    });
    Ok(folders.next_back())
}

#[cfg(test)]
mod tests {
    use super::c_library;

    #[test]
    fn the_newest_version_of_the_c_library_is_found() {
        assert_eq!(c_library(b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0"), (2, 34));
        assert_eq!(c_library(b"a program of another kind"), (0, 0));
    }
}
