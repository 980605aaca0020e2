//! What a Llama-family model takes of a device's memory, and the launches of its steps.
//!
//! A step is one position, fused into five kernels a layer. A block is up to [`COLUMNS`] positions of one text or of several, each matrix read once for all of them. Both give the bits of the runtime's
//! steps. Attention over many positions is spread over blocks of threads by three kernels more.

mod block;
mod long;
mod step;

use crate::launch::{Arg, Heads, Matrix};
use crate::pack::Layout;
use crate::refusal::Refusal;
use dmexp_format::arch::llama::{LlamaConfig, RopeLayout, TensorKind};
use dmexp_format::{DType, KvDType, TensorView};
pub use step::Step;

/// The most positions of a block.
pub const COLUMNS: u32 = 8;
/// Shared memory that a block of threads has without asking for more, less what the kernels declare themselves.
pub const SHARED_BY_DEFAULT: u32 = 48_000;
/// Threads that share a row.
const LANES: u32 = 8;
/// Inputs of matrices are padded to a multiple of so many elements.
pub(crate) const PADDING: u64 = 128;

/// One allocation on the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is, for messages.
    pub what: String,
    /// How many bytes.
    pub bytes: u64,
    /// What it holds before the first step.
    pub contents: Contents,
}

/// What a [`Piece`] holds before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// The tensor of this number, packed by [`Plan::layout`].
    Matrix(u32),
    /// The tensor of this number, its elements widened to `f32`.
    Vector(u32),
    /// The tensors of these numbers one after the other, widened to `f32`: biases of queries, keys and values.
    Vectors([u32; 3]),
    /// Cosines of the rotation, position x `head_dim` / 2, each as the runtime's `rotation` makes it.
    Cos,
    /// Sines, as the cosines.
    Sin,
    /// Zeros: memory for keys and values, and what the kernels write before they read it.
    Zeros,
    /// Zeros that the kernels rely on: what pads the inputs of matrices.
    Padding,
    /// `f32`, one a head: what a dormouse model's decays are multiplied by.
    Decays,
    /// What [`dormouse::Plan::table`](crate::dormouse::Plan::table) gives.
    Table,
}

/// The memory of a model, and which kernels run on it.
#[derive(Clone, Debug)]
pub struct Plan {
    config: LlamaConfig,
    context: u32,
    kv: KvDType,
    texts: u32,
    shared_limit: u32,
    pieces: Vec<Piece>,
    layouts: Vec<Option<Layout>>,
    /// Number of the piece of each tensor.
    of_tensor: Vec<usize>,
    biases: Vec<usize>,
    work: Work,
}

/// Numbers of the pieces that are no weights.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    cos: usize,
    sin: usize,
    cache: usize,
    cache_scales: Option<usize>,
    scores: Option<usize>,
    largest: Option<usize>,
    worths: Option<usize>,
    rows: usize,
    x: usize,
    qkv: usize,
    attended: usize,
    hidden: usize,
    up: usize,
    prepared: usize,
    codes: usize,
    sums: usize,
    scales: usize,
    logits: usize,
    partials: usize,
    state: usize,
    tokens: usize,
    picks: usize,
}

impl Plan {
    /// A plan for a model of `config` whose tensors `tensor` gives by their numbers in the file's order, with `context` positions of keys and values as `kv`, on a device whose blocks may have
    /// `shared_limit` bytes of shared memory ([`SHARED_BY_DEFAULT`] on all of them; what a launch asks for beyond that must be asked for beforehand). Inputs that do not fit are read from global memory.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn new<'a>(
        config: LlamaConfig,
        tensor: impl Fn(u32) -> Option<TensorView<'a>>,
        (context, kv): (u32, KvDType),
        shared_limit: u32,
    ) -> Result<Self, Refusal> {
        Self::for_texts(1, config, tensor, (context, kv), shared_limit)
    }

    /// The same with keys and values of so many texts, each of which has room for the context.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn for_texts<'a>(
        texts: u32,
        config: LlamaConfig,
        tensor: impl Fn(u32) -> Option<TensorView<'a>>,
        (context, kv): (u32, KvDType),
        shared_limit: u32,
    ) -> Result<Self, Refusal> {
        if context == 0 || context > config.max_seq_len {
            return Err(Refusal::Context { found: context, allowed: config.max_seq_len });
        }
        if kv_code(kv).is_none() {
            return Err(Refusal::Kv { kv });
        }
        let most = u32::MAX / (2 * config.n_layers).max(1);
        if texts > 1 && context > most {
            return Err(Refusal::Context { found: context, allowed: most });
        }
        let mut plan = Self {
            config,
            context,
            kv,
            texts: texts.max(1),
            shared_limit,
            pieces: Vec::new(),
            layouts: Vec::new(),
            of_tensor: Vec::new(),
            biases: Vec::new(),
            work: Work::default(),
        };
        let needed = 48 * u64::from(config.head_dim);
        if needed > u64::from(SHARED_BY_DEFAULT) {
            return Err(Refusal::HeadTooWide { needed, allowed: SHARED_BY_DEFAULT });
        }
        plan.weights(tensor)?;
        plan.work();
        Ok(plan)
    }

    fn weights<'a>(&mut self, tensor: impl Fn(u32) -> Option<TensorView<'a>>) -> Result<(), Refusal> {
        for number in 0..self.config.weight_tensors() {
            let missing = Refusal::Missing { tensor: number };
            let (spec, view) = (self.config.tensor(number).ok_or(missing)?, tensor(number).ok_or(missing)?);
            if !spec.dims.equals(&view.dims()) {
                return Err(Refusal::Shape { tensor: number });
            }
            let layout = Layout::new(&view).ok_or(Refusal::DType { tensor: number })?;
            if !spec.kind.is_matrix() {
                if view.dtype().is_quantised() {
                    return Err(Refusal::DType { tensor: number });
                }
                let bias = matches!(spec.kind, TensorKind::Bq | TensorKind::Bk | TensorKind::Bv);
                // The three biases of a layer follow one another.
                let piece = match spec.kind {
                    TensorKind::Bq => {
                        let bytes = 4 * (self.config.q_dim() + 2 * self.config.kv_dim());
                        let numbers = [number, number + 1, number + 2];
                        let piece = self.add(format!("biases of layer {}", spec.layer.unwrap_or(0)), bytes, Contents::Vectors(numbers));
                        self.biases.push(piece);
                        piece
                    }
                    _ if bias => self.pieces.len().saturating_sub(1),
                    _ => self.add(spec.to_string(), 4 * spec.dims.count(), Contents::Vector(number)),
                };
                self.of_tensor.push(piece);
                self.layouts.push(None);
                continue;
            }
            let piece = self.add(spec.to_string(), layout.bytes(), Contents::Matrix(number));
            self.of_tensor.push(piece);
            self.layouts.push(Some(layout));
        }
        Ok(())
    }

    fn work(&mut self) {
        let (c, kv) = (self.config, self.kv);
        let (many, context) = (u64::from(COLUMNS), u64::from(self.context));
        let (dim, q_dim, kv_dim, hidden) = (u64::from(c.dim), c.q_dim(), c.kv_dim(), u64::from(c.hidden_dim));
        let heads = u64::from(self.texts).saturating_mul(u64::from(c.n_layers)).saturating_mul(2 * context * u64::from(c.n_kv_heads));
        let widest = dim.max(q_dim).max(hidden).next_multiple_of(PADDING);
        let vocab = u64::from(c.vocab_size);
        let rotation = 4 * context * u64::from(c.head_dim / 2);
        let (long, score_rows) = (self.is_long(), many * u64::from(c.n_heads));
        let scores = (long || !self.shares_scores()).then(|| 4 * score_rows * context);
        let parts = context.div_ceil(u64::from(long::SCORED));
        let partials = u64::from(rows_grid(c.vocab_size).0);
        let mut zeros = |what: &str, bytes: u64| self.add(what.to_owned(), bytes, Contents::Zeros);
        self.work = Work {
            cache: zeros("keys and values", heads.saturating_mul(u64::from(c.head_dim)).saturating_mul(kv.size())),
            cache_scales: (kv == KvDType::Q8).then(|| zeros("scales of keys and values", heads.saturating_mul(2))),
            scores: scores.map(|bytes| zeros("attention scores", bytes)),
            largest: long.then(|| zeros("largest scores of parts", 4 * score_rows * parts)),
            worths: long.then(|| zeros("scales of integer weights of positions", 4 * score_rows)),
            rows: zeros("rows of a block", 16 * many),
            x: zeros("residual streams", 4 * many * dim),
            qkv: zeros("queries, keys and values of a layer", 4 * many * (q_dim + 2 * kv_dim)),
            attended: zeros("results of attention", 4 * many * q_dim),
            hidden: zeros("hidden activations", 4 * many * hidden),
            up: zeros("up projections", 4 * many * hidden),
            prepared: zeros("inputs of matrices", 4 * many * widest),
            codes: zeros("inputs of matrices as integers", 2 * many * widest),
            sums: zeros("sums of integer inputs", many * widest / 2),
            scales: zeros("scales of integer inputs", 4 * many),
            logits: zeros("logits", 4 * many * vocab),
            partials: zeros("best logits of blocks", 16 * partials),
            state: zeros("state", 16),
            tokens: zeros("tokens", 4 * context),
            picks: zeros("chosen tokens", 4 * context),
            cos: 0,
            sin: 0,
        };
        self.work.cos = self.add("cosines of the rotation".to_owned(), rotation, Contents::Cos);
        self.work.sin = self.add("sines of the rotation".to_owned(), rotation, Contents::Sin);
    }

    fn add(&mut self, what: String, bytes: u64, contents: Contents) -> usize {
        self.pieces.push(Piece { what, bytes, contents });
        self.pieces.len() - 1
    }

    /// The allocations, in the order in which their addresses are given to [`Plan::step`] and [`Plan::block`]. All addresses must be multiples of 16.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Bytes of all pieces together, each taken up to a multiple of `alignment` (a power of two).
    pub fn bytes(&self, alignment: u64) -> u64 {
        bytes_of(&self.pieces, alignment)
    }

    /// How tensor `number` is packed; `None` for vectors.
    pub fn layout(&self, number: u32) -> Option<&Layout> {
        self.layouts.get(number as usize)?.as_ref()
    }

    /// Positions of the cache.
    pub const fn context(&self) -> u32 {
        self.context
    }

    /// The number of the piece with the residual streams: `f32`, column x dim; a step's is column 0.
    pub const fn x(&self) -> usize {
        self.work.x
    }

    /// The number of the piece with the logits: `f32`, column x vocabulary; a step's are column 0.
    pub const fn logits(&self) -> usize {
        self.work.logits
    }

    /// The number of the piece with the state, `u32`: the position of the next step, how many of the tokens are given, the first position whose logits were not finite plus 1 (or 0), the step's text.
    pub const fn state(&self) -> usize {
        self.work.state
    }

    /// The number of the piece with the tokens, `u32` a position: those that are given, and those that [`Step::choose`] adds.
    pub const fn tokens(&self) -> usize {
        self.work.tokens
    }

    /// The number of the piece with the likeliest token after each position, `u32`: [`NOT_FINITE`] where a logit was no finite number.
    pub const fn picks(&self) -> usize {
        self.work.picks
    }

    /// The number of the piece with the rows of a block, 4 `u32` each: its token, its position, its text's number, 0.
    pub const fn rows(&self) -> usize {
        self.work.rows
    }

    /// Texts whose keys and values there is room for.
    pub const fn texts(&self) -> u32 {
        self.texts
    }

    /// The number of the piece with keys and values, text x layer x (key, value) x position x `kv_dim`, as the runtime's cache has those of one text.
    pub const fn cache(&self) -> usize {
        self.work.cache
    }

    /// The number of the piece with their scales, `f16`, text x layer x (key, value) x position x head; none but for q8.
    pub const fn cache_scales(&self) -> Option<usize> {
        self.work.cache_scales
    }

    /// Bytes of weights that a step reads, as they are packed: of the embedding one row, unless it is the classifier too.
    pub fn weight_bytes_a_step(&self) -> u64 {
        let read = |number: usize, layout: &Layout| match number {
            0 if self.config.tied_embeddings => layout.read_bytes(),
            0 => layout.read_bytes() / u64::from(layout.rows().max(1)),
            _ => layout.read_bytes(),
        };
        let matrices: u64 = self.layouts.iter().enumerate().filter_map(|(number, layout)| Some(read(number, layout.as_ref()?))).sum();
        let vectors = self.pieces.iter().filter(|piece| matches!(piece.contents, Contents::Vector(_) | Contents::Vectors(_)));
        matrices + vectors.map(|piece| piece.bytes).sum::<u64>()
    }

    /// Bytes of keys and values that a step at `position` reads.
    pub fn cache_bytes_a_step(&self, position: u32) -> u64 {
        let positions = u64::from(self.seen(position));
        let c = &self.config;
        2 * u64::from(c.n_layers) * positions * (c.kv_dim() * self.kv.size() + u64::from(c.n_kv_heads) * self.kv.scale_size())
    }

    /// Additions that wait for one another in a step at `position`, because the order of sums over positions is fixed: of exponentials, and of weighted values where those are no integers.
    pub fn additions_a_step(&self, position: u32) -> u64 {
        let sums = if self.kv == KvDType::Q8 { 1 } else { 2 };
        u64::from(self.config.n_layers) * sums * u64::from(self.seen(position).div_ceil(LANES))
    }

    fn shares_scores(&self) -> bool {
        48 * u64::from(self.config.head_dim) + 4 * u64::from(self.context) <= u64::from(SHARED_BY_DEFAULT)
    }
}

/// Bytes of all pieces together, each taken up to a multiple of `alignment` (a power of two).
pub fn bytes_of(pieces: &[Piece], alignment: u64) -> u64 {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.bytes.saturating_add(alignment - 1) & !(alignment - 1)))
}

/// The missing rows of a step, which is where the state says.
const NO_ROWS: Arg = Arg::Pointer(0);

/// In [`Plan::picks`]: a logit was no finite number.
pub const NOT_FINITE: u32 = u32::MAX;

/// The number of a type of keys and values in [`Heads`].
const fn kv_code(kv: KvDType) -> Option<u32> {
    match kv {
        KvDType::F32 => Some(0),
        KvDType::F16 => Some(1),
        KvDType::Q8 => Some(2),
        _ => None,
    }
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

    fn pointer(&self, piece: usize) -> Arg {
        Arg::Pointer(self.at(piece))
    }

    fn number(&self, kind: TensorKind, layer: u32) -> usize {
        self.plan.config.tensor_number(kind, layer) as usize
    }

    fn matrix(&self, kind: TensorKind, layer: u32) -> Matrix {
        let number = self.number(kind, layer);
        let address = self.at(self.plan.of_tensor[number]);
        self.plan.layouts[number].as_ref().map_or_else(Matrix::default, |layout| layout.matrix(address))
    }

    fn classifier(&self) -> Matrix {
        self.matrix(if self.plan.config.tied_embeddings { TensorKind::TokEmbeddings } else { TensorKind::Output }, 0)
    }

    fn gain(&self, kind: TensorKind, layer: u32) -> Arg {
        self.pointer(self.plan.of_tensor[self.number(kind, layer)])
    }

    /// The biases of a layer from element `from` on, or none.
    fn bias(&self, layer: u32, from: u64) -> Arg {
        Arg::Pointer(self.plan.biases.get(layer as usize).map_or(0, |piece| self.at(*piece) + 4 * from))
    }

    /// Keys, values and their scales of a layer.
    fn cache(&self, layer: u32) -> [Arg; 4] {
        let (plan, c) = (self.plan, &self.plan.config);
        let rows = |which: u64| (2 * u64::from(layer) + which) * u64::from(plan.context);
        let codes = |which| Arg::Pointer(self.at(plan.work.cache) + rows(which) * c.kv_dim() * plan.kv.size());
        let scales =
            |which| Arg::Pointer(plan.work.cache_scales.map_or(0, |piece| self.at(piece) + rows(which) * u64::from(c.n_kv_heads) * 2));
        [codes(0), codes(1), scales(0), scales(1)]
    }

    fn scores(&self) -> Arg {
        Arg::Pointer(self.plan.work.scores.map_or(0, |piece| self.at(piece)))
    }

    fn heads(&self) -> Heads {
        let (plan, c) = (self.plan, &self.plan.config);
        Heads {
            n_heads: c.n_heads,
            n_kv_heads: c.n_kv_heads,
            head_dim: c.head_dim,
            halves: u32::from(c.rope_layout == RopeLayout::Half),
            window: c.sliding_window,
            context: plan.context,
            kv: kv_code(plan.kv).unwrap_or(0),
            shared_scores: u32::from(plan.shares_scores()),
            text_rows: if plan.texts > 1 { 2 * c.n_layers * plan.context } else { 0 },
            scale: 1.0 / (c.head_dim as f32).sqrt(),
        }
    }

    /// Threads and shared memory of a block of attention.
    fn attention_block(&self) -> (u32, u32) {
        let head_dim = self.plan.config.head_dim;
        let scores = if self.plan.shares_scores() { 4 * self.plan.context } else { 0 };
        ((LANES * head_dim).next_multiple_of(32).clamp(64, 512), 48 * head_dim + scores)
    }
}

/// Blocks for `rows` rows, and threads of a block: few rows are spread over more blocks. Nothing depends on it but the speed.
pub(crate) fn rows_grid(rows: u32) -> (u32, u32) {
    // Two blocks for each of 132 processors.
    let threads = match rows.div_ceil(264) {
        0..=8 => 64,
        9..=16 => 128,
        _ => 256,
    };
    (rows.div_ceil(threads / LANES), threads)
}

/// Threads of a block, of which there may be as many as `wanted`: whole warps, 256 at most.
pub(crate) fn threads(wanted: u32) -> u32 {
    wanted.min(256).next_multiple_of(32)
}

/// Whether a matrix takes its input as integers.
pub(crate) fn takes_integers(matrix: &Matrix) -> bool {
    matrix.dtype == u32::from(DType::Q8.code()) || matrix.dtype == u32::from(DType::Q4.code())
}

/// Shared memory for an input of `cols` elements of these matrices.
fn input_bytes(cols: u32, matrices: &[Matrix]) -> u64 {
    let padded = u64::from(cols).next_multiple_of(PADDING);
    4 * padded + if matrices.iter().any(takes_integers) { 2 * padded + padded / 2 } else { 0 }
}
