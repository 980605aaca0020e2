//! The runtime on this machine's processor: a model and the memory of one session.

use super::Loaded;
use crate::error::{Class, Error, Result};
use dmexp::tokenizer::Tokenizer;
use dmexp::{Model, Sampler, Session};
use dmexp_format::KvDType;

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
        let mut model = loaded.model()?.with_kv(options.kv);
        if let Some(context) = options.context {
            model = model.with_context(context);
        }
        if let Some(tokenizer) = options.tokenizer {
            let (pieces, vocab_size) = (tokenizer.facts().n_pieces, model.network().config().vocab_size);
            if pieces != vocab_size {
                let what = format!("has {vocab_size} tokens, but the tokenizer has {pieces} pieces");
                return Err(Error::mismatch(what).advise("name the tokenizer that the model was trained with").in_file(loaded.path()));
            }
            model = model.with_tokenizer(tokenizer).map_err(|error| loaded.explain(error))?;
        }
        let bytes = model.arena_len().map_err(|error| loaded.explain(error))?;
        let words = bytes.div_ceil(size_of::<u32>());
        let mut arena = Vec::new();
        arena.try_reserve_exact(words).map_err(|_| {
            let what =
                format!("a session of {} positions needs {bytes} bytes of memory, which this machine does not give", model.context());
            Error::new(Class::Request, what).advise("use a shorter --context, or --kv f16").in_file(loaded.path())
        })?;
        arena.resize(words, 0);
        Ok(Self { loaded, model, arena })
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
