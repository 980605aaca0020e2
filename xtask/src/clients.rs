//! What two tests of the server need beside crates, under target/tools: the official Python client of OpenAI's API, and a browser with what drives it. Used by `test`.

use crate::failure::{Failure, Outcome};
use crate::{paths, process, setup};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of `PyPI`.
const OPENAI: &str = "openai==3.57.0";

/// Of npm: a Chromium that has every library and font it needs beside the C library, in one package of 68 MB, and what drives it.
const BROWSER: [&str; 2] = ["@sparticuz/chromium@147.0.0", "puppeteer-core@24.43.1"];

/// Unpacks every file of one folder into another.
const UNPACK: &str = "\
const fs = require('fs'), zlib = require('zlib'), { pipeline } = require('stream'), [from, to] = process.argv.slice(1);
for (const name of fs.readdirSync(from))
  pipeline(fs.createReadStream(`${from}/${name}`), zlib.createBrotliDecompress({ chunkSize: 2 ** 21 }),
    fs.createWriteStream(`${to}/${name.slice(0, -'.br'.length)}`, { mode: 0o755 }), error => { if (error) throw error; });";

/// The official client works against the server.
pub(crate) fn check_client() -> Outcome {
    let packages = python_packages()?;
    test("the_official_python_client_works_unchanged", &[("DMEXP_OPENAI_PYTHON", "python3".as_ref()), ("PYTHONPATH", packages.as_os_str())])
}

/// The page works in a browser.
pub(crate) fn check_page() -> Outcome {
    let folder = browser()?;
    let (modules, program) = (folder.join("node_modules"), program(&folder));
    test("the_page_works_in_a_browser", &[("DMEXP_PUPPETEER", modules.as_os_str()), ("DMEXP_CHROMIUM", program.as_os_str())])
}

/// Runs one test of `cli_serve_api`, which skips itself without these variables.
fn test(name: &str, variables: &[(&str, &OsStr)]) -> Outcome {
    let mut command = process::cargo();
    // Chosen among the packages of the step `tests`, whose programs it finds built.
    command.current_dir(paths::root()).args([
        "test",
        "--locked",
        "--workspace",
        "--exclude",
        "dmexp-references",
        "--exclude",
        "dmexp-train",
        "--test",
        "cli_serve_api",
    ]);
    command.args(["--", "--exact", name]).envs(variables.iter().copied());
    let printed = process::capture(&mut command).map_err(|failure| Failure::found_wrong(failure.to_string()))?;
    print!("{printed}");
    if printed.contains("test result: ok. 1 passed") {
        return Ok(());
    }
    Err(Failure::found_wrong(format!("`{}` ran no test", process::shown(&command))))
}

/// The folder with the client and what it needs, for `PYTHONPATH`.
fn python_packages() -> Outcome<PathBuf> {
    let folder = paths::tools().join(OPENAI);
    if folder.is_dir() {
        return Ok(folder);
    }
    setup::machine_package("python3-pip", || process::capture(Command::new("python3").args(["-m", "pip", "--version"])).is_ok())?;
    println!("getting {OPENAI} into target/tools");
    let partial = emptied(&folder.with_extension("partial"))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:", OPENAI]);
    process::capture(pip.arg("--target").arg(&partial))?;
    std::fs::rename(&partial, &folder).map_err(|error| cannot_write(&folder, &error))?;
    Ok(folder)
}

/// The folder with the browser and what drives it.
fn browser() -> Outcome<PathBuf> {
    let folder = paths::tools().join("browser-147.0.0");
    if program(&folder).is_file() {
        return Ok(folder);
    }
    setup::machine_package("npm", || process::on_path("npm").is_some())?;
    println!("getting {} into target/tools", BROWSER.join(" and "));
    emptied(&folder)?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts", "--prefix"]).arg(&folder);
    process::capture(npm.args(BROWSER))?;
    let packed = folder.join("node_modules/@sparticuz/chromium/bin");
    process::capture(Command::new("node").args(["-e", UNPACK]).arg(packed).arg(&folder))?;
    for (archive, to) in [("swiftshader", "."), ("fonts", "fonts"), ("al2023", "libraries")] {
        let to = folder.join(to);
        std::fs::create_dir_all(&to).map_err(|error| cannot_write(&to, &error))?;
        let archive = folder.join(archive).with_extension("tar");
        process::capture(Command::new("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(&to))?;
    }
    let at = folder.display();
    // Its own fonts alone, so that pictures are the same everywhere.
    let fonts = format!("<?xml version=\"1.0\"?>\n<fontconfig><dir>{at}/fonts</dir><cachedir>{at}/fonts-cache</cachedir></fontconfig>\n");
    let start = format!("#!/bin/sh\nFONTCONFIG_PATH='{at}' LD_LIBRARY_PATH='{at}/libraries/lib' exec '{at}/chromium' \"$@\"\n");
    // The program comes last: it says that everything is there.
    let unfinished = folder.join("start.partial");
    for (path, text) in [(folder.join("fonts.conf"), fonts), (unfinished.clone(), start)] {
        std::fs::write(&path, text).map_err(|error| cannot_write(&path, &error))?;
    }
    process::capture(Command::new("chmod").arg("+x").arg(&unfinished))?;
    std::fs::rename(&unfinished, program(&folder)).map_err(|error| cannot_write(&folder, &error))?;
    Ok(folder)
}

/// What starts the browser with its libraries and fonts.
fn program(folder: &Path) -> PathBuf {
    folder.join("start")
}

/// A folder with nothing in it.
fn emptied(folder: &Path) -> Outcome<PathBuf> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    }
    std::fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    Ok(folder.to_path_buf())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::cannot_run(format!("cannot write {}: {error}", path.display()))
}
