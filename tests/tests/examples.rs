//! The models beside the runtime's examples are what the exporter makes of models/.

use dmexp_tests::{folder, line, root, tiny};
use std::fs;

#[test]
fn the_models_of_the_examples_are_exported_from_ours() {
    let folder = folder();
    tiny().export(folder.path(), "tiny.whole.dmexp", "--dtype q8 --group 8");
    let models = root().join("models").display().to_string();
    let words = format!("--checkpoint {models}/tones.bin --arch {models}/tones.arch.toml --samples {models}/tones.samples.json");
    line(folder.path(), &format!("export run {words} --dtype f32 --out tones.whole.dmexp --quiet")).ok();
    for name in ["tiny", "tones"] {
        line(folder.path(), &format!("export strip {name}.whole.dmexp --out {name}.dmexp")).ok();
        let ours = root().join("runtime/examples").join(name).with_extension("dmexp");
        let same = fs::read(folder.path().join(name).with_extension("dmexp")).unwrap() == fs::read(&ours).unwrap();
        assert!(same, "{} is no longer what `dmexp export run` and `dmexp export strip` make of models/{name}.bin", ours.display());
    }
}
