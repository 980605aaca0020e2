//! What a model takes of a board: flash, RAM, stack, the longest context, and how fast it can be. Used by `dmexp plan`.

mod measured;
mod speed;

#[cfg(test)]
mod tests;

pub use measured::Measured;
pub use speed::{Limit, Speed};

use crate::decode::Loaded;
use crate::error::{Error, Result};
use crate::export::DEFAULT_GROUP;
use dmexp_format::arch::Architecture;
use dmexp_format::arch::llama::{LlamaConfig, TensorKind};
use dmexp_format::host::DEFAULT_ALIGNMENT;
use dmexp_format::host::boards::Board;
use dmexp_format::host::fit::{self, Ask, Placement};
use dmexp_format::layout::LlamaLayout;
use dmexp_format::{DType, Dims, KvDType, Planes, VIEW_BYTES_32};

/// The alignment that `include_model!` gives the weights.
const MODEL_ALIGNMENT: u64 = 64;

/// What of a model decides what it takes.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its configuration.
    pub config: LlamaConfig,
    /// Bytes that `include_model!` links: the weights with the tokenizer's arrays, and the table of where they are.
    pub model_bytes: u64,
    /// Types of its matrices, the most used first: type, weights that a token is multiplied with, and their bytes.
    pub matrices: Vec<(DType, u64, u64)>,
    /// Dims of every matrix, for what another type would take, and whether it is the embedding or the classifier.
    dims: Vec<(Dims, bool)>,
    /// Bytes of everything but the matrices.
    rest: u64,
}

impl Facts {
    /// Reads them of a file, whose weights are not looked at.
    ///
    /// # Errors
    /// [`Class::NotAModel`](crate::error::Class::NotAModel) for an architecture that firmware does not run yet; what [`Loaded::model`] refuses.
    pub fn of(loaded: &Loaded) -> Result<Self> {
        let file = loaded.file()?;
        if file.architecture() != Architecture::Llama {
            let what = format!("is a {} model; plans are made for models of the Llama family", file.architecture().name());
            let advice = "dmexp export info says what its weights take";
            return Err(Error::not_a_model(what).advise(advice).in_file(loaded.path()));
        }
        loaded.model()?;
        let config = file.llama_config()?;
        let table = u64::from(config.weight_tensors() + 1) * VIEW_BYTES_32 as u64;
        // Format 1 has its frequencies in the configuration: they become one more static.
        let frequencies = if file.version() == 1 { (u64::from(config.head_dim / 2) * 4).next_multiple_of(MODEL_ALIGNMENT) } else { 0 };
        let model_bytes = (file.payload().len() as u64).next_multiple_of(MODEL_ALIGNMENT) + frequencies + table;
        let (mut matrices, mut dims, mut matrix_bytes) = (Vec::<(DType, u64, u64)>::new(), Vec::new(), 0);
        for tensor in file.tensors().take(config.weight_tensors() as usize).filter(|tensor| tensor.view.dims().rank() == 2) {
            let (dtype, count, bytes) = (tensor.view.dtype(), tensor.view.dims().count(), tensor.view.bytes().len() as u64);
            matrix_bytes += bytes;
            let kind = config.tensor(tensor.number).map(|wanted| wanted.kind);
            dims.push((tensor.view.dims(), matches!(kind, Some(TensorKind::TokEmbeddings | TensorKind::Output))));
            // The embedding is read row by row, unless it is the classifier too.
            let (count, bytes) = if tensor.number == 0 && !config.tied_embeddings { (0, 0) } else { (count, bytes) };
            match matrices.iter_mut().find(|(known, ..)| *known == dtype) {
                Some((_, counts, sum)) => (*counts, *sum) = (*counts + count, *sum + bytes),
                None => matrices.push((dtype, count, bytes)),
            }
        }
        matrices.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
        Ok(Self { config, model_bytes, matrices, dims, rest: model_bytes.saturating_sub(matrix_bytes) })
    }

    /// Bytes of weights that are read for a token.
    pub fn bytes_per_token(&self) -> u64 {
        self.matrices.iter().map(|(.., bytes)| bytes).sum()
    }

    /// The set of code that runs it.
    fn code_set(&self) -> &'static str {
        match self.matrices.as_slice() {
            [(dtype, ..)] => dtype.name(),
            // The exporter keeps the embedding of a q4 model in q8.
            [(DType::Q4, ..), (DType::Q8, ..)] | [(DType::Q8, ..), (DType::Q4, ..)] => DType::Q4.name(),
            _ => measured::EVERY_TYPE,
        }
    }

    /// What to do about a model that has no more than `room` bytes.
    fn smaller(&self, room: u64) -> String {
        let smaller = [DType::Bf16, DType::Q8, DType::Q4].map(|dtype| (dtype, self.bytes_in(dtype)));
        match smaller.iter().find(|(_, bytes)| *bytes <= room) {
            Some((dtype, bytes)) => format!("what fits: an export with --dtype {dtype}, about {bytes} bytes"),
            None => format!("in q4 it would be about {} bytes: take a larger chip or a smaller model", self.bytes_in(DType::Q4)),
        }
    }

    /// About how many bytes the model would be with all matrices in `dtype`.
    fn bytes_in(&self, dtype: DType) -> u64 {
        let of = |(dims, is_outer): &(Dims, bool)| {
            // As the exporter does by itself: the embedding and the classifier of a q4 model in q8, and rows that are not longer than a group in one.
            let dtype = if *is_outer && dtype == DType::Q4 { DType::Q8 } else { dtype };
            let grouped = matches!(dtype, DType::Q8 | DType::Q4) && dims.cols() > DEFAULT_GROUP;
            let planes = Planes::new(0, dtype, *dims, if grouped { DEFAULT_GROUP } else { 0 }).ok();
            planes.map_or(0, |planes| planes.bytes.next_multiple_of(u64::from(DEFAULT_ALIGNMENT)))
        };
        self.rest + self.dims.iter().map(of).sum::<u64>()
    }
}

/// What a model takes of a board.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The board.
    pub board: &'static Board,
    /// Positions.
    pub context: u32,
    /// How keys and values are kept.
    pub kv: KvDType,
    /// Bytes of the model, as it is linked.
    pub model_bytes: u64,
    /// Bytes of code of a firmware that tells a story with such a model, as it was measured on this core; `None` where it was not.
    pub code: Option<u64>,
    /// Which firmware that was.
    pub code_set: &'static str,
    /// Bytes of flash for the model: what the code and the drivers leave, or a memory of its own.
    pub model_room: u64,
    /// The session's memory.
    pub layout: LlamaLayout,
    /// Where it goes; `None` where it does not fit.
    pub placement: Option<Placement>,
    /// The most positions that fit the RAM.
    pub largest_context: Option<u32>,
    /// How fast it can be.
    pub speed: Option<Speed>,
    /// Why it does not fit, and what would.
    pub refusals: Vec<String>,
}

/// As the options of `dmexp plan` are written.
struct Options;

impl Ask for Options {
    fn context(&self, context: u32) -> String {
        format!("--context {context}")
    }

    fn kv(&self, kv: KvDType) -> String {
        format!("--kv {}", kv.name())
    }
}

impl Plan {
    /// The plan for `context` positions (`None`: what the model was trained for).
    ///
    /// # Errors
    /// Those of [`LlamaLayout::new`].
    pub fn new(facts: &Facts, board: &'static Board, context: Option<u32>, kv: KvDType) -> Result<Self> {
        let measured = Measured::table();
        let config = &facts.config;
        let context = context.unwrap_or(config.max_seq_len);
        let layout = LlamaLayout::new(config, context, kv)?;
        let banks = board.free();
        let placement = fit::place(&layout, &banks);
        let code_set = facts.code_set();
        let code = measured.code(board.core, code_set);
        let mut refusals = Vec::new();
        if placement.is_none() {
            refusals.push(fit::refusal(config, (context, kv), &layout, &banks, board.name, &Options));
        }
        let program_bytes = code.unwrap_or(0) + board.drivers;
        let model_room = if board.model > 0 { board.model } else { board.code.saturating_sub(program_bytes) };
        if facts.model_bytes > model_room {
            let (bytes, smaller) = (facts.model_bytes, facts.smaller(model_room));
            let beside = if board.model > 0 { "" } else { " beside the code" };
            refusals.push(format!("the model is {bytes} bytes, and {} has room for {model_room}{beside}; {smaller}", board.name));
        }
        Ok(Self {
            board,
            context,
            kv,
            model_bytes: facts.model_bytes,
            code,
            code_set,
            model_room,
            layout,
            placement,
            largest_context: fit::largest_context(config, kv, &banks),
            speed: Speed::estimate(facts, board, kv, &measured),
            refusals,
        })
    }

    /// The most positions whose arena has room in the first bank of a board.
    pub(crate) fn largest_in_first_bank(facts: &Facts, board: &Board, kv: KvDType) -> Option<u32> {
        fit::largest_context(&facts.config, kv, board.free().get(..1)?)
    }

    /// Whether it fits flash and RAM.
    pub fn fits(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Bytes of flash that code takes: what was measured, and what is kept for drivers.
    pub fn program_bytes(&self) -> u64 {
        self.code.unwrap_or(0) + self.board.drivers
    }

    /// Bytes of statics: the arenas with their cells.
    pub fn static_bytes(&self) -> u64 {
        let cells = 1 + u64::from(matches!(self.placement, Some(Placement::Two { .. })));
        self.layout.total_bytes.next_multiple_of(8) as u64 + cells * fit::CELL_BYTES
    }
}
