//! Whole inputs of every target, made here: small models through the project's own exporter, files of other programs by writers of a few lines. Those that are made of others are made once.

mod checkpoints;
#[path = "../../../../host-tools/examples/dormouse/made.rs"]
mod dormouse_made;
mod files;
mod requests;
mod tokenizers;

pub(crate) use checkpoints::*;
pub(crate) use files::*;
pub(crate) use requests::*;
pub(crate) use tokenizers::*;

/// Numbers between -1 and 1 that are all different: the upper bits of xorshift64*.
pub(crate) fn numbers(count: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The bytes of numbers.
pub(crate) fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A file of the reference data, which lie beside the repository; nothing where they are not.
fn reference(name: &str) -> Option<Vec<u8>> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data");
    std::fs::read(std::path::Path::new(root).join(name)).ok()
}
