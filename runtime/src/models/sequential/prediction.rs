//! A predictor with its memory: inputs go in, [`Prediction::run`], results come out.

#[cfg(feature = "std")]
use super::known::Known;
use super::predictor::{Plan, Predictor};
use super::step::{Call, Step};
use crate::arena::Memory;
use crate::format::arch::sequential::{NodeKey, SLOT_WORDS, Slot, SlotWords, works_in_place};
use crate::format::{Dims, Error, Rule, TensorView};
use crate::ops::check::{all_finite, self_check};
use crate::ops::parts::copy;
use core::ops::Range;

/// A predictor with its memory, in which inputs and results lie too.
///
/// A run may use the place of an input for something else: each input is written anew before each run.
///
/// ```
/// # use dmexp::{Prediction, Predictor, format::file::ModelFile};
/// let bytes = std::fs::read("examples/tones.dmexp")?;
/// let predictor = Predictor::bind(&ModelFile::open(&bytes)?)?;
/// let mut memory = vec![0; predictor.arena_len()?.div_ceil(4)];
/// let mut prediction = Prediction::new(predictor, memory.as_mut_slice())?;
/// prediction.input_mut(0).fill(0.25);
/// prediction.run()?;
/// let sum: f32 = prediction.output(0).iter().sum();
/// assert!((sum - 1.0).abs() < 1e-5, "{}", prediction.class());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Prediction<'m> {
    predictor: Predictor<'m>,
    #[cfg(not(feature = "std"))]
    slots: &'m [SlotWords],
    memory: &'m mut [f32],
    /// Whether recurrent layers begin from nothing at the next run.
    fresh: bool,
    /// Hosts read once what the network says of itself.
    #[cfg(feature = "std")]
    known: Known<'m>,
}

impl<'m> Prediction<'m> {
    /// Puts a prediction into `memory`, an [`Arena`](crate::Arena) of [`Predictor::arena_len`] bytes; what it held does not matter. Inputs are zeros until they are written.
    ///
    /// # Errors
    /// [`Error::ArithmeticSelfCheck`] on a machine whose floats are not IEEE; [`Error::ArenaTooSmall`] with the bytes that are needed; those of
    /// [`plan`](crate::format::arch::sequential::plan).
    pub fn new<M: Memory + ?Sized>(predictor: Predictor<'m>, memory: &'m mut M) -> Result<Self, Error> {
        self_check()?;
        let memory = memory.words();
        let found = size_of_val(memory) as u64;
        let too_small = |table: usize, words: u32| {
            let needed = (table as u64).saturating_mul(SLOT_WORDS as u64).saturating_add(u64::from(words)).saturating_mul(4);
            Error::ArenaTooSmall { needed, found }
        };
        let (slots, memory, table, words) = match predictor.plan() {
            Plan::Known { slots, words } => (slots, memory, 0, words),
            Plan::Unknown(plan) => {
                let nodes = predictor.num_nodes() as usize;
                let (table, rest) = memory.split_at_mut_checked(nodes.saturating_mul(SLOT_WORDS)).ok_or(too_small(nodes, 0))?;
                let (table, _) = table.as_chunks_mut::<SLOT_WORDS>();
                let words = plan(&predictor, table)?;
                (&*table, rest, nodes, words)
            }
        };
        let memory = memory.get_mut(..words as usize).ok_or(too_small(table, words))?;
        memory.fill(0);
        Ok(Self {
            predictor,
            #[cfg(not(feature = "std"))]
            slots,
            memory: bytemuck::cast_slice_mut(memory),
            fresh: true,
            #[cfg(feature = "std")]
            known: Known::of(&predictor, slots),
        })
    }

    /// The predictor.
    pub const fn predictor(&self) -> &Predictor<'m> {
        &self.predictor
    }

    /// Bytes of memory that inputs, results and work space take, without the plan.
    pub const fn memory_len(&self) -> usize {
        size_of_val::<[f32]>(self.memory)
    }

    /// The shape of input `number`, without the batch axis; `None` past the last.
    pub fn input_shape(&self, number: u32) -> Option<Dims> {
        self.input_slot(number).map(|slot| slot.shape)
    }

    /// The shape of output `number`, without the batch axis; `None` past the last.
    pub fn output_shape(&self, number: u32) -> Option<Dims> {
        self.output_slot(number).map(|slot| slot.shape)
    }

    /// The elements of input `number`, row-major; none past the last. To be written before each run.
    pub fn input_mut(&mut self, number: u32) -> &mut [f32] {
        self.input_slot(number).and_then(|slot| self.memory.get_mut(range(&slot))).unwrap_or_default()
    }

    /// The elements of output `number`, row-major; none past the last. They are those of the last run.
    pub fn output(&self, number: u32) -> &[f32] {
        self.output_slot(number).and_then(|slot| self.memory.get(range(&slot))).unwrap_or_default()
    }

    /// The largest element of the first output, of those its place: the class, where they stand for classes. The lowest where several are largest.
    pub fn class(&self) -> u32 {
        crate::ops::check::argmax(self.output(0)).map_or(0, |(place, _)| place)
    }

    /// Writes sample `number` of golden vectors into the inputs: `inputs` gives the tensor of each, a row a sample. False where there is no such sample.
    pub fn write_sample<'t>(&mut self, number: u32, inputs: impl Fn(u32) -> Option<TensorView<'t>>) -> bool {
        for place in 0..self.predictor.num_inputs() {
            let Some(view) = inputs(place).filter(|view| (number as usize) < view.rows()) else { return false };
            let first = (number as usize).wrapping_mul(view.cols());
            for (at, x) in (first..).zip(self.input_mut(place)) {
                *x = view.get_float(at);
            }
        }
        true
    }

    /// Whether the outputs have the bits of sample `number` of golden vectors: `outputs` gives the tensor of each, a row a sample.
    pub fn has_results<'t>(&self, number: u32, outputs: impl Fn(u32) -> Option<TensorView<'t>>) -> bool {
        (0..self.predictor.num_outputs()).all(|place| {
            let (Some(view), found) = (outputs(place), self.output(place)) else { return false };
            let first = (number as usize).wrapping_mul(view.cols());
            found.len() == view.cols() && found.iter().zip(first..).all(|(y, at)| y.to_bits() == view.get_float(at).to_bits())
        })
    }

    /// Forgets the state of recurrent layers, which those of a predictor that streams keep between runs.
    pub fn reset(&mut self) {
        self.fresh = true;
    }

    /// Computes the results from the inputs.
    ///
    /// # Errors
    /// [`Error::NoRow`] for a number that an embedding has no row for; [`Error::NonFiniteResult`] for a result that is not finite, as it is where an input is not or a result is past the range of
    /// `f32`. A streaming prediction has then lost its state and begins anew. [`Error::Node`] of [`NodeKey::Place`] for a plan that puts what a layer uses in one place.
    pub fn run(&mut self) -> Result<(), Error> {
        let fresh = self.fresh || !self.predictor.usage().streaming;
        self.fresh = true;
        #[cfg(feature = "std")]
        for known in &self.known.calls {
            let from = |place: u32| known.inputs.get(place as usize).copied()?;
            call(self.memory, (known.node, &known.step), known.own, (known.inputs.len() as u32, from), fresh)?;
        }
        #[cfg(not(feature = "std"))]
        for node in 0..self.predictor.num_nodes() {
            if let Some(step) = self.predictor.step(node) {
                let (predictor, slots) = (&self.predictor, self.slots);
                let from = |place| slot(slots, predictor.link(node, place)?);
                call(self.memory, (node, &step), slot(slots, node), (predictor.num_links(node), from), fresh)?;
            }
        }
        for output in 0..self.num_outputs() {
            let values = self.output(output);
            if !all_finite(values) {
                let element = values.iter().position(|value| !value.is_finite()).unwrap_or(0) as u32;
                return Err(Error::NonFiniteResult { output, element });
            }
        }
        self.fresh = false;
        Ok(())
    }

    #[cfg(feature = "std")]
    fn input_slot(&self, number: u32) -> Option<Slot> {
        self.known.inputs.get(number as usize).copied()?
    }

    #[cfg(not(feature = "std"))]
    fn input_slot(&self, number: u32) -> Option<Slot> {
        slot(self.slots, self.predictor.input_node(number)?)
    }

    #[cfg(feature = "std")]
    fn output_slot(&self, number: u32) -> Option<Slot> {
        self.known.outputs.get(number as usize).copied()?
    }

    #[cfg(not(feature = "std"))]
    fn output_slot(&self, number: u32) -> Option<Slot> {
        slot(self.slots, self.predictor.output_node(number)?)
    }

    fn num_outputs(&self) -> u32 {
        #[cfg(feature = "std")]
        return self.known.outputs.len() as u32;
        #[cfg(not(feature = "std"))]
        self.predictor.num_outputs()
    }
}

/// What a node has in the arena.
pub(super) fn slot(slots: &[SlotWords], node: u32) -> Option<Slot> {
    slots.get(node as usize).map(Slot::unpack)
}

/// Runs a layer, at a node, on each of its inputs: how many there are, and what each has in the arena.
fn call(
    memory: &mut [f32],
    (node, step): (u32, &Step<'_>),
    own: Option<Slot>,
    (inputs, from): (u32, impl Fn(u32) -> Option<Slot>),
    fresh: bool,
) -> Result<(), Error> {
    let misplaced = Error::Node { node, key: NodeKey::Place, rule: Rule::Overlap, found: node, allowed: node };
    let own = own.ok_or(misplaced)?;
    let axis = step.layer.axes.first().copied().unwrap_or(0);
    let (scratch, scratch_len) = own.scratch;
    let scratch = scratch as usize..(scratch as usize).saturating_add(scratch_len as usize);
    let mut before = 0u32;
    for place in 0..inputs {
        let from = from(place).ok_or(misplaced)?;
        let (mut x, out) = (range(&from), range(&own));
        if place == 0 && works_in_place(step.layer.op) && x.len() == out.len() {
            // Where both are one place, it is there already.
            if x != out {
                let [x, out] = memory.get_disjoint_mut([x, out.clone()]).map_err(|_| misplaced)?;
                copy(out, x);
            }
            x = 0..0;
        }
        let scratch = if scratch.is_empty() { 0..0 } else { scratch.clone() };
        // The plan keeps what a call uses apart.
        let [x, out, scratch] = memory.get_disjoint_mut([x, out, scratch]).map_err(|_| misplaced)?;
        let (input, output) = (from.shape, own.shape);
        (step.kernel)(&mut Call { step, place, inputs, before, x, input, out, output, scratch, fresh })?;
        before = before.saturating_add(input.as_slice().get(usize::from(axis)).copied().unwrap_or(0));
    }
    Ok(())
}

fn range(slot: &Slot) -> Range<usize> {
    let start = slot.offset as usize;
    start..start.saturating_add(slot.shape.count() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::DType;
    use crate::format::arch::sequential::{Activation, Interpolation, Layer, Op, Usage};
    use crate::models::sequential::Program;

    /// A network of two inputs and one layer with a plan made by hand: the offsets of three results, each of 2 words, and of the work space.
    fn run(layer: Layer, links: &'static [u32], offsets: [u32; 3], scratch: (u32, u32), slots: usize) -> Result<Vec<f32>, Error> {
        let step = Step::new(0, layer, [TensorView::EMPTY; 4]);
        let place = |offset: u32| [2, 1, 1, 1, 1, offset, 0, scratch.0, scratch.1];
        let table = offsets.map(place);
        let program = Program {
            nodes: &[None, None, Some(step)],
            links: &[&[], &[], links],
            inputs: &[0, 1],
            outputs: &[2],
            labels: &[],
            slots: table.get(..slots).unwrap(),
            words: 6,
        };
        let mut memory = [0u32; 6];
        let mut prediction = Prediction::new(Predictor::from_program(&program, Usage::default()), memory.as_mut_slice())?;
        prediction.input_mut(0).copy_from_slice(&[3.0, -1.0]);
        prediction.input_mut(1).copy_from_slice(&[0.5, 2.0]);
        prediction.run()?;
        Ok(prediction.output(0).to_vec())
    }

    #[test]
    fn what_a_call_uses_is_never_one_place() {
        let relu = Layer { activation: Activation::Relu, ..Layer::new(Op::Activation) };
        let (add, repeat) = (Layer::new(Op::Add), Layer { units: 1, ..Layer::new(Op::RepeatVector) });
        let (one, two): (&[u32], &[u32]) = (&[0], &[0, 1]);
        for (layer, links, sum) in [(relu, one, [3.0, 0.0]), (add, two, [3.5, 1.0]), (repeat, one, [3.0, -1.0])] {
            assert_eq!(run(layer, links, [0, 2, 4], (0, 0), 3), Ok(sum.to_vec()));
            let misplaced = Err(Error::Node { node: 2, key: NodeKey::Place, rule: Rule::Overlap, found: 2, allowed: 2 });
            // Half over the first input, over the work space, past the end, in no place at all.
            assert_eq!(run(layer, links, [0, 4, 1], (0, 0), 3), misplaced);
            assert_eq!(run(layer, links, [0, 2, 4], (5, 1), 3), misplaced);
            assert_eq!(run(layer, links, [0, 2, 5], (0, 0), 3), misplaced);
            assert_eq!(run(layer, links, [0, 2, 4], (0, 0), 2), misplaced);
            // In the place of the first input, where the layer can.
            let shared = run(layer, links, [0, 2, 0], (0, 0), 3);
            assert_eq!(shared, if works_in_place(layer.op) { Ok(sum.to_vec()) } else { misplaced });
        }
        assert!(matches!(run(add, two, [0, 2, 2], (0, 0), 3), Err(Error::Node { key: NodeKey::Place, .. })));
    }

    #[test]
    fn a_work_space_that_is_too_short_is_an_error_and_no_result() {
        let zeros = [0u8; 256];
        let matrix = |rows: u32, cols: u32| {
            let bytes = zeros.get(..4 * (rows * cols) as usize).unwrap();
            TensorView::new(0, DType::F32, Dims::matrix(rows, cols), bytes).unwrap()
        };
        let vector = |len: u32| TensorView::new(0, DType::F32, Dims::vector(len), &zeros[..4 * len as usize]).unwrap();
        let sized = |op, spatial, window: [u32; 3]| {
            let [a, b, c] = window;
            Layer { spatial, sizes: [a, b, c, 1, 1, 1, 1, 1, 1], units: 2, depth: 1, ..Layer::new(op) }
        };
        let none = TensorView::EMPTY;
        let resampled = Layer { interpolation: Interpolation::Bilinear, ..sized(Op::UpSampling, 2, [2, 2, 1]) };
        let rnn = |op, gates: u32| (sized(op, 0, [1; 3]), [matrix(gates, 2), matrix(gates, 2), vector(gates), none], [3, 2, 1], [2, 1, 1]);
        let cases = [
            (sized(Op::Conv, 1, [3, 1, 1]), [matrix(2, 6), vector(2), none, none], [5, 2, 1], [3, 2, 1], 6),
            (sized(Op::ConvTranspose, 1, [1, 1, 1]), [matrix(2, 2), vector(2), none, none], [3, 2, 1], [3, 2, 1], 2),
            (sized(Op::SeparableConv, 1, [3, 1, 1]), [matrix(2, 3), matrix(2, 2), vector(2), none], [5, 2, 1], [3, 2, 1], 6),
            (resampled, [matrix(4, 2), matrix(4, 2), none, none], [2, 2, 1], [4, 4, 1], 2),
        ];
        let recurrent = [(rnn(Op::SimpleRnn, 2), 6), (rnn(Op::Lstm, 8), 20), (rnn(Op::Gru, 6), 16)];
        let recurrent = recurrent.map(|((layer, tensors, input, output), words)| (layer, tensors, input, output, words));
        for (layer, tensors, [a, b, c], [d, e, f], words) in cases.into_iter().chain(recurrent) {
            let (step, ranks) =
                (Step::new(0, layer, tensors), [if c == 1 && layer.spatial < 2 { 2 } else { 3 }, if e == 1 { 1 } else { 3 }]);
            let rank = if layer.spatial == 1 { 2 } else { ranks[1] };
            for len in 0..=words {
                let slots = [[a, b, c, 1, ranks[0], 0, 1, 0, 0], [d, e, f, 1, rank, 32, 9, 64, len]];
                let program = Program {
                    nodes: &[None, Some(step)],
                    links: &[&[], &[0]],
                    inputs: &[0],
                    outputs: &[1],
                    labels: &[],
                    slots: &slots,
                    words: 96,
                };
                let mut memory = [0u32; 96];
                let mut prediction = Prediction::new(Predictor::from_program(&program, Usage::default()), memory.as_mut_slice()).unwrap();
                let ran = prediction.run();
                // Hosts take a convolution of floats in a way of its own, which needs none.
                let needed = if matches!(layer.op, Op::Conv | Op::ConvTranspose) { 0 } else { words };
                let too_small = Err(Error::ArenaTooSmall { needed: u64::from(words) * 4, found: u64::from(len) * 4 });
                assert_eq!(ran, if len < needed { too_small } else { Ok(()) }, "{:?} {len}", layer.op);
            }
        }
    }
}
