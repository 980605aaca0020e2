//! What a project is written with, and what is refused. `cargo xtask test` builds projects and runs them.

use super::fit::fit;
use super::*;
use crate::error::Class;
use crate::export::Options;
use crate::export::tests::{Shape, export, open, tokenizer};
use crate::plan::Facts;
use dmexp_format::{DType, KvDType};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SHAPE: Shape =
    Shape { dim: 16, hidden_dim: 24, n_layers: 2, n_heads: 4, n_kv_heads: 2, vocab_size: 300, tied: true, max_seq_len: 4000 };

/// A file of a small model, with a tokenizer or without.
fn model(folder: &TempDir, with_tokenizer: bool) -> PathBuf {
    let mut source = open(SHAPE.random());
    source.tokenizer = with_tokenizer.then(|| tokenizer(300));
    let out = folder.path().join("made.dmexp");
    export(&source, &Options { dtype: DType::Q8, golden: false, ..Options::new(&out) }).unwrap();
    out
}

fn board(name: &str) -> &'static Board {
    Board::find(name).unwrap()
}

fn request<'a>(name: &str, model: &'a Path) -> Request<'a> {
    let dmexp = Source::Path(PathBuf::from("/dmexp \"here\"/runtime"));
    Request { board: board(name), model, context: Some(64), kv: KvDType::F16, prompt: Some("a \"b\" \\ @KV@"), dmexp }
}

#[test]
fn a_project_has_all_that_cargo_needs_and_no_place_is_left_open() {
    let place = TempDir::new().unwrap();
    let model = model(&place, true);
    let channel = |text: &str| text.lines().find(|line| line.starts_with("channel")).unwrap().to_owned();
    let ours = channel(&fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../rust-toolchain.toml")).unwrap());
    for board in ALL {
        let out = place.path().join(board.name);
        let plan = write(&request(board.name, &model), &out).unwrap();
        assert_eq!(plan.context, 64);
        assert_eq!(fs::read(out.join("model.dmexp")).unwrap(), fs::read(&model).unwrap());
        let manifest: toml::Table = fs::read_to_string(out.join("Cargo.toml")).unwrap().parse().unwrap();
        let dmexp = &manifest["dependencies"]["dmexp"];
        assert_eq!(dmexp["path"].as_str(), Some("/dmexp \"here\"/runtime"));
        let features: Vec<_> = dmexp["features"].as_array().unwrap().iter().filter_map(toml::Value::as_str).collect();
        assert_eq!(&features[..4], ["llama", "macros", "q8", "kv-f16"], "{}", board.name);
        assert_eq!(features.contains(&"dsp"), ["an505", "an547", "pico2"].contains(&board.name), "{}", board.name);
        let config: toml::Table = fs::read_to_string(out.join(".cargo/config.toml")).unwrap().parse().unwrap();
        assert_eq!(config["build"]["target"].as_str(), Some(board.target()));
        assert_eq!(channel(&fs::read_to_string(out.join("rust-toolchain.toml")).unwrap()), ours);
        let source = |name: &str| fs::read_to_string(out.join("src").join(name)).unwrap_or_default();
        let source = [source("main.rs"), source("board.rs"), source("model.rs"), source("story.rs"), source("probe.rs")].concat();
        let included = format!("\"../model.dmexp\", context = 64, kv = f16, board = \"{}\"", board.name);
        assert!(source.contains(r#""a \"b\" \\ @KV@""#) && source.contains(&included), "{source}");
        let others = ["Cargo.toml", ".cargo/config.toml", "README.md", "build.rs"].map(|file| fs::read_to_string(out.join(file)).unwrap());
        assert!(!others.concat().contains('@'), "{others:?}");
        assert!(!source.replace("@KV@", "").contains('@') && !others.concat().contains("workspace = true"), "{source}");
    }
}

#[test]
fn what_has_no_room_is_refused_with_what_would_fit() {
    let mut facts = Facts::of(&crate::decode::Loaded::open(&model(&TempDir::new().unwrap(), true)).unwrap()).unwrap();
    let refused = |facts: &Facts, name: &str, context, kv| fit(board(name), facts, context, kv).unwrap_err();
    let error = refused(&facts, "lm3s6965evb", 4000, KvDType::F16);
    assert_eq!(error.class(), Class::Request);
    let text = error.to_string();
    // What it names fits, and one position more does not.
    let most: u32 = text.split("--context ").nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    assert_eq!(fit(board("lm3s6965evb"), &facts, most, KvDType::F16).unwrap().context, most, "{text}");
    refused(&facts, "lm3s6965evb", most + 1, KvDType::F16);
    assert!(text.contains("--kv q8"), "{text}");
    assert!(refused(&facts, "an386", 0, KvDType::F16).to_string().contains("context"));
    // Both sides of a model that is too large are named.
    facts.model_bytes = 250_000;
    let error = refused(&facts, "microbit", 64, KvDType::F16).to_string();
    assert!(error.contains("250000 bytes") && error.contains("has room for"), "{error}");
}

#[test]
fn a_model_too_large_is_refused_with_the_type_that_fits_and_kept_where_the_plan_says_that_it_fits() {
    let large = Shape { dim: 64, hidden_dim: 172, n_layers: 5, n_heads: 8, n_kv_heads: 4, vocab_size: 512, tied: true, max_seq_len: 64 };
    let folder = TempDir::new().unwrap();
    let facts = |dtype: DType| {
        let options = Options { dtype, golden: false, ..Options::new(folder.path().join(format!("{dtype}.dmexp"))) };
        Facts::of(&crate::decode::Loaded::open(&export(&open(large.random()), &options).unwrap().out).unwrap()).unwrap()
    };
    let fit = |dtype| fit(board("microbit"), &facts(dtype), 8, KvDType::Q8);
    let error = fit(DType::Q8).unwrap_err().to_string();
    assert!(error.contains("--dtype q4") && !error.contains("--dtype q8"), "{error}");
    fit(DType::Q4).unwrap();
}

#[test]
fn boards_are_known_by_their_chips_too_and_every_one_has_a_plan() {
    assert_eq!(board("rp2040").name, "pico");
    assert_eq!(board("pico").title(), "Raspberry Pi Pico (RP2040, Cortex-M0, 2 MiB of flash, 264 KiB of RAM)");
    assert_eq!(board("an547").title(), "QEMU mps3-an547 (Cortex-M55, 512 KiB of flash, 512 KiB of RAM, 4 MiB besides for the model)");
    for (chip, kit) in dmexp_format::host::boards::KITS {
        assert_eq!(board(chip).name, *kit);
    }
    for board in ALL {
        assert!([board.plan().name, board.name].map(Board::find).iter().all(|found| found.is_some_and(|found| found.name == board.name)));
        assert_eq!(board.next().starts_with("cargo run"), board.machine().is_some(), "{}", board.name);
    }
}

#[test]
fn models_that_firmware_could_not_use_are_refused_and_nothing_is_written() {
    let place = TempDir::new().unwrap();
    let out = place.path().join("project");
    let plain = model(&place, false);
    let error = write(&request("an386", &plain), &out).unwrap_err();
    assert_eq!(error.class(), Class::Request);
    assert!(error.to_string().contains("no tokenizer"), "{error}");
    let mut bytes = fs::read(&plain).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&plain, bytes).unwrap();
    assert_eq!(write(&request("an386", &plain), &out).unwrap_err().class(), Class::Damaged);
    let good = model(&place, true);
    fs::create_dir(&out).unwrap();
    fs::write(out.join("mine"), "x").unwrap();
    assert_eq!(write(&request("an386", &good), &out).unwrap_err().class(), Class::Unwritable);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
}

#[test]
fn the_crate_is_found_in_a_checkout() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let runtime = Source::Path(repository.join("runtime").canonicalize().unwrap());
    assert_eq!(Source::in_folder(repository).unwrap(), runtime);
    assert_eq!(Source::in_folder(&repository.join("runtime")).unwrap(), runtime);
    assert_eq!(Source::around(&repository.join("boards/app")), runtime);
    let place = TempDir::new().unwrap();
    assert_eq!(Source::in_folder(place.path()).unwrap_err().class(), Class::Request);
    assert_eq!(Source::around(place.path()), runtime, "the checkout that this was built from");
    // Built from a package: the runtime of the same version, of which every line of the project's manifest is true.
    let registry = Source::nearest(place.path(), &place.path().join("host-tools"));
    assert_eq!(registry, Source::Registry(env!("CARGO_PKG_VERSION").to_owned()));
    let model = model(&place, true);
    for board in ALL {
        let out = place.path().join(board.name);
        write(&Request { dmexp: registry.clone(), ..request(board.name, &model) }, &out).unwrap();
        let manifest: toml::Table = fs::read_to_string(out.join("Cargo.toml")).unwrap().parse().unwrap();
        let dmexp = manifest["dependencies"]["dmexp"].as_table().unwrap();
        assert_eq!(dmexp["version"].as_str(), Some(env!("CARGO_PKG_VERSION")));
        assert!(!dmexp.contains_key("path") && !dmexp.contains_key("git"), "{dmexp:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_checkout_that_no_manifest_can_name_is_not_taken() {
    use std::os::unix::ffi::OsStrExt;
    let place = TempDir::new().unwrap();
    let odd = place.path().join(std::ffi::OsStr::from_bytes(b"odd \xff"));
    fs::create_dir_all(odd.join("runtime")).unwrap();
    fs::write(odd.join("runtime/Cargo.toml"), "[package]\nname = \"dmexp\"\n").unwrap();
    assert!(Source::in_folder(&odd).unwrap_err().to_string().contains("not UTF-8"));
    assert!(matches!(Source::nearest(&odd, &odd.join("host-tools")), Source::Registry(_)));
}

#[test]
fn a_path_of_windows_is_written_as_cargo_takes_it() {
    let plain = |path: &str| super::project::plain(PathBuf::from(path)).to_str().unwrap().to_owned();
    assert_eq!(plain(r"\\?\C:\dmexp\runtime"), r"C:\dmexp\runtime");
    assert_eq!(plain(r"\\?\UNC\server\dmexp"), r"\\?\UNC\server\dmexp");
    assert_eq!(plain("/dmexp/runtime"), "/dmexp/runtime");
}
