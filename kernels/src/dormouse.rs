//! What a dormouse model takes of a device's memory, and the launches of its steps.
//!
//! Everything that an iteration makes of a position is kept, for the recurrence of an iteration begins where that of the iteration before ended, so that every new byte changes old positions,
//! from the first on, by less and less. Each row of the recurrence's state goes through them again until it is bit for bit what it was there; what follows is done for as many old positions as
//! the last row went through. How many those are is in the device's memory, so that every step is the same list of launches.

mod stages;

use crate::launch::{Loop, Matrix, Vector};
use crate::pack::Layout;
use crate::plan::{Contents, PADDING, Piece, SHARED_BY_DEFAULT, bytes_of};
use crate::refusal::Refusal;
use dmexp_format::arch::dormouse::layout::saved_states;
use dmexp_format::arch::dormouse::tensors::{Layer, Part, Role};
use dmexp_format::arch::dormouse::{ActQuant, Attention, DormouseConfig, Residual};
use dmexp_format::{DType, TensorView};

/// Positions of room behind the last: products are computed for whole groups.
const MARGIN: u64 = 8;
/// Threads of a block of the recurrence.
const RECUR: u32 = 64;

/// How a model is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// What the recurrence's results are multiplied by.
    pub kda_scale: f32,
    /// Whether old positions are computed again: the bits of the runtime's exact and full decoding, else those of its fast one.
    pub exact: bool,
    /// Positions.
    pub context: u32,
}

/// The memory of a dormouse model, and which kernels run on it.
#[derive(Clone, Debug)]
pub struct Plan {
    config: DormouseConfig,
    settings: Settings,
    pieces: Vec<Piece>,
    /// The piece of each tensor that is read, by its number, and how a matrix is packed.
    tensors: Vec<Option<(usize, Option<Layout>)>>,
    work: Work,
}

/// The pieces of a vector of each position.
#[derive(Clone, Copy, Debug, Default)]
struct VectorPieces {
    floats: usize,
    /// The pieces of codes, sums and scales.
    integers: Option<[usize; 3]>,
    cols: u32,
}

/// Numbers of the pieces that are no weights.
#[derive(Clone, Debug, Default)]
struct Work {
    /// The stream before each iteration, and after the last.
    streams: Vec<VectorPieces>,
    recalled: VectorPieces,
    both: VectorPieces,
    x: VectorPieces,
    for_attention: VectorPieces,
    for_experts: VectorPieces,
    decay: VectorPieces,
    attended: VectorPieces,
    experts: Vec<Expert>,
    /// Of out-projections, at the last position.
    results: Vec<VectorPieces>,
    normed: VectorPieces,
    classified: VectorPieces,
    scalars: usize,
    kda: usize,
    outputs: usize,
    ends: usize,
    saved: usize,
    stops: usize,
    limits: usize,
    decays: usize,
    keys: usize,
    values: usize,
    dense: usize,
    down: usize,
    terms: usize,
    projected: usize,
    result: usize,
    logits: usize,
    partials: usize,
    state: usize,
    tokens: usize,
    picks: usize,
    table: usize,
}

/// Inputs of an expert's matrices: behind the first factors, and between the two projections.
#[derive(Clone, Copy, Debug, Default)]
struct Expert {
    up: VectorPieces,
    hidden: VectorPieces,
    down: VectorPieces,
}

impl Plan {
    /// A plan for a model of `config` whose tensors `tensor` gives as format 2 has them: matrices with their inputs last, of any type of weights. Tensors that inference does not read are not
    /// asked for.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn new<'a>(config: DormouseConfig, settings: Settings, tensor: impl Fn(Role) -> Option<TensorView<'a>>) -> Result<Self, Refusal> {
        let (context, allowed) = (settings.context, config.max_seq_len);
        if context == 0 || context > allowed {
            return Err(Refusal::Context { found: context, allowed });
        }
        let not_done = [
            (config.attention == Attention::Plain, "use_plain_attn"),
            (config.residual == Residual::Gr, "use_gr"),
            (config.residual == Residual::AttnRes, "use_attnres"),
            (config.residual == Residual::Mhc, "use_mhc"),
            (config.use_situ, "use_situ"),
        ];
        if let Some((_, what)) = not_done.into_iter().find(|(used, _)| *used) {
            return Err(Refusal::Option { what });
        }
        let mut plan = Self { config, settings, pieces: Vec::new(), tensors: Vec::new(), work: Work::default() };
        let needed = u64::from(plan.recur_bytes());
        if config.attention == Attention::Kda && needed > u64::from(SHARED_BY_DEFAULT) {
            return Err(Refusal::HeadTooWide { needed, allowed: SHARED_BY_DEFAULT });
        }
        plan.weights(tensor)?;
        plan.work();
        let addresses = vec![0; plan.pieces.len()];
        let bytes = plan.table(&addresses).len() as u64;
        if let Some(table) = plan.pieces.get_mut(plan.work.table) {
            table.bytes = bytes;
        }
        Ok(plan)
    }

    fn weights<'a>(&mut self, tensor: impl Fn(Role) -> Option<TensorView<'a>>) -> Result<(), Refusal> {
        for number in 0..self.config.num_tensors() {
            let missing = Refusal::Missing { tensor: number };
            let spec = self.config.tensor(number).ok_or(missing)?;
            if !spec.is_read {
                self.tensors.push(None);
                continue;
            }
            let view = tensor(spec.role).ok_or(missing)?;
            let expected = spec.turned_dims();
            if !expected.equals(&view.dims()) {
                return Err(Refusal::Shape { tensor: number });
            }
            let wrong = Refusal::DType { tensor: number };
            let layout = Layout::new(&view).ok_or(wrong)?;
            if is_vector(spec.role) {
                if view.dtype().is_quantised() {
                    return Err(wrong);
                }
                let piece = self.add(spec.to_string(), 4 * expected.count(), Contents::Vector(number));
                self.tensors.push(Some((piece, None)));
            } else {
                let piece = self.add(spec.to_string(), layout.bytes(), Contents::Matrix(number));
                self.tensors.push(Some((piece, Some(layout))));
            }
        }
        Ok(())
    }

    fn work(&mut self) {
        let c = self.config;
        let (d, width, context, loops) = (u64::from(c.d_model), c.width(), u64::from(self.settings.context), u64::from(c.max_iter));
        let (vocab, experts) = (u64::from(c.vocab), u64::from(c.n_experts));
        let many = self.settings.context;
        let (attention_limit, experts_limit) = self.limits();
        let attention = [Role::Qkv(0), Role::Qkv(1), Role::Qkv(2), Role::OGate, Role::DecayUp, Role::Beta];
        let of_attention = attention.into_iter().any(|role| self.is_integer(role));
        let (gate_up, down) = (self.part_roles(Layer::GateUp(0)), self.part_roles(Layer::Down(0)));
        let first = |plan: &Self, of_layer: fn(u32) -> Layer| (0..c.n_experts).any(|e| plan.is_integer(plan.part_roles(of_layer(e)).0));
        let of_experts = first(self, Layer::GateUp);
        let of_hidden = first(self, Layer::Down);
        let mut work = Work::default();
        let of_results = self.is_integer(self.part_roles(Layer::OutProj).0);
        work.streams = (0..=c.max_iter).map(|n| self.vector("streams", c.d_model, many, of_results && n > 0)).collect();
        work.both = self.vector("inputs of the controller", 2 * c.d_model, many, self.is_integer(Role::Controller));
        let of_x = self.is_integer(Role::MemDense) || attention_limit == 0.0 && of_attention || experts_limit == 0.0 && of_experts;
        work.x = self.vector("normed streams", c.d_model, many, of_x);
        work.for_attention =
            if attention_limit == 0.0 { work.x } else { self.vector("rounded inputs of attention", c.d_model, many, of_attention) };
        work.for_experts =
            if experts_limit == 0.0 { work.x } else { self.vector("rounded inputs of experts", c.d_model, many, of_experts) };
        work.experts = (0..c.n_experts)
            .map(|_| Expert {
                up: if c.use_tsct {
                    self.vector("experts' first factors", self.rank(gate_up.0), many, false)
                } else {
                    VectorPieces::default()
                },
                hidden: self.vector("experts' hidden activations", c.d_ffn, many, of_hidden),
                down: if c.use_tsct {
                    self.vector("experts' second factors", self.rank(down.0), many, false)
                } else {
                    VectorPieces::default()
                },
            })
            .collect();
        if c.use_tsct {
            let rank = self.rank(self.part_roles(Layer::OutProj).0);
            work.results = (0..c.max_iter).map(|_| self.vector("factors of results", rank, 1, false)).collect();
            work.classified = self.vector("factors of the classifier", self.rank(self.part_roles(Layer::LmHead).0), 1, false);
        }
        work.normed = self.vector("the classifier's input", c.d_model, 1, self.is_integer(self.part_roles(Layer::LmHead).0));
        if c.use_engram {
            let integers = self.is_integer(Role::MemoryKey) || self.is_integer(Role::MemoryValue);
            work.recalled = self.vector("rows of the memory", 3 * c.engram_dim, many, integers);
            work.keys = self.zeros("keys of the memory", 4 * context * d);
            work.values = self.zeros("values of the memory", 4 * context * d);
            work.dense = self.zeros("what stands in for the memory", 4 * context * d);
        }
        if c.attention == Attention::Kda {
            work.decay = self.vector("decays' inner vectors", c.head_dim, many, self.is_integer(Role::DecayDown));
            work.attended = self.vector("results of attention", width as u32, many, self.is_integer(Role::OProj));
            work.kda = self.zeros("inputs of the recurrence", 4 * loops * context * self.kda_stride());
            work.outputs = self.zeros("results of the recurrence", 4 * loops * context * width);
            work.ends = self.zeros("states", 4 * loops * self.state_len());
            let states = if self.again() { (loops - 1) * u64::from(saved_states(many)) } else { 0 };
            work.saved = self.zeros("kept states", 4 * states.saturating_mul(self.state_len()));
            work.stops = self.zeros("positions computed again, a row", 4 * width);
            work.projected = self.zeros("projected results of attention", 4 * context * d);
            work.decays = self.add("factors of decays".to_owned(), 4 * u64::from(c.n_heads), Contents::Decays);
        }
        work.limits = self.zeros("positions computed again", 4 * (loops + 1));
        work.scalars = self.zeros("gates", 4 * loops * context * self.scalars());
        work.down = self.zeros("results of experts", 4 * experts * context * d);
        work.terms = self.zeros("results of memory and experts", 8 * loops * context * d);
        work.result = self.zeros("results of iterations", 4 * loops * d);
        work.logits = self.zeros("logits", 4 * vocab);
        work.partials = self.zeros("logits with their tokens", 16 * vocab);
        work.state = self.zeros("state", 16);
        work.tokens = self.zeros("tokens", 4 * context);
        work.picks = self.zeros("chosen tokens", 4 * context);
        work.table = self.add("products".to_owned(), 0, Contents::Table);
        self.work = work;
    }

    fn add(&mut self, what: String, bytes: u64, contents: Contents) -> usize {
        self.pieces.push(Piece { what, bytes, contents });
        self.pieces.len() - 1
    }

    fn zeros(&mut self, what: &str, bytes: u64) -> usize {
        self.add(what.to_owned(), bytes, Contents::Zeros)
    }

    /// A vector of `cols` elements for each of `positions`.
    fn vector(&mut self, what: &str, cols: u32, positions: u32, integers: bool) -> VectorPieces {
        let rows = u64::from(positions) + if positions == 1 { 0 } else { MARGIN };
        let elements = rows.saturating_mul(u64::from(cols).next_multiple_of(PADDING));
        let floats = self.add(what.to_owned(), elements.saturating_mul(4), Contents::Padding);
        let integers = integers.then(|| {
            [(2 * elements, "codes"), (elements / 2, "sums"), (4 * rows, "scales")]
                .map(|(bytes, of)| self.zeros(&format!("{what}, {of}"), bytes))
        });
        VectorPieces { floats, integers, cols }
    }

    /// The first matrix of a projection, and the second where it is one of factors.
    fn part_roles(&self, layer: Layer) -> (Role, Option<Role>) {
        if self.config.use_tsct {
            (Role::Linear(layer, Part::U), Some(Role::Linear(layer, Part::V)))
        } else {
            (Role::Linear(layer, Part::Weight), None)
        }
    }

    fn of_tensor(&self, role: Role) -> Option<&(usize, Option<Layout>)> {
        self.tensors.get(self.config.tensor_number(role) as usize)?.as_ref()
    }

    /// Whether a matrix takes its input as integers.
    fn is_integer(&self, role: Role) -> bool {
        let layout = self.of_tensor(role).and_then(|(_, layout)| layout.as_ref());
        layout.is_some_and(|layout| matches!(layout.dtype(), DType::Q8 | DType::Q4))
    }

    /// Rows of a first factor.
    fn rank(&self, role: Role) -> u32 {
        self.of_tensor(role).and_then(|(_, layout)| layout.as_ref()).map_or(0, Layout::rows)
    }

    /// The largest values of the grids that inputs of attention and experts are rounded to; 0: they are not.
    fn limits(&self) -> (f32, f32) {
        let (attention, experts) = match self.config.act_quant {
            ActQuant::None => (0.0, 0.0),
            ActQuant::Fp4 => (127.0, 6.0),
            ActQuant::Int4 => (127.0, 7.0),
            ActQuant::Int8 => (127.0, 127.0),
        };
        (if self.config.attention == Attention::Kda { attention } else { 0.0 }, experts)
    }

    /// Whether old positions are ever computed again.
    fn again(&self) -> bool {
        self.settings.exact && !self.config.is_causal()
    }

    /// Numbers of a position for the recurrence.
    fn kda_stride(&self) -> u64 {
        5 * self.config.width() + u64::from(self.config.n_heads)
    }

    /// Scalars of a position.
    fn scalars(&self) -> u64 {
        5 + 2 * u64::from(self.config.n_experts)
    }

    /// Parts of 8 key channels of a head.
    fn parts(&self) -> u32 {
        self.config.head_dim.div_ceil(8)
    }

    /// Numbers of a state, as it is kept.
    fn state_len(&self) -> u64 {
        8 * u64::from(self.parts()) * self.config.width()
    }

    /// Shared memory of a block of the recurrence.
    fn recur_bytes(&self) -> u32 {
        self.parts().saturating_mul(4 * RECUR)
    }

    fn loop_of(&self) -> Loop {
        let c = &self.config;
        Loop {
            d_model: c.d_model,
            n_heads: c.n_heads,
            head_dim: c.head_dim,
            n_experts: c.n_experts,
            topk: c.moe_topk,
            context: self.settings.context,
            attends: u32::from(c.attention == Attention::Kda),
            recalls: u32::from(c.use_engram),
            group: if c.act_group == 0 { c.d_model } else { c.act_group },
            norm_eps: c.norm_eps,
            kda_scale: self.settings.kda_scale,
            most_memory: c.engram_lam_max,
        }
    }

    /// The allocations, in the order in which their addresses are given to [`Plan::step`]. All addresses must be multiples of 16.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// How many of them, from the first, are weights: several texts share these alone.
    pub fn weight_pieces(&self) -> usize {
        self.tensors.iter().flatten().count()
    }

    /// Bytes of all pieces together, each taken up to a multiple of `alignment` (a power of two).
    pub fn bytes(&self, alignment: u64) -> u64 {
        bytes_of(&self.pieces, alignment)
    }

    /// How tensor `number` is packed; `None` for vectors.
    pub fn layout(&self, number: u32) -> Option<&Layout> {
        self.tensors.get(number as usize)?.as_ref()?.1.as_ref()
    }

    /// The configuration.
    pub const fn config(&self) -> &DormouseConfig {
        &self.config
    }

    /// How the model is run.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The number of the piece with the stream after so many iterations: `f32`, position x `d_model` taken up to a multiple of 128, re-ordered: see [`place`].
    pub fn stream(&self, iterations: u32) -> usize {
        self.work.streams.get(iterations as usize).map_or(0, |stream| stream.floats)
    }

    /// The number of the piece with the logits, `f32`.
    pub const fn logits(&self) -> usize {
        self.work.logits
    }

    /// The number of the piece with the state, `u32`: how many positions were computed, how many of the tokens are given, the first position whose logits were not finite plus 1 (or 0), 0.
    pub const fn state(&self) -> usize {
        self.work.state
    }

    /// The number of the piece with the tokens, `u32` a position.
    pub const fn tokens(&self) -> usize {
        self.work.tokens
    }

    /// The number of the piece with the likeliest token after each position, `u32`: [`NOT_FINITE`](crate::plan::NOT_FINITE) where a logit was no finite number.
    pub const fn picks(&self) -> usize {
        self.work.picks
    }

    /// The number of the piece with how many old positions an iteration computed again, `u32`, an iteration: of those after the second.
    pub const fn computed_again(&self) -> usize {
        self.work.limits
    }

    /// Bytes that a step reads, and writes of states, where no old position is computed again: how many are depends on the text.
    pub fn bytes_a_step(&self) -> u64 {
        let loops = u64::from(self.config.max_iter);
        let tensors = (0..self.config.num_tensors())
            .filter_map(|number| Some((self.config.role(number)?, self.tensors.get(number as usize)?.as_ref()?)));
        let weights = tensors.map(|(role, (piece, layout))| {
            let bytes = match layout {
                Some(layout) => layout.read_bytes(),
                None => self.pieces.get(*piece).map_or(0, |piece| piece.bytes),
            };
            let rows = layout.as_ref().map_or(1, |layout| u64::from(layout.rows().max(1)));
            match role {
                Role::Embedding => bytes / rows,
                Role::Memory => 3 * bytes / rows,
                Role::MemoryKey | Role::MemoryValue | Role::Norm | Role::IterEmbed | Role::Linear(Layer::LmHead, _) => bytes,
                _ => loops * bytes,
            }
        });
        let states = if self.config.attention == Attention::Kda { 8 * loops * self.state_len() } else { 0 };
        weights.sum::<u64>() + states
    }
}

/// Tensors that kernels read element by element.
fn is_vector(role: Role) -> bool {
    !matches!(
        role,
        Role::Embedding
            | Role::Controller
            | Role::Qkv(_)
            | Role::DecayUp
            | Role::DecayDown
            | Role::Beta
            | Role::OGate
            | Role::OProj
            | Role::Linear(_, Part::U | Part::V | Part::Weight)
            | Role::Memory
            | Role::MemoryKey
            | Role::MemoryValue
            | Role::MemDense
    )
}

/// Where element `i` of a re-ordered vector lies.
pub const fn place(i: usize) -> usize {
    i & !31 | (i & 7) << 2 | (i >> 3) & 3
}

/// Where everything is: a plan and the addresses of its pieces.
struct Placed<'p> {
    plan: &'p Plan,
    addresses: &'p [u64],
}

impl<'p> Placed<'p> {
    fn new(plan: &'p Plan, addresses: &'p [u64]) -> Self {
        assert_eq!(addresses.len(), plan.pieces.len(), "an address for each piece");
        assert!(addresses.iter().all(|address| address.is_multiple_of(16)), "addresses that are multiples of 16");
        Self { plan, addresses }
    }

    fn at(&self, piece: usize) -> u64 {
        self.addresses[piece]
    }

    fn vector(&self, pieces: VectorPieces) -> Vector {
        if pieces.cols == 0 {
            return Vector::default();
        }
        let [codes, sums, scales] = pieces.integers.map_or([0; 3], |pieces| pieces.map(|piece| self.at(piece)));
        let integers = u32::from(pieces.integers.is_some());
        Vector { floats: self.at(pieces.floats), codes, sums, scales, cols: pieces.cols, integers }
    }

    fn matrix(&self, role: Role) -> Matrix {
        match self.plan.of_tensor(role) {
            Some((piece, Some(layout))) => layout.matrix(self.at(*piece)),
            _ => Matrix::default(),
        }
    }

    /// The address of a tensor of single numbers; 0 of one that is not there.
    fn numbers(&self, role: Role) -> u64 {
        self.plan.of_tensor(role).map_or(0, |(piece, _)| self.at(*piece))
    }
}
