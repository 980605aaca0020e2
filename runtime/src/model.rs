//! A network with its tokenizer, ready for sessions.

#[cfg(not(target_os = "none"))]
use crate::accelerator::{self, Accelerator, Away};
#[cfg(all(feature = "files", feature = "llama"))]
use crate::arena::Memory;
#[cfg(all(feature = "files", feature = "llama", feature = "dormouse"))]
use crate::format::arch::Architecture;
#[cfg(feature = "dormouse")]
use crate::format::arch::dormouse::layout::{Decoding, DormouseLayout};
#[cfg(feature = "llama")]
use crate::format::arch::llama::LlamaConfig;
#[cfg(all(feature = "files", feature = "llama"))]
use crate::format::arch::llama::TensorSpec;
#[cfg(feature = "files")]
use crate::format::file::ModelFile;
#[cfg(feature = "llama")]
use crate::format::layout::LlamaLayout;
use crate::format::tokenizer::TokenizerKind;
use crate::format::{Error, KvDType, Rule, TokenizerKey};
#[cfg(feature = "dormouse")]
use crate::models::dormouse::{self, Dormouse};
#[cfg(feature = "llama")]
use crate::models::llama::{self, Llama};
use crate::network::{Network, State};
use crate::tokenizer::Tokenizer;

/// A network with its tokenizer and the choices that decide how much memory a session needs.
///
/// ```
/// # use dmexp::{Model, format::file::ModelFile};
/// let bytes = std::fs::read("examples/tiny.dmexp")?;
/// let model = Model::bind(&ModelFile::open(&bytes)?)?;
/// assert_eq!(model.context(), 64);
/// // What a session takes grows with the context.
/// assert!(model.with_context(16).arena_len()? < model.arena_len()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
#[cfg_attr(target_os = "none", derive(Debug))]
pub struct Model<'a> {
    pub(crate) network: Network<'a>,
    pub(crate) tokenizer: Tokenizer<'a>,
    pub(crate) context: u32,
    kv: KvDType,
    #[cfg(feature = "llama")]
    layout: Layout,
    #[cfg(feature = "dormouse")]
    decoding: Decoding,
    /// Positions that are fed at once.
    #[cfg(not(target_os = "none"))]
    block: u32,
    #[cfg(not(target_os = "none"))]
    pub(crate) accelerator: Option<&'a dyn Accelerator>,
}

/// The parts of a session's memory, of a Llama.
#[cfg(feature = "llama")]
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Known since the program was compiled.
    Known(&'static LlamaLayout),
    /// Not known before there is a session. What finds them is not called by its name, so that firmware which never comes here need not hold it.
    Unknown(fn(&LlamaConfig, u32, KvDType) -> Result<LlamaLayout, Error>),
}

#[cfg(feature = "llama")]
impl Layout {
    const UNKNOWN: Self = Self::Unknown(LlamaLayout::new);
}

#[cfg(not(target_os = "none"))]
impl core::fmt::Debug for Model<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Model")
            .field("network", &self.network)
            .field("context", &self.context)
            .field("kv", &self.kv)
            .finish_non_exhaustive()
    }
}

impl<'a> Model<'a> {
    /// The model of an opened file, with the context that it was trained for and keys and values in f16.
    ///
    /// # Errors
    /// Those of [`Llama::bind`] or [`Dormouse::bind`], and of [`Tokenizer::bind`].
    #[cfg(feature = "files")]
    pub fn bind(file: &ModelFile<'a>) -> Result<Self, Error> {
        #[cfg(not(feature = "llama"))]
        return Dormouse::bind(file).map(Self::from_dormouse);
        #[cfg(all(feature = "llama", feature = "dormouse"))]
        if file.architecture() == Architecture::Dormouse {
            return Dormouse::bind(file).map(Self::from_dormouse);
        }
        #[cfg(feature = "llama")]
        Llama::check(file).and_then(|()| Self::of_checked(file))
    }

    #[cfg(all(feature = "files", feature = "llama"))]
    #[inline(never)]
    fn of_checked(file: &ModelFile<'a>) -> Result<Self, Error> {
        let network = Llama::of_checked(file)?;
        let context = network.config().max_seq_len;
        Ok(Self::from_parts(network, Tokenizer::bind(file)?, context, KvDType::default()))
    }

    /// A model of parts that were checked before.
    #[cfg(feature = "llama")]
    pub const fn from_parts(network: Llama<'a>, tokenizer: Tokenizer<'a>, context: u32, kv: KvDType) -> Self {
        Self {
            network: Network::Llama(network),
            tokenizer,
            context,
            kv,
            layout: Layout::UNKNOWN,
            #[cfg(feature = "dormouse")]
            decoding: Decoding::Exact,
            #[cfg(not(target_os = "none"))]
            block: 0,
            #[cfg(not(target_os = "none"))]
            accelerator: None,
        }
    }

    /// A dormouse model, decoded exactly, with the context that it was trained for; its tokens are bytes.
    #[cfg(feature = "dormouse")]
    pub const fn from_dormouse(network: Dormouse<'a>) -> Self {
        let context = network.config().max_seq_len;
        let tokenizer = match network.config().vocab {
            256 => Tokenizer::BYTES,
            // Some bytes would have no token, or some tokens no byte.
            _ => Tokenizer::NONE,
        };
        Self {
            network: Network::Dormouse(network),
            tokenizer,
            context,
            kv: KvDType::F32,
            #[cfg(feature = "llama")]
            layout: Layout::UNKNOWN,
            decoding: Decoding::Exact,
            #[cfg(not(target_os = "none"))]
            block: 0,
            #[cfg(not(target_os = "none"))]
            accelerator: None,
        }
    }

    /// The same model with old positions treated in another way, if it is a dormouse model. Others have one way alone.
    #[cfg(feature = "dormouse")]
    #[must_use]
    pub const fn with_decoding(self, decoding: Decoding) -> Self {
        Self { decoding, ..self }
    }

    /// How old positions are treated, if it is a dormouse model.
    #[cfg(feature = "dormouse")]
    pub const fn decoding(&self) -> Decoding {
        self.decoding
    }

    /// The same model with other settings of its network: see [`Dormouse::with_kda_scale`] and [`Dormouse::with_factors`].
    #[cfg(feature = "dormouse")]
    #[must_use]
    pub const fn with_dormouse(self, network: Dormouse<'a>) -> Self {
        Self { network: Network::Dormouse(network), ..self }
    }

    /// The same model with sessions whose work the threads of `executor` share, if it is a Llama.
    #[cfg(not(target_os = "none"))]
    #[must_use]
    pub fn with_executor(mut self, executor: &'a dyn crate::executor::Executor) -> Self {
        self.network.set_crew(crate::ops::crew::Crew::new(executor));
        self
    }

    /// The same model with sessions that feed up to `positions` known tokens at once, 64 at most, if it is a Llama: matrices are read once for all of them, which takes more memory
    /// ([`Model::arena_len`] knows). The results do not depend on it.
    #[cfg(not(target_os = "none"))]
    #[must_use]
    pub const fn with_block(mut self, positions: u32) -> Self {
        self.block = positions;
        self
    }

    /// The same model with sessions that `accelerator` computes: it has the weights, and room for as many positions as the context has, keys and values kept as [`Model::kv`] says. The results do not
    /// depend on it.
    #[cfg(not(target_os = "none"))]
    #[must_use]
    pub fn with_accelerator(mut self, accelerator: &'a dyn Accelerator) -> Self {
        self.accelerator = Some(accelerator);
        self
    }

    /// Whether an accelerator computes it.
    #[cfg(all(feature = "llama", not(target_os = "none")))]
    pub(crate) const fn is_away(&self) -> bool {
        self.accelerator.is_some()
    }

    /// What a session of a Llama has beside the memory of steps, if anything.
    #[cfg(all(feature = "llama", not(target_os = "none")))]
    fn block_layout(&self, network: &Llama<'_>) -> Result<Option<llama::block::BlockLayout>, Error> {
        let slots = network.crew.slots();
        if self.block < 2 && slots < 3 {
            return Ok(None);
        }
        llama::block::BlockLayout::new(network.config(), self.context, (self.block, llama::block::LOGITS), slots).map(Some)
    }

    /// Bytes for that.
    #[cfg(feature = "llama")]
    fn block_bytes(&self, network: &Llama<'_>) -> Result<usize, Error> {
        #[cfg(not(target_os = "none"))]
        return Ok(self.block_layout(network)?.map_or(0, |block| block.bytes()));
        #[cfg(target_os = "none")]
        {
            let _ = network;
            Ok(0)
        }
    }

    /// The same model with its layout, which is that of [`LlamaLayout::new`] for its context and its keys and values: what `include_model!` writes.
    #[cfg(feature = "llama")]
    #[doc(hidden)]
    #[must_use]
    pub const fn with_layout(mut self, layout: &'static LlamaLayout) -> Self {
        self.layout = Layout::Known(layout);
        self
    }

    /// The same model with room for `context` positions. Checked by [`Session::new`](crate::Session::new).
    #[must_use]
    pub const fn with_context(mut self, context: u32) -> Self {
        self.set_context(context);
        self
    }

    /// [`Model::with_context`] where the model lies: no stack holds it twice.
    pub const fn set_context(&mut self, context: u32) {
        self.context = context;
        self.forget_layout();
    }

    /// The same model with keys and values kept as `kv`; a dormouse model keeps its own, where it has any, in f32 whatever is asked for.
    #[must_use]
    pub const fn with_kv(mut self, kv: KvDType) -> Self {
        self.set_kv(kv);
        self
    }

    /// [`Model::with_kv`] where the model lies: no stack holds it twice.
    pub const fn set_kv(&mut self, kv: KvDType) {
        #[cfg(feature = "dormouse")]
        if self.network.dormouse().is_some() {
            return;
        }
        self.kv = kv;
        self.forget_layout();
    }

    const fn forget_layout(&mut self) {
        #[cfg(feature = "llama")]
        {
            self.layout = Layout::UNKNOWN;
        }
    }

    /// The same model with another tokenizer (format-1 files carry none).
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if it has not as many pieces as the model has tokens: it is another model's.
    pub const fn with_tokenizer(self, tokenizer: Tokenizer<'a>) -> Result<Self, Error> {
        let (found, allowed) = (tokenizer.facts().n_pieces as u64, self.network.vocab_size() as u64);
        match tokenizer.facts().kind {
            TokenizerKind::None => (),
            _ if found == allowed => (),
            _ => return Err(Error::Tokenizer { key: TokenizerKey::VocabSize, rule: Rule::Equal, found, allowed }),
        }
        Ok(Self { tokenizer, ..self })
    }

    /// Bytes of memory that [`Model::copy_to_ram`] needs for the tensors of a Llama that `chosen` says yes to; 0 of a dormouse model, which it refuses.
    #[cfg(all(feature = "files", feature = "llama"))]
    pub fn ram_len(&self, chosen: impl Fn(&TensorSpec) -> bool) -> u64 {
        self.network.llama().map_or(0, |network| network.ram_len(chosen))
    }

    /// Copies the tensors of a Llama that `chosen` says yes to into `memory`, an [`Arena`](crate::Arena) of [`Model::ram_len`] bytes, and reads them there from now on: for chips whose flash is slow. The
    /// results stay the same. Where it is called again, the new choice takes the place of the last one.
    ///
    /// ```ignore
    /// let mut model = Model::bind(&file)?;
    /// model.copy_to_ram(|tensor| matches!(tensor.kind, TensorKind::Wq | TensorKind::Wk) && tensor.layer == Some(0), RAM.take())?;
    /// ```
    ///
    /// # Errors
    /// [`Error::CopiesTooLarge`], with the bytes that are needed; [`Error::TooLargeForTarget`] for 16 GiB and more; [`Error::OtherArchitecture`] for a dormouse model, whose tensors stay where they
    /// are. The model stays as it was.
    #[cfg(all(feature = "files", feature = "llama"))]
    pub fn copy_to_ram<M: Memory + ?Sized>(&mut self, chosen: impl Fn(&TensorSpec) -> bool, memory: &'a mut M) -> Result<(), Error> {
        match &mut self.network {
            Network::Llama(network) => network.copy_to_ram(chosen, memory.words()),
            #[cfg(feature = "dormouse")]
            Network::Dormouse(_) => {
                Err(Error::OtherArchitecture { found: Architecture::Dormouse.code(), expected: Architecture::Llama.code() })
            }
        }
    }

    /// The network.
    pub const fn network(&self) -> &Network<'a> {
        &self.network
    }

    /// The tokenizer.
    pub const fn tokenizer(&self) -> &Tokenizer<'a> {
        &self.tokenizer
    }

    /// Positions of the context.
    pub const fn context(&self) -> u32 {
        self.context
    }

    /// How keys and values are kept.
    pub const fn kv(&self) -> KvDType {
        self.kv
    }

    /// Bytes of arena that a session needs.
    ///
    /// # Errors
    /// Those of [`LlamaLayout::new`] or [`DormouseLayout::new`].
    pub fn arena_len(&self) -> Result<usize, Error> {
        #[cfg(not(target_os = "none"))]
        if self.accelerator.is_some() {
            return accelerator::arena_len(self.context, self.network.vocab_size(), self.network.dim());
        }
        match &self.network {
            #[cfg(feature = "llama")]
            Network::Llama(network) => Ok(self.layout(network)?.total_bytes.saturating_add(self.block_bytes(network)?)),
            #[cfg(feature = "dormouse")]
            Network::Dormouse(network) => {
                DormouseLayout::new(network.config(), self.context, self.decoding).map(|layout| layout.total_bytes)
            }
        }
    }

    /// Bytes of memory that a session in two banks needs: for keys and values (of a dormouse model: for what is kept of the positions before), and for everything else. Together they are
    /// [`Model::arena_len`].
    ///
    /// # Errors
    /// Those of [`Model::arena_len`].
    pub fn bank_lens(&self) -> Result<(usize, usize), Error> {
        match &self.network {
            #[cfg(feature = "llama")]
            Network::Llama(network) => {
                let layout = self.layout(network)?;
                Ok((layout.kv_bytes, layout.work_bytes().saturating_add(self.block_bytes(network)?)))
            }
            #[cfg(feature = "dormouse")]
            Network::Dormouse(network) => {
                let layout = DormouseLayout::new(network.config(), self.context, self.decoding)?;
                Ok((layout.past_bytes(), layout.total_bytes.saturating_sub(layout.past_bytes())))
            }
        }
    }

    #[cfg(feature = "llama")]
    fn layout(&self, network: &Llama<'_>) -> Result<LlamaLayout, Error> {
        match self.layout {
            Layout::Known(layout) => Ok(*layout),
            Layout::Unknown(find) => find(network.config(), self.context, self.kv),
        }
    }

    /// What a session keeps, in `memory` or, with `work`, in two banks.
    pub(crate) fn state<'m>(&self, memory: &'m mut [u32], work: Option<&'m mut [u32]>) -> Result<State<'m>, Error>
    where
        'a: 'm,
    {
        #[cfg(not(target_os = "none"))]
        if let Some(accelerator) = self.accelerator {
            // What keeps a session from having this context here keeps it from having it there.
            match &self.network {
                #[cfg(feature = "llama")]
                Network::Llama(network) => drop(self.layout(network)?),
                #[cfg(feature = "dormouse")]
                Network::Dormouse(network) => drop(DormouseLayout::new(network.config(), self.context, self.decoding)?),
            }
            let sizes = (self.context, self.network.vocab_size(), self.network.dim());
            return Away::new(accelerator, sizes, work.unwrap_or(memory)).map(State::Away);
        }
        match &self.network {
            #[cfg(feature = "llama")]
            Network::Llama(network) => {
                #[cfg(not(target_os = "none"))]
                let block = self.block_layout(network)?;
                llama::State::new(
                    network,
                    &self.layout(network)?,
                    (self.context, self.kv),
                    #[cfg(not(target_os = "none"))]
                    block,
                    memory,
                    work,
                )
                .map(State::Llama)
            }
            #[cfg(feature = "dormouse")]
            Network::Dormouse(network) => {
                let layout = DormouseLayout::new(network.config(), self.context, self.decoding)?;
                dormouse::State::new(network, &layout, (self.context, self.decoding), memory, work).map(State::Dormouse)
            }
        }
    }
}
