//! `dmexp bench` and `--load`, by running the real binary. What is fast is for `cargo xtask bench`; here is that every row is there, that its figures agree, and what is refused.

mod cli_support;

use cli_support::{TINY, folder, line, shared, tiny};
use serde_json::{Value, json};

/// Bytes of the weights of `tiny.dmexp` that are read for a token: all matrices, in f32.
fn read_bytes() -> u64 {
    let (dim, hidden, kv_dim) = (TINY.dim, TINY.hidden, TINY.dim / TINY.heads * TINY.kv_heads);
    4 * (TINY.vocab * dim + TINY.layers * (2 * dim * dim + 2 * dim * kv_dim + 3 * dim * hidden)) as u64
}

#[test]
fn every_combination_is_a_row_whose_figures_agree() {
    let folder = folder();
    tiny(folder.path());
    let report =
        line(folder.path(), "bench --export tiny.dmexp --pp 8 --tg 4 --context 0,16 --kv f32,q8 --threads 1,2 --repetitions 3 --json")
            .json();
    let rows = report["rows"].as_array().unwrap();
    let named = |row: &Value| ["kv", "threads", "test", "tokens", "context"].map(|key| row[key].clone());
    let mut expected = Vec::new();
    for kv in ["f32", "q8"] {
        for threads in [1, 2] {
            for context in [0, 16] {
                expected.push([json!(kv), json!(threads), json!("prefill"), json!(8), json!(context)]);
                expected.push([json!(kv), json!(threads), json!("decode"), json!(4), json!(context)]);
            }
        }
    }
    assert_eq!(rows.iter().map(named).collect::<Vec<_>>(), expected);
    for row in rows {
        let mut rates: Vec<f64> = row["rates"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
        rates.sort_by(f64::total_cmp);
        assert_eq!(rates.len(), 3, "{row}");
        assert!(rates[0] > 0.0 && (cfg!(not(unix)) || row["rate_per_cpu_second"].as_f64().unwrap() > 0.0), "{row}");
        assert_eq!([&row["lowest"], &row["rate"], &row["highest"]], [rates[0], rates[1], rates[2]].map(Value::from).each_ref(), "{row}");
        assert_eq!((&row["unit"], &row["dtype"], &row["no_room"]), (&json!("tokens/s"), &json!("f32"), &Value::Null));
        assert!(row["session_bytes"].as_u64().unwrap() > 0);
        assert!(row["bandwidth_bytes_per_s"].as_f64().unwrap() > 0.0);
        // In the middle of the test: keys and values of 2 or 18 positions, in one layer of 4 values each.
        let kept = |context: u64| if row["kv"] == "f32" { 2 * 4 * 4 * (context + 2) } else { 2 * (4 + 2) * (context + 2) };
        let read = row["read_bytes"].as_u64();
        assert_eq!(read, (row["test"] == "decode").then(|| read_bytes() + kept(row["context"].as_u64().unwrap())), "{row}");
        let share = read.map(|read| rates[1] * read as f64 / row["bandwidth_bytes_per_s"].as_f64().unwrap());
        let said = row["share_of_bandwidth"].as_f64();
        assert!(said.zip(share).map_or(said == share, |(said, share)| (said - share).abs() < 1e-9 * share), "{row}");
    }
}

#[test]
fn what_has_no_room_is_said_and_what_is_nothing_is_refused() {
    let folder = folder();
    tiny(folder.path());
    let report = line(folder.path(), "bench --export tiny.dmexp --pp 32,33 --tg 0 --repetitions 1 --threads 1 --json").json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["no_room"]), (2, &Value::Null));
    assert_eq!(rows[1]["no_room"], json!({ "positions_needed": 33, "positions_there": 32 }));
    assert_eq!((&rows[1]["rates"], &rows[1]["rate"]), (&json!([]), &Value::Null));
    let text = line(folder.path(), "bench --export tiny.dmexp --pp 32,33 --tg 0 --repetitions 1 --threads 1 --quiet").ok();
    assert!(text.text().contains("no room: 33 of 32 positions"), "{text:?}");
    let csv = line(folder.path(), "bench --export tiny.dmexp --pp 32,33 --tg 1 --repetitions 1 --threads 1 --csv").ok();
    let cells: Vec<Vec<&str>> = csv.text().lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(cells.len(), 4);
    assert!(cells.iter().all(|row| row.len() == cells[0].len()), "{cells:?}");
    let column = |name: &str| cells[0].iter().position(|cell| *cell == name).unwrap();
    assert_eq!((cells[2][column("rate")], cells[2][column("positions_needed")]), ("", "33"));

    let refused =
        |words: &str, code, parts: &[&str]| line(folder.path(), &format!("bench --export tiny.dmexp {words}")).refused(code, parts);
    refused("--pp 33 --tg 0", 1, &["tiny.dmexp", "prefill 33 takes 33 positions", "has 32"]);
    refused("--context 4294967295 --tg 4294967295 --pp 4294967295", 1, &["8589934590 positions"]);
    refused("--pp 0 --tg 0", 1, &["nothing to measure", "--pp or --tg"]);
    refused("--threads 0", 2, &["1 to 1024"]);
    refused("--repetitions 0", 2, &["1 to"]);
    refused("--kv f64", 2, &["f32, f16 or q8"]);
    refused("--simd mmx", 2, &["baseline, avx2"]);
    refused("--load twice", 2, &["map, copy, auto"]);
    refused("--pp 8 --tg 4 --decoding fast", 1, &["no model of dormouse"]);
    refused("--json --csv", 2, &["--json", "--csv"]);
    line(folder.path(), "bench --export none.dmexp").refused(1, &["none.dmexp"]);
    line(folder.path(), "bench --export tiny.bin").refused(1, &["tiny.bin", "dmexp export run"]);
    line(folder.path(), "bench").refused(2, &["--export"]);
}

#[test]
fn models_of_other_kinds_have_their_own_units() {
    let folder = folder();
    let tones = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tones");
    line(folder.path(), &format!("export run --checkpoint {tones}.bin --arch {tones}.arch.toml --out tones.dmexp --quiet")).ok();
    let report = line(folder.path(), "bench --export tones.dmexp --repetitions 2 --json").json();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    let named = ["test", "unit", "kv", "threads", "read_bytes"].map(|key| &rows[0][key]);
    assert_eq!(named, [&json!("predict"), &json!("predictions/s"), &Value::Null, &json!(1), &Value::Null]);
    assert!(rows[0]["rate"].as_f64().unwrap() > 0.0);
    let Some(file) = shared("dormouse/default.f32.dmexp") else { return };
    let words = format!("bench --export {} --pp 4 --tg 2 --repetitions 1 --threads 1 --json", file.display());
    let report = line(folder.path(), &words).json();
    let units: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| (&row["test"], &row["unit"], &row["kv"])).collect();
    let (unit, none) = (json!("bytes/s"), Value::Null);
    assert_eq!(units, [(&json!("prefill"), &unit, &none), (&json!("decode"), &unit, &none)]);
}

#[test]
fn a_copied_file_gives_the_bits_of_a_mapped_one() {
    let folder = folder();
    tiny(folder.path());
    for load in ["map", "copy", "auto"] {
        line(folder.path(), &format!("logits --export tiny.dmexp --tokens 0,1,2,3 --load {load} --out {load}.f32")).ok();
    }
    let logits = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(logits("map.f32").len(), 4 * TINY.vocab * 4);
    assert_eq!(logits("map.f32"), logits("copy.f32"));
    assert_eq!(logits("map.f32"), logits("auto.f32"));
    std::fs::write(folder.path().join("empty.dmexp"), "").unwrap();
    let said = ["map", "copy"]
        .map(|load| line(folder.path(), &format!("generate --export empty.dmexp --load {load}")).refused(1, &["empty.dmexp"]).err);
    assert_eq!(said[0], said[1]);
}
