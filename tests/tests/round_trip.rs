//! A checkpoint goes into a file and comes out again: what stays the same bit for bit, what stays close, what a file holds, and what is refused. On this repository's own models.

use dmexp::format::KvDType;
use dmexp::format::file::ModelFile;
use dmexp_tests::damage::{index_start, put, replace, seal, word};
use dmexp_tests::direct::Checkpoint;
use dmexp_tests::{Source, files, folder, greedy, largest, line, logits, same_bits, story, tiny, worst};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Positions whose logits are compared: all that the models have.
fn positions(source: &Source) -> usize {
    Checkpoint::read(&source.checkpoint).config().max_seq_len as usize
}

fn info(folder: &Path, file: &str) -> Value {
    line(folder, &format!("export info {file} --json --tensors")).json()
}

#[test]
fn f32_keeps_every_bit_and_two_bytes_stay_close() {
    // Stated tolerances of the two-byte types, in parts of the largest logit: several times what is measured here.
    for (source, limits) in [(story(), [4e-3, 4e-2]), (tiny(), [4e-3, 4e-2])] {
        let folder = folder();
        let checkpoint = Checkpoint::read(&source.checkpoint);
        let export = source.export(folder.path(), "f32.dmexp", "--dtype f32");
        let tokens = greedy(&export, positions(&source));
        let expected = checkpoint.logits(&tokens, KvDType::F32);
        assert!(same_bits(&logits(&export, &tokens, "f32"), &expected), "{}", source.name);
        assert!(same_bits(&logits(&export, &tokens, "f16"), &checkpoint.logits(&tokens, KvDType::F16)), "{}", source.name);
        for (dtype, limit) in ["f16", "bf16"].into_iter().zip(limits) {
            let narrow = source.export(folder.path(), "narrow.dmexp", &format!("--dtype {dtype}"));
            let (worst, largest) = (worst(&logits(&narrow, &tokens, "f32"), &expected), largest(&expected));
            let part = worst / largest;
            println!(
                "{} {dtype}: {} positions, worst difference {worst:e}, {part:e} of the largest logit {largest}",
                source.name,
                tokens.len()
            );
            assert!(worst > 0.0 && part <= limit, "{} {dtype}: {part:e} of the largest logit", source.name);
        }
    }
}

#[test]
fn formats_1_and_2_of_one_model_give_the_same_logits() {
    for source in [story(), tiny()] {
        let folder = folder();
        let two = source.export(folder.path(), "two.dmexp", "--dtype f32");
        let one = source.export(folder.path(), "one.dmexp", "--dtype f32 --format 1");
        let tokens = greedy(&two, positions(&source).min(100));
        assert!(same_bits(&logits(&one, &tokens, "f16"), &logits(&two, &tokens, "f16")), "{}", source.name);
    }
}

#[test]
fn a_file_of_format_1_is_as_long_as_its_parts() {
    for source in [story(), tiny()] {
        let folder = folder();
        for dtype in ["f16", "bf16"] {
            let file = source.export(folder.path(), "one.dmexp", &format!("--format 1 --dtype {dtype}"));
            let header = u64::from(word(&fs::read(&file).unwrap(), 8));
            let params = info(folder.path(), "one.dmexp")["num_params"].as_u64().unwrap();
            assert_eq!(fs::metadata(&file).unwrap().len(), 24 + header + 2 * params, "{} {dtype}", source.name);
        }
    }
}

#[test]
fn header_and_tensors_come_back() {
    for source in [story(), tiny()] {
        let folder = folder();
        let config = *Checkpoint::read(&source.checkpoint).config();
        for format in [1, 2] {
            source.export(folder.path(), "m.dmexp", &format!("--format {format} --dtype bf16"));
            let found = info(folder.path(), "m.dmexp");
            // Of format 1 the configuration is a text in the header.
            let stated = |key: &str| match &found["header"]["config"] {
                Value::String(text) => {
                    let line = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix('='));
                    line.map(|value| value.trim().to_owned()).unwrap_or_default()
                }
                table => table[key].to_string(),
            };
            for (key, value) in [
                ("dim", config.dim),
                ("hidden_dim", config.hidden_dim),
                ("n_layers", config.n_layers),
                ("n_heads", config.n_heads),
                ("n_kv_heads", config.n_kv_heads),
                ("vocab_size", config.vocab_size),
                ("max_seq_len", config.max_seq_len),
            ] {
                assert_eq!(stated(key), value.to_string(), "{key}, {} format {format}", source.name);
            }
            assert_eq!(found["num_params"], config.num_params());
            let tensors = found["tensors"].as_array().unwrap();
            assert_eq!(found["num_tensors"], tensors.len());
            for number in 0..config.weight_tensors() {
                let spec = config.tensor(number).unwrap();
                let tensor = &tensors[number as usize];
                let dims: Vec<Value> = spec.dims.as_slice().iter().map(|size| Value::from(*size)).collect();
                assert_eq!((&tensor["name"], &tensor["dims"]), (&Value::from(spec.to_string()), &Value::from(dims)), "{number}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_of_the_payload_is_refused_by_checksum() {
    let folder = folder();
    for format in [1, 2] {
        let file = story().export(folder.path(), "m.dmexp", &format!("--format {format}"));
        let good = fs::read(&file).unwrap();
        let payload = ModelFile::open(&good).unwrap().payload().len();
        for back in [1, payload / 2, payload] {
            let mut bytes = good.clone();
            let at = bytes.len() - back;
            bytes[at] ^= 1;
            fs::write(&file, &bytes).unwrap();
            let verify = line(folder.path(), "export verify m.dmexp");
            assert_eq!(verify.code, Some(1), "{verify:?}");
            assert!(verify.text().contains("FAILED") && verify.text().contains("checksum"), "{}", verify.text());
            assert_eq!(line(folder.path(), "export info m.dmexp").code, Some(1));
            let tokenizer = if format == 1 { story().tokenizer.join(" ") } else { String::new() };
            line(folder.path(), &format!("generate --export m.dmexp --check {tokenizer}")).refused(&["m.dmexp", "checks"]);
        }
    }
}

#[test]
fn a_configuration_that_is_not_the_payloads_is_refused_by_shape() {
    let folder = folder();
    // Format 1: its checksum covers the payload alone. Format 2: header and index say the same, and the checksum is right.
    for format in [1, 2] {
        let file = tiny().export(folder.path(), "m.dmexp", &format!("--format {format} --no-golden"));
        let mut bytes = fs::read(&file).unwrap();
        replace(&mut bytes, "hidden_dim = 36", "hidden_dim = 40");
        if format == 2 {
            let config = index_start(&bytes) + word(&bytes, index_start(&bytes) + 16) as usize;
            assert_eq!(word(&bytes, config + 4), 36);
            put(&mut bytes, config + 4, &40u32.to_le_bytes());
            seal(&mut bytes);
        }
        fs::write(&file, &bytes).unwrap();
        line(folder.path(), "logits --export m.dmexp --tokens 0").refused(&["layers.0.feed_forward.w1.weight", "36", "40"]);
        let verify = line(folder.path(), "export verify m.dmexp");
        assert!(verify.code == Some(1) && verify.text().contains("[36, 24]") && verify.text().contains("[40, 24]"), "{verify:?}");
    }
}

#[test]
fn a_checkpoint_is_refused_with_the_command_that_converts_it_and_the_command_works() {
    let folder = folder();
    for source in [story(), tiny()] {
        fs::copy(&source.checkpoint, folder.path().join("my model.bin")).unwrap();
        let words = ["generate", "--export", "my model.bin"];
        let refusal = dmexp_tests::run(folder.path(), &words).refused(&["is a llama2.c checkpoint", "convert it: dmexp export run"]);
        let command = refusal.split_once("convert it: ").unwrap().1;
        println!("{command}");
        // As a user does it: copied into a shell, `dmexp` being found in the path.
        let binary = dmexp_tests::dmexp(folder.path()).get_program().to_owned();
        let path = std::env::join_paths([Path::new(&binary).parent().unwrap().to_owned(), "/bin".into(), "/usr/bin".into()]).unwrap();
        let shell = std::process::Command::new("sh").arg("-c").arg(command).current_dir(folder.path()).env("PATH", path).output().unwrap();
        assert!(shell.status.success(), "{command}: {shell:?}");
        let made: Vec<_> =
            files(folder.path()).into_iter().filter(|name| Path::new(name).extension().is_some_and(|end| end == "dmexp")).collect();
        assert_eq!(made.len(), 1, "{made:?}");
        dmexp_tests::run(folder.path(), &["export", "verify", &made[0]]).ok();
        fs::remove_file(folder.path().join(&made[0])).unwrap();
    }
}

#[test]
fn a_weight_that_f16_cannot_hold_is_refused_and_bf16_takes_it() {
    let folder = folder();
    let mut bytes = fs::read(tiny().checkpoint).unwrap();
    let config = *Checkpoint::read(&tiny().checkpoint).config();
    // Element 3 of layers.1.attention.wq.weight: behind the embedding, the norms of both layers and the first layer's wq.
    let place = (config.vocab_size * config.dim + 2 * config.dim + config.dim * config.dim + 3) as usize;
    put(&mut bytes, 28 + 4 * place, &65_536f32.to_le_bytes());
    fs::write(folder.path().join("large.bin"), bytes).unwrap();
    let words = "export run --checkpoint large.bin --tokenizer bytes --bos 0 --quiet --out";
    for format in [1, 2] {
        let ran = line(folder.path(), &format!("{words} x.dmexp --dtype f16 --format {format}"));
        ran.refused(&["large.bin", "layers.1.attention.wq.weight", "element 3", "65536", "bf16"]);
        assert_eq!(files(folder.path()), ["large.bin"]);
    }
    line(folder.path(), &format!("{words} b.dmexp --dtype bf16")).ok();
    line(folder.path(), "export verify b.dmexp").ok();
}

#[test]
fn a_stripped_file_has_the_same_fingerprint_and_logits() {
    for source in [story(), tiny()] {
        let folder = folder();
        let whole = source.export(folder.path(), "whole.dmexp", "");
        line(folder.path(), "export strip whole.dmexp --out stripped.dmexp").ok();
        line(folder.path(), "export verify stripped.dmexp").ok();
        assert_eq!(info(folder.path(), "whole.dmexp")["fingerprint"], info(folder.path(), "stripped.dmexp")["fingerprint"]);
        let tokens = greedy(&whole, 40);
        let stripped = folder.path().join("stripped.dmexp");
        assert!(same_bits(&logits(&whole, &tokens, "f16"), &logits(&stripped, &tokens, "f16")), "{}", source.name);
        let [whole, stripped] = [whole, stripped].map(|path| fs::metadata(path).unwrap().len());
        println!("{}: {whole} bytes, {stripped} without the header", source.name);
        assert!(stripped < whole);
    }
}

#[test]
fn two_exports_are_the_same_file() {
    for (source, format) in [(story(), 1), (story(), 2), (tiny(), 2)] {
        // In folders of other names, so that no path can be in the file.
        let (first, second) = (folder(), folder());
        let more = format!("--format {format}");
        let [first, second] = [first.path(), second.path()].map(|folder| fs::read(source.export(folder, "m.dmexp", &more)).unwrap());
        assert_eq!(first, second, "{} format {format}", source.name);
    }
}
