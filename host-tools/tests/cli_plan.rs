//! `dmexp plan`, by running the real binary.

mod cli_support;

use cli_support::{Shape, any, checkpoint, folder, line};
use std::fs;

const MADE: Shape = Shape { dim: 32, hidden: 48, layers: 2, heads: 2, kv_heads: 1, vocab: 256, seq: 2000 };

fn prepared() -> tempfile::TempDir {
    let folder = folder();
    fs::write(folder.path().join("made.bin"), checkpoint(&MADE, any)).unwrap();
    line(folder.path(), "export run --checkpoint made.bin --tokenizer bytes --dtype q8 --out made.dmexp --quiet").ok();
    folder
}

#[test]
fn a_plan_has_the_bytes_of_the_runtime_and_says_what_limits() {
    let folder = prepared();
    let plan = line(folder.path(), "plan made.dmexp --board rp2350 --context 100 --kv q8 --json").json();
    let file = fs::metadata(folder.path().join("made.dmexp")).unwrap().len();
    let model = plan["flash"]["model_bytes"].as_u64().unwrap();
    assert!(model < file + 2000 && model > 20_000, "{plan}");
    assert_eq!(plan["fits"], true);
    // 2 layers of keys and values: 100 positions of 16 codes and a scale of 2 bytes.
    assert_eq!(plan["ram"]["kv_bytes"], 2 * 2 * 100 * (16 + 2));
    assert_eq!(
        plan["ram"]["arena_bytes"].as_u64(),
        Some(plan["ram"]["kv_bytes"].as_u64().unwrap() + plan["ram"]["work_bytes"].as_u64().unwrap())
    );
    assert_eq!(plan["largest_context"], 2000);
    let speed = &plan["speed"];
    assert!(speed["tokens_per_s_least"].as_f64().unwrap() > 0.0, "{plan}");
    assert!(speed["tokens_per_s_least"].as_f64() <= speed["tokens_per_s_most"].as_f64(), "{plan}");
    let text = line(folder.path(), "plan made.dmexp --board rp2350").ok();
    assert!(text.text().contains("fits rp2350") && text.text().contains("limited by the"), "{}", text.text());
}

#[test]
fn what_does_not_fit_is_told_with_what_does_and_an_exit_code() {
    let folder = prepared();
    let plan = line(folder.path(), "plan made.dmexp --board microbit");
    assert_eq!(plan.code, Some(1), "{plan:?}");
    assert!(plan.text().contains("does not fit microbit") && plan.text().contains("what fits: --context "), "{}", plan.text());
    let largest: u32 =
        plan.text().split("--context ").nth(1).unwrap().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    line(folder.path(), &format!("plan made.dmexp --board microbit --context {largest}")).ok();
    assert_eq!(line(folder.path(), &format!("plan made.dmexp --board microbit --context {}", largest + 1)).code, Some(1));
}

#[test]
fn boards_are_ranked_and_wrong_requests_refused() {
    let folder = prepared();
    let all = line(folder.path(), "plan made.dmexp --all --json").json();
    let fits: Vec<bool> = all.as_array().unwrap().iter().map(|plan| plan["fits"].as_bool().unwrap()).collect();
    assert!(fits.len() > 10 && fits.is_sorted_by(|a, b| a >= b) && fits.contains(&false), "{fits:?}");
    assert!(line(folder.path(), "plan made.dmexp --all").ok().text().contains("rp2040"));
    let kit = line(folder.path(), "plan made.dmexp --board pico --context 100 --json").json();
    assert_eq!((&kit["board"], kit["flash"]["model_room"].as_u64().unwrap() < 2 << 20), (&"rp2040".into(), true), "{kit}");
    let text = line(folder.path(), "plan made.dmexp --board nrf52840 --context 100").ok();
    assert!(text.text().contains("MB/s at most") && text.text().contains("assumed"), "{}", text.text());
    line(folder.path(), "plan made.dmexp --board pica").refused(2, &["the boards are: rp2040"]);
    line(folder.path(), "plan made.dmexp").refused(2, &["--board"]);
    line(folder.path(), "plan made.dmexp --board rp2040 --context 2001").refused(1, &["made.dmexp", "2001", "2000"]);
    line(folder.path(), "plan made.bin --board rp2040").refused(1, &["dmexp export run"]);
}
