//! A model of what a step costs on a device: bytes that are read against its bandwidth, and launches that wait for one another. It says what to expect and what to look at; it is no measurement.

use dmexp_format::arch::llama::LlamaConfig;
use dmexp_format::{DType, Dims, KvDType, Planes, TensorView};
use dmexp_kernels::{Plan, Refusal};

/// What a device can do, as far as the model needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Bytes a second that a copy within its memory moves.
    pub bandwidth: f64,
    /// The part of it that products of a matrix and a vector are taken to reach.
    pub share: f64,
    /// Seconds from one launch of a recorded graph to the next that waits for it.
    pub gap: f64,
    /// The same where each is launched by itself.
    pub gap_alone: f64,
    /// Seconds from one addition to the next that needs its result.
    pub addition: f64,
}

/// An NVIDIA H200: figures that others report for it or for the H100, none of them measured here. An addition takes four cycles.
pub const H200: Machine = Machine { name: "H200", bandwidth: 4.3e12, share: 0.7, gap: 1.3e-6, gap_alone: 5e-6, addition: 4.0 / 1.755e9 };

/// What a step costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Bytes of weights, keys and values that are read.
    pub bytes: u64,
    /// Launches, one after the other.
    pub launches: u64,
    /// Seconds of additions that wait for one another: attention adds up over positions in a fixed order.
    pub chains: f64,
    /// Seconds, where they are one graph.
    pub seconds: f64,
    /// Seconds, where each is launched by itself.
    pub seconds_alone: f64,
    /// Seconds that reading alone takes.
    pub floor: f64,
}

impl Cost {
    /// The cost of a step that reads so many bytes, by so many launches that wait for one another, and waits for so many additions one after the other.
    pub(super) fn of((bytes, launches, additions): (u64, u64, u64), machine: &Machine) -> Self {
        let chains = additions as f64 * machine.addition;
        let reading = bytes as f64 / (machine.share * machine.bandwidth) + chains;
        Self {
            bytes,
            launches,
            chains,
            seconds: reading + launches as f64 * machine.gap,
            seconds_alone: reading + launches as f64 * machine.gap_alone,
            floor: bytes as f64 / machine.bandwidth,
        }
    }

    /// The cost of a step at `position`.
    pub fn new(plan: &Plan, position: u32, machine: &Machine) -> Self {
        let bytes = plan.weight_bytes_a_step() + plan.cache_bytes_a_step(position);
        let addresses = vec![0; plan.pieces().len()];
        let launches = plan.step(&addresses, plan.reach(position)).launches().count() as u64;
        Self::of((bytes, launches, plan.additions_a_step(position)), machine)
    }

    /// The cost of a step of a model of this shape with all its matrices in `dtype`, of which there need be no file.
    ///
    /// # Errors
    /// [`Refusal`], where the kernels do not have it.
    pub fn of_shape(config: LlamaConfig, dtype: DType, (context, kv): (u32, KvDType), machine: &Machine) -> Result<Self, Refusal> {
        // The plan looks at sizes alone, so that one piece of memory stands for every tensor.
        let tensors = (0..config.weight_tensors()).filter_map(|number| Some((config.tensor(number)?, number)));
        let kind = |matrix: bool| if matrix { dtype } else { DType::F32 };
        let bytes = |dims: Dims, dtype| Planes::new(0, dtype, dims, 0).map_or(0, |planes| planes.bytes) as usize;
        let most = tensors.map(|(spec, _)| bytes(spec.dims, kind(spec.kind.is_matrix()))).max().unwrap_or(0);
        let memory = vec![0u8; most];
        let view = |number: u32| {
            let spec = config.tensor(number)?;
            let dtype = kind(spec.kind.is_matrix());
            TensorView::new(number, dtype, spec.dims, memory.get(..bytes(spec.dims, dtype))?).ok()
        };
        let plan = Plan::new(config, view, (context, kv), dmexp_kernels::plan::SHARED_BY_DEFAULT)?;
        Ok(Self::new(&plan, context.saturating_sub(1), machine))
    }
}
