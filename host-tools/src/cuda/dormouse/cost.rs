//! What a step of dormouse models of known shapes should cost.

use super::super::cost::{Cost, Machine};
use dmexp_format::arch::dormouse::DormouseConfig;
use dmexp_format::arch::dormouse::tensors::{Form, Role, TensorSpec};
use dmexp_format::{DType, Planes, TensorView};
use dmexp_kernels::Refusal;
use dmexp_kernels::dormouse::{Plan, Settings};

/// dormouse's own presets that are read for what they do.
pub(in crate::cuda) fn shapes() -> [(&'static str, DormouseConfig); 3] {
    let small = DormouseConfig::DEFAULT;
    let base = DormouseConfig { d_model: 1024, n_heads: 16, d_ffn: 2816, max_iter: 8, max_seq_len: 1024, ..small };
    let p150 = DormouseConfig { d_model: 4096, n_heads: 64, d_ffn: 11_264, n_experts: 4, max_iter: 12, max_seq_len: 2048, ..small };
    [("dormouse small", small), ("dormouse base", base), ("dormouse p150", p150)]
}

/// The cost of a step of a model of this shape with its factors as codes and all its other matrices in `dtype`, of which there need be no file.
///
/// # Errors
/// [`Refusal`], where the kernels do not have it.
pub(in crate::cuda) fn cost_of(config: DormouseConfig, dtype: DType, machine: &Machine) -> Result<Cost, Refusal> {
    // The plan looks at sizes alone, so that one piece of memory stands for every tensor.
    let kind = |spec: &TensorSpec| match spec.form {
        Form::Plain => DType::F32,
        Form::FactorFirst | Form::FactorLast => DType::T2,
        Form::Table | Form::InputFirst => dtype,
    };
    let bytes = |spec: &TensorSpec| Planes::new(0, kind(spec), spec.turned_dims(), 0).map_or(0, |planes| planes.bytes as usize);
    let most = (0..config.num_tensors()).filter_map(|number| config.tensor(number)).map(|spec| bytes(&spec)).max().unwrap_or(0);
    let memory = vec![0u8; most];
    let view = |role: Role| {
        let spec = config.spec(role)?;
        TensorView::new(config.tensor_number(role), kind(&spec), spec.turned_dims(), memory.get(..bytes(&spec))?).ok()
    };
    let plan = Plan::new(config, Settings { kda_scale: 1.0, exact: true, context: config.max_seq_len }, view)?;
    Ok(Cost::of(a_step(&plan), machine))
}

/// Bytes and launches of a step, and additions that wait for one another beside those of every product.
pub(in crate::cuda) fn a_step(plan: &Plan) -> (u64, u64, u64) {
    let launches = plan.step(&vec![0; plan.pieces().len()], 1).launches().count() as u64;
    (plan.bytes_a_step(), launches, 0)
}
