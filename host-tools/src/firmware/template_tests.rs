//! Templates that are copies of files of the repository's own boards: this crate has them inside, so that it can be built from a package, where `boards/` is not.

use super::ALL;
use std::fs;
use std::path::{Path, PathBuf};

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/firmware/templates")
}

/// Each copy under `templates`, and what it is a copy of under `boards`.
fn copies() -> Vec<(String, String)> {
    let copy = |copy: &str, original: &str| (copy.to_owned(), original.to_owned());
    let mut copies = vec![
        copy("link.rs", "app/link.rs"),
        copy("emulated.lock", "Cargo.lock"),
        copy("real.lock", "real/Cargo.lock"),
        copy("real/workspace.toml", "real/Cargo.toml"),
        copy("real/pico/build.rs", "real/pico/build.rs"),
        copy("real/esp32-c6/build.rs", "real/esp32-c6/build.rs"),
    ];
    for part in ["model", "story", "probe"] {
        copies.push((format!("real/{part}.rs"), format!("real/{part}.rs")));
    }
    for board in ["an385", "an386", "an500", "an505", "an547", "lm3s6965evb", "microbit", "netduinoplus2", "sifive-e", "virt"] {
        copies.push((format!("memory/{board}.x"), format!("qemu-{board}/memory.x")));
    }
    for board in ["pico", "pico2", "nrf52840-dk", "nucleo-h743zi", "esp32-c6"] {
        copies.push((format!("real/{board}/manifest.toml"), format!("real/{board}/Cargo.toml")));
        copies.push((format!("real/{board}/config.toml"), format!("real/{board}/.cargo/config.toml")));
        copies.push((format!("real/{board}/README.md"), format!("real/{board}/README.md")));
        if board != "pico2" {
            copies.push((format!("real/{board}/main.rs"), format!("real/{board}/src/main.rs")));
        }
        if board != "esp32-c6" {
            copies.push((format!("memory/{board}.x"), format!("real/{board}/memory.x")));
        }
    }
    copies
}

#[test]
fn templates_are_what_the_repositorys_own_boards_are_built_from() {
    let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("../boards");
    if !boards.is_dir() {
        eprintln!("skipped: {} is not there", boards.display());
        return;
    }
    for (copy, original) in copies() {
        let (to, from) = (here().join(&copy), boards.join(&original));
        let wanted = fs::read_to_string(&from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        if std::env::var_os("DMEXP_WRITE_TEMPLATES").is_some() {
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::write(&to, &wanted).unwrap();
        }
        let found = fs::read_to_string(&to).unwrap_or_default();
        assert!(
            found == wanted,
            "{copy} is no copy of boards/{original}: DMEXP_WRITE_TEMPLATES=1 cargo test -p dmexp-tools --lib templates_are"
        );
    }
}

#[test]
fn a_package_of_this_crate_has_every_file_that_it_is_built_from() {
    // A folder with a manifest in it is a package of its own and is left out.
    let mut folders = vec![here()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            assert_ne!(entry.file_name(), "Cargo.toml", "{}", entry.path().display());
            folders.extend(entry.file_type().unwrap().is_dir().then(|| entry.path()));
        }
    }
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            for name in text
                .split("include_str!(\"")
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .filter(|name| name.ends_with(char::is_alphanumeric))
            {
                let included = path.parent().unwrap().join(name).canonicalize().unwrap_or_else(|error| panic!("{name}: {error}"));
                let crate_root = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
                assert!(included.starts_with(&crate_root), "{} includes {name}, which is outside of the crate", path.display());
            }
        }
    }
}

/// The length of one memory of a linker script; 0 where it has no such memory.
fn length(script: &str, region: &str) -> u64 {
    let named = script.lines().find_map(|line| line.trim().strip_prefix(region)?.trim_start().strip_prefix(':'));
    let sum = named.and_then(|line| line.rsplit_once("LENGTH =")).map_or("0", |(_, length)| length.trim());
    let number = |text: &str| match (text.strip_prefix("0x"), text.strip_suffix('K'), text.strip_suffix('M')) {
        (Some(digits), ..) => u64::from_str_radix(digits, 16).unwrap(),
        (_, Some(digits), _) => digits.parse::<u64>().unwrap() << 10,
        (.., Some(digits)) => digits.parse::<u64>().unwrap() << 20,
        _ => text.parse().unwrap(),
    };
    let mut parts = sum.split(" - ").map(number);
    let first = parts.next().unwrap();
    parts.fold(first, |sum, part| sum - part)
}

#[test]
fn linker_scripts_have_the_memories_of_the_plan() {
    assert_eq!(length("  FLASH : ORIGIN = 0x10, LENGTH = 2048K - 0x100", "FLASH"), (2 << 20) - 256);
    for board in ALL {
        let plan = board.plan();
        if board.memory.is_empty() {
            // Its hardware crate brings one.
            assert_eq!(board.name, "esp32-c6");
            continue;
        }
        let lengths = ["FLASH", "MODEL", "RAM"].map(|region| length(board.memory, region));
        assert_eq!(lengths, [plan.code, plan.model, plan.banks[0].1], "{}", board.name);
    }
}
