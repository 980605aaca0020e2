//! What is written opens again with the same tensors, and bytes that changed between the passes are refused.

use super::tiny::{CONFIG, tiny};
use crate::file::ModelFile;
use crate::host::{
    Golden, GoldenPosition, Header, Measure, TensorSpec, VerifyError, WriteError, derive_index, rewrite_head, strip, to_bytes, verify,
    write_v2,
};
use crate::{DType, Dims, Error, KvDType};
use std::io::Write;

#[test]
fn a_written_file_opens_and_verifies_with_every_tensor() {
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let model = tiny(dtype);
        let bytes = model.file();
        let file = ModelFile::open(&bytes).unwrap();
        assert_eq!(file.llama_config(), Ok(CONFIG));
        assert_eq!(file.num_tensors() as usize, model.tensors.len());
        assert_eq!(file.num_params(), CONFIG.num_params());
        for (tensor, (entry, bytes)) in file.tensors().zip(model.header.tensors.iter().zip(&model.tensors)) {
            assert_eq!(tensor.name, entry.spec.name);
            assert_eq!(tensor.view.dims(), entry.spec.dims);
            assert_eq!(tensor.view.dtype(), entry.spec.dtype);
            assert_eq!(tensor.view.bytes(), bytes.as_slice());
        }
        let (header, unknown) = Header::parse(file.header_text().unwrap()).unwrap();
        assert_eq!((header, unknown), (model.header, vec![]));
        let report = verify(&bytes).unwrap();
        assert!(report.done.contains(&"the index is what the header derives to"), "{report:?}");
        assert_eq!(report.left.iter().map(|left| left.check).collect::<Vec<_>>(), ["flushed", "the tokenizer's arrays"]);
    }
}

#[test]
fn index_and_tensors_lie_at_their_alignment() {
    let mut model = tiny(DType::Bf16);
    for alignment in [16, 64, 4096] {
        let mut measure = Measure::new(alignment).unwrap();
        for (entry, bytes) in model.header.tensors.iter().zip(&model.tensors) {
            measure.tensor(entry.spec.clone(), bytes, 0).unwrap();
        }
        let payload = measure.finish();
        (model.header.tensors, model.header.payload_crc32) = (payload.tensors, payload.crc32);
        let tensors: Vec<_> = model.tensors.iter().map(Vec::as_slice).collect();
        let bytes = to_bytes(&model.header, alignment, &tensors).unwrap();
        let file = ModelFile::open(&bytes).unwrap();
        assert!(file.fixed().index_start().is_multiple_of(16));
        for tensor in file.tensors() {
            assert!((file.fixed().payload_start() + tensor.offset).is_multiple_of(u64::from(alignment)));
        }
        file.verify_payload().unwrap();
    }
    for alignment in [0, 8, 48, 8192] {
        let refused = Measure::new(alignment).unwrap_err().to_string();
        assert!(refused.contains(&alignment.to_string()) && refused.contains("from 16 to 4096"), "{refused}");
    }
    // Laid out for one alignment, written with another: wider or narrower.
    for (laid_out, written, message) in [(16, 4096, "4096, the next multiple"), (4096, 16, "the next multiple of the alignment 16")] {
        let mut measure = Measure::new(laid_out).unwrap();
        let model = tiny(DType::F32);
        for (entry, bytes) in model.header.tensors.iter().zip(&model.tensors) {
            measure.tensor(entry.spec.clone(), bytes, 0).unwrap();
        }
        let header = Header { tensors: measure.finish().tensors, ..model.header };
        let refused = to_bytes(&header, written, &[]).unwrap_err().to_string();
        assert!(refused.contains(message), "{refused}");
    }
}

#[test]
fn measuring_in_pieces_gives_the_same_entries() {
    let model = tiny(DType::Bf16);
    for size in [1, 3, 1000] {
        let mut measure = Measure::new(16).unwrap();
        for (entry, bytes) in model.header.tensors.iter().zip(&model.tensors) {
            let mut sink = measure.begin(entry.spec.clone());
            for piece in bytes.chunks(size) {
                sink.write_all(piece).unwrap();
            }
            sink.finish(0).unwrap();
        }
        let payload = measure.finish();
        assert_eq!(payload.tensors, model.header.tensors);
        assert_eq!(payload.crc32, model.header.payload_crc32);
        assert_eq!(payload.bytes, model.header.payload_bytes());
    }
}

#[test]
fn a_stripped_file_keeps_fingerprint_and_tensors() {
    let bytes = tiny(DType::F16).file();
    let stripped = strip(&bytes).unwrap();
    let (whole, bare) = (ModelFile::open(&bytes).unwrap(), ModelFile::open(&stripped).unwrap());
    assert_eq!(bare.header_text(), None);
    assert_eq!(bare.fingerprint(), whole.fingerprint());
    assert_eq!(bare.payload(), whole.payload());
    assert_eq!(bare.index().unwrap().bytes(), whole.index().unwrap().bytes());
    assert_eq!(strip(&stripped).unwrap(), stripped);
    let report = verify(&stripped).unwrap();
    assert!(report.left.iter().any(|left| left.why.contains("stripped")), "{report:?}");
}

#[test]
fn a_stripped_file_with_another_name_or_shape_is_refused() {
    let stripped = strip(&tiny(DType::F16).file()).unwrap();
    let records = 64 + 64 + 96;
    let name = stripped.windows(14).position(|bytes| bytes == b"tok_embeddings").unwrap();
    // The first two sizes of the first tensor change places: as many elements, another shape.
    let sizes = 32 + records + 8;
    for change in [
        |bytes: &mut [u8], name: usize, _: usize| bytes[name] = b'T',
        |bytes: &mut [u8], _: usize, sizes: usize| {
            let (first, second) = bytes[sizes..sizes + 8].split_at_mut(4);
            first.swap_with_slice(second);
        },
    ] {
        let mut changed = stripped.clone();
        change(&mut changed, name, sizes);
        let index_end = 32 + u32::from_le_bytes(changed[24..28].try_into().unwrap()) as usize;
        let crc = crate::crc32::checksum(&[&changed[..20], &changed[24..index_end]]);
        changed[20..24].copy_from_slice(&crc.to_le_bytes());
        assert!(ModelFile::open(&changed).is_ok());
        match verify(&changed) {
            Err(VerifyError::File(Error::TensorName { tensor: 0 } | Error::Shape { tensor: 0, .. })) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn golden_vectors_get_into_a_written_file() {
    let model = tiny(DType::F32);
    let bytes = model.file();
    let mut header = model.header.clone();
    let position = GoldenPosition { position: 1, crc32: 0x1234_5678, top5: [7, 6, 5, 4, 3] };
    header.golden.push(Golden { kv: KvDType::F16, tokens: vec![1, 4], positions: vec![position] });
    let mut again = Vec::new();
    let length = rewrite_head(&mut again, &bytes, &header).unwrap();
    assert_eq!(length, again.len() as u64);
    let file = ModelFile::open(&again).unwrap();
    let golden = file.golden().next().unwrap();
    assert_eq!(golden.tokens().collect::<Vec<_>>(), [1, 4]);
    assert_eq!(golden.positions().map(|at| (at.position, at.crc32, at.top)).collect::<Vec<_>>(), [(1, 0x1234_5678, [7, 6, 5, 4, 3])]);
    assert_eq!(file.payload(), ModelFile::open(&bytes).unwrap().payload());
    assert!(verify(&again).unwrap().left.iter().any(|left| left.check == "golden vectors"));
    assert_eq!(Header::parse(file.header_text().unwrap()).unwrap().0, header);
}

#[test]
fn bytes_that_change_between_the_passes_are_refused() {
    let model = tiny(DType::F32);
    let mut out = Vec::new();
    let refused = write_v2(&mut out, &model.header, 16, |number, out| {
        let mut bytes = model.tensors[number].clone();
        if number == 2 {
            bytes[5] ^= 1;
        }
        out.write_all(&bytes)
    });
    match refused {
        Err(WriteError::Changed { name, .. }) => assert_eq!(name, model.header.tensors[2].spec.name),
        other => panic!("{other:?}"),
    }
    let short = write_v2(&mut Vec::new(), &model.header, 16, |_, _| Ok(()));
    assert!(matches!(short, Err(WriteError::Changed { .. })));
    let mut header = model.header.clone();
    header.payload_crc32 ^= 1;
    let tensors: Vec<_> = model.tensors.iter().map(Vec::as_slice).collect();
    let refused = to_bytes(&header, 16, &tensors).unwrap_err().to_string();
    assert!(refused.contains("payload_crc32"), "{refused}");
}

#[test]
fn a_tensor_of_the_wrong_size_or_with_nan_is_refused_by_name() {
    let spec = |dtype| TensorSpec { name: "w".into(), dtype, dims: Dims::vector(3), group: 0, trainable: true, transposed: false };
    let refused = Measure::contiguous().tensor(spec(DType::F16), &[0; 8], 0).unwrap_err().to_string();
    assert!(refused.contains("tensor w") && refused.contains("8 bytes") && refused.contains("6 bytes"), "{refused}");
    let values = [1.0, f32::NEG_INFINITY, 2.0].map(f32::to_le_bytes).concat();
    let refused = Measure::contiguous().tensor(spec(DType::F32), &values, 0).unwrap_err().to_string();
    assert!(refused.contains("tensor w, element 1") && refused.contains("-inf"), "{refused}");
}

/// The first bytes worked out by hand from docs/format/index.md.
#[test]
fn the_index_is_as_documented() {
    let model = tiny(DType::Bf16);
    let index = derive_index(&model.header).unwrap();
    let word = |at: usize| u32::from_le_bytes(index[at..at + 4].try_into().unwrap());
    // 11 weights, the frequencies, 4 arrays: 16 records of 56 bytes from 64 + 64 + 96.
    let head: Vec<_> = (0..16).map(|n| word(n * 4)).collect();
    let names: usize = model.header.tensors.iter().map(|tensor| tensor.spec.name.len()).sum();
    let crc = model.header.payload_crc32;
    let params = 8 * 4 + 4 + (4 * 4 + 2 * 4 + 2 * 4 + 4 * 4) + 4 + 3 * 16 + 4;
    assert_eq!(head, [0x0001_0001, 1, 16, 224, 64, 64, 128, 96, 1120, names as u32, 1120, 0, crc, params, 0, 0]);
    let config: Vec<_> = (16..32).map(|n| word(n * 4)).collect();
    assert_eq!(config, [4, 4, 1, 2, 1, 2, 8, 16, 1e-5f32.to_bits(), 0, 1, 0, 1.0f32.to_bits(), 0, 0, 0]);
    let none = u32::MAX;
    let tokenizer: Vec<_> = (32..56).map(|n| word(n * 4)).collect();
    assert_eq!(tokenizer, [2, 8, 3, 1, none, 0, none, 5, 12, 13, 14, 15, 2, none, none, none, none, none, none, none, 0, 0, 0, 0]);
    // tok_embeddings.weight: 21 bytes of name, bf16, [8, 4], 64 bytes at 0, trainable.
    let first: Vec<_> = (56..70).map(|n| word(n * 4)).collect();
    assert_eq!(first, [0, 0x0202_0015, 8, 4, 1, 1, 0, model.header.tensors[0].crc32, 0, 0, 64, 0, 0, 0]);
    // tokenizer.pieces: u8, one axis, not trainable; "<unk><s></s> abab ab" is 20 bytes.
    let pieces: Vec<_> = (56 + 12 * 14..56 + 13 * 14).map(|n| word(n * 4)).collect();
    assert_eq!(pieces[1..6], [0x0106_0010, 20, 1, 1, 1]);
    assert_eq!(pieces[10..], [20, 0, 2, 0]);
    assert!(index[1120..].starts_with(b"tok_embeddings.weightlayers.0.attention_norm.weight"));
    assert_eq!(index.len(), (1120 + names).next_multiple_of(4));
}

#[test]
fn format_1_has_no_index_to_strip_to() {
    let Some(bytes) = super::v1::fixture("default") else { return };
    match strip(&bytes) {
        Err(WriteError::Header(crate::host::HeaderError::Rule(Error::Version { found: 1 }))) => {}
        other => panic!("{other:?}"),
    }
}
