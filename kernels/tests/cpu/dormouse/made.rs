//! dormouse models made for the tests: any shape, any types, weights of a fixed generator.

use crate::models::{Kind, Rng, Tensor};
use dmexp::format::arch::dormouse::layout::Decoding;
use dmexp::format::arch::dormouse::tensors::{Form, Part, Role, TensorSpec};
use dmexp::format::arch::dormouse::{ActQuant, Attention, DormouseConfig, Residual};
use dmexp::format::{DType, TensorView};
use dmexp::models::dormouse::Dormouse;
use dmexp::{Model, Sampler, Session};

/// A shape with every size odd that may be.
pub(crate) const ODD: DormouseConfig = DormouseConfig {
    d_model: 20,
    n_heads: 4,
    head_dim: 5,
    d_ffn: 37,
    vocab: 43,
    max_seq_len: 96,
    max_iter: 4,
    rank: 6,
    norm_eps: 1e-3,
    attention: Attention::Kda,
    use_tsct: true,
    use_engram: true,
    residual: Residual::ReZero,
    attnres_gain: true,
    mhc_streams: 4,
    use_situ: false,
    n_experts: 3,
    moe_topk: 0,
    engram_rows: 9,
    engram_dim: 3,
    engram_lam_max: 0.5,
    use_mor: false,
    mor_k: 2,
    act_quant: ActQuant::None,
    act_group: 0,
    kda_scale: Some(0.4),
};

/// A model in memory, its tensors as format 2 has them.
pub(crate) struct Made {
    pub(crate) config: DormouseConfig,
    tensors: Vec<(TensorSpec, Tensor)>,
}

impl Made {
    /// Of this shape; `kind` gives the type of each matrix, and is told whether it is a ternary factor.
    pub(crate) fn new(config: DormouseConfig, kind: impl Fn(u32, bool) -> Kind) -> Self {
        let mut rng = Rng::new(u64::from(config.d_model) * 1000 + u64::from(config.n_experts));
        let specs = (0..config.num_tensors()).map(|number| (number, config.tensor(number).expect("a tensor of the configuration")));
        let tensors = specs.filter(|(_, spec)| spec.is_read).map(|(number, spec)| {
            let dims = spec.turned_dims();
            let (size, middle) = match spec.role {
                Role::DecayBias => (3.0, 0.0),
                Role::DecayLog => (1.0, 0.0),
                Role::LoopNorm | Role::ONorm | Role::Norm | Role::ResidualScale | Role::Linear(_, Part::S) => (0.25, 1.0),
                Role::Embedding | Role::Memory => (1.5, 0.0),
                Role::IterEmbed | Role::Linear(_, Part::Bias) | Role::MorRouter(_) => (0.5, 0.0),
                _ => (2.0 / (dims.cols() as f32).sqrt(), 0.0),
            };
            let values: Vec<f32> = (0..dims.count()).map(|_| rng.float() * size + middle).collect();
            let kind = match spec.form {
                Form::Plain => (DType::F32, 0),
                form => kind(number, form.is_factor()),
            };
            // Only floats are factors in format 1, and only codes in format 2.
            let kind = if spec.form.is_factor() && matches!(kind.0, DType::Q8 | DType::Q4) { (DType::T2, 0) } else { kind };
            // Short rows are one group.
            let kind = if kind.1 > dims.cols() { (kind.0, 0) } else { kind };
            (spec, Tensor::new(kind, dims, &values))
        });
        Self { config, tensors: tensors.collect() }
    }

    fn with(mut self, role: Role, value: f32) -> Self {
        for (spec, tensor) in &mut self.tensors {
            if spec.role == role {
                *tensor = Tensor::new((DType::F32, 0), spec.turned_dims(), &vec![value; spec.dims.count() as usize]);
            }
        }
        self
    }

    /// The same model with one bias everywhere in its decays: below 0 it forgets late.
    pub(crate) fn with_decay_bias(self, value: f32) -> Self {
        self.with(Role::DecayBias, value)
    }

    /// The same model with one gain everywhere in its last norm.
    pub(crate) fn with_norm(self, value: f32) -> Self {
        self.with(Role::Norm, value)
    }

    /// The tensors that inference reads, in the file's order.
    pub(crate) fn views(&self) -> Vec<TensorView<'_>> {
        self.tensors.iter().zip(0..).map(|((_, tensor), number)| tensor.view(number)).collect()
    }

    /// The tensor for this.
    pub(crate) fn view(&self, role: Role) -> Option<TensorView<'_>> {
        self.tensors.iter().find(|(spec, _)| spec.role == role).map(|(spec, tensor)| tensor.view(self.config.tensor_number(spec.role)))
    }

    /// Tokens for so many positions.
    pub(crate) fn tokens(&self, count: u32) -> Vec<u32> {
        let mut rng = Rng::new(77);
        (0..count).map(|_| rng.next() % self.config.vocab).collect()
    }

    /// What the recurrence's decays are multiplied by.
    pub(crate) fn decays(&self) -> Vec<f32> {
        let views = self.views();
        let mut factors = vec![0.0; self.config.n_heads as usize];
        Dormouse::from_table(self.config, &views).decay_factors(&mut factors);
        factors
    }

    /// The runtime's logits after each of `tokens`, as patterns.
    pub(crate) fn expected(&self, decoding: Decoding, tokens: &[u32]) -> Vec<Vec<u32>> {
        let views = self.views();
        let model =
            Model::from_dormouse(Dormouse::from_table(self.config, &views)).with_decoding(decoding).with_context(tokens.len() as u32);
        let mut memory = vec![0u32; model.arena_len().expect("a size").div_ceil(4)];
        let mut session = Session::new(&model, &mut memory[..], Sampler::greedy()).expect("a session");
        let after = |token: &u32| {
            session.push_tokens(&[*token]).expect("a token of the vocabulary");
            session.logits().expect("finite logits").iter().map(|logit| logit.to_bits()).collect()
        };
        tokens.iter().map(after).collect()
    }
}
