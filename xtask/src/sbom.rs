//! `cargo xtask sbom`: the bill of materials of a package, in `CycloneDX`'s JSON, from what cargo resolves and the checksums of the lock file.

use crate::failure::{Failure, Outcome};
use crate::{paths, process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

pub(crate) const HELP: &str = "\
Usage: cargo xtask sbom [PACKAGE]

Prints the bill of materials of PACKAGE (default: dmexp-tools, the command) in CycloneDX 1.5: every crate that is compiled into
it or runs while it is built, on any platform and with any feature, with version, licence, SHA-256 and what it depends on.
Firmware: `dmexp`. The same lock file gives the same bytes.
";

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut package = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Value(word) if package.is_none() => package = Some(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let printed = process::capture(process::cargo().current_dir(paths::root()).args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--all-features",
    ]))?;
    let metadata = serde_json::from_str(&printed)
        .map_err(|error| Failure::cannot_run(format!("cannot read what `cargo metadata` prints: {error}")))?;
    let path = paths::root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&path).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", path.display())))?;
    println!("{:#}", bill(&metadata, &checksums(&lock), package.as_deref().unwrap_or("dmexp-tools"))?);
    Ok(())
}

/// The checksums of a lock file by name and version: lines `key = "value"`, a package after the other.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let mut found = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            line.and_then(|rest| rest.strip_suffix('"'))
        };
        if let (Some(name), Some(version), Some(checksum)) = (value("name"), value("version"), value("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

/// The bill of the workspace's package of this name, from `cargo metadata`.
fn bill(metadata: &Value, checksums: &BTreeMap<(&str, &str), &str>, name: &str) -> Outcome<Value> {
    let of_id = |list: &'_ Value, key: &str| -> BTreeMap<String, Value> {
        let entries = list.as_array().into_iter().flatten();
        entries.map(|entry| (text(&entry[key]).to_owned(), entry.clone())).collect()
    };
    let (packages, nodes) = (of_id(&metadata["packages"], "id"), of_id(&metadata["resolve"]["nodes"], "id"));
    let root = packages.values().find(|package| package["name"] == name && package["source"].is_null());
    let root = root.ok_or_else(|| Failure::cannot_run(format!("there is no package `{name}` in this workspace")))?;
    let mut reached = BTreeSet::new();
    let mut waiting = vec![text(&root["id"]).to_owned()];
    let mut links = Vec::new();
    while let Some(id) = waiting.pop() {
        if !reached.insert(id.clone()) {
            continue;
        }
        let dependencies = nodes.get(&id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        // What tests alone need has the kind `dev`.
        let shipped = dependencies
            .filter(|dependency| dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev")));
        let ids: BTreeSet<_> = shipped.map(|dependency| text(&dependency["pkg"]).to_owned()).collect();
        let names: BTreeSet<_> = ids.iter().filter_map(|id| packages.get(id)).map(reference).collect();
        links.push((packages.get(&id).map(reference).unwrap_or_default(), names));
        waiting.extend(ids);
    }
    reached.remove(text(&root["id"]));
    let mut components: Vec<_> =
        reached.iter().filter_map(|id| packages.get(id)).map(|package| component(package, "library", checksums)).collect();
    components.sort_by_key(|component| component["bom-ref"].to_string());
    links.sort();
    let links: Vec<_> = links.into_iter().map(|(of, names)| json!({ "ref": of, "dependsOn": names })).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(root, "application", checksums) },
        "components": components,
        "dependencies": links,
    }))
}

/// A package as `CycloneDX` has it.
fn component(package: &Value, kind: &str, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let mut made = json!({ "type": kind, "bom-ref": reference(package), "name": name, "version": version, "purl": reference(package) });
    if let Some(licence) = package["license"].as_str() {
        // Older manifests write `MIT/Apache-2.0` for a choice.
        made["licenses"] = json!([{ "expression": licence.replace(" / ", "/").replace('/', " OR ") }]);
    }
    if let Some(repository) = package["repository"].as_str() {
        made["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    if let Some(checksum) = checksums.get(&(name, version)) {
        made["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    made
}

/// The package URL, which names a package here too.
fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{bill, checksums};
    use serde_json::{Value, json};

    fn metadata() -> Value {
        let package = |name: &str, source: Value| json!({ "id": name, "name": name, "version": "1.0.0", "source": source, "license": "MIT/Apache-2.0", "repository": null });
        let needs = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [package("ours", Value::Null), package("used", json!("registry")), package("builds", json!("registry")), package("tests", json!("registry"))],
            "resolve": { "nodes": [
                { "id": "ours", "deps": [needs("used", Value::Null), needs("builds", json!("build")), needs("tests", json!("dev"))] },
                { "id": "used", "deps": [needs("builds", Value::Null), needs("ours", json!("dev"))] },
                { "id": "builds", "deps": [] },
                { "id": "tests", "deps": [] },
            ] },
        })
    }

    #[test]
    fn what_is_compiled_in_or_runs_while_it_is_built_is_listed_once() {
        let lock = "version = 4\n\n[[package]]\nname = \"used\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"ours\"\nversion = \"1.0.0\"\n";
        let found = bill(&metadata(), &checksums(lock), "ours").unwrap();
        assert_eq!(found["metadata"]["component"]["bom-ref"], "pkg:cargo/ours@1.0.0");
        let names: Vec<_> = found["components"].as_array().unwrap().iter().map(|component| component["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["builds", "used"]);
        assert_eq!(found["components"][1]["hashes"], json!([{ "alg": "SHA-256", "content": "ab" }]));
        assert_eq!(found["components"][0]["hashes"], Value::Null);
        assert_eq!(found["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            found["dependencies"],
            json!([
                { "ref": "pkg:cargo/builds@1.0.0", "dependsOn": [] },
                { "ref": "pkg:cargo/ours@1.0.0", "dependsOn": ["pkg:cargo/builds@1.0.0", "pkg:cargo/used@1.0.0"] },
                { "ref": "pkg:cargo/used@1.0.0", "dependsOn": ["pkg:cargo/builds@1.0.0"] },
            ])
        );
    }

    #[test]
    fn a_package_that_is_not_ours_is_refused() {
        for name in ["used", "nobody"] {
            assert!(bill(&metadata(), &checksums(""), name).unwrap_err().to_string().contains(name));
        }
    }
}
