//! What each piece of a device's memory holds before the first step of a dormouse model.

use super::super::error::CudaError;
use super::super::upload::widened;
use dmexp::Model;
use dmexp::models::dormouse::Dormouse;
use dmexp_format::arch::dormouse::tensors::{Form, Layer, Part, Role, TensorSpec};
use dmexp_format::layout::Decoding;
use dmexp_format::{DType, Dims, Planes, TensorView};
use dmexp_kernels::dormouse::{Plan, Settings};
use dmexp_kernels::{Contents, Refusal};

/// A model's weights with the inputs of matrices last, whatever the format of the file.
pub(in crate::cuda) struct Weights<'n, 'a> {
    network: &'n Dormouse<'a>,
    /// Those that the file has in another order or another way, by their numbers.
    turned: Vec<Option<Turned>>,
}

/// A matrix as format 2 has it.
struct Turned {
    dtype: DType,
    dims: Dims,
    bytes: Vec<u8>,
}

impl<'n, 'a> Weights<'n, 'a> {
    pub(in crate::cuda) fn new(network: &'n Dormouse<'a>) -> Result<Self, CudaError> {
        let config = network.config();
        let of_number = |number: u32| {
            let Some(spec) = config.tensor(number).filter(|spec| spec.is_read && !network.is_turned()) else { return Ok(None) };
            match (spec.form, spec.role) {
                (Form::Plain | Form::Table, _) => Ok(None),
                (Form::FactorFirst | Form::FactorLast, Role::Linear(layer, part)) => factor(network, &spec, layer, part).map(Some),
                _ => Ok(Some(turned(&network.weight(spec.role), spec.turned_dims()))),
            }
        };
        let turned = (0..config.num_tensors()).map(of_number).collect::<Result<_, CudaError>>()?;
        Ok(Self { network, turned })
    }

    /// The tensor for this, if the file has it.
    pub(in crate::cuda) fn view(&self, role: Role) -> Option<TensorView<'_>> {
        let number = self.network.config().tensor_number(role);
        match self.turned.get(number as usize)? {
            Some(turned) => TensorView::new(number, turned.dtype, turned.dims, &turned.bytes).ok(),
            None => Some(self.network.weight(role)).filter(|view| !view.bytes().is_empty()),
        }
    }

    /// The plan for sessions of `model`, whose network this is of.
    pub(in crate::cuda) fn plan(&self, model: &Model<'_>) -> Result<Plan, CudaError> {
        let settings =
            Settings { kda_scale: self.network.kda_scale(), exact: model.decoding() != Decoding::Fast, context: model.context() };
        Plan::new(*self.network.config(), settings, |role| self.view(role)).map_err(CudaError::Refused)
    }

    /// The bytes of a piece; `None` for zeros.
    pub(in crate::cuda) fn bytes(&self, plan: &Plan, contents: Contents) -> Result<Option<Vec<u8>>, CudaError> {
        let missing = |tensor: u32| CudaError::Refused(Refusal::Missing { tensor });
        let view = |number: u32| self.network.config().role(number).and_then(|role| self.view(role)).ok_or(missing(number));
        Ok(match contents {
            Contents::Matrix(number) => {
                let layout = plan.layout(number).ok_or(missing(number))?;
                let mut packed = vec![0; layout.bytes() as usize];
                layout.write(&view(number)?, &mut packed);
                Some(packed)
            }
            Contents::Vector(number) => Some(widened(&view(number)?)),
            Contents::Decays => {
                let mut factors = vec![0.0f32; self.network.config().n_heads as usize];
                self.network.decay_factors(&mut factors);
                Some(factors.into_iter().flat_map(f32::to_le_bytes).collect())
            }
            _ => None,
        })
    }
}

/// A matrix turned round.
fn turned(view: &TensorView<'_>, dims: Dims) -> Turned {
    let (rows, cols, size) = (view.rows(), view.cols(), view.dtype().size() as usize);
    let mut bytes = vec![0; view.bytes().len()];
    for (at, element) in view.bytes().chunks_exact(size.max(1)).enumerate() {
        let place = at % cols * rows + at / cols;
        if let Some(to) = bytes.get_mut(place * size..(place + 1) * size) {
            to.copy_from_slice(element);
        }
    }
    Turned { dtype: view.dtype(), dims, bytes }
}

/// A ternary factor, as codes or as the numbers that it is taken for.
fn factor(network: &Dormouse<'_>, spec: &TensorSpec, layer: Layer, part: Part) -> Result<Turned, CudaError> {
    let stored = network.weight(Role::Linear(layer, part));
    let (rows, cols, dims) = (stored.rows(), stored.cols(), spec.turned_dims());
    let scale = network.factor_scale(layer, part);
    let mut values = vec![0.0f32; rows * cols];
    let mut row_of = vec![0.0; cols];
    for row in 0..rows {
        network.factor_row(layer, part, row, scale, &mut row_of);
        for (col, value) in row_of.iter().enumerate() {
            let place = if spec.form.is_turned() { col * rows + row } else { row * cols + col };
            if let Some(to) = values.get_mut(place) {
                *to = *value;
            }
        }
    }
    let Some(scale) = scale else {
        return Ok(Turned { dtype: DType::F32, dims, bytes: values.into_iter().flat_map(f32::to_le_bytes).collect() });
    };
    let planes = Planes::new(network.config().tensor_number(spec.role), DType::T2, dims, 0).map_err(CudaError::Model)?;
    Ok(Turned { dtype: DType::T2, dims, bytes: codes(&values, scale, dims.cols() as usize, &planes) })
}

/// Codes in two bits, and their scale.
fn codes(values: &[f32], scale: f32, cols: usize, planes: &Planes) -> Vec<u8> {
    let mut bytes = vec![0; planes.bytes as usize];
    if let Some(place) = bytes.get_mut(planes.scales as usize..).and_then(|rest| rest.get_mut(..4)) {
        place.copy_from_slice(&scale.to_le_bytes());
    }
    for (row, values) in values.chunks(cols.max(1)).enumerate() {
        for (i, value) in values.iter().enumerate() {
            let code = u8::from(*value > 0.0) | (2 * u8::from(*value < 0.0));
            if let Some(byte) = bytes.get_mut(row * planes.row_stride as usize + i / 4) {
                *byte |= code << (2 * (i % 4));
            }
        }
    }
    bytes
}
