//! What each piece of a device's memory holds before the first step.

use super::error::CudaError;
use dmexp::models::llama::Llama;
use dmexp::ops::rope::rotation;
use dmexp_format::TensorView;
use dmexp_kernels::{Contents, Plan, Refusal};

/// Tensor `number` of the file's order, if the configuration calls for it and it is there.
pub(super) fn tensor<'a>(network: &Llama<'a>, number: u32) -> Option<TensorView<'a>> {
    let spec = network.config().tensor(number)?;
    let view = network.weight(spec.kind, spec.layer.unwrap_or(0));
    spec.dims.equals(&view.dims()).then_some(view)
}

/// The bytes of a piece; `None` for zeros.
pub(super) fn bytes(network: &Llama<'_>, plan: &Plan, contents: Contents) -> Result<Option<Vec<u8>>, CudaError> {
    let view = |number: u32| tensor(network, number).ok_or(CudaError::Refused(Refusal::Missing { tensor: number }));
    Ok(Some(match contents {
        Contents::Matrix(number) => {
            let view = view(number)?;
            let layout = plan.layout(number).ok_or(CudaError::Refused(Refusal::DType { tensor: number }))?;
            let mut packed = vec![0; layout.bytes() as usize];
            layout.write(&view, &mut packed);
            packed
        }
        Contents::Vector(number) => widened(&view(number)?),
        Contents::Vectors(numbers) => {
            let mut all = Vec::new();
            for number in numbers {
                all.extend(widened(&view(number)?));
            }
            all
        }
        Contents::Cos => rotations(network, plan.context(), false)?,
        Contents::Sin => rotations(network, plan.context(), true)?,
        _ => return Ok(None),
    }))
}

pub(super) fn widened(view: &TensorView<'_>) -> Vec<u8> {
    let count = view.rows() * view.cols();
    (0..count).flat_map(|i| view.get_float(i).to_le_bytes()).collect()
}

/// The cosines or the sines of all positions, as the runtime makes them at each step.
fn rotations(network: &Llama<'_>, context: u32, sines: bool) -> Result<Vec<u8>, CudaError> {
    let config = network.config();
    let half = config.head_dim as usize / 2;
    let (mut frequencies, mut cos, mut sin) = (vec![0.0; half], vec![0.0; half], vec![0.0; half]);
    network.frequencies(&mut frequencies).map_err(CudaError::Model)?;
    let mut table = Vec::with_capacity(4 * half * context as usize);
    for position in 0..context {
        rotation(&mut cos, &mut sin, &frequencies, position, config.attention_factor);
        table.extend((if sines { &sin } else { &cos }).iter().flat_map(|value| value.to_le_bytes()));
    }
    Ok(table)
}
