//! The hashes that a GPU is held to are those of the runtime as it is.

use dmexp_tests::{dmexp, folder, root};
use std::process::Command;

#[test]
fn the_stored_hashes_are_those_of_the_runtime() {
    let folder = folder();
    let mut check = Command::new("bash");
    check.arg(root().join("tests/device_check/run.sh")).arg("bits");
    check.env("DMEXP", dmexp(folder.path()).get_program()).env("DEVICE", "cpu").env("OUT", folder.path());
    let output = check.output().expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("20 hashes are those of the runtime").count(), 2, "{said}");
}
