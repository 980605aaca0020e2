//! Tests of the reader of Hugging Face models: folders made here, and those of ../shared/data.

mod config;
mod files;
mod forward;
mod made;
mod pytorch;
mod rope;
mod shared;
mod tokenizers;
