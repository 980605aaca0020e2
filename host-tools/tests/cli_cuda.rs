//! Models on a GPU, by running the real binary with the stand-in of CUDA's driver: the results of this machine's processor, bit for bit, and what goes wrong with drivers and devices, each in a process of its own.
#![cfg(feature = "cuda")]

mod cli_support;
#[path = "cli_support/http.rs"]
mod http;

use cli_support::{Ran, Shape, any, checkpoint, dmexp, folder, line, shared, stories, tiny};
use dmexp_mockcuda::{FOLDER, INCOMPLETE};
use http::{Server, ask};
use serde_json::json;
use std::fs;
use std::path::Path;

/// A run with the library in `library` as the driver, told `settings`.
fn run_with(library: &str, folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Ran {
    let mut command = dmexp(folder);
    command.args(arguments).env("LD_LIBRARY_PATH", library).env_remove("CUDA_VISIBLE_DEVICES");
    let output = command.envs(settings.iter().copied()).output().expect("the binary starts");
    Ran { code: output.status.code(), out: output.stdout, err: String::from_utf8(output.stderr).expect("stderr is UTF-8") }
}

/// The folder of the stand-in; `None`, and a line that says so, where there is none or the system would find another driver first.
fn stand_in() -> Option<&'static str> {
    let Some(folder) = FOLDER else {
        println!("skipped: there was no C++ compiler for the stand-in of CUDA's driver");
        return None;
    };
    Some(folder)
}

/// A run with the stand-in.
fn mocked(driver: &str, folder: &Path, arguments: &str) -> Ran {
    run_with(driver, folder, &arguments.split_whitespace().collect::<Vec<_>>(), &[])
}

const GENERATE: &str = "generate --export tiny.dmexp --prompt abc --steps 8 --temp 0 --device cuda";

#[test]
fn a_machine_without_a_driver_says_so() {
    let folder = folder();
    tiny(folder.path());
    if dmexp_tools::cuda::devices() != Err(dmexp_tools::cuda::CudaError::NoLibrary) {
        println!("skipped: this machine has a driver");
        return;
    }
    let parts = ["there is no CUDA driver", "libcuda.so.1", "LD_LIBRARY_PATH"];
    line(folder.path(), GENERATE).refused(1, &parts);
    line(folder.path(), "logits --export tiny.dmexp --tokens 1,2 --device cuda:1").refused(1, &parts);
    line(folder.path(), "compare --export tiny.dmexp --tokens 1,2 --device cuda").refused(2, &parts);
    line(folder.path(), "compare --export tiny.dmexp --tokens 1,2 --reference cuda --device cpu").refused(2, &parts);
}

/// What the stand-in is told, and what is in the sentence that comes of it.
type Case<'c> = (&'c [(&'c str, &'c str)], &'c [&'c str]);

#[test]
fn whatever_is_wrong_with_a_driver_is_one_sentence() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    tiny(folder.path());
    let generate: Vec<&str> = GENERATE.split(' ').collect();
    let cases: [Case<'_>; 10] = [
        (&[("MOCKCUDA_INIT", "34")], &["the toolkit's stand-in", "stubs"]),
        (&[("MOCKCUDA_INIT", "100")], &["the CUDA driver has no device", "nvidia-smi"]),
        (&[("MOCKCUDA_INIT", "803")], &["starting the driver", "different versions", "803"]),
        (&[("MOCKCUDA_VERSION", "11020")], &["for CUDA 11.2", "11.4 is the oldest", "newer driver"]),
        (&[("MOCKCUDA_DEVICES", "0")], &["the CUDA driver has no device"]),
        (&[("CUDA_VISIBLE_DEVICES", "")], &["the CUDA driver has no device", "CUDA_VISIBLE_DEVICES= hides the others"]),
        (&[("MOCKCUDA_CAPABILITY", "70")], &["mockcuda has compute capability 7.0", "7.5"]),
        (&[("MOCKCUDA_MEMORY", "20000")], &["tiny.dmexp: the model needs ", " of which 20000 are free of 20000", "--context"]),
        (
            &[("MOCKCUDA_PTX", "222")],
            &[
                "for CUDA 13.0",
                "refuses the kernels",
                "PTX 6.3",
                "newer PTX than the driver knows",
                "222",
                "Unsupported .version (stand-in)",
            ],
        ),
        (&[("MOCKCUDA_PTX", "209")], &["refuses the kernels", "no code for this device", "209"]),
    ];
    for (settings, parts) in cases {
        run_with(driver, folder.path(), &generate, settings).refused(1, parts);
    }
    let incomplete = INCOMPLETE.expect("it is made with the stand-in");
    run_with(incomplete, folder.path(), &generate, &[]).refused(1, &["not one, or too old", "it has no cuDriverGetVersion"]);
}

#[test]
fn a_device_that_is_not_there_is_told_from_one_that_is_hidden() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    tiny(folder.path());
    let on = |number: u32, settings: &[(&str, &str)]| {
        let device = format!("cuda:{number}");
        let mut arguments: Vec<&str> = GENERATE.split(' ').collect();
        *arguments.last_mut().expect("there are some") = &device;
        run_with(driver, folder.path(), &arguments, settings)
    };
    on(1, &[]).refused(1, &["there is no cuda:1: the one device is cuda:0", "nvidia-smi"]);
    on(3, &[("MOCKCUDA_DEVICES", "3")]).refused(1, &["there are 3 devices, cuda:0 to cuda:2"]);
    on(1, &[("MOCKCUDA_DEVICES", "3"), ("CUDA_VISIBLE_DEVICES", "2")]).refused(1, &["the one device", "CUDA_VISIBLE_DEVICES=2 hides"]);
    let ran = on(2, &[("MOCKCUDA_DEVICES", "3")]).ok();
    assert!(ran.err.contains("cuda:2, mockcuda (compute capability 9.0, GPU-"), "{}", ran.err);
}

#[test]
fn memory_that_runs_out_is_told_with_what_is_needed() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    tiny(folder.path());
    let generate: Vec<&str> = GENERATE.split(' ').collect();
    let with = |bytes: u64| run_with(driver, folder.path(), &generate, &[("MOCKCUDA_MEMORY", &bytes.to_string())]);
    let refused = with(1000).refused(1, &["the model needs "]);
    let needed = refused.err.split("needs ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|number| number.parse::<u64>().ok());
    let needed = needed.expect("a number of bytes");
    with(needed - 1).refused(1, &[&format!("needs {needed} bytes"), &format!("{} are free", needed - 1)]);
    with(needed).ok();
}

#[test]
fn a_context_that_is_lost_ends_the_run_with_its_reason() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    tiny(folder.path());
    for (lost, parts) in
        [("5,700", ["an address that is not its own", "CUDA error 700"]), ("40,719", ["a kernel failed", "CUDA error 719"])]
    {
        for graph in ["", " --no-graph"] {
            let arguments = format!("{GENERATE}{graph} --no-echo");
            let arguments: Vec<&str> = arguments.split(' ').collect();
            let ran = run_with(driver, folder.path(), &arguments, &[("MOCKCUDA_LOST", lost)]);
            assert_eq!(ran.code, Some(1), "{ran:?}");
            let last = ran.err.lines().last().unwrap_or_default();
            assert!(last.starts_with("dmexp: ") && last.contains("tiny.dmexp"), "{ran:?}");
            assert!(parts.iter().all(|part| last.contains(part)) && last.contains("start again"), "{ran:?}");
        }
    }
    run_with(
        driver,
        folder.path(),
        &["compare", "--export", "tiny.dmexp", "--tokens", "1,2,3", "--device", "cuda"],
        &[("MOCKCUDA_LOST", "9,719")],
    )
    .refused(2, &["CUDA error 719"]);
}

#[test]
fn every_command_gives_what_it_gives_on_the_processor() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    let folder = folder.path();
    tiny(folder);
    fs::write(folder.join("text.txt"), "the quick brown fox jumps over the lazy dog, and again ".repeat(2)).unwrap();
    let both = |arguments: &str, files: &[&str]| {
        let here = mocked(driver, folder, arguments).ok();
        let kept: Vec<Vec<u8>> = files.iter().map(|file| fs::read(folder.join(file)).unwrap()).collect();
        for device in ["--device cuda", "--device cuda --no-graph"] {
            let there = mocked(driver, folder, &format!("{arguments} {device}")).ok();
            assert_eq!(here.text(), there.text(), "{arguments} {device}");
            for (file, kept) in files.iter().zip(&kept) {
                assert!(fs::read(folder.join(file)).unwrap() == *kept, "{arguments} {device}: {file}");
            }
        }
    };
    both("generate --export tiny.dmexp --prompt abc --temp 0", &[]);
    both("generate --export tiny.dmexp --prompt abcdefghijklmnop --steps 12 --temp 0.9 --seed 5", &[]);
    both("generate --export tiny.dmexp --prompt a --steps 12 --temp 0 --repeat-penalty 1.4 --kv q8 --context 20", &[]);
    both("logits --export tiny.dmexp --tokens 1,2,3,4,5,6,7,8,9,10,11 --kv f32 --out logits.f32", &["logits.f32"]);
    both("score --export tiny.dmexp --text text.txt", &[]);
    let ran = mocked(driver, folder, "generate --export tiny.dmexp --prompt abc --temp 0 --steps 4 --json --device cuda").json();
    assert_eq!(ran["device"], "cuda:0");
    let ran = mocked(driver, folder, "generate --export tiny.dmexp --prompt abc --temp 0 --steps 4 --json").json();
    assert_eq!(ran["device"], "cpu");
}

#[test]
fn a_model_of_dormouse_gives_what_it_gives_on_the_processor() {
    let (Some(driver), Some(data)) = (stand_in(), shared("dormouse")) else { return };
    let folder = folder();
    let folder = folder.path();
    fs::copy(data.join("default.f32.dmexp"), folder.join("mouse.dmexp")).unwrap();
    fs::write(folder.join("text.txt"), "once upon").unwrap();
    let both = |arguments: &str, file: Option<&str>| {
        let here = mocked(driver, folder, arguments).ok();
        let kept = file.map(|file| fs::read(folder.join(file)).unwrap());
        let there = mocked(driver, folder, &format!("{arguments} --device cuda")).ok();
        assert_eq!(here.text(), there.text(), "{arguments}");
        assert!(file.map(|file| fs::read(folder.join(file)).unwrap()) == kept, "{arguments}");
    };
    both("generate --export mouse.dmexp --prompt once --temp 0 --steps 9 --kda-scale 0.5", None);
    both("generate --export mouse.dmexp --prompt once --temp 0.9 --seed 5 --steps 6 --factors raw", None);
    both("logits --export mouse.dmexp --text once --decoding fast --out logits.f32", Some("logits.f32"));
    both("score --export mouse.dmexp --text text.txt --convention prefix", None);
    let alone = mocked(driver, folder, "score --export mouse.dmexp --text text.txt --device cuda").ok();
    assert!(!alone.text().contains("full window"), "{}", alone.text());
    let ran = mocked(driver, folder, "compare --export mouse.dmexp --prompt once --positions 7 --trace --device cuda").ok();
    assert!(ran.text().contains("Equal: ") && ran.text().contains("all 7 positions"), "{}", ran.text());
    let ran = mocked(driver, folder, "bench --export mouse.dmexp --pp 5 --tg 3 --repetitions 1 --device cuda --json").json();
    assert_eq!((&ran["rows"][0]["cost"], &ran["rows"][1]["cost"]["launches"]), (&json!(null), &json!(48)));
    let texts = |device: &[&str]| {
        let server = Server::start_with(folder, &[&["--export", "mouse.dmexp"], device].concat(), &[("LD_LIBRARY_PATH", driver)]);
        let body = json!({ "prompt": ["once", "upon a"], "max_tokens": 4, "seed": 4 });
        ask(server.address, "/v1/completions", &body).json(200)["choices"].clone()
    };
    assert_eq!(texts(&["--device", "cuda", "--parallel", "2"]), texts(&[]));
}

#[test]
fn a_server_on_a_gpu_gives_the_texts_of_one_on_the_processor() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    let folder = folder.path();
    tiny(folder);
    let texts = |device: &[&str]| {
        let server = Server::start_with(folder, &[&["--export", "tiny.dmexp"], device].concat(), &[("LD_LIBRARY_PATH", driver)]);
        // The last is four texts at once, with prompts of several blocks.
        let bodies = [
            json!({ "prompt": "abc", "max_tokens": 12, "temperature": 0 }),
            json!({ "prompt": "abcd efgh ijkl mnop", "max_tokens": 10, "seed": 3 }),
            json!({ "prompt": ["abcdefghijklmnopqrst", "bc"], "max_tokens": 9, "seed": 4, "n": 2 }),
        ];
        let choices = bodies.map(|body| ask(server.address, "/v1/completions", &body).json(200)["choices"].clone());
        (choices, server.metric("dmexp_passes_total"))
    };
    let (alone, passes_alone) = texts(&["--parallel", "1"]);
    for device in [&["--device", "cuda"][..], &["--device", "cuda", "--no-graph", "--parallel", "2"]] {
        let (there, passes) = texts(device);
        assert_eq!(there, alone, "{device:?}");
        assert!(passes + 9 <= passes_alone, "{passes} passes, {passes_alone} where each text is alone");
    }
}

#[test]
fn comparisons_with_a_gpu_find_equal_bits() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    let folder = folder.path();
    tiny(folder);
    for sides in ["--device cuda", "--reference cuda --device cpu", "--reference cuda:0 --device cuda:0"] {
        let ran = mocked(driver, folder, &format!("compare --export tiny.dmexp --prompt abc --positions 20 --trace {sides}")).ok();
        assert!(ran.text().contains("Equal: ") && ran.text().contains("all 20 positions"), "{sides}: {}", ran.text());
        assert!(ran.text().contains("cuda:0 (mockcuda)"), "{sides}: {}", ran.text());
    }
    // Another file is another model, and the place where it differs is found on the device as here.
    let shape = Shape { dim: 8, hidden: 12, layers: 1, heads: 2, kv_heads: 1, vocab: 256, seq: 32 };
    fs::write(folder.join("other.bin"), checkpoint(&shape, |place| if place == 256 * 8 + 40 { 0.25 } else { any(place) })).unwrap();
    line(folder, "export run --checkpoint other.bin --tokenizer bytes --bos 0 --dtype f32 --out other.dmexp --quiet").ok();
    let compare = "compare --export other.dmexp --reference-export tiny.dmexp --prompt abc --positions 12";
    let here = mocked(driver, folder, &format!("{compare} --device cpu"));
    let there = mocked(driver, folder, &format!("{compare} --device cuda"));
    assert_eq!((here.code, there.code), (Some(1), Some(1)), "{here:?} {there:?}");
    let place =
        |ran: &Ran| ran.text().split("first at position ").nth(1).map(|rest| rest.split([',', ';']).next().unwrap_or("").to_owned());
    assert!(place(&here).is_some() && place(&here) == place(&there), "{} {}", here.text(), there.text());
}

#[test]
fn what_a_gpu_does_not_do_is_refused_by_name() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    let folder = folder.path();
    tiny(folder);
    mocked(driver, folder, &format!("{GENERATE} --threads 2")).refused(1, &["--threads is for models on this machine's processor"]);
    mocked(driver, folder, &format!("{GENERATE} --simd baseline")).refused(1, &["--simd is for models on this machine's processor"]);
    mocked(driver, folder, &format!("{GENERATE} --context 33")).refused(1, &["33", "32"]);
    line(folder, "generate --export tiny.dmexp --device gpu").refused(2, &["cpu, cuda or cuda:NUMBER"]);
    line(folder, "generate --export tiny.dmexp --device cuda:x").refused(2, &["cuda:0"]);
    line(folder, "device info cuda").refused(2, &["a GPU is no board"]);
    if let Some(path) = shared("dormouse") {
        let run = |file: &str, more: &[&str]| {
            let file = path.join(format!("{file}.f32.dmexp"));
            let arguments = ["generate", "--export", file.to_str().unwrap(), "--prompt", "a", "--device", "cuda"];
            run_with(driver, folder, &[&arguments, more].concat(), &[])
        };
        run("gr", &[]).refused(1, &["the kernels do not have use_gr", "leave --device out"]);
        run("plain", &[]).refused(1, &["the kernels do not have use_plain_attn"]);
        run("default", &["--decoding", "full"]).refused(1, &["--decoding full and --convention full do not run on a GPU"]);
    }
}

#[test]
fn stories260k_tells_the_same_story() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    let folder = folder.path();
    if stories(folder, "q8").is_none() {
        return;
    }
    let arguments = "generate --export stories.dmexp --prompt Once --steps 100 --temp 0";
    let here = mocked(driver, folder, arguments).ok();
    let there = mocked(driver, folder, &format!("{arguments} --device cuda")).ok();
    assert_eq!(here.text(), there.text());
}

#[test]
fn the_benchmark_measures_a_gpu_beside_what_it_should_cost() {
    let Some(driver) = stand_in() else { return };
    let folder = folder();
    let folder = folder.path();
    tiny(folder);
    let bench = "bench --export tiny.dmexp --pp 9 --tg 5 --context 0,7 --kv f16,q8 --repetitions 2 --device cuda";
    let report = mocked(driver, folder, &format!("{bench} --json")).json();
    let rows = report["rows"].as_array().unwrap();
    assert!(report["device"].as_str().unwrap().starts_with("cuda:0, mockcuda"), "{report}");
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert_eq!(row["rates"].as_array().unwrap().len(), 2, "{row}");
        assert!(row["rate"].as_f64().unwrap() > 0.0, "{row}");
        // One layer of five launches, and embedding, head and choice.
        let launches = row["cost"]["launches"].as_u64();
        assert_eq!(launches, (row["test"] == "decode").then_some(8), "{row}");
    }
    let text = mocked(driver, folder, &format!("{bench} --quiet")).ok();
    assert!(text.text().contains("decode 5 at 7") && text.text().contains("Reckoned, not measured"), "{}", text.text());
    mocked(driver, folder, &format!("{bench} --threads 2")).refused(1, &["--threads is for this machine's processor"]);
    mocked(driver, folder, &format!("{bench} --csv")).refused(1, &["--csv is for this machine's processor"]);
    let too_long = "bench --export tiny.dmexp --pp 33 --tg 64 --device cuda";
    mocked(driver, folder, too_long).refused(1, &["tiny.dmexp", "64 positions", "32"]);
}

#[test]
fn costs_of_known_shapes_need_no_gpu() {
    let folder = folder();
    let found = line(folder.path(), "bench --costs bf16 --json").json();
    let shapes: Vec<(&str, u64)> = found["shapes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shape| (shape["shape"].as_str().unwrap(), shape["cost"]["launches"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        shapes,
        [
            ("15M", 33),
            ("42M", 67),
            ("110M", 99),
            ("1.1B", 179),
            ("1.1B", 179),
            ("1.1B", 179),
            ("dormouse small", 48),
            ("dormouse base", 88),
            ("dormouse p150", 128)
        ]
    );
    let text = line(folder.path(), "bench --costs q8 --kv q8").ok();
    assert!(text.text().contains("All matrices in q8, keys and values in q8;"), "{}", text.text());
    line(folder.path(), "bench --costs u8").refused(2, &["--costs"]);
    line(folder.path(), "bench --costs f16 --export a.dmexp").refused(2, &["--export"]);
}
