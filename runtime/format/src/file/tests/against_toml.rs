//! The heapless header reader against the `toml` crate: whatever the first takes, the second must take too and read as the same.

use super::v1::{LLAMA, file, parts};
use crate::file::ModelFile;

/// Fails unless a header that our reader takes is TOML that says the same.
fn compare(header: &[u8], payload: &[u8]) -> bool {
    let bytes = file(header, payload);
    let Ok(ours) = ModelFile::open(&bytes) else { return false };
    let text = core::str::from_utf8(header).unwrap();
    let theirs: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(theirs["num_params"].as_integer(), Some(ours.num_params() as i64));
    assert_eq!(theirs["dtype"].as_str(), ours.single_dtype().map(crate::DType::name));
    let tensors = theirs["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), ours.num_tensors() as usize);
    for (theirs, ours) in tensors.iter().zip(ours.tensors()) {
        assert_eq!(theirs["name"].as_str(), Some(ours.name));
        let dims: Vec<_> = theirs["dims"].as_array().unwrap().iter().map(|size| size.as_integer().unwrap() as u32).collect();
        assert_eq!(dims, ours.view.dims().as_slice());
    }
    let text = theirs["config"].as_str().unwrap();
    // Line ends of Windows are kept by us and made plain by nobody.
    assert_eq!(Some(text), ours.config_text());
    let theirs: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let Ok(config) = ours.llama_config() else {
        // The damage hit the key `arch`: without it a configuration is dormouse's.
        assert!(!theirs.contains_key("arch"));
        return true;
    };
    assert_eq!(theirs["dim"].as_integer(), Some(i64::from(config.dim)));
    assert_eq!(theirs["n_layers"].as_integer(), Some(i64::from(config.n_layers)));
    assert_eq!(theirs["max_seq_len"].as_integer(), Some(i64::from(config.max_seq_len)));
    assert_eq!(theirs["sliding_window"].as_integer(), Some(i64::from(config.sliding_window)));
    assert_eq!(theirs["tied_embeddings"].as_bool(), Some(config.tied_embeddings));
    assert_eq!(theirs["rope_layout"].as_str(), Some(config.rope_layout.name()));
    let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|value| value as f64)).unwrap() as f32;
    assert_eq!(number(&theirs["norm_eps"]), config.norm_eps);
    assert_eq!(number(&theirs["attention_factor"]), config.attention_factor);
    let mut frequencies = [0.0; 2];
    ours.rope_inv_freq(&mut frequencies).unwrap();
    let theirs: Vec<_> = theirs["rope_inv_freq"].as_array().unwrap().iter().map(number).collect();
    assert_eq!(theirs, frequencies);
    true
}

#[test]
fn what_is_taken_is_toml_and_reads_the_same() {
    const BYTES: &[u8] = b"\n\r \"'[{=.#\\_0\x01";
    let (header, payload) = parts(LLAMA);
    let header = header.as_bytes();
    assert!(compare(header, &payload));
    let mut taken = 0;
    for at in (0..header.len()).step_by(if cfg!(miri) { 997 } else { 1 }) {
        for byte in BYTES {
            let changed = [&header[..at], &[*byte], &header[at + 1..]].concat();
            let inserted = [&header[..at], &[*byte], &header[at..]].concat();
            taken += u32::from(compare(&changed, &payload)) + u32::from(compare(&inserted, &payload));
        }
        let removed = [&header[..at], &header[at + 1..]].concat();
        taken += u32::from(compare(&removed, &payload));
    }
    // Comments, blanks, digits that mean nothing to the shapes: enough of the damage leaves a right header for this test to mean something.
    assert!(taken > 1000, "{taken}");
}
