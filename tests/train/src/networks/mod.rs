//! Small networks: the one that tells tones apart, which is trained, and networks of made-up weights, which prove arithmetic and are good for nothing else.

pub mod file;
pub mod made;
pub mod tones;
