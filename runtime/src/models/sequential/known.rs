//! What hosts keep of a network at hand, read once for all runs.

use super::prediction::slot;
use super::predictor::Predictor;
use super::step::Step;
use crate::format::arch::sequential::{Slot, SlotWords};
use std::vec::Vec;

/// The calls of a network, and where its inputs and outputs lie; what has no place in the plan is `None`.
#[derive(Debug)]
pub(super) struct Known<'a> {
    pub(super) calls: Vec<KnownCall<'a>>,
    pub(super) inputs: Vec<Option<Slot>>,
    pub(super) outputs: Vec<Option<Slot>>,
}

/// The call of a layer at a node.
#[derive(Debug)]
pub(super) struct KnownCall<'a> {
    pub(super) node: u32,
    pub(super) step: Step<'a>,
    pub(super) own: Option<Slot>,
    pub(super) inputs: Vec<Option<Slot>>,
}

impl<'a> Known<'a> {
    pub(super) fn of(predictor: &Predictor<'a>, slots: &[SlotWords]) -> Self {
        let at = |node: Option<u32>| node.and_then(|node| slot(slots, node));
        let call = |node| {
            let inputs = (0..predictor.num_links(node)).map(|place| at(predictor.link(node, place))).collect();
            Some(KnownCall { node, step: predictor.step(node)?, own: at(Some(node)), inputs })
        };
        Self {
            calls: (0..predictor.num_nodes()).filter_map(call).collect(),
            inputs: (0..predictor.num_inputs()).map(|number| at(predictor.input_node(number))).collect(),
            outputs: (0..predictor.num_outputs()).map(|number| at(predictor.output_node(number))).collect(),
        }
    }
}
