//! dormouse's own exports: they open, list and verify, with what their writer says is in them.

use dmexp_tests::{data, folder, run};
use std::fs;
use std::path::PathBuf;

fn all() -> Vec<PathBuf> {
    let Some(folder) = data("dormouse") else { return Vec::new() };
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.to_string_lossy().ends_with(".f32.dmexp")).collect();
    files.sort();
    assert!(files.len() >= 7, "{files:?}");
    files
}

#[test]
fn they_open_list_and_verify() {
    for path in all() {
        let folder = folder();
        let name = path.display().to_string();
        let listed = run(folder.path(), &["export", "info", &name, "--tensors"]).succeeded();
        let found = run(folder.path(), &["export", "info", &name, "--json", "--tensors"]).json();
        assert_eq!(found["architecture"], "dormouse", "{name}");
        let tensors = found["tensors"].as_array().unwrap();
        for tensor in tensors {
            assert!(listed.text().contains(tensor["name"].as_str().unwrap()), "{name}: {tensor}");
            assert_eq!(tensor["dtype"], "f32", "{name}");
        }
        let elements =
            |tensor: &serde_json::Value| tensor["dims"].as_array().unwrap().iter().map(|size| size.as_u64().unwrap()).product::<u64>();
        assert_eq!(found["num_params"].as_u64().unwrap(), tensors.iter().map(elements).sum::<u64>(), "{name}");
        let verified = run(folder.path(), &["export", "verify", &name]).succeeded();
        assert!(verified.text().contains(" 0 failed"), "{name}: {}", verified.text());
        // Every bit of the payload counts.
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(folder.path().join("flipped.dmexp"), bytes).unwrap();
        assert_eq!(run(folder.path(), &["export", "verify", "flipped.dmexp"]).code, Some(1), "{name}");
    }
}
