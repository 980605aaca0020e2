//! The packages that users get: what is in them, and that they build without this repository around them.

use crate::failure::{Failure, Outcome};
use crate::{models, paths, process, setup};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What every package has, beside its source.
const WANTED: [&str; 4] = ["Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// What every manifest says of its package.
const SAID: [&str; 8] = ["description", "documentation", "keywords", "categories", "license", "readme", "repository", "rust_version"];

/// A package that is published.
struct Package {
    name: String,
    version: String,
}

impl Package {
    /// Where cargo puts it.
    fn file(&self, target: &Path) -> PathBuf {
        target.join(format!("package/{}-{}.crate", self.name, self.version))
    }
}

/// Refuses packages that lack what every one has; packs them all, and builds none.
pub(crate) fn check_contents() -> Outcome {
    let (published, target) = published()?;
    let mut pack = pack(&published);
    process::capture(pack.args(["--no-verify", "--quiet"]))?;
    for package in &published {
        let listed = process::capture(Command::new("tar").arg("--list").arg("--file").arg(package.file(&target)))?;
        let missing = missing(&listed, package);
        if !missing.is_empty() {
            return Err(Failure::found_wrong(format!("the package {} has no {}", package.name, missing.join(", "))));
        }
        let bytes = length(&package.file(&target))?;
        println!("{} {}: {} files, {bytes} bytes packed", package.name, package.version, listed.lines().count());
    }
    Ok(())
}

/// Packs all of them and builds each from its package, with the others from theirs.
pub(super) fn verify() -> Outcome<String> {
    check_contents()?;
    let (published, target) = published()?;
    process::run(&mut pack(&published))?;
    let mut bytes = 0;
    for package in &published {
        bytes += length(&package.file(&target))?;
    }
    Ok(format!("{} packages, {bytes} bytes packed; each builds from the packages alone", published.len()))
}

/// Builds the command from its package as `cargo install` does, begins a firmware project with it and builds that, both with the packages and nothing of this repository.
pub(super) fn install() -> Outcome<String> {
    let (published, target) = published()?;
    process::capture(pack(&published).args(["--no-verify", "--quiet"]))?;
    let place = target.join("release");
    if place.exists() {
        std::fs::remove_dir_all(&place).map_err(|error| cannot_write(&place, &error))?;
    }
    std::fs::create_dir_all(&place).map_err(|error| cannot_write(&place, &error))?;
    // A registry has them when they are published; until then the packages stand for it.
    let mut patches = Vec::new();
    for package in &published {
        process::capture(Command::new("tar").arg("--extract").arg("--file").arg(package.file(&target)).arg("--directory").arg(&place))?;
        let folder = place.join(format!("{}-{}", package.name, package.version));
        patches.push("--config".to_owned());
        patches.push(format!("patch.crates-io.{}.path={:?}", package.name, folder.display().to_string()));
    }
    let command = published.iter().find(|package| package.name == "dmexp-tools");
    let command = command.ok_or_else(|| Failure::found_wrong("dmexp-tools is not among the packages that are published"))?;
    let source = place.join(format!("{}-{}", command.name, command.version));
    let begun = std::time::Instant::now();
    process::run(
        process::cargo()
            .current_dir(&place)
            .env("CARGO_TARGET_DIR", target.join("release-build"))
            .args(["install", "--quiet", "--path"])
            .arg(&source)
            .args(["--root"])
            .arg(place.join("root"))
            .args(&patches),
    )?;
    let seconds = begun.elapsed().as_secs();
    let program = place.join("root/bin/dmexp").with_extension(std::env::consts::EXE_EXTENSION);
    let bytes = length(&program)?;
    let firmware = place.join("firmware");
    let model = models::STORY.export(crate::qemu::DEFAULT_DTYPE)?;
    let board = crate::board::find("an386")?;
    setup::rust_target(board.target)?;
    process::run(
        Command::new(&program).current_dir(&place).args(["new", "firmware", "--board", board.name, "--model"]).arg(&model).arg(&firmware),
    )?;
    let manifest = firmware.join("Cargo.toml");
    let text =
        std::fs::read_to_string(&manifest).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", manifest.display())))?;
    let wanted = format!("dmexp = {{ version = \"{}\"", command.version);
    if !text.contains(&wanted) {
        return Err(Failure::found_wrong(format!(
            "the project of an installed command does not ask for `{wanted}`: {}",
            manifest.display()
        )));
    }
    process::run(
        process::cargo()
            .current_dir(&firmware)
            .env("CARGO_TARGET_DIR", target.join("release-build"))
            .args(["build", "--release", "--quiet"])
            .args(&patches),
    )?;
    Ok(format!("the command is {bytes} bytes, built in {seconds} s; a firmware project that it begins builds"))
}

/// `cargo package` of all of them; what is not committed yet is packed too, for this is a look at what is here.
fn pack(published: &[Package]) -> Command {
    let mut command = process::cargo();
    command.current_dir(paths::root()).args(["package", "--locked", "--allow-dirty"]);
    command.args(published.iter().flat_map(|package| ["--package", &package.name]));
    command
}

/// The packages that are published, and the folder that cargo builds in. Refuses a manifest that does not say what a package is.
fn published() -> Outcome<(Vec<Package>, PathBuf)> {
    let metadata = super::versions::metadata(paths::root())?;
    let target = PathBuf::from(metadata["target_directory"].as_str().unwrap_or_default());
    let mut published = Vec::new();
    // `publish = false` is an empty list of registries.
    let packages = metadata["packages"].as_array().into_iter().flatten();
    for package in packages.filter(|package| package["publish"].as_array().is_none_or(|registries| !registries.is_empty())) {
        let word = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let unsaid = unsaid(package);
        if !unsaid.is_empty() {
            return Err(Failure::found_wrong(format!("{}/Cargo.toml does not say {}", word("name"), unsaid.join(", "))));
        }
        published.push(Package { name: word("name"), version: word("version") });
    }
    if published.is_empty() {
        return Err(Failure::cannot_run("there is no package that is published"));
    }
    Ok((published, target))
}

/// What a package's manifest leaves out.
fn unsaid(package: &Value) -> Vec<&'static str> {
    let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value == "";
    SAID.into_iter().filter(|key| empty(&package[key])).collect()
}

/// What a package lacks, by the list of its files.
fn missing(listed: &str, package: &Package) -> Vec<&'static str> {
    let has = |name: &str| listed.lines().any(|line| line == format!("{}-{}/{name}", package.name, package.version));
    WANTED.into_iter().filter(|name| !has(name)).collect()
}

fn length(file: &Path) -> Outcome<u64> {
    let metadata = std::fs::metadata(file).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", file.display())))?;
    Ok(metadata.len())
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::cannot_run(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{Package, missing, unsaid};
    use serde_json::json;

    #[test]
    fn a_licence_of_another_folder_is_none() {
        let package = Package { name: "a".to_owned(), version: "1.0.0".to_owned() };
        let whole = "a-1.0.0/Cargo.lock\na-1.0.0/LICENSE-APACHE\na-1.0.0/LICENSE-MIT\na-1.0.0/README.md\n";
        assert!(missing(whole, &package).is_empty());
        assert_eq!(missing(&whole.replace("LICENSE-MIT", "src/LICENSE-MIT"), &package), ["LICENSE-MIT"]);
    }

    #[test]
    fn an_empty_list_says_nothing() {
        let mut manifest = json!({ "description": "d", "documentation": "d", "keywords": ["k"], "categories": ["c"], "license": "MIT",
            "readme": "README.md", "repository": "r", "rust_version": "1.95" });
        assert!(unsaid(&manifest).is_empty());
        manifest["keywords"] = json!([]);
        manifest["readme"] = json!(null);
        assert_eq!(unsaid(&manifest), ["keywords", "readme"]);
    }
}
