use super::super::{Flags, Interpolation, NodeKey};
use super::*;
use crate::host::sequential::{NamedLayer, SequentialNode, SequentialSettings};
use proptest::prelude::*;

fn node(layer: Option<u32>, inputs: &[u32], shape: Dims) -> SequentialNode {
    SequentialNode { layer, inputs: inputs.to_vec(), shape }
}

/// A graph of these layers, each called once with the nodes that it reads; nodes that nobody reads are outputs, and so is every one in `kept`.
fn graph(inputs: &[Dims], calls: &[(Layer, Vec<u32>)], kept: &[u32]) -> SequentialSettings {
    let mut nodes: Vec<_> = inputs.iter().map(|shape| node(None, &[], *shape)).collect();
    let mut layers = Vec::new();
    let mut tensors = 0;
    for (layer, links) in calls {
        let shape = layer.output(links.iter().map(|link| nodes[*link as usize].shape)).unwrap();
        nodes.push(node(Some(layers.len() as u32), links, shape));
        let wanted = layer.roles().count() as u32;
        let first_tensor = if wanted == 0 { 0 } else { tensors };
        tensors += wanted;
        layers.push(NamedLayer { type_name: String::new(), layer: Layer { first_tensor, ..*layer } });
    }
    let read: Vec<u32> = calls.iter().flat_map(|(_, links)| links.clone()).collect();
    let outputs = (0..nodes.len() as u32).filter(|node| !read.contains(node) || kept.contains(node)).collect();
    SequentialSettings { layers, nodes, outputs, labels: Vec::new() }
}

fn planned(settings: &SequentialSettings, usage: Usage<'_>, integers: bool) -> Result<(Vec<Slot>, u32), Error> {
    let record = settings.to_record();
    let model = Sequential::parse(&record).unwrap();
    let mut table = vec![[u32::MAX; SLOT_WORDS]; settings.nodes.len()];
    let words = plan(&model, |_| integers, usage, &mut table)?;
    Ok((table.iter().map(Slot::unpack).collect(), words))
}

/// Runs a plan with marks instead of numbers: whatever a call reads must still be what its node wrote.
fn follow(settings: &SequentialSettings, slots: &[Slot], words: u32) {
    let range = |slot: &Slot| slot.offset as usize..slot.offset as usize + slot.shape.count() as usize;
    let mut memory = vec![u32::MAX; words as usize];
    for (number, node) in (0u32..).zip(&settings.nodes) {
        if node.layer.is_none() {
            memory[range(&slots[number as usize])].fill(number);
        }
    }
    for (number, node) in (0u32..).zip(&settings.nodes) {
        let Some(layer) = node.layer else { continue };
        let own = &slots[number as usize];
        let (scratch, len) = own.scratch;
        memory[scratch as usize..(scratch + len) as usize].fill(u32::MAX);
        let in_place = works_in_place(settings.layers[layer as usize].layer.op) && range(&slots[node.inputs[0] as usize]) == range(own);
        for (place, from) in node.inputs.iter().enumerate() {
            let slot = &slots[*from as usize];
            assert!(memory[range(slot)].iter().all(|mark| mark == from), "node {number} reads {from}: {slots:?}");
            if place == 0 && in_place {
                assert!(!node.inputs[1..].contains(from), "node {number} reads {from} again");
            } else {
                let (a, b) = (range(slot), range(own));
                assert!(a.end <= b.start || b.end <= a.start, "node {number} writes over {from}: {slots:?}");
            }
        }
        memory[range(own)].fill(number);
        assert!(scratch >= range(own).end as u32 || scratch + len <= range(own).start as u32 || len == 0);
    }
    for output in &settings.outputs {
        assert!(memory[range(&slots[*output as usize])].iter().all(|mark| mark == output), "output {output}: {slots:?}");
    }
}

fn relu() -> Layer {
    Layer { activation: Activation::Relu, ..Layer::new(Op::Activation) }
}

fn dense(units: u32) -> Layer {
    Layer { units, ..Layer::new(Op::Dense) }
}

proptest! {
    #[test]
    fn what_is_still_read_is_never_written_over(
        sizes in prop::collection::vec(1u32..9, 1..4),
        choices in prop::collection::vec((0u8..6, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u32..9), 1..24),
        kept in prop::collection::vec(0u32..24, 0..4),
        integers in any::<bool>(),
    ) {
        let inputs: Vec<_> = sizes.iter().map(|size| Dims::vector(*size)).collect();
        let mut shapes = inputs.clone();
        let mut calls: Vec<(Layer, Vec<u32>)> = Vec::new();
        for (kind, a, b, units) in choices {
            let (a, b) = (a.index(shapes.len()) as u32, b.index(shapes.len()) as u32);
            let equal = shapes[a as usize] == shapes[b as usize];
            let (layer, links) = match kind {
                0 => (dense(units), vec![a]),
                1 => (relu(), vec![a]),
                2 | 3 if equal => (Layer::new(Op::Add), vec![a, b]),
                4 if equal => (Layer::new(Op::Maximum), vec![a, b, a]),
                _ => (Layer { axes: [0, u8::MAX, u8::MAX, u8::MAX], ..Layer::new(Op::Concatenate) }, vec![a, b]),
            };
            let shape = layer.output(links.iter().map(|link| shapes[*link as usize])).unwrap();
            if shape.count() > 2000 {
                continue;
            }
            shapes.push(shape);
            calls.push((layer, links));
        }
        let kept: Vec<_> = kept.into_iter().filter(|node| (*node as usize) < shapes.len()).collect();
        let settings = graph(&inputs, &calls, &kept);
        let (slots, words) = planned(&settings, Usage::default(), integers).unwrap();
        follow(&settings, &slots, words);
    }
}

#[test]
fn a_chain_takes_no_more_than_its_two_largest_neighbours() {
    let chain = |units: &[u32]| {
        let calls: Vec<_> =
            units.iter().zip(0..).flat_map(|(units, at)| [(dense(*units), vec![2 * at]), (relu(), vec![2 * at + 1])]).collect();
        planned(&graph(&[Dims::vector(100)], &calls, &[]), Usage::default(), false).unwrap().1
    };
    assert_eq!(chain(&[80, 10, 70]), 180);
    assert_eq!(chain(&[10, 80, 70, 5]), 150);
}

fn lstm(units: u32, flags: Flags) -> Layer {
    Layer { units, activation: Activation::Tanh, flags, ..Layer::new(Op::Lstm) }
}

#[test]
fn lengths_are_free_where_recurrent_layers_read_them_alone() {
    let calls = [(lstm(3, Flags::SEQUENCES), vec![0]), (dense(2), vec![1]), (lstm(4, Flags::default()), vec![2])];
    let settings = graph(&[Dims::matrix(7, 5)], &calls, &[]);
    let at = |length: u32| planned(&settings, Usage { lengths: &[length], streaming: false }, false);
    for length in [1, 7, 30] {
        let (slots, words) = at(length).unwrap();
        follow(&settings, &slots, words);
        assert_eq!((slots[2].shape, slots[3].shape), (Dims::matrix(length, 2), Dims::vector(4)));
    }
    assert_eq!(at(0), at(7));
    assert!(matches!(at(SIZE), Err(Error::Node { node: 0, .. })));
    // A dense layer after a flattened sequence wants as many elements as before.
    let calls = [(lstm(3, Flags::SEQUENCES), vec![0]), (Layer::new(Op::Flatten), vec![1]), (dense(2), vec![2])];
    let settings = graph(&[Dims::matrix(7, 5)], &calls, &[]);
    let refused = planned(&settings, Usage { lengths: &[8], streaming: false }, false);
    assert_eq!(refused, Err(Error::Layer { layer: 2, key: LayerKey::Input, rule: Rule::Equal, found: 24, allowed: 21 }));
    // A dense layer may not be given another sequence than it was built for.
    let settings = graph(&[Dims::matrix(7, 5)], &[(dense(2), vec![0])], &[]);
    let refused = planned(&settings, Usage { lengths: &[8], streaming: false }, false);
    assert_eq!(refused, Err(Error::Layer { layer: 0, key: LayerKey::Input, rule: Rule::Equal, found: 8, allowed: 7 }));
    let refused = planned(&settings, Usage { lengths: &[7, 7], streaming: false }, false);
    assert_eq!(refused, Err(Error::Node { node: u32::MAX, key: NodeKey::Inputs, rule: Rule::TooLarge, found: 2, allowed: 1 }));
}

const SIZE: u32 = super::super::SIZE_LIMIT + 1;

#[test]
fn streams_keep_states_apart_and_refuse_layers_that_need_other_steps() {
    let streamed = |calls: &[(Layer, Vec<u32>)]| {
        let settings = graph(&[Dims::matrix(7, 5)], calls, &[]);
        planned(&settings, Usage { lengths: &[], streaming: true }, false).map(|(slots, _)| slots)
    };
    let slots = streamed(&[(lstm(3, Flags::SEQUENCES), vec![0]), (lstm(3, Flags::default()), vec![1]), (dense(2), vec![2])]).unwrap();
    assert_eq!(slots[0].shape, Dims::matrix(1, 5));
    let states: Vec<_> = slots.iter().filter(|slot| slot.scratch.1 > 0).map(|slot| slot.scratch).collect();
    let [(a, a_len), (b, b_len)] = states[..] else { panic!("{states:?}") };
    assert!(a + a_len <= b || b + b_len <= a);
    for slot in &slots {
        let end = slot.offset + slot.shape.count() as u32;
        assert!(states.iter().all(|(start, len)| end <= *start || start + len <= slot.offset), "{slots:?}");
    }
    let unsupported = |calls: &[(Layer, Vec<u32>)], number| {
        let found = streamed(calls);
        assert_eq!(found.map(|_| ()), Err(Error::CannotStream { layer: number }));
    };
    unsupported(&[(lstm(3, Flags::BACKWARDS), vec![0])], 0);
    let sequences = (lstm(3, Flags::SEQUENCES), vec![0]);
    let reverse = Layer { axes: [0, u8::MAX, u8::MAX, u8::MAX], ..Layer::new(Op::Reverse) };
    unsupported(&[sequences.clone(), (reverse, vec![1])], 1);
    unsupported(&[sequences.clone(), (Layer { spatial: 1, ..Layer::new(Op::GlobalMaxPooling) }, vec![1])], 1);
    unsupported(&[sequences.clone(), (Layer::new(Op::Flatten), vec![1])], 1);
    let conv = Layer { spatial: 1, units: 2, sizes: [1, 0, 0, 1, 0, 0, 1, 0, 0], ..Layer::new(Op::Conv) };
    unsupported(&[sequences, (conv, vec![1])], 1);
    // Not one step at a run, but a whole sequence.
    unsupported(&[(dense(5), vec![0]), (lstm(3, Flags::default()), vec![1])], 1);
    unsupported(&[(dense(5), vec![0]), (lstm(3, Flags::BACKWARDS), vec![1])], 1);
    unsupported(&[(conv, vec![0]), (lstm(3, Flags::default()), vec![1])], 1);
    let repeat = Layer { units: 4, ..Layer::new(Op::RepeatVector) };
    unsupported(&[(lstm(3, Flags::default()), vec![0]), (repeat, vec![1]), (lstm(3, Flags::default()), vec![2])], 2);
    assert_eq!(streamed(&[(dense(2), vec![0])]), Err(Error::CannotStream { layer: u32::MAX }));
}

#[test]
fn work_space_is_what_layers_ask_for() {
    let conv = Layer { spatial: 2, units: 4, sizes: [3, 5, 0, 1, 1, 0, 1, 1, 0], ..Layer::new(Op::Conv) };
    let image = Dims::new(0, 3, [8, 9, 2, 1]).unwrap();
    assert_eq!(scratch_words(&conv, image, image, false), 30);
    assert_eq!(scratch_words(&conv, image, image, true), 30 + u64::from(activation_words(30)));
    let up = Layer { spatial: 2, interpolation: Interpolation::Bilinear, sizes: [2, 2, 0, 0, 0, 0, 0, 0, 0], ..Layer::new(Op::UpSampling) };
    assert_eq!(scratch_words(&up, image, image, false), 18);
}
