//! The weights one by one, for whoever keeps them elsewhere in another order (a GPU).

use super::state::decay_factor;
use super::{Dormouse, Factors, Weights};
use crate::format::TensorView;
use crate::format::arch::dormouse::tensors::{Layer, Part, Role};
use crate::ops::columns::{Codes, Eighths, Weights as _, mean_magnitude};

impl<'a> Dormouse<'a> {
    /// The tensor as the file has it (see [`Dormouse::is_turned`]); one without elements where inference reads none.
    pub fn weight(&self, role: Role) -> TensorView<'a> {
        let found = match self.weights {
            #[cfg(feature = "toml")]
            Weights::Packed(file, _) => file.tensors().find(|tensor| role.is_named(tensor.name)).map(|tensor| tensor.view),
            Weights::Table(table) => self.place(role).and_then(|place| table.get(place as usize).copied()),
            #[cfg(feature = "files")]
            Weights::Indexed(file) => self.place(role).and_then(|place| file.tensor(place)),
        };
        found.unwrap_or(TensorView::EMPTY)
    }

    /// The tensor's place among those that inference reads, if it is one of them.
    fn place(&self, role: Role) -> Option<u32> {
        let number = self.config.tensor_number(role);
        let is_read = |number: u32| self.config.tensor(number).is_some_and(|spec| spec.is_read);
        let before = (0..number).filter(|number| is_read(*number)).count();
        is_read(number).then_some(before as u32)
    }

    /// What each head's decay is multiplied by; as many as `out` has.
    pub fn decay_factors(&self, out: &mut [f32]) {
        let logs = self.weight(Role::DecayLog);
        for (head, factor) in out.iter_mut().enumerate() {
            *factor = decay_factor(logs.get_float(head));
        }
    }

    /// What sums of products with the codes of a ternary factor of a format-1 file are multiplied by; `None` where its weights are taken as numbers ([`Factors`]). Reads all of it.
    pub fn factor_scale(&self, layer: Layer, part: Part) -> Option<f32> {
        let as_codes = match self.factors {
            Factors::Ternary => true,
            Factors::Raw => false,
            Factors::Fp8 => !is_expert(layer),
        };
        as_codes.then(|| mean_magnitude(&self.weight(Role::Linear(layer, part))))
    }

    /// What the weights of a stored `row` of a ternary factor of a format-1 file stand for: with what [`Dormouse::factor_scale`] gave, -1, 0 and 1, else numbers.
    pub fn factor_row(&self, layer: Layer, part: Part, row: usize, scale: Option<f32>, out: &mut [f32]) {
        let stored = self.weight(Role::Linear(layer, part));
        let first = stored.cols().saturating_mul(row);
        for (i, value) in out.iter_mut().enumerate() {
            *value = stored.get_float(first.saturating_add(i));
        }
        if let Some(mean) = scale {
            let codes = Codes { threshold: 0.7 * mean };
            for value in out {
                *value = codes.weight((), *value);
            }
        } else if self.factors == Factors::Fp8 && is_expert(layer) {
            let largest = Eighths.row(out.iter().copied());
            for value in out {
                *value = Eighths.weight(largest, *value);
            }
        }
    }
}

const fn is_expert(layer: Layer) -> bool {
    matches!(layer, Layer::GateUp(_) | Layer::Down(_))
}
