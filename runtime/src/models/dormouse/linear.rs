//! Projections: dense ones, and ternary ones of low rank, in the orientations of both formats.

use super::{Dormouse, Factors, split};
use crate::format::TensorView;
use crate::format::arch::dormouse::DormouseConfig;
use crate::format::arch::dormouse::tensors::{Layer, Part, Role};
use crate::ops::activation::Activation;
use crate::ops::columns::{AsStored, Codes, Eighths, matvec_of, vecmat};
use crate::ops::matvec::{add_vector, matvec};

/// A model and what was found out about it: how all arms read their weights.
#[derive(Clone, Copy, Debug)]
pub(super) struct Net<'n, 'a> {
    pub(super) model: &'n Dormouse<'a>,
    pub(super) places: &'n [u32],
    /// The mean magnitude of each ternary factor of a format-1 file.
    pub(super) means: &'n [f32],
    /// What each head's decay is multiplied by.
    pub(super) decay: &'n [f32],
    pub(super) inv_freq: &'n [f32],
}

/// Scratch of the products.
#[derive(Debug)]
pub(super) struct Tools<'m> {
    pub(super) lanes: &'m mut [f32],
    pub(super) activation: &'m mut [f32],
}

impl<'a> Net<'_, 'a> {
    pub(super) fn config(&self) -> &DormouseConfig {
        &self.model.config
    }

    pub(super) fn tensor(&self, role: Role) -> TensorView<'a> {
        self.model.tensor(self.places, role)
    }

    /// Number `index` of a tensor that holds single numbers.
    pub(super) fn number(&self, role: Role, index: usize) -> f32 {
        self.tensor(role).get_float(index)
    }

    /// `out` = `x` times a matrix, as many outputs as `out` has.
    #[inline(never)]
    pub(super) fn matrix(&self, out: &mut [f32], role: Role, x: &[f32], tools: &mut Tools<'_>) {
        let w = self.tensor(role);
        if self.model.is_turned() {
            matvec(out, &w, &mut Activation::new(x, tools.activation), None);
        } else {
            vecmat(out, &w, x, &AsStored, tools.lanes);
        }
    }

    /// `out` = a projection of `x`; `inner` has room for its rank.
    #[inline(never)]
    pub(super) fn project(&self, out: &mut [f32], layer: Layer, x: &[f32], inner: &mut [f32], tools: &mut Tools<'_>) {
        if !self.config().is_ternary(layer) {
            self.matrix(out, Role::Linear(layer, Part::Weight), x, tools);
            return add_vector(out, &self.tensor(Role::Linear(layer, Part::Bias)));
        }
        let (inner, _) = split(inner, self.config().rank_of(layer) as usize);
        self.factor(inner, layer, Part::U, x, tools);
        let scales = self.tensor(Role::Linear(layer, Part::S));
        for (i, y) in inner.iter_mut().enumerate() {
            *y *= scales.get_float(i);
        }
        self.factor(out, layer, Part::V, inner, tools);
    }

    /// One factor: its mean magnitude times the products with its codes, the sum first, as `t2` has it.
    fn factor(&self, out: &mut [f32], layer: Layer, part: Part, x: &[f32], tools: &mut Tools<'_>) {
        let role = Role::Linear(layer, part);
        let w = self.tensor(role);
        let first = part == Part::U;
        if self.model.is_turned() {
            return matvec(out, &w, &mut Activation::new(x, tools.activation), None);
        }
        let is_expert = matches!(layer, Layer::GateUp(_) | Layer::Down(_));
        match self.model.factors {
            Factors::Raw if first => vecmat(out, &w, x, &AsStored, tools.lanes),
            Factors::Raw => matvec_of(out, &w, x, &AsStored),
            Factors::Fp8 if is_expert && first => vecmat(out, &w, x, &Eighths, tools.lanes),
            Factors::Fp8 if is_expert => matvec_of(out, &w, x, &Eighths),
            _ => {
                let mean = self.means.get(self.config().tensor_number(role) as usize).copied().unwrap_or(0.0);
                let codes = Codes { threshold: 0.7 * mean };
                if first {
                    vecmat(out, &w, x, &codes, tools.lanes);
                } else {
                    matvec_of(out, &w, x, &codes);
                }
                for y in out {
                    *y *= mean;
                }
            }
        }
    }
}
