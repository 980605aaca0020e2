//! Llama-family decoders: what a step computes, from a token to the logits of the next one.
//!
//! Read it from top to bottom: where the weights are, what a session keeps in memory, the step. The arithmetic is that of docs/format/arithmetic.md; the
//! model is that of Touvron et al. (2023), with grouped key/value heads (Ainslie et al., 2023), rotary positions (Su et al., 2021), RMS norms and a gated feed-forward network.

#[cfg(not(target_os = "none"))]
pub(crate) mod block;

#[cfg(feature = "files")]
use super::copies::Copies;
use crate::arena::{Carve, banks};
#[cfg(feature = "files")]
use crate::format::DType;
#[cfg(feature = "files")]
use crate::format::arch::llama::TensorSpec;
use crate::format::arch::llama::{LlamaConfig, TensorKind};
#[cfg(feature = "files")]
use crate::format::arch::llama_tensors::check_tensors;
#[cfg(feature = "files")]
use crate::format::file::{IndexedTensors, ModelFile};
use crate::format::layout::LlamaLayout;
use crate::format::{ConfigKey, Error, KvDType, Rule, TensorView};
use crate::ops::activation::Activation;
use crate::ops::attention::{Heads, attention};
use crate::ops::check::all_finite;
use crate::ops::crew::Crew;
use crate::ops::ffn::{add, gate};
use crate::ops::kv::{KvCache, is_built};
use crate::ops::matvec::{add_vector, widen_row};
use crate::ops::norm::rmsnorm;
use crate::ops::rope::{rotate, rotation};

/// A model's weights, where they lie. Nothing is copied unless it was asked for, and no step can fail on the file's account.
#[derive(Clone, Copy, Debug)]
pub struct Llama<'a> {
    config: LlamaConfig,
    weights: Weights<'a>,
    /// Those that lie elsewhere too, and are read there.
    #[cfg(feature = "files")]
    copies: Copies<'a>,
    /// The threads that share the work.
    pub(crate) crew: Crew<'a>,
}

/// Where tensor `n` of the file's order is.
#[derive(Clone, Copy, Debug)]
enum Weights<'a> {
    /// In a table that `include_model!` made.
    Table(&'a [TensorView<'a>]),
    /// In a format-2 file, whose index knows.
    #[cfg(feature = "files")]
    Indexed(IndexedTensors<'a>),
    /// One after the other in a format-1 file, all of one type.
    #[cfg(feature = "toml")]
    Packed(ModelFile<'a>, DType),
}

#[cfg(feature = "files")]
impl<'a> Llama<'a> {
    /// The weights of an opened file: every tensor that the configuration calls for is there, in order, with its name and dims, and nothing else.
    ///
    /// # Errors
    /// Those of [`check_tensors`]; [`Error::DTypeNotBuilt`] where the cargo feature for a tensor's element type was left out.
    pub fn bind(file: &ModelFile<'a>) -> Result<Self, Error> {
        Self::check(file)?;
        Self::of_checked(file)
    }

    /// What [`Llama::bind`] refuses. By itself, so that its stack is free again before there is a model.
    #[inline(never)]
    pub(crate) fn check(file: &ModelFile<'_>) -> Result<(), Error> {
        check_tensors(file)?;
        for (tensor, view) in file.tensors().views() {
            let dtype = view.dtype();
            let built = match dtype {
                DType::F32 => cfg!(feature = "f32"),
                DType::F16 => cfg!(feature = "f16"),
                DType::Bf16 => cfg!(feature = "bf16"),
                DType::Q8 => cfg!(feature = "q8"),
                DType::Q4 => cfg!(feature = "q4"),
                DType::T2 => cfg!(feature = "t2"),
                _ => true,
            };
            // Gains, biases and frequencies in f32 are read without a kernel: the features are about matrices.
            let plain_vector = view.dims().rank() == 1 && dtype == DType::F32;
            if !built && !plain_vector {
                return Err(Error::DTypeNotBuilt { tensor, code: dtype.code() });
            }
        }
        Ok(())
    }

    /// The weights of a file that [`Llama::check`] took.
    #[inline(never)]
    pub(crate) fn of_checked(file: &ModelFile<'a>) -> Result<Self, Error> {
        let config = file.llama_config()?;
        let weights = match file.indexed_tensors() {
            Some(tensors) => Weights::Indexed(tensors),
            #[cfg(feature = "toml")]
            None => Weights::Packed(*file, file.single_dtype().unwrap_or(DType::F32)),
            #[cfg(not(feature = "toml"))]
            None => Weights::Table(&[]),
        };
        Ok(Self { config, weights, copies: Copies::NONE, crew: Crew::NONE })
    }

    /// As [`Model::ram_len`](crate::Model::ram_len).
    pub(crate) fn ram_len(&self, chosen: impl Fn(&TensorSpec) -> bool) -> u64 {
        Copies::words_for(self.config.weight_tensors(), self.originals(chosen)).saturating_mul(size_of::<u32>() as u64)
    }

    /// As [`Model::copy_to_ram`](crate::Model::copy_to_ram).
    pub(crate) fn copy_to_ram(&mut self, chosen: impl Fn(&TensorSpec) -> bool, memory: &'a mut [u32]) -> Result<(), Error> {
        self.copies = Copies::make(self.config.weight_tensors(), self.originals(chosen), memory)?;
        Ok(())
    }

    /// The tensors that `chosen` says yes to, by their numbers, where the file has them.
    fn originals(&self, chosen: impl Fn(&TensorSpec) -> bool) -> impl Fn(u32) -> Option<TensorView<'a>> {
        let model = Self { copies: Copies::NONE, ..*self };
        move |number| {
            let spec = model.config.tensor(number).filter(&chosen)?;
            Some(*model.tensor(spec.kind, spec.layer.unwrap_or(0), &mut None))
        }
    }
}

impl<'a> Llama<'a> {
    /// The weights in a table in the order of [`LlamaConfig::tensor`]: what `include_model!` writes after it has checked the file.
    pub const fn from_table(config: LlamaConfig, table: &'a [TensorView<'a>]) -> Self {
        Self {
            config,
            weights: Weights::Table(table),
            #[cfg(feature = "files")]
            copies: Copies::NONE,
            crew: Crew::NONE,
        }
    }

    /// The model's configuration.
    pub const fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// One of the weights, for what computes with them elsewhere; [`TensorView::EMPTY`] where the configuration has none such. Those of rotation frequencies are [`Llama::frequencies`].
    #[cfg(not(target_os = "none"))]
    pub fn weight(&self, kind: TensorKind, layer: u32) -> TensorView<'a> {
        *self.tensor(kind, layer, &mut None)
    }

    /// The rotation frequencies, `head_dim` / 2 of them.
    ///
    /// # Errors
    /// [`Error::Config`] for one that is not a positive number.
    #[cfg(not(target_os = "none"))]
    pub fn frequencies(&self, out: &mut [f32]) -> Result<(), Error> {
        self.inv_freq(out)
    }

    /// Tensors whose bytes can be looked at: the weights and the rotation frequencies.
    #[cfg(feature = "probe")]
    pub(crate) const fn num_tensors(&self) -> u32 {
        match self.weights {
            #[cfg(feature = "toml")]
            Weights::Packed(..) => 0,
            _ => self.config.weight_tensors() + 1,
        }
    }

    /// The bytes of tensor `number` of the file's order, where they are read.
    #[cfg(feature = "probe")]
    pub(crate) fn tensor_bytes(&self, number: u32) -> Option<&'a [u8]> {
        // A file has the arrays of its tokenizer behind those.
        if number >= self.num_tensors() {
            return None;
        }
        let view = match self.weights {
            Weights::Table(table) => *table.get(number as usize)?,
            #[cfg(feature = "files")]
            Weights::Indexed(tensors) => tensors.tensor(number)?,
            #[cfg(feature = "toml")]
            Weights::Packed(..) => return None,
        };
        #[cfg(feature = "files")]
        let view = self.copies.find(number, &view).unwrap_or(view);
        Some(view.bytes())
    }

    /// Where the tensor is: in the table, or in `place` when it had to be looked for or was copied.
    #[cfg_attr(not(feature = "files"), allow(unused_variables, clippy::needless_return, reason = "a table needs no place"))]
    fn tensor<'t>(&self, kind: TensorKind, layer: u32, place: &'t mut Option<TensorView<'a>>) -> &'t TensorView<'a>
    where
        'a: 't,
    {
        let number = self.config.tensor_number(kind, layer);
        match self.weights {
            Weights::Table(table) => {
                let view = table.get(number as usize).unwrap_or(&TensorView::EMPTY);
                #[cfg(feature = "files")]
                if let Some(copy) = self.copies.find(number, view) {
                    return place.insert(copy);
                }
                return view;
            }
            #[cfg(feature = "files")]
            Weights::Indexed(tensors) => *place = tensors.tensor(number),
            #[cfg(feature = "toml")]
            Weights::Packed(file, dtype) => *place = self.packed(file.payload(), dtype, kind, layer),
        }
        #[cfg(feature = "files")]
        {
            let view = place.get_or_insert(TensorView::EMPTY);
            if let Some(copy) = self.copies.find(number, view) {
                *view = copy;
            }
            view
        }
    }

    #[cfg(feature = "toml")]
    fn packed(&self, payload: &'a [u8], dtype: DType, kind: TensorKind, layer: u32) -> Option<TensorView<'a>> {
        let dims = self.config.dims(kind);
        let start = self.config.elements_before(kind, layer) * dtype.size();
        let bytes = payload.get(start as usize..)?.get(..(dims.count() * dtype.size()) as usize)?;
        TensorView::new(0, dtype, dims, bytes).ok()
    }

    #[inline(never)]
    fn inv_freq(&self, out: &mut [f32]) -> Result<(), Error> {
        #[cfg(feature = "toml")]
        if let Weights::Packed(file, _) = self.weights {
            return file.rope_inv_freq(out);
        }
        let mut place = None;
        let tensor = self.tensor(TensorKind::RopeInvFreq, 0, &mut place);
        for (i, frequency) in out.iter_mut().enumerate() {
            *frequency = tensor.get_float(i);
            // The one tensor whose values are looked at: a rotation by NaN or backwards would still give words.
            if !(*frequency > 0.0 && *frequency < f32::INFINITY) {
                let rule = if frequency.is_finite() { Rule::Positive } else { Rule::Finite };
                return Err(Error::Config { key: ConfigKey::RopeInvFreq, rule, found: u64::from(frequency.to_bits()), allowed: 0 });
            }
        }
        Ok(())
    }
}

/// What a session of a Llama model keeps in memory, carved from the arena by [`LlamaLayout`].
#[derive(Debug)]
pub(crate) struct State<'m> {
    pub(crate) kv: KvCache<'m>,
    inv_freq: &'m [f32],
    cos: &'m mut [f32],
    sin: &'m mut [f32],
    pub(crate) x: &'m mut [f32],
    xb: &'m mut [f32],
    pub(crate) shared: &'m mut [f32],
    pub(crate) tokens: &'m mut [u32],
    /// What steps do without.
    #[cfg(not(target_os = "none"))]
    pub(crate) block: Option<block::Block<'m>>,
}

impl<'m> State<'m> {
    /// Carves `memory` for `model` by `layout`, which is the one for `context` positions of keys and values as `kv`.
    ///
    /// # Errors
    /// [`Error::KvNotBuilt`], [`Error::ArenaTooSmall`], [`Error::BankTooSmall`], and those of reading the rotation frequencies.
    #[inline(never)]
    pub(crate) fn new(
        model: &Llama<'_>,
        layout: &LlamaLayout,
        (context, kv): (u32, KvDType),
        #[cfg(not(target_os = "none"))] of_block: Option<block::BlockLayout>,
        memory: &'m mut [u32],
        work: Option<&'m mut [u32]>,
    ) -> Result<Self, Error> {
        if !is_built(kv) {
            return Err(Error::KvNotBuilt { kv });
        }
        let total_bytes = layout.total_bytes;
        #[cfg(not(target_os = "none"))]
        let total_bytes = total_bytes.saturating_add(of_block.map_or(0, |block| block.bytes()));
        let (cache, work) = banks((layout.kv_bytes, total_bytes), memory, work)?;
        let mut carve = Carve::new(work);
        let inv_freq = carve.floats(layout.inv_freq);
        let heads = (model.config.n_kv_heads as usize, model.config.head_dim as usize);
        model.inv_freq(inv_freq)?;
        Ok(Self {
            kv: KvCache::from_parts(cache, kv, layout.kv_code_bytes, model.config.n_layers as usize, context as usize, heads),
            inv_freq,
            cos: carve.floats(layout.rotation / 2),
            sin: carve.floats(layout.rotation / 2),
            x: carve.floats(layout.x),
            xb: carve.floats(layout.xb),
            shared: carve.floats(layout.shared),
            tokens: carve.words(layout.tokens),
            #[cfg(not(target_os = "none"))]
            block: of_block.map(|layout| block::Block::new(&layout, &mut carve)),
        })
    }

    /// The logits of the last step that computed them, and the sampler's room for an order of them, within `shared`.
    pub(crate) fn split_logits(shared: &mut [f32], vocab_size: u32) -> (&mut [f32], &mut [u32]) {
        let (logits, rest) = split(shared, vocab_size as usize);
        let (order, _) = split(rest, vocab_size as usize);
        (logits, bytemuck::cast_slice_mut(order))
    }
}

impl Llama<'_> {
    /// Begins a step: the residual stream is the embedding of `token`, and the rotation that of `position`.
    ///
    /// The caller has checked that `token` is in the vocabulary and `position` in the context.
    #[inline(never)]
    pub(crate) fn embed(&self, state: &mut State<'_>, token: u32, position: u32) {
        widen_row(state.x, self.tensor(TensorKind::TokEmbeddings, 0, &mut None), token as usize);
        rotation(state.cos, state.sin, state.inv_freq, position, self.config.attention_factor);
    }

    /// One layer of the step that [`Llama::embed`] began: keys and values are stored, and attention and feed-forward network are added to the residual stream.
    ///
    /// The caller gives all layers in order. After the last the stream holds what [`Llama::logits`] turns into logits.
    pub(crate) fn layer(&self, state: &mut State<'_>, layer: u32, position: u32) {
        // Each part has a frame of its own, for the deepest stack is that of attention.
        self.project_heads(state, layer, position);
        self.attend(state, layer, position);
        self.feed_forward(state, layer);
    }

    /// The normed stream becomes queries, keys and values; the latter two are stored.
    #[inline(never)]
    fn project_heads(&self, state: &mut State<'_>, layer: u32, position: u32) {
        let config = &self.config;
        let head_dim = config.head_dim as usize;
        let (normed, _) = split(state.xb, config.dim as usize);
        self.norm(normed, TensorKind::AttentionNorm, layer, state.x);
        let (q, rest) = split(state.shared, config.q_dim() as usize);
        let (k, rest) = split(rest, config.kv_dim() as usize);
        let (v, scratch) = split(rest, config.kv_dim() as usize);
        let mut input = Activation::new(normed, scratch);
        self.project(q, TensorKind::Wq, layer, &mut input);
        self.project(k, TensorKind::Wk, layer, &mut input);
        self.project(v, TensorKind::Wv, layer, &mut input);
        if config.qkv_bias {
            add_vector(q, self.tensor(TensorKind::Bq, layer, &mut None));
            add_vector(k, self.tensor(TensorKind::Bk, layer, &mut None));
            add_vector(v, self.tensor(TensorKind::Bv, layer, &mut None));
        }
        rotate(q, head_dim, state.cos, state.sin, config.rope_layout);
        rotate(k, head_dim, state.cos, state.sin, config.rope_layout);
        state.kv.store(layer as usize, position as usize, k, v);
    }

    /// Attention of the queries that [`Llama::project_heads`] left, projected and added to the stream.
    #[inline(never)]
    fn attend(&self, state: &mut State<'_>, layer: u32, position: u32) {
        let config = &self.config;
        let heads = Heads { n_heads: config.n_heads as usize, n_kv_heads: config.n_kv_heads as usize, head_dim: config.head_dim as usize };
        let first = match config.sliding_window {
            0 => 0,
            window => (position + 1).saturating_sub(window),
        };
        let (attended, _) = split(state.xb, config.q_dim() as usize);
        let (q, rest) = split(state.shared, config.q_dim() as usize);
        let (_, scratch) = split(rest, 2 * config.kv_dim() as usize);
        let (lanes, scores) = split(scratch, 8 * heads.head_dim);
        let (keys, values) = (state.kv.keys(layer as usize), state.kv.values(layer as usize));
        let positions = (first as usize, position as usize);
        #[cfg(not(target_os = "none"))]
        let shared = self.crew.attention(attended, q, (keys, values), heads, positions, state.block.as_mut().map(block::Block::slots));
        #[cfg(target_os = "none")]
        let shared = false;
        if !shared {
            attention(attended, q, keys, values, heads, positions, scores, lanes);
        }
        let (projected, scratch) = split(state.shared, config.dim as usize);
        self.project(projected, TensorKind::Wo, layer, &mut Activation::new(attended, scratch));
        add(state.x, projected);
    }

    /// The feed-forward network of the normed stream, added to the stream.
    #[inline(never)]
    fn feed_forward(&self, state: &mut State<'_>, layer: u32) {
        let config = &self.config;
        let (normed, _) = split(state.xb, config.dim as usize);
        self.norm(normed, TensorKind::FfnNorm, layer, state.x);
        let (hidden, rest) = split(state.shared, config.hidden_dim as usize);
        let (up, scratch) = split(rest, config.hidden_dim as usize);
        let mut input = Activation::new(normed, scratch);
        self.project(hidden, TensorKind::W1, layer, &mut input);
        self.project(up, TensorKind::W3, layer, &mut input);
        gate(hidden, up);
        let (down, _) = split(state.xb, config.dim as usize);
        self.project(down, TensorKind::W2, layer, &mut Activation::new(hidden, rest));
        add(state.x, down);
    }

    /// `out` = this matrix times `x`.
    #[inline(never)]
    fn project(&self, out: &mut [f32], kind: TensorKind, layer: u32, x: &mut Activation<'_>) {
        self.crew.matvec(out, self.tensor(kind, layer, &mut None), x);
    }

    /// `out` = `x` normed with this gain.
    #[inline(never)]
    fn norm(&self, out: &mut [f32], kind: TensorKind, layer: u32, x: &[f32]) {
        rmsnorm(out, x, self.tensor(kind, layer, &mut None), self.config.norm_eps);
    }

    /// The logits after all layers of the step that fed `position`; [`State::split_logits`] finds them.
    ///
    /// # Errors
    /// [`Error::NonFiniteLogits`]: the weights are damaged.
    pub(crate) fn logits(&self, state: &mut State<'_>, position: u32) -> Result<(), Error> {
        let config = &self.config;
        let (normed, _) = split(state.xb, config.dim as usize);
        self.norm(normed, TensorKind::Norm, 0, state.x);
        let (logits, scratch) = split(state.shared, config.vocab_size as usize);
        let classifier = if config.tied_embeddings { TensorKind::TokEmbeddings } else { TensorKind::Output };
        self.project(logits, classifier, 0, &mut Activation::new(normed, scratch));
        if all_finite(logits) { Ok(()) } else { Err(Error::NonFiniteLogits { position }) }
    }
}

/// The first `count` values and the rest. The layout made every part large enough: where it did not, both are empty. Out of line: a
/// step has twenty of these.
#[inline(never)]
fn split(values: &mut [f32], count: usize) -> (&mut [f32], &mut [f32]) {
    values.split_at_mut_checked(count).unwrap_or_default()
}
