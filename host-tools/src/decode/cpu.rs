//! The runtime on this machine's processor: a model and the memory of one session.

use super::{Loaded, Pool};
use crate::error::{Class, Error, Result};
use dmexp::accelerator::Accelerator;
use dmexp::models::dormouse::Factors;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Model, Sampler, Session};
use dmexp_format::KvDType;
use dmexp_format::layout::Decoding;
use std::hint::black_box;

/// How to run a model.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOptions<'a> {
    /// Positions; `None` is what the model was trained for.
    pub context: Option<u32>,
    /// How keys and values are kept.
    pub kv: KvDType,
    /// A tokenizer to use instead of the file's own (format-1 files carry none): see [`super::TokenizerArrays`].
    pub tokenizer: Option<Tokenizer<'a>>,
}

/// How to run a model of dormouse; `None` is what the file says or, where it does not, what dormouse does.
#[derive(Clone, Copy, Debug, Default)]
pub struct DormouseOptions {
    /// How positions before the last are treated.
    pub decoding: Option<Decoding>,
    /// What the results of the recurrence are multiplied by.
    pub kda_scale: Option<f32>,
    /// How ternary factors are taken.
    pub factors: Option<Factors>,
}

/// A model with the memory of one session.
#[derive(Debug)]
pub struct Cpu<'a> {
    loaded: &'a Loaded,
    model: Model<'a>,
    arena: Vec<u32>,
}

impl<'a> Cpu<'a> {
    /// Binds the model and takes the memory that a session needs.
    ///
    /// # Errors
    /// Those of [`Loaded::model`]; [`Class::Request`] for a context of 0 or more than the model allows, or more memory than there is (says how much);
    /// [`Class::Mismatch`] for a tokenizer that has not as many pieces as the model has tokens.
    pub fn new(loaded: &'a Loaded, options: &CpuOptions<'a>) -> Result<Self> {
        Self::with_dormouse(loaded, options, &DormouseOptions::default(), 1)
    }

    /// The same, with `threads` threads that share the work: [`super::physical_cores`] is as many as pays. The results do not depend on it.
    ///
    /// # Errors
    /// Those of [`Cpu::new`].
    pub fn on_threads(loaded: &'a Loaded, options: &CpuOptions<'a>, threads: usize) -> Result<Self> {
        Self::with_dormouse(loaded, options, &DormouseOptions::default(), threads)
    }

    /// The same, with what only models of dormouse take.
    ///
    /// # Errors
    /// Those of [`Cpu::new`]; [`Class::Request`] where the model is another, or cannot be run in this way.
    pub fn with_dormouse(loaded: &'a Loaded, options: &CpuOptions<'a>, dormouse: &DormouseOptions, threads: usize) -> Result<Self> {
        // As many as there may be: prompts and scored texts are read far faster.
        Self::with_arena(loaded, &Self::bind(loaded, options, dormouse, threads)?.with_block(u32::MAX))
    }

    /// The model of [`Cpu::with_dormouse`] without memory for a session, and without [`Model::with_block`].
    ///
    /// # Errors
    /// Those of [`Cpu::with_dormouse`] but for memory; a context that cannot be is refused by the session.
    pub fn bind(loaded: &'a Loaded, options: &CpuOptions<'a>, dormouse: &DormouseOptions, threads: usize) -> Result<Model<'a>> {
        let model = Self::configured(loaded, options, dormouse)?;
        Ok(if threads > 1 { model.with_executor(Pool::of(threads)) } else { model })
    }

    /// A model that something else computes: what `accelerator` makes for it. The results do not depend on it.
    ///
    /// # Errors
    /// Those of [`Cpu::with_dormouse`] and of `accelerator`.
    pub fn elsewhere(
        loaded: &'a Loaded,
        options: &CpuOptions<'a>,
        dormouse: &DormouseOptions,
        accelerator: impl FnOnce(&Model<'a>) -> Result<&'a dyn Accelerator>,
    ) -> Result<Self> {
        let model = Self::configured(loaded, options, dormouse)?.with_block(u32::MAX);
        // What keeps a session from being here keeps it from being there, and is said first.
        model.arena_len().map_err(|error| loaded.explain(error))?;
        let accelerator = accelerator(&model)?;
        Self::with_arena(loaded, &model.with_accelerator(accelerator))
    }

    fn configured(loaded: &'a Loaded, options: &CpuOptions<'a>, dormouse: &DormouseOptions) -> Result<Model<'a>> {
        let mut model = dormouse.apply(loaded, &loaded.model()?)?;
        // Those of a model of dormouse are always kept as they are.
        if model.network().dormouse().is_none() {
            model = model.with_kv(options.kv);
        }
        if let Some(context) = options.context {
            model = model.with_context(context);
        }
        if let Some(tokenizer) = options.tokenizer {
            let (pieces, vocab_size) = (tokenizer.facts().n_pieces, model.network().vocab_size());
            if pieces != vocab_size {
                let what = format!("has {vocab_size} tokens, but the tokenizer has {pieces} pieces");
                return Err(Error::mismatch(what).advise("name the tokenizer that the model was trained with").in_file(loaded.path()));
            }
            model = model.with_tokenizer(tokenizer).map_err(|error| loaded.explain(error))?;
        }
        Ok(model)
    }

    fn with_arena(loaded: &'a Loaded, model: &Model<'a>) -> Result<Self> {
        let bytes = model.arena_len().map_err(|error| loaded.explain(error))?;
        let words = bytes.div_ceil(size_of::<u32>());
        let no_memory = |_| {
            let what =
                format!("a session of {} positions needs {bytes} bytes of memory, which this machine does not give", model.context());
            Error::new(Class::Request, what).advise("use a shorter --context, or --kv f16").in_file(loaded.path())
        };
        // Asked for in a way that can be refused, and then as zeros, which the system gives page by page when they are first used: most of a long context never is.
        let mut asked: Vec<u32> = Vec::new();
        asked.try_reserve_exact(words).map_err(no_memory)?;
        drop(black_box(asked));
        let arena = vec![0; words];
        Ok(Self { loaded, model: *model, arena })
    }

    /// The model, with context, keys and values, and tokenizer as they were asked for.
    pub fn model(&self) -> &Model<'a> {
        &self.model
    }

    /// Bytes of memory that a session works in.
    pub fn arena_bytes(&self) -> usize {
        size_of_val(self.arena.as_slice())
    }

    /// A session from its beginning. One at a time: it borrows the memory.
    ///
    /// # Errors
    /// Those of [`Session::new`], with the path.
    pub fn session(&mut self, sampler: Sampler) -> Result<Session<'_>> {
        Session::new(&self.model, self.arena.as_mut_slice(), sampler).map_err(|error| self.loaded.explain(error))
    }
}

impl DormouseOptions {
    fn apply<'a>(&self, loaded: &Loaded, model: &Model<'a>) -> Result<Model<'a>> {
        let Some(network) = model.network().dormouse() else {
            if self.decoding.is_none() && self.kda_scale.is_none() && self.factors.is_none() {
                return Ok(*model);
            }
            let what = "is no model of dormouse: --decoding, --kda-scale, --factors and --convention full are for those";
            return Err(Error::new(Class::Request, what).advise("leave them out").in_file(loaded.path()));
        };
        let mut network = *network;
        let request = |error: dmexp_format::Error| Error::new(Class::Request, error.to_string()).in_file(loaded.path());
        if let Some(scale) = self.kda_scale {
            network = network.with_kda_scale(scale).map_err(request)?;
        }
        if let Some(factors) = self.factors {
            let codes = "holds the codes of its ternary factors alone, and can take them in no other way";
            network = network.with_factors(factors).map_err(|_| {
                Error::new(Class::Request, codes).advise("leave --factors out, or use an export of format 1").in_file(loaded.path())
            })?;
        }
        Ok(model.with_dormouse(network).with_decoding(self.decoding.unwrap_or_default()))
    }
}
