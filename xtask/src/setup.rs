//! `cargo xtask setup`, and what the other tasks call before they need a tool: Rust targets and components, and QEMU.
//!
//! A machine that has rustup's toolchain, gcc and git is made ready with nobody's help when it is a Debian or a relative of it;
//! elsewhere the message says what to install. What is there already is checked before it is used.

use crate::failure::{Failure, Outcome};
use crate::process::{self, on_path};
use crate::{paths, plugin};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const HELP: &str = "\
Usage: cargo xtask setup

Makes this machine ready for every other task: the targets and components of rust-toolchain.toml, QEMU for Arm and for RISC-V,
and the plugin that counts instructions. What is obtained goes to target/tools; only shared libraries that QEMU misses are
installed, with apt-get, as root. The other tasks do the same for what they need.
";

/// A QEMU that emulates boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emulator {
    /// Cortex-M boards.
    Arm,
    /// 32-bit RISC-V boards.
    Riscv32,
}

impl Emulator {
    fn program(self) -> &'static str {
        match self {
            Self::Arm => "qemu-system-arm",
            Self::Riscv32 => "qemu-system-riscv32",
        }
    }

    /// The Debian package that has the program.
    fn debian_package(self) -> &'static str {
        match self {
            Self::Arm => "qemu-system-arm",
            Self::Riscv32 => "qemu-system-misc",
        }
    }

    /// A machine that shows that the program is one that can be used.
    fn machine(self) -> &'static str {
        match self {
            Self::Arm => "mps2-an386",
            Self::Riscv32 => "virt",
        }
    }
}

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    let mut parser = lexopt::Parser::from_args(words);
    if let Some(argument) = parser.next()? {
        return Err(argument.unexpected().into());
    }
    toolchain()?;
    println!("Rust: the targets and components of rust-toolchain.toml are there");
    for wanted in [Emulator::Arm, Emulator::Riscv32] {
        let program = emulator(wanted)?;
        require_plugins(&program)?;
        println!("{}: {}", wanted.program(), program.display());
        println!("counting plugin: {}", plugin::build(&program)?.display());
    }
    Ok(())
}

/// Sees to every target and component that rust-toolchain.toml lists.
pub(crate) fn toolchain() -> Outcome {
    let path = paths::root().join("rust-toolchain.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", path.display())))?;
    for target in listed(&text, "targets") {
        rust_target(&target)?;
    }
    let bin = sysroot()?.join("bin");
    for component in listed(&text, "components") {
        let program = match component.as_str() {
            "clippy" => "cargo-clippy",
            other => other,
        };
        if !bin.join(program).is_file() {
            rustup("component", &component)?;
        }
    }
    Ok(())
}

/// Sees to the standard library of one target.
pub(crate) fn rust_target(target: &str) -> Outcome {
    if sysroot()?.join("lib/rustlib").join(target).is_dir() {
        return Ok(());
    }
    rustup("target", target)
}

/// The strings of one array in rust-toolchain.toml, a file with one table and no nesting.
fn listed(text: &str, key: &str) -> Vec<String> {
    let Some(array) = text.split_once(&format!("\n{key} = [")).and_then(|(_, rest)| rest.split_once(']')) else {
        return Vec::new();
    };
    array.0.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn sysroot() -> Outcome<PathBuf> {
    let printed = process::capture(Command::new("rustc").current_dir(paths::root()).args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(printed.trim_end()))
}

/// `rustup target add` or `rustup component add`.
fn rustup(kind: &str, name: &str) -> Outcome {
    if on_path("rustup").is_none() {
        return Err(Failure::cannot_run(format!(
            "the Rust {kind} {name} is not installed, and there is no rustup to add it; install it for this toolchain \
             (rust-toolchain.toml says which), or install rustup"
        )));
    }
    println!("adding the Rust {kind} {name}");
    process::run(Command::new("rustup").current_dir(paths::root()).args([kind, "add", name]))
}

/// The QEMU of this kind: the one on PATH, the one obtained earlier, or one obtained now.
pub(crate) fn emulator(wanted: Emulator) -> Outcome<PathBuf> {
    let own = unpacked().join("usr/bin").join(wanted.program());
    for candidate in on_path(wanted.program()).into_iter().chain([own.clone()]) {
        if !candidate.is_file() {
            continue;
        }
        match usable(&candidate, wanted) {
            Ok(()) => return Ok(candidate),
            Err(why) => eprintln!("xtask: {why}; another is used"),
        }
    }
    obtain(wanted)?;
    usable(&own, wanted)?;
    Ok(own)
}

/// The C compiler for Arm chips: the one on PATH, the one obtained earlier, or one obtained now.
pub(crate) fn arm_gcc() -> Outcome<PathBuf> {
    const NAME: &str = "arm-none-eabi-gcc";
    if let Some(found) = on_path(NAME) {
        return Ok(found);
    }
    let root = paths::tools().join("gcc");
    let program = root.join("usr/bin").join(NAME);
    if program.is_file() {
        return Ok(program);
    }
    debian_tools(&["apt-get", "dpkg", "dpkg-deb", "ldd", "tar"], "arm-none-eabi-gcc")?;
    let mut packages = Vec::new();
    // The compiler last: it is what says that everything is there.
    for name in ["binutils-arm-none-eabi", "gcc-arm-none-eabi"] {
        let package = download(name)?;
        println!("unpacking {name} into target/tools");
        std::fs::create_dir_all(&root).map_err(|error| cannot_write(&root, &error))?;
        unpack_for_c(&package, &root)?;
        packages.push(package);
    }
    let compiler = process::capture(Command::new(&program).arg("-print-prog-name=cc1"))?;
    for package in &packages {
        install_missing_libraries(Path::new(compiler.trim()), package)?;
    }
    Ok(program)
}

/// Unpacks what compiling and linking C without a library needs, which is a fifth of the packages.
fn unpack_for_c(package: &Path, root: &Path) -> Outcome {
    let tar = root.with_extension("tar");
    process::capture(Command::new("sh").arg("-c").arg("dpkg-deb --fsys-tarfile \"$1\" > \"$2\"").arg("sh").arg(package).arg(&tar))?;
    let inside = "./usr/lib/gcc/arm-none-eabi/*";
    process::capture(
        Command::new("tar")
            .arg("--extract")
            .arg("--file")
            .arg(&tar)
            .arg("--directory")
            .arg(root)
            .args(["--wildcards", "--no-wildcards-match-slash", "--exclude=*/plugin/*"])
            .args(["./usr/bin/*", "./usr/lib/arm-none-eabi/bin/*"])
            .args(["cc1", "collect2", "lto-wrapper", "liblto_plugin.so", "include/*"].map(|part| format!("{inside}/{part}"))),
    )
    .or_else(|failure| {
        // One of the packages has none of the compiler's files, which tar calls an error after it took the rest.
        if root.join("usr/bin").is_dir() { Ok(String::new()) } else { Err(failure) }
    })?;
    std::fs::remove_file(&tar).map_err(|error| cannot_write(&tar, &error))
}

/// Refuses a QEMU that was built without plugins, which counting needs.
pub(crate) fn require_plugins(program: &Path) -> Outcome {
    let help = process::capture(Command::new(program).arg("-help"))?;
    if help.contains("\n-plugin ") {
        return Ok(());
    }
    Err(Failure::cannot_run(format!(
        "{} was built without TCG plugins, so it cannot count instructions; take it off PATH (xtask then gets its own on a \
         Debian) or build QEMU with --enable-plugins",
        program.display()
    )))
}

/// Whether the program starts and knows the machine.
fn usable(program: &Path, wanted: Emulator) -> Outcome {
    let machines = process::capture(Command::new(program).args(["-machine", "help"]))?;
    if machines.lines().any(|line| line.split(' ').next() == Some(wanted.machine())) {
        return Ok(());
    }
    Err(Failure::cannot_run(format!("{} does not know the machine {}", program.display(), wanted.machine())))
}

/// Where packages are unpacked.
fn unpacked() -> PathBuf {
    paths::tools().join("qemu/root")
}

/// Gets QEMU from Debian's packages: downloaded and unpacked into a folder of ours, so that no package of the machine is
/// replaced (a plain install is refused where a newer part of QEMU is installed already); only libraries are installed.
fn obtain(wanted: Emulator) -> Outcome {
    let name = wanted.debian_package();
    let advice = format!("QEMU 7.2 or later with the machine {}", wanted.machine());
    debian_tools(&["apt-get", "dpkg", "dpkg-deb", "ldd"], &advice)?;
    let package = download(name)?;
    let program = unpacked().join("usr/bin").join(wanted.program());
    if !program.is_file() {
        println!("unpacking {name} into target/tools");
        std::fs::create_dir_all(unpacked()).map_err(|error| cannot_write(&unpacked(), &error))?;
        process::capture(Command::new("dpkg").arg("-x").arg(&package).arg(unpacked()))?;
    }
    install_missing_libraries(&program, &package)
}

/// Refuses to get a program where Debian's tools are missing; `wanted` is what to install then.
fn debian_tools(tools: &[&str], wanted: &str) -> Outcome {
    match tools.iter().find(|tool| on_path(tool).is_none()) {
        None => Ok(()),
        Some(missing) => Err(Failure::cannot_run(format!(
            "a program is not there that xtask can get only on Debian and its relatives ({missing} is missing); install {wanted} and \
             put it on PATH"
        ))),
    }
}

/// The package file of this name, downloaded unless an earlier call did.
fn download(name: &str) -> Outcome<PathBuf> {
    let folder = paths::tools().join("qemu/packages");
    if let Some(package) = downloaded(&folder, name) {
        return Ok(package);
    }
    // Downloaded apart and moved when whole: an interrupted download must not count as done.
    let partial = folder.join("partial");
    std::fs::create_dir_all(&partial).map_err(|error| cannot_write(&partial, &error))?;
    println!("downloading the package {name}");
    with_fresh_lists(|| process::capture(Command::new("apt-get").current_dir(&partial).args(["download", name])))?;
    let arrived = downloaded(&partial, name)
        .ok_or_else(|| Failure::cannot_run(format!("`apt-get download {name}` left no package in {}", partial.display())))?;
    let package = folder.join(arrived.file_name().unwrap_or_default());
    std::fs::rename(&arrived, &package).map_err(|error| cannot_write(&package, &error))?;
    Ok(package)
}

fn downloaded(folder: &Path, name: &str) -> Option<PathBuf> {
    let prefix = format!("{name}_");
    std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(&prefix) && file.ends_with(".deb")
    })
}

/// Installs the libraries that the package depends on and the machine has not, if the program misses any.
fn install_missing_libraries(program: &Path, package: &Path) -> Outcome {
    let missing = missing_libraries(program)?;
    if missing.is_empty() {
        return Ok(());
    }
    let depends = process::capture(Command::new("dpkg-deb").arg("-f").arg(package).arg("Depends"))?;
    let wanted: Vec<&str> = depends
        .split(',')
        .filter_map(|entry| entry.split_whitespace().next())
        .filter(|name| name.starts_with("lib") && !installed(name))
        .collect();
    let advice = format!("apt-get install --no-install-recommends {}", wanted.join(" "));
    if !is_root()? {
        return Err(Failure::cannot_run(format!("QEMU misses {}; run this as root, then try again:\n  {advice}", missing.join(", "))));
    }
    println!("installing libraries that QEMU misses: {}", wanted.join(" "));
    with_fresh_lists(|| {
        process::capture(
            Command::new("apt-get")
                .env("DEBIAN_FRONTEND", "noninteractive")
                .args(["install", "--yes", "--no-install-recommends"])
                .args(&wanted),
        )
    })?;
    let still = missing_libraries(program)?;
    if still.is_empty() {
        return Ok(());
    }
    Err(Failure::cannot_run(format!("QEMU still misses {} after `{advice}`; install what has them", still.join(", "))))
}

/// The shared libraries that the dynamic linker does not find.
fn missing_libraries(program: &Path) -> Outcome<Vec<String>> {
    let printed = process::capture(Command::new("ldd").arg(program))?;
    Ok(printed
        .lines()
        .filter(|line| line.ends_with("not found"))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect())
}

fn installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

/// Sees to a package of the machine's own, unless `there` says that what it has is there: installed, as root, on a Debian.
pub(crate) fn machine_package(package: &str, there: impl Fn() -> bool) -> Outcome {
    if there() {
        return Ok(());
    }
    debian_tools(&["apt-get"], package)?;
    if !is_root()? {
        let advice =
            format!("{package} is missing; run this as root, then try again:\n  apt-get install --no-install-recommends {package}");
        return Err(Failure::cannot_run(advice));
    }
    println!("installing {package}");
    with_fresh_lists(|| {
        process::capture(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args([
            "install",
            "--yes",
            "--no-install-recommends",
            package,
        ]))
    })
}

/// Does what needs apt's lists of packages; when it fails, because there are none or they are old, once more after fetching them.
fn with_fresh_lists(action: impl Fn() -> Outcome<String>) -> Outcome {
    let Err(first) = action() else {
        return Ok(());
    };
    if !is_root()? {
        return Err(Failure::cannot_run(format!(
            "{first}\nthe lists of packages may be missing or old: run `apt-get update` as root, then try again"
        )));
    }
    println!("fetching the lists of packages");
    process::capture(Command::new("apt-get").arg("update"))?;
    action().map(|_| ())
}

fn is_root() -> Outcome<bool> {
    Ok(process::capture(Command::new("id").arg("-u"))?.trim() == "0")
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::cannot_run(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn arrays_of_the_toolchain_file_are_read() {
        let text = "[toolchain]\nchannel = \"1.2\"\ntargets = [\n  \"a-b\",\n  \"c\",\n]\ncomponents = [\"clippy\"]\n";
        assert_eq!(listed(text, "targets"), ["a-b", "c"]);
        assert_eq!(listed(text, "components"), ["clippy"]);
        assert!(listed(text, "absent").is_empty());
    }
}
