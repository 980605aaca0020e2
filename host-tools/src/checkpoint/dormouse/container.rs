//! dormouse's training container: step, flags, and three burn records one after the other: model, optimizer, teacher. Only the first is read.

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"DMCK\0";
const VERSION: [u8; 3] = [2, 0, 0];

/// Where the model lies, and what is known of its training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Container {
    /// The training step.
    pub(super) step: u64,
    /// Where the model record begins.
    pub(super) start: usize,
    /// Its length.
    pub(super) len: usize,
    /// Whether training had gone over to ternary factors ("latch", bit 0 of the flags).
    pub(super) latched: bool,
    /// Which of the two forms it is.
    pub(super) importer: &'static str,
}

/// Reads the head and compares its lengths with the file's.
///
/// # Errors
/// [`Class::NotAModel`](crate::error::Class::NotAModel) for another version; [`Class::Damaged`](crate::error::Class::Damaged) for lengths that are not the file's, or a model section that is empty.
pub(super) fn read(bytes: &[u8]) -> Result<Container> {
    let modern = bytes.starts_with(MAGIC);
    if let Some(version) = bytes.get(5..8).filter(|version| modern && **version != VERSION) {
        return Err(Error::not_a_model(format!(
            "is a dormouse checkpoint of version {version:02x?}; this software reads {VERSION:02x?} and the form before it"
        ))
        .at("byte 5"));
    }
    let (at, words, importer) = if modern { (8, 5, "dormouse v2") } else { (0, 3, "dormouse, before v2") };
    let start = at + 8 * words;
    let Some(head) = bytes.get(at..start) else {
        return Err(Error::damaged(format!("has {} bytes: the head of a dormouse checkpoint has {start}", bytes.len()))
            .advise("the file is cut or damaged: copy it again"));
    };
    let (head, _) = head.as_chunks::<8>();
    let mut numbers = head.iter().map(|word| u64::from_le_bytes(*word));
    let mut next = || numbers.next().unwrap_or(0);
    let (step, model, optimizer) = (next(), next(), next());
    let (teacher, flags) = (next(), next());
    let total = [model, optimizer, teacher].iter().try_fold(start as u64, |sum, len| sum.checked_add(*len));
    if total != Some(bytes.len() as u64) {
        let what = format!(
            "its head calls for a model of {model} bytes, an optimizer of {optimizer} and a teacher of {teacher}, {} with the head; the file has {}",
            total.map_or("more than 2^64".to_owned(), |total| total.to_string()),
            bytes.len()
        );
        return Err(Error::damaged(what).at(format!("byte {}", at + 8)).advise("the file is cut or damaged: copy it again"));
    }
    if model == 0 {
        return Err(Error::damaged("its model section is empty")
            .at(format!("byte {}", at + 8))
            .advise("this checkpoint holds no model: export another one"));
    }
    if flags > 1 {
        return Err(Error::not_a_model(format!("has flags {flags:#x}, of which only bit 0 is known")).at("byte 40"));
    }
    Ok(Container { step, start, len: model as usize, latched: flags == 1, importer })
}
