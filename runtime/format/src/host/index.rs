//! The one function from header to index (layout: docs/format/index.md). The writers call it to make files, `verify` and `include_model!` to check them.

use super::header::{Config, Header};
use super::{HeaderError, INDEX_LIMIT};
use crate::file::index::{HEAD_LEN, SCHEMA, TENSOR_RECORD_LEN};
use crate::tokenizer::TOKENIZER_RECORD_LEN;

/// The index of a file with this header, which is checked first.
///
/// # Errors
/// [`HeaderError`] with the first rule that the header breaks, or where the index would be longer than the format allows.
pub fn derive_index(header: &Header) -> Result<Vec<u8>, HeaderError> {
    header.check()?;
    let (config, first_array) = match &header.config {
        Config::Llama(settings) => (settings.model.to_record().to_vec(), settings.model.weight_tensors() + 1),
        Config::Dormouse(config) => (config.to_record().to_vec(), header.tensors.len() as u32),
        Config::Sequential(settings) => (settings.to_record(), header.tensors.len() as u32),
    };
    let names = header.tensors.iter().map(|tensor| tensor.spec.name.as_str()).collect::<String>();
    let golden = golden_vectors(header);
    let tokenizer_at = HEAD_LEN + config.len();
    let tensors_at = tokenizer_at + TOKENIZER_RECORD_LEN;
    let golden_at = tensors_at + TENSOR_RECORD_LEN * header.tensors.len();
    let names_at = golden_at + golden.len();
    let len = (names_at + names.len()).next_multiple_of(4);
    if len as u64 > INDEX_LIMIT {
        return Err(HeaderError::wrong("the index", format!("{len} bytes"), format!("at most {INDEX_LIMIT} bytes")));
    }

    let mut index = Vec::with_capacity(len);
    index.extend(SCHEMA.to_le_bytes());
    index.extend((header.arch().code() as u16).to_le_bytes());
    let offset = |at: usize| at as u32;
    let head = [
        header.arithmetic,
        header.tensors.len() as u32,
        offset(tensors_at),
        offset(HEAD_LEN),
        config.len() as u32,
        offset(tokenizer_at),
        TOKENIZER_RECORD_LEN as u32,
        offset(names_at),
        names.len() as u32,
        offset(golden_at),
        golden.len() as u32,
        header.payload_crc32,
    ];
    index.extend(head.into_iter().flat_map(u32::to_le_bytes));
    index.extend(header.num_params().to_le_bytes());
    index.extend([0; 4]);
    index.extend(config);
    index.extend(header.tokenizer.facts(first_array).to_record());
    tensor_records(header, &mut index);
    index.extend(golden);
    index.extend(names.bytes());
    index.resize(len, 0);
    Ok(index)
}

fn tensor_records(header: &Header, index: &mut Vec<u8>) {
    let mut name_at = 0u32;
    for tensor in &header.tensors {
        let spec = &tensor.spec;
        index.extend(name_at.to_le_bytes());
        index.extend((spec.name.len() as u16).to_le_bytes());
        index.extend([spec.dtype.code(), spec.dims.rank() as u8]);
        index.extend(spec.dims.padded().into_iter().flat_map(u32::to_le_bytes));
        index.extend(spec.group.to_le_bytes());
        index.extend(tensor.crc32.to_le_bytes());
        index.extend(tensor.offset.to_le_bytes());
        index.extend(tensor.bytes().to_le_bytes());
        index.extend((u32::from(spec.transposed) | u32::from(!spec.trainable) << 1).to_le_bytes());
        index.extend(0u32.to_le_bytes());
        name_at += spec.name.len() as u32;
    }
}

fn golden_vectors(header: &Header) -> Vec<u8> {
    let mut words = Vec::new();
    for golden in &header.golden {
        words.extend([golden.kv as u32, golden.tokens.len() as u32, golden.positions.len() as u32]);
        words.extend(&golden.tokens);
        for at in &golden.positions {
            words.extend([at.position, at.crc32]);
            words.extend(at.top5);
        }
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}
