//! A tokenizer from its source, in the form that the runtime borrows: for format-1 files, which carry none.

use crate::checkpoint::TokenizerSource;
use crate::error::{Error, Result};
use dmexp::tokenizer::Tokenizer;
use dmexp_format::tokenizer::TokenizerFacts;
use dmexp_format::{Dims, TensorView};

/// The arrays of a tokenizer, made as the exporter makes them.
#[derive(Clone, Debug)]
pub struct TokenizerArrays {
    facts: TokenizerFacts,
    arrays: [Vec<u8>; 4],
}

impl TokenizerArrays {
    /// The arrays of `source`.
    pub fn new(source: &TokenizerSource) -> Self {
        Self { facts: source.facts, arrays: source.arrays() }
    }

    /// The tokenizer, checked.
    ///
    /// # Errors
    /// What [`Tokenizer::check`] refuses.
    pub fn tokenizer(&self) -> Result<Tokenizer<'_>> {
        let mut views = [TensorView::EMPTY; 4];
        let kinds = self.facts.kind.arrays().into_iter().flatten();
        for ((view, bytes), (number, (_, dtype))) in views.iter_mut().zip(&self.arrays).zip((0..).zip(kinds)) {
            *view = TensorView::new(number, *dtype, Dims::vector((bytes.len() as u64 / dtype.size()) as u32), bytes)?;
        }
        let tokenizer = Tokenizer::from_parts(self.facts, views);
        tokenizer.check().map_err(Error::from)?;
        Ok(tokenizer)
    }
}
