//! Tests of plans, on small random exports.

use super::*;
use crate::export::Format;
use crate::export::tests::{SMALL, Shape, export, open, options};
use dmexp_format::host::boards::BOARDS;
use tempfile::TempDir;

fn loaded(shape: Shape, dtype: DType, format: Format) -> (TempDir, Loaded) {
    let folder = TempDir::new().unwrap();
    let report = export(&open(shape.random()), &options(&folder, dtype, format)).unwrap();
    let loaded = Loaded::open(&report.out).unwrap();
    (folder, loaded)
}

fn board(name: &str) -> &'static Board {
    Board::find(name).unwrap()
}

#[test]
fn facts_are_those_of_the_file() {
    let (_folder, tied) = loaded(SMALL, DType::Q8, Format::V2);
    let facts = Facts::of(&tied).unwrap();
    let tensors = u64::from(facts.config.weight_tensors() + 1);
    assert_eq!(facts.model_bytes, (tied.file().unwrap().payload().len() as u64).next_multiple_of(64) + 36 * tensors);
    assert_eq!(facts.matrices.len(), 1);
    let (dtype, count, bytes) = facts.matrices[0];
    assert_eq!((dtype, count), (DType::Q8, facts.config.num_params() - 16 * 5));
    assert!(bytes > count && bytes == facts.bytes_per_token());
    // What another type would take is about what an export in it takes.
    let (_folder, narrow) = loaded(SMALL, DType::Q4, Format::V2);
    let other = Facts::of(&narrow).unwrap();
    assert!(
        20 * facts.bytes_in(DType::Q4).abs_diff(other.model_bytes) < other.model_bytes,
        "{} {}",
        facts.bytes_in(DType::Q4),
        other.model_bytes
    );

    // An embedding that is no classifier is not read for a token.
    let (_folder, apart) = loaded(Shape { tied: false, ..SMALL }, DType::F32, Format::V2);
    let apart = Facts::of(&apart).unwrap();
    assert_eq!(apart.bytes_per_token(), 4 * count);
}

#[test]
fn a_model_fits_or_is_refused_with_what_would_fit() {
    let wide = Shape { vocab_size: 2000, max_seq_len: 2000, ..SMALL };
    let (_folder, loaded) = loaded(wide, DType::F32, Format::V2);
    let facts = Facts::of(&loaded).unwrap();
    let plan = Plan::new(&facts, board("rp2040"), None, KvDType::F16).unwrap();
    assert!(plan.fits() && plan.largest_context == Some(2000), "{plan:?}");
    let short = Plan::new(&facts, board("lm3s6965evb"), None, KvDType::F16).unwrap();
    let largest = short.largest_context.unwrap();
    let [refusal] = short.refusals.as_slice() else { panic!("{short:?}") };
    assert!(refusal.contains(&format!("--context {largest}")) && refusal.contains("--kv q8"), "{refusal}");
    // What it says fits does fit, and one more does not.
    assert!(Plan::new(&facts, board("lm3s6965evb"), Some(largest), KvDType::F16).unwrap().fits());
    assert!(!Plan::new(&facts, board("lm3s6965evb"), Some(largest + 1), KvDType::F16).unwrap().fits());
    assert!(Plan::new(&facts, board("rp2040"), Some(2001), KvDType::F16).is_err());
}

#[test]
fn a_model_too_large_for_the_flash_is_refused_with_the_type_that_fits() {
    let large = Shape { dim: 64, hidden_dim: 192, vocab_size: 1000, max_seq_len: 8, ..SMALL };
    let (_folder, loaded) = loaded(large, DType::F32, Format::V2);
    let facts = Facts::of(&loaded).unwrap();
    let plan = Plan::new(&facts, board("lm3s6965evb"), None, KvDType::F16).unwrap();
    let [refusal] = plan.refusals.as_slice() else { panic!("{plan:?}") };
    assert!(refusal.contains("--dtype q8") || refusal.contains("--dtype bf16"), "{refusal}");
}

#[test]
fn speed_is_limited_by_what_takes_longer() {
    let (_folder, loaded) = loaded(SMALL, DType::Q8, Format::V2);
    let facts = Facts::of(&loaded).unwrap();
    for board in BOARDS {
        let plan = Plan::new(&facts, board, None, KvDType::F16).unwrap();
        let Some(speed) = plan.speed else {
            assert_eq!(board.clock, 0, "{}", board.name);
            continue;
        };
        let (least, most) = speed.tokens_per_s;
        assert!(0.0 < least && least <= most, "{}: {speed:?}", board.name);
        let slow = Board { bandwidth: 1000, ..*board };
        let limited = Speed::estimate(&facts, &slow, KvDType::F16, &Measured::table()).unwrap();
        assert_eq!(limited.limit, Limit::Flash);
        assert!(limited.tokens_per_s.1 <= 1000.0 / facts.bytes_per_token() as f64);
    }
}
