//! llama2.c's own model and made checkpoints of every version, through the real command, against reference logits in f64 and against a decoder that reads the checkpoint by itself.
//!
//! What else is compared with the references lies where the command is tested (`host-tools/tests`): the texts of stories260K, greedy and drawn, byte for byte with their newline
//! (`report_30_the_text_is_that_of_the_reference`), the token ids of all settings in `stories260K_sampled.json` (`report_30_the_same_seed_gives_the_tokens_of_the_reference`), and the ids
//! of all strings in `tokenizer_encode_vectors.json` (`report_12_18_23_text_is_encoded_as_the_reference_does`).

use dmexp::format::KvDType;
use dmexp_tests::direct::Checkpoint;
use dmexp_tests::{Source, data, floats, folder, greedy, ids, json, largest, line, logits, run, same_bits, stories260k, worst};
use std::path::Path;

/// The checkpoint as a file of format 2 in f32.
fn exported(folder: &Path, checkpoint: &Path, out: &str) -> std::path::PathBuf {
    Source { name: "made", checkpoint: checkpoint.to_owned(), tokenizer: Vec::new() }.export(folder, out, "--dtype f32 --no-golden")
}

#[test]
fn stories260k_is_within_3e_5_of_f64_at_every_position_and_has_the_bits_of_its_checkpoint() {
    let (Some(source), Some(path), Some(expected)) =
        (stories260k(), data("ref/stories260K_greedy.json"), data("ref/stories260K_greedy_logits_f64.f32"))
    else {
        return;
    };
    let folder = folder();
    let export = source.export(folder.path(), "s.dmexp", "--dtype f32");
    let tokens = ids(&json(&path)["fed_tokens"]);
    assert_eq!(greedy(&export, 256), tokens);
    let found = logits(&export, &tokens, "f32");
    let expected = floats(&expected);
    assert_eq!(expected.len(), 256 * 512);
    let worst = worst(&found, &expected);
    println!("stories260K: {} logits, worst difference from f64 {worst:e}", found.len());
    assert!(worst <= 3e-5, "{worst:e}");
    let checkpoint = Checkpoint::read(&source.checkpoint);
    for (kv, name) in [(KvDType::F32, "f32"), (KvDType::F16, "f16")] {
        assert!(same_bits(&checkpoint.logits(&tokens, kv), &logits(&export, &tokens, name)), "keys and values in {name}");
    }
}

#[test]
fn stories260k_tells_the_reference_story() {
    let (Some(source), Some(path)) = (stories260k(), data("ref/stories260K_greedy_n256.txt")) else { return };
    let folder = folder();
    source.export(folder.path(), "s.dmexp", "--dtype f32");
    // llama2.c counts begin-of-text as a position too, prints no prompt where there is none, and ends with a newline: so do we, so that stdout is the file, byte for byte.
    let ran = line(folder.path(), "generate --export s.dmexp --temp 0 --positions 256 --kv f32").succeeded();
    assert_eq!(ran.out, std::fs::read(path).unwrap());
}

#[test]
fn made_checkpoints_of_every_version_give_their_reference_logits() {
    for (name, files) in [
        ("mha_tied", &["model_v0", "model_v1", "model_v2_q80", "model_v2_q80_gs16"][..]),
        ("gqa_untied", &["model_v0", "model_v1", "model_v2_q80"]),
        ("mqa_odd", &["model_v0", "model_v1", "model_v2_q80", "model_v2_q80_gs4"]),
    ] {
        let Some(made) = data(&format!("llama2c-made/{name}")) else { return };
        let folder = folder();
        let tokens = ids(&json(&made.join("ref.json"))["tokens"]);
        for file in files {
            let checkpoint = made.join(format!("{file}.bin"));
            let found = logits(&exported(folder.path(), &checkpoint, "m.dmexp"), &tokens, "f32");
            let direct = Checkpoint::read(&checkpoint).logits(&tokens, KvDType::F32);
            assert!(same_bits(&found, &direct), "{name}/{file}: other bits than the checkpoint's own weights");
            let reference = match *file {
                "model_v0" | "model_v1" => "ref_logits_f64.f32",
                "model_v2_q80" => "ref_logits_q80_weights_only_f64.f32",
                // Of these groups the references have quantised activations as well, another arithmetic: only the bits above are compared.
                _ => continue,
            };
            let expected = floats(&made.join(reference));
            let (worst, largest) = (worst(&found, &expected), largest(&expected));
            println!("{name}/{file}: worst difference from f64 {worst:e}, {:e} of the largest logit {largest}", worst / largest);
            assert!(worst <= 1e-4 * largest, "{name}/{file}: {worst:e} of {largest}");
        }
    }
}

#[test]
fn versions_1_and_2_made_of_stories260k_give_their_reference_logits() {
    let (Some(source), Some(derived), Some(references)) = (stories260k(), data("stories260K-derived"), data("ref")) else { return };
    let folder = folder();
    let tokens = ids(&json(&references.join("stories260K_greedy.json"))["fed_tokens"]);
    let version_0 = logits(&exported(folder.path(), &source.checkpoint, "v0.dmexp"), &tokens, "f32");
    let version_1 = logits(&exported(folder.path(), &derived.join("stories260K_v1.bin"), "v1.dmexp"), &tokens, "f32");
    assert!(same_bits(&version_0, &version_1));
    for group in [4, 64] {
        let checkpoint = derived.join(format!("stories260K_v2_q80_gs{group}.bin"));
        let expected = floats(&references.join(format!("stories260K_q80_gs{group}_weightsonly_f64_logits_on_greedy_path.f32")));
        let tokens = &tokens[..expected.len() / 512];
        let found = logits(&exported(folder.path(), &checkpoint, "v2.dmexp"), tokens, "f32");
        assert!(same_bits(&found, &Checkpoint::read(&checkpoint).logits(tokens, KvDType::F32)), "groups of {group}");
        let (worst, largest) = (worst(&found, &expected), largest(&expected));
        println!("stories260K q80 in groups of {group}: worst difference from f64 {worst:e}, largest logit {largest}");
        assert!(worst <= 1e-4 * largest, "groups of {group}: {worst:e} of {largest}");
    }
}

#[test]
fn the_settings_of_the_reference_do_not_depend_on_the_way_of_asking() {
    // The ids are compared where the command is tested; here: what a prompt and `--steps` give is what `--positions` gives.
    let Some(source) = stories260k() else { return };
    let folder = folder();
    source.export(folder.path(), "s.dmexp", "--dtype f32");
    let words = ["generate", "--export", "s.dmexp", "--prompt", "Lily and Tom", "--seed", "7", "--json"];
    let by_positions = run(folder.path(), &[&words[..], &["--positions", "40"]].concat()).json();
    let prompt = by_positions["prompt_tokens"].as_array().unwrap().len();
    let steps = (40 + 1 - prompt).to_string();
    let by_steps = run(folder.path(), &[&words[..], &["--steps", &steps]].concat()).json();
    assert_eq!(by_positions["tokens"], by_steps["tokens"]);
}
