//! Where the results of a sequential model's nodes lie in one arena: two share a place where they are never needed at the same time. Made by the runtime when a prediction is set up, and by
//! `include_model!` while the program compiles.

use super::layer::{Flags, Layer};
use super::ops::{Activation, Interpolation, Op};
use super::{LayerKey, Node, Sequential};
use crate::layout::activation_words;
use crate::{Dims, Error, Rule};

/// Words of 32 bits that a plan has for each node.
pub const SLOT_WORDS: usize = 9;
/// The packed form of a [`Slot`].
pub type SlotWords = [u32; SLOT_WORDS];
/// The last use of what is never given up.
const FOREVER: u32 = u32::MAX;
/// Marks in a slot under construction, beside its rank.
const RESULT_PLACED: u32 = 1 << 8;
const SCRATCH_PLACED: u32 = 1 << 9;
const SHARED: u32 = 1 << 10;

/// How a model will be run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage<'l> {
    /// The length of the first axis of each input of the model, where it is to be another than the file says; 0, or nothing, where it is that of the file.
    pub lengths: &'l [u32],
    /// Whether recurrent layers go on from the state of the last run. Without lengths that were asked for, a run then takes one step.
    pub streaming: bool,
}

/// What a node has in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The shape of its result.
    pub shape: Dims,
    /// Where its result begins, in words.
    pub offset: u32,
    /// The number of the last node that reads it; the highest number where it is a result of the model.
    pub last: u32,
    /// Where its work space begins, in words, and how long that is.
    pub scratch: (u32, u32),
}

impl Slot {
    /// The slot in its packed form.
    pub const fn unpack(words: &SlotWords) -> Self {
        let [a, b, c, d, rank, offset, last, scratch, scratch_len] = *words;
        Self { shape: Dims::of_checked(rank as u8, [a, b, c, d]), offset, last, scratch: (scratch, scratch_len) }
    }
}

/// Whether a slot under construction has this mark.
const fn has(words: &SlotWords, mark: u32) -> bool {
    let [_, _, _, _, marks, ..] = *words;
    marks & mark != 0
}

/// The slot under construction of a node, or a spare one where there is none.
struct Draft<'t>(Option<&'t mut SlotWords>);

impl<'t> Draft<'t> {
    fn of(table: &'t mut [SlotWords], number: u32) -> Self {
        Self(table.get_mut(number as usize))
    }

    fn mark(&mut self, mark: u32) {
        if let Some([_, _, _, _, marks, ..]) = &mut self.0 {
            *marks |= mark;
        }
    }

    fn set_offset(&mut self, value: u32) {
        if let Some([_, _, _, _, _, offset, ..]) = &mut self.0 {
            *offset = value;
        }
    }

    fn set_last(&mut self, value: u32) {
        if let Some([_, _, _, _, _, _, last, ..]) = &mut self.0 {
            *last = value;
        }
    }

    fn set_scratch(&mut self, value: u32) {
        if let Some([.., scratch, _]) = &mut self.0 {
            *scratch = value;
        }
    }

    fn set_scratch_len(&mut self, value: u32) {
        if let Some([.., len]) = &mut self.0 {
            *len = value;
        }
    }
}

/// Whether the layer's result may take the place of its input, of which it then has as many elements.
pub const fn works_in_place(op: Op) -> bool {
    matches!(
        op,
        Op::Identity
            | Op::BatchNormalization
            | Op::LayerNormalization
            | Op::GroupNormalization
            | Op::InstanceNormalization
            | Op::UnitNormalization
            | Op::PRelu
            | Op::Activation
            | Op::Flatten
            | Op::Reshape
            | Op::Rescaling
            | Op::Add
            | Op::Subtract
            | Op::Multiply
            | Op::Average
            | Op::Maximum
            | Op::Minimum
    )
}

/// How many words the layer needs beside its first input and its result. `integers`: one of its matrices is quantised.
pub fn scratch_words(layer: &Layer, input: Dims, output: Dims, integers: bool) -> u64 {
    let (channels, units) = (u64::from(input.cols()), u64::from(layer.units));
    let taps = layer.window().into_iter().take(usize::from(layer.spatial)).fold(1u64, |taps, size| taps.saturating_mul(u64::from(size)));
    let codes = |n: u64| if integers { u64::from(activation_words(u32::try_from(n).unwrap_or(u32::MAX))) } else { 0 };
    let patch = taps.saturating_mul(channels);
    match layer.op {
        Op::Dense => codes(channels),
        Op::Conv | Op::ConvTranspose => patch.saturating_add(codes(patch)),
        Op::SeparableConv => {
            let filters = channels.saturating_mul(u64::from(layer.depth));
            output.rows().saturating_mul(filters).saturating_add(codes(filters))
        }
        // Of each: the state first, as it stays from run to run where a model is streamed.
        Op::SimpleRnn => units.saturating_mul(3).saturating_add(codes(channels.max(units))),
        Op::Lstm => units.saturating_mul(10).saturating_add(codes(channels.max(units))),
        Op::Gru => units.saturating_mul(8).saturating_add(codes(channels.max(units))),
        Op::UpSampling if layer.interpolation != Interpolation::Nearest => {
            let [_, width, ..] = input.padded();
            u64::from(width).saturating_mul(channels)
        }
        _ => 0,
    }
}

/// Whether a layer keeps something from step to step.
const fn is_recurrent(op: Op) -> bool {
    matches!(op, Op::SimpleRnn | Op::Lstm | Op::Gru)
}

/// Whether every step of the first axis of the layer's input gives one step of its result that depends on no other step, or on those before through a kept state.
fn steps_one_by_one(layer: &Layer, input: Dims) -> bool {
    let beside_time = || layer.used_axes().all(|axis| axis != 0);
    match layer.op {
        Op::SimpleRnn | Op::Lstm | Op::Gru => !layer.flags.has(Flags::BACKWARDS),
        Op::Dense | Op::BatchNormalization => input.rank() > 1,
        Op::LayerNormalization | Op::UnitNormalization | Op::Reverse | Op::Concatenate => beside_time(),
        Op::Activation => layer.activation != Activation::Softmax || beside_time(),
        Op::Identity | Op::Rescaling | Op::Embedding | Op::Add | Op::Subtract | Op::Multiply | Op::Average | Op::Maximum | Op::Minimum => {
            true
        }
        _ => false,
    }
}

/// Plans the arena of a model: `table` has a place for each node, whose contents do not matter. `is_integer` says whether a tensor is quantised, by its number in the file. Returns how many words
/// of 32 bits the arena has, without the table.
///
/// # Errors
/// [`Error::ScratchTooSmall`] for too short a table; [`Error::Layer`] of [`LayerKey::Input`] for the layer that does not take another length, [`Error::CannotStream`] for the one that
/// cannot be streamed; [`Error::Node`] where there are more lengths than inputs; [`Error::TooLargeForTarget`].
pub fn plan(model: &Sequential<'_>, is_integer: impl Fn(u32) -> bool, usage: Usage<'_>, table: &mut [SlotWords]) -> Result<u32, Error> {
    let nodes = model.num_nodes() as usize;
    let Some(table) = table.get_mut(..nodes) else {
        let words = |slots: usize| (slots as u64).saturating_mul(SLOT_WORDS as u64);
        return Err(Error::ScratchTooSmall { needed: words(nodes), found: words(table.len()) });
    };
    shapes(model, usage, table)?;
    if usage.streaming {
        check_streaming(model, table)?;
    }
    for (number, node) in (0u32..).zip(model.nodes()) {
        let Some(layer) = node.layer().and_then(|layer| model.layer(layer)) else { continue };
        let input = model.links_of(&node).next().and_then(|from| table.get(from as usize)).map(|words| Slot::unpack(words).shape);
        let tensors = layer.first_tensor..layer.first_tensor.saturating_add(layer.roles().count() as u32);
        let integers = tensors.into_iter().any(&is_integer);
        let output = table.get(number as usize).map_or(node.shape(), |words| Slot::unpack(words).shape);
        let words = scratch_words(&layer, input.unwrap_or(node.shape()), output, integers);
        let words = u32::try_from(words).map_err(|_| too_large(words))?;
        Draft::of(table, number).set_scratch_len(words);
    }
    last_uses(model, table);
    share(model, table);
    place(model, usage.streaming, table)
}

fn too_large(words: u64) -> Error {
    Error::TooLargeForTarget { needed: words.saturating_mul(4), addressable: isize::MAX as u64 }
}

/// The shape of every node for the lengths that are asked for.
fn shapes(model: &Sequential<'_>, usage: Usage<'_>, table: &mut [SlotWords]) -> Result<(), Error> {
    let mut lengths = usage.lengths.iter().copied();
    let mut inputs = 0u32;
    for (number, node) in (0u32..).zip(model.nodes()) {
        let shape = match node.layer() {
            None => {
                inputs = inputs.saturating_add(1);
                let asked = lengths.next().unwrap_or(0);
                let asked = if asked == 0 && usage.streaming && takes_any_length(model, number).is_ok() { 1 } else { asked };
                input_shape(model, number, node.shape(), asked)?
            }
            Some(layer_number) => called_shape(model, &node, layer_number, table)?,
        };
        if let Some(words) = table.get_mut(number as usize) {
            let [a, b, c, d] = shape.padded();
            *words = [a, b, c, d, shape.rank(), 0, 0, 0, 0];
        }
    }
    if usage.lengths.len() > inputs as usize {
        let found = usage.lengths.len() as u32;
        return Err(Error::Node { node: u32::MAX, key: super::NodeKey::Inputs, rule: Rule::TooLarge, found, allowed: inputs });
    }
    Ok(())
}

/// The shape of an input with `length` as its first size, unless that is 0.
fn input_shape(model: &Sequential<'_>, number: u32, shape: Dims, length: u32) -> Result<Dims, Error> {
    let sizes = shape.as_slice();
    let first = sizes.first().copied().unwrap_or(0);
    if length == 0 || length == first {
        return Ok(shape);
    }
    if let Err(layer) = takes_any_length(model, number) {
        return Err(Error::Layer { layer, key: LayerKey::Input, rule: Rule::Equal, found: length, allowed: first });
    }
    let new = core::iter::once(length).chain(sizes.iter().skip(1).copied());
    super::shape(new).map_err(|fault| Error::Node {
        node: number,
        key: super::NodeKey::Shape,
        rule: fault.rule,
        found: fault.found,
        allowed: fault.allowed,
    })
}

/// Whether every layer that reads this input takes it however long it is, as recurrent layers and embeddings do; else the first that does not.
fn takes_any_length(model: &Sequential<'_>, input: u32) -> Result<(), u32> {
    for node in model.nodes() {
        let Some(number) = node.layer() else { continue };
        if !model.links_of(&node).any(|from| from == input) {
            continue;
        }
        match model.layer(number) {
            Some(layer) if is_recurrent(layer.op) || layer.op == Op::Embedding => {}
            _ => return Err(number),
        }
    }
    Ok(())
}

/// The shape of the result of a call, which must not ask for other tensors than the file has.
fn called_shape(model: &Sequential<'_>, node: &Node, layer_number: u32, table: &[SlotWords]) -> Result<Dims, Error> {
    let Some(layer) = model.layer(layer_number) else { return Ok(node.shape()) };
    let inputs = model.links_of(node).filter_map(|from| table.get(from as usize)).map(|words| Slot::unpack(words).shape);
    let before = model.links_of(node).filter_map(|from| model.node(from)).map(|from| from.shape());
    if inputs.clone().eq(before.clone()) {
        return Ok(node.shape());
    }
    if let (Some(new), Some(old)) = (inputs.clone().next(), before.clone().next()) {
        for role in layer.roles() {
            let dims = |input| layer.tensor_dims(role, input).map_err(|fault| fault.of_layer(layer_number));
            if dims(new)? != dims(old)? {
                let size = |shape: Dims| shape.as_slice().first().copied().unwrap_or(0);
                return Err(Error::Layer {
                    layer: layer_number,
                    key: LayerKey::Input,
                    rule: Rule::Equal,
                    found: size(new),
                    allowed: size(old),
                });
            }
        }
    }
    layer.output(inputs).map_err(|fault| fault.of_layer(layer_number))
}

/// Refuses the first layer that mixes steps of time, or needs those to come.
fn check_streaming(model: &Sequential<'_>, table: &mut [SlotWords]) -> Result<(), Error> {
    if !model.layers().any(|layer| is_recurrent(layer.op)) {
        return Err(Error::CannotStream { layer: u32::MAX });
    }
    // Which results have steps of time is kept in their slots.
    for (number, node) in (0u32..).zip(model.nodes()) {
        let timed = match node.layer() {
            None => takes_any_length(model, number).is_ok(),
            Some(layer_number) => {
                let Some(layer) = model.layer(layer_number) else { continue };
                let read = |from: u32| table.get(from as usize).is_some_and(|[.., scratch, _]| *scratch != 0);
                let (any, all) = (model.links_of(&node).any(read), model.links_of(&node).all(read));
                let input = model.input_shape(number).unwrap_or(node.shape());
                // A state that stays is of the steps that go on; whole sequences each begin from nothing.
                if (any || is_recurrent(layer.op)) && !(all && any && steps_one_by_one(&layer, input)) {
                    return Err(Error::CannotStream { layer: layer_number });
                }
                any && (!is_recurrent(layer.op) || layer.flags.has(Flags::SEQUENCES))
            }
        };
        Draft::of(table, number).set_scratch(u32::from(timed));
    }
    Ok(())
}

fn last_uses(model: &Sequential<'_>, table: &mut [SlotWords]) {
    for (number, node) in (0u32..).zip(model.nodes()) {
        Draft::of(table, number).set_last(number);
        model.links_of(&node).for_each(|from| Draft::of(table, from).set_last(number));
    }
    model.outputs().for_each(|output| Draft::of(table, output).set_last(FOREVER));
}

/// Lets results take the place of inputs that nobody reads afterwards: their offset is then, for now, the number of the node that has the place.
fn share(model: &Sequential<'_>, table: &mut [SlotWords]) {
    for (number, node) in (0u32..).zip(model.nodes()) {
        let Some(layer) = node.layer().and_then(|layer| model.layer(layer)) else { continue };
        let mut links = model.links_of(&node);
        let Some(first) = links.next() else { continue };
        let (Some(input), Some(own)) = (table.get(first as usize), table.get(number as usize)) else { continue };
        let (before, after) = (Slot::unpack(input), Slot::unpack(own));
        let free = before.last == number && !links.any(|from| from == first);
        if !(works_in_place(layer.op) && free && before.shape.count() == after.shape.count()) {
            continue;
        }
        let root = if has(input, SHARED) { before.offset } else { first };
        let mut draft = Draft::of(table, number);
        draft.mark(SHARED);
        draft.set_offset(root);
        // What is read no more is not asked for its last use again.
        Draft::of(table, root).set_last(after.last);
    }
}

/// A stretch of the arena and the nodes from whose run to whose run it is in use.
#[derive(Clone, Copy)]
struct Stretch {
    len: u32,
    from: u32,
    to: u32,
}

impl Stretch {
    /// Of a node's result; an input is there before the first node runs.
    fn result(model: &Sequential<'_>, number: u32, words: &SlotWords) -> Self {
        let slot = Slot::unpack(words);
        let input = model.node(number).is_some_and(|node| node.layer().is_none());
        Self { len: u32::try_from(slot.shape.count()).unwrap_or(u32::MAX), from: if input { 0 } else { number }, to: slot.last }
    }

    /// Of a node's work space, which holds a state where the model is streamed.
    fn scratch(number: u32, words: &SlotWords, kept: bool) -> Self {
        let (_, len) = Slot::unpack(words).scratch;
        if kept { Self { len, from: 0, to: FOREVER } } else { Self { len, from: number, to: number } }
    }

    const fn meets(&self, other: &Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// Gives every stretch its place, the longest first, each as low as it goes.
fn place(model: &Sequential<'_>, streaming: bool, table: &mut [SlotWords]) -> Result<u32, Error> {
    let kept = |number: u32| {
        let layer = model.node(number).and_then(|node| model.layer(node.layer()?));
        streaming && layer.is_some_and(|layer| is_recurrent(layer.op))
    };
    let mut total = 0u32;
    loop {
        let mut longest: Option<(u32, bool, Stretch)> = None;
        for (number, words) in (0u32..).zip(table.iter()) {
            let result = if has(words, RESULT_PLACED | SHARED) { None } else { Some(Stretch::result(model, number, words)) };
            let scratch = if has(words, SCRATCH_PLACED) { None } else { Some(Stretch::scratch(number, words, kept(number))) };
            for (of_result, stretch) in [(true, result), (false, scratch)] {
                let Some(stretch) = stretch else { continue };
                if longest.is_none_or(|(_, _, longest)| stretch.len > longest.len) {
                    longest = Some((number, of_result, stretch));
                }
            }
        }
        let Some((number, of_result, stretch)) = longest else { break };
        let offset = lowest(model, kept, table, &stretch);
        let end = offset.checked_add(stretch.len);
        total = total.max(end.ok_or_else(|| too_large(u64::from(offset).saturating_add(u64::from(stretch.len))))?);
        let mut draft = Draft::of(table, number);
        draft.mark(if of_result { RESULT_PLACED } else { SCRATCH_PLACED });
        if of_result { draft.set_offset(offset) } else { draft.set_scratch(offset) }
    }
    for number in 0..model.num_nodes() {
        let Some(words) = table.get(number as usize) else { break };
        let shared = has(words, SHARED).then(|| Slot::unpack(words).offset);
        let root = shared.and_then(|root| table.get(root as usize)).map(|root| Slot::unpack(root).offset);
        if let Some(offset) = root {
            Draft::of(table, number).set_offset(offset);
        }
        if let Some([_, _, _, _, marks, ..]) = table.get_mut(number as usize) {
            *marks &= !(RESULT_PLACED | SCRATCH_PLACED | SHARED);
        }
    }
    let bytes = u64::from(total).saturating_mul(4);
    if bytes > isize::MAX as u64 { Err(too_large(u64::from(total))) } else { Ok(total) }
}

/// The lowest place for a stretch beside those that were placed before and are in use at the same time.
fn lowest(model: &Sequential<'_>, kept: impl Fn(u32) -> bool, table: &[SlotWords], stretch: &Stretch) -> u32 {
    let mut offset = 0u32;
    if stretch.len == 0 {
        return offset;
    }
    loop {
        let end = offset.saturating_add(stretch.len);
        let mut moved = false;
        for (number, words) in (0u32..).zip(table) {
            let slot = Slot::unpack(words);
            let placed = [
                (has(words, RESULT_PLACED), slot.offset, Stretch::result(model, number, words)),
                (has(words, SCRATCH_PLACED), slot.scratch.0, Stretch::scratch(number, words, kept(number))),
            ];
            for (is_placed, other, other_stretch) in placed {
                let other_end = other.saturating_add(other_stretch.len);
                if is_placed && other_stretch.meets(stretch) && other < end && offset < other_end {
                    offset = other_end;
                    moved = true;
                }
            }
            if moved {
                break;
            }
        }
        if !moved {
            return offset;
        }
    }
}

#[cfg(all(test, feature = "std"))]
#[path = "plan_tests.rs"]
mod tests;
