//! One version and one Rust everywhere: manifests, toolchains, templates, README; lock files; the list of changes.

use crate::failure::{Failure, Outcome};
use crate::{paths, process};
use serde_json::Value;
use std::path::Path;

/// Refuses what disagrees.
pub(crate) fn check() -> Outcome<String> {
    let root = paths::root();
    let files = committed()?;
    let read =
        |file: &str| std::fs::read_to_string(root.join(file)).map_err(|error| Failure::cannot_run(format!("cannot read {file}: {error}")));
    let channel = channel(&read("rust-toolchain.toml")?).unwrap_or_default();
    let rust = channel.rsplit_once('.').map_or(channel.as_str(), |(minor, _)| minor).to_owned();
    let mut complaints = Vec::new();

    let mut toolchains = 0;
    for file in files.iter().filter(|file| file.ends_with("rust-toolchain.toml")) {
        toolchains += 1;
        let own = self::channel(&read(file)?).unwrap_or_default();
        if own != channel {
            complaints.push(format!("{file} asks for {own}, rust-toolchain.toml for {channel}"));
        }
    }
    if !says(&read("README.md")?, &format!("Rust {rust}")) {
        complaints.push(format!("README.md does not say `Rust {rust}`"));
    }

    let (mut manifests, mut versions) = (0, std::collections::BTreeSet::new());
    let workspaces: Vec<_> =
        files.iter().filter(|file| file.ends_with("Cargo.toml") && read(file).is_ok_and(|text| text.contains("[workspace]"))).collect();
    for workspace in &workspaces {
        let folder = workspace.trim_end_matches("Cargo.toml");
        if !files.contains(&format!("{folder}Cargo.lock")) {
            complaints.push(format!("{workspace} has no lock file beside it that is committed"));
        }
        for package in metadata(&root.join(folder))?["packages"].as_array().into_iter().flatten() {
            manifests += 1;
            let name = package["name"].as_str().unwrap_or_default();
            if package["rust_version"] != rust.as_str() {
                complaints
                    .push(format!("the manifest of {name} says rust-version {}, the toolchain is {channel}", package["rust_version"]));
            }
            if package["publish"].as_array().is_none_or(|registries| !registries.is_empty()) {
                versions.insert(package["version"].as_str().unwrap_or_default().to_owned());
            }
        }
    }
    let version = versions.iter().next().cloned().unwrap_or_default();
    if versions.len() != 1 {
        complaints.push(format!("published packages have the versions {versions:?}"));
    }
    let changes = read("CHANGELOG.md")?;
    let entry = [format!("[{version}]"), "[Unreleased]".to_owned()].into_iter().find(|entry| changes.contains(&format!("\n## {entry}")));
    let Some(entry) = entry.filter(|_| complaints.is_empty()) else {
        if complaints.is_empty() {
            complaints.push(format!("CHANGELOG.md has neither `## [{version}]` nor `## [Unreleased]`"));
        }
        return Err(Failure::found_wrong(complaints.join("\n")));
    };
    Ok(format!(
        "{version}, in the CHANGELOG as {entry}; Rust {rust} in {manifests} manifests and {toolchains} toolchain files; {} lock files",
        workspaces.len()
    ))
}

/// What `cargo metadata` says of a workspace's own packages.
pub(super) fn metadata(folder: &Path) -> Outcome<Value> {
    let printed =
        process::capture(process::cargo().current_dir(folder).args(["metadata", "--no-deps", "--format-version", "1", "--locked"]))?;
    serde_json::from_str(&printed).map_err(|error| Failure::cannot_run(format!("cannot read what `cargo metadata` prints: {error}")))
}

/// The repository's files, or those that would be committed.
fn committed() -> Outcome<Vec<String>> {
    let listed = process::capture(std::process::Command::new("git").current_dir(paths::root()).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// The toolchain that a rust-toolchain.toml asks for.
fn channel(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix("channel = \""))?;
    Some(line.trim_end().trim_end_matches('"').to_owned())
}

/// Whether `words` stand in the text, with no further digit behind them.
fn says(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(place, _)| !text[place + words.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{channel, says};

    #[test]
    fn versions_are_read_to_their_end() {
        assert_eq!(channel("[toolchain]\nchannel = \"1.95.0\"\n").as_deref(), Some("1.95.0"));
        assert!(says("needs Rust 1.95 or later", "Rust 1.95") && says("Rust 1.95", "Rust 1.95"));
        assert!(!says("Rust 1.951", "Rust 1.95") && !says("Rust 1.9", "Rust 1.95"));
    }
}
