//! What a comparison means, in one sentence.

use super::machines::{Found, Place};
use std::fmt::Write as _;

/// The names of what was compared, for the sentence.
#[derive(Clone, Copy, Debug)]
pub struct Names<'n> {
    /// The side that the other is compared with.
    pub reference: &'n str,
    /// The side in question.
    pub device: &'n str,
    /// Whether both have the file of one fingerprint; otherwise a difference of tensors is no fault.
    pub one_file: bool,
}

/// The part of a step in words; a layer is called `part`.
pub fn place_in_words(place: Place, part: &str) -> String {
    match place {
        Place::Embedding => "the embedding".to_owned(),
        Place::Layer(layer) => format!("{part} {layer}"),
        Place::Logits => format!("the logits, the residual stream being the same after every {part}"),
        Place::Unknown => "a place that is not known".to_owned(),
    }
}

/// The sentence. `tensor` gives the name of a tensor.
pub fn verdict(found: &Found, names: Names<'_>, tensor: &dyn Fn(u32) -> String) -> String {
    let Names { reference, device, one_file } = names;
    let count = found.positions.len();
    let positions = if count == 1 { "1 position".to_owned() } else { format!("{count} positions") };
    let Some(first) = found.first else {
        return match &found.greedy {
            Some([one, other]) if one != other => {
                format!("Equal as far as the text goes, {positions}, but the texts that {device} and {reference} continue it by differ.")
            }
            _ => format!("Equal: {device} computes the same bits as {reference} at all {positions}."),
        };
    };
    let mut text = format!(
        "Different: {device} differs from {reference} first at position {} in {}",
        first.position,
        place_in_words(first.place, found.part)
    );
    if found.positions.last().is_some_and(|last| last.divergence.is_none()) {
        let _ = write!(text, ", and at position {} logits are not finite", count - 1);
    }
    let wrong: Vec<String> = found.tensors.wrong.iter().take(3).map(|number| tensor(*number)).collect();
    let more = found.tensors.wrong.len() - wrong.len();
    match (wrong.as_slice(), found.tensors.compared) {
        ([], 0) => text += "; whether the weights are the same is not known",
        ([], _) => {
            text += "; all its weights are the same, so its arithmetic is not: another version of the runtime, a compiler that contracts or reorders, or float routines of its own";
        }
        (names, _) => {
            let names = names.join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let verb = if found.tensors.wrong.len() == 1 { "has" } else { "have" };
            let _ = write!(text, "; {names}{more} {verb} other bytes there");
            text += if one_file { ": its copy of the weights is damaged, flash it again" } else { ", as two files may" };
        }
    }
    text + "."
}
