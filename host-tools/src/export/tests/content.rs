//! What an export holds: the source's weights, to the bit or narrowed, and every fact around them.

use super::*;
use crate::decode::{golden_check, verify_all};
use crate::export::Phase;
use dmexp_format::host::{Header, HeaderV1};
use sha2::{Digest, Sha256};
use std::fs;

const SHAPES: [Shape; 3] = [
    SMALL,
    Shape { n_kv_heads: 1, tied: false, dim: 24, n_heads: 3, ..SMALL },
    Shape { n_kv_heads: 4, hidden_dim: 21, n_layers: 1, max_seq_len: 3, ..SMALL },
];

fn tokens(shape: &Shape) -> Vec<u32> {
    (0..shape.max_seq_len.min(30)).map(|place| (place * 37 % shape.vocab_size) as u32).collect()
}

#[test]
fn an_f32_export_reproduces_the_source_logits_bit_for_bit() {
    let folder = TempDir::new().unwrap();
    for shape in SHAPES {
        let source = open(shape.random());
        let tokens = tokens(&shape);
        for format in [Format::V1, Format::V2] {
            let options = options(&folder, DType::F32, format);
            export(&source, &options).unwrap();
            for kv in [KvDType::F32, KvDType::F16] {
                let expected = source_logits(&source, &tokens, kv);
                assert!(expected.iter().flatten().any(|logit| logit.abs() > 0.01));
                assert!(bits(&file_logits(&options.out, &tokens, kv)) == bits(&expected), "format {}", format.number());
            }
        }
    }
}

#[test]
fn two_byte_exports_stay_near_the_source() {
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    let tokens = tokens(&SMALL);
    let expected = source_logits(&source, &tokens, KvDType::F32);
    let largest = expected.iter().flatten().fold(0.0f32, |most, logit| most.max(logit.abs()));
    // Half a unit in the last place is 2^-12 of a value in f16 and 2^-9 in bf16; a few of them add up through two layers.
    for (dtype, tolerance) in [(DType::F16, 0.004), (DType::Bf16, 0.03)] {
        let options = options(&folder, dtype, Format::V2);
        export(&source, &options).unwrap();
        let found = file_logits(&options.out, &tokens, KvDType::F32);
        let worst = found.iter().flatten().zip(expected.iter().flatten()).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(worst > 0.0 && worst < tolerance * largest, "{dtype}: {worst} of {largest}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes_wherever_it_lies() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    for format in [Format::V1, Format::V2] {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let files = folders.each_ref().map(|folder| {
                let source = folder.path().join("model.bin");
                fs::write(&source, SMALL.random()).unwrap();
                let options = options(folder, dtype, format);
                export(&checkpoint::open(&source).unwrap(), &options).unwrap();
                fs::read(&options.out).unwrap()
            });
            let [first, second] = &files;
            assert!(first == second, "{dtype}, format {}", format.number());
        }
    }
}

#[test]
fn a_two_byte_format_1_file_is_24_bytes_its_header_and_two_bytes_a_parameter() {
    let folder = TempDir::new().unwrap();
    for shape in SHAPES {
        for dtype in [DType::F16, DType::Bf16] {
            let report = export(&open(shape.random()), &options(&folder, dtype, Format::V1)).unwrap();
            let bytes = fs::read(&report.out).unwrap();
            let header = u32::from_le_bytes(*bytes[8..].first_chunk().unwrap()) as usize;
            assert_eq!(bytes.len(), 24 + header + 2 * shape.params());
            assert_eq!(report.file_bytes, bytes.len() as u64);
            assert_eq!(report.num_params, shape.params() as u64);
            let (header, unknown) = HeaderV1::parse(std::str::from_utf8(&bytes[24..24 + header]).unwrap()).unwrap();
            assert_eq!((header.source.as_str(), header.step, unknown.len()), ("made.bin", 0, 0));
            assert_eq!(header.num_params(), shape.params() as u64);
        }
    }
}

#[test]
fn every_tensor_comes_back_with_name_dims_and_count() {
    let folder = TempDir::new().unwrap();
    let source = open(SHAPES[1].random());
    for format in [Format::V1, Format::V2] {
        let report = export(&source, &options(&folder, DType::Bf16, format)).unwrap();
        let loaded = Loaded::open(&report.out).unwrap();
        let file = loaded.file().unwrap();
        let found: Vec<_> = file.tensors().map(|tensor| (tensor.name.to_owned(), tensor.view.dims())).collect();
        let mut expected: Vec<_> = source.arrays().map(|array| (array.name().to_owned(), array.dims())).collect();
        if format == Format::V2 {
            expected.push(("rope.inv_freq".to_owned(), Dims::vector(4)));
        }
        assert_eq!(found, expected);
        assert_eq!(report.tensors.len(), expected.len());
        let Config::Llama(llama) = &source.config else { panic!("it is a Llama") };
        assert_eq!(file.llama_config().unwrap(), llama.config);
        let mut frequencies = vec![0.0; 4];
        file.rope_inv_freq(&mut frequencies).unwrap();
        assert_eq!(frequencies, llama.inv_freq);
        for tensor in file.tensors() {
            let vector = tensor.view.dims().rank() == 1;
            let expected = if format == Format::V2 && vector { DType::F32 } else { DType::Bf16 };
            assert_eq!(tensor.view.dtype(), expected, "{}", tensor.name);
        }
    }
}

#[test]
fn a_tokenizer_travels_in_format_2() {
    let folder = TempDir::new().unwrap();
    let mut source = open(SMALL.random());
    source.tokenizer = Some(tokenizer(SMALL.vocab_size as u32));
    let report = export(&source, &Options { sha256: true, ..options(&folder, DType::F16, Format::V2) }).unwrap();
    assert_eq!((report.warnings.as_slice(), report.golden), ([].as_slice(), 2));
    let loaded = Loaded::open(&report.out).unwrap();
    let model = loaded.model().unwrap();
    let mut scratch = vec![0; Tokenizer::scratch_words(6)];
    let count = model.tokenizer().encode(b"p260", true, &mut scratch).unwrap();
    assert_eq!(scratch[0], 1);
    assert!(count > 1);
    let (header, _) = Header::parse(loaded.file().unwrap().header_text().unwrap()).unwrap();
    assert_eq!(header.tokenizer.bos, Some(1));
    assert_eq!(header.tokenizer.eos, [2]);
    assert_eq!(header.provenance.source, "made.bin");
    assert_eq!(header.provenance.importer, "llama2.c v0");
    assert_eq!(header.provenance.sha256.as_deref().map(str::len), Some(64));
    // The golden vectors begin with begin-of-text.
    assert!(header.golden.iter().all(|golden| golden.tokens.first() == Some(&1)));
    assert_eq!(header.golden.iter().map(|golden| golden.kv).collect::<Vec<_>>(), [KvDType::F32, KvDType::F16]);
    assert_eq!(golden_check(&loaded).unwrap(), 2);

    let report = export(&source, &options(&folder, DType::F16, Format::V1)).unwrap();
    assert_eq!(report.warnings.len(), 1);
    let loaded = Loaded::open(&report.out).unwrap();
    let facts = loaded.file().unwrap().tokenizer_facts().unwrap();
    assert!((facts.bos, facts.add_bos) == (1, true) && facts.is_eos(2));
}

#[test]
fn the_sha256_is_the_sources() {
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    let report = export(&source, &Options { sha256: true, golden: false, ..options(&folder, DType::F16, Format::V2) }).unwrap();
    let loaded = Loaded::open(&report.out).unwrap();
    let (header, _) = Header::parse(loaded.file().unwrap().header_text().unwrap()).unwrap();
    assert_eq!(header.provenance.sha256, Some(format!("{:x}", Sha256::digest(SMALL.random()))));
    assert!(header.golden.is_empty());
    assert_eq!(report.golden, 0);
}

#[test]
fn figures_are_those_of_the_stored_values() {
    // In f16 the smallest normal is 2^-14, the smallest number 2^-24.
    let special = [1e-9f32, 6e-8, 3.0e-5, -9.0, 0.0];
    let source = open(SMALL.v0(|place| special.get(place).copied().unwrap_or(0.5)));
    let folder = TempDir::new().unwrap();
    let report = export(&source, &options(&folder, DType::F16, Format::V2)).unwrap();
    let figures = report.tensors[0].figures.unwrap();
    assert_eq!((figures.flushed, figures.subnormal), (1, 2));
    assert_eq!((figures.max_abs, figures.min_nonzero_abs), (9.0, 2.0f32.powi(-24)));
    assert_eq!(report.figures, figures.merged(report.tensors[1].figures.unwrap()).merged(report.tensors[2].figures.unwrap()));
    assert!((report.ratio() - report.file_bytes as f64 / (28 + 4 * SMALL.params()) as f64).abs() < 1e-12);
    let report = export(&source, &options(&folder, DType::F16, Format::V1)).unwrap();
    assert_eq!((report.figures.flushed, report.figures.max_abs), (1, 9.0));
}

#[test]
fn a_fresh_export_passes_every_check() {
    let folder = TempDir::new().unwrap();
    let mut source = open(SMALL.random());
    source.tokenizer = Some(tokenizer(SMALL.vocab_size as u32));
    for format in [Format::V1, Format::V2] {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let report = export(&source, &options(&folder, dtype, format)).unwrap();
            let checks = verify_all(&report.out).unwrap();
            assert!(checks.passed(), "{checks:?}");
            let replayed = checks.checks.iter().any(|check| check.name == "golden vectors: 2 replayed");
            assert_eq!(replayed, format == Format::V2);
        }
    }
}

#[test]
fn alignment_is_kept() {
    let folder = TempDir::new().unwrap();
    for alignment in [16, 64, 4096] {
        let report = export(
            &open(SMALL.random()),
            &Options { alignment: Some(alignment), golden: false, ..options(&folder, DType::F16, Format::V2) },
        )
        .unwrap();
        let loaded = Loaded::open(&report.out).unwrap();
        let start = loaded.bytes().as_ptr() as usize;
        for tensor in loaded.file().unwrap().tensors() {
            assert_eq!((tensor.view.bytes().as_ptr() as usize - start) % alignment as usize, 0, "{}", tensor.name);
        }
    }
}

#[test]
fn progress_rises_to_its_total_in_every_phase() {
    let folder = TempDir::new().unwrap();
    let mut seen = Vec::new();
    let source = open(SMALL.random());
    run(&source, &options(&folder, DType::F16, Format::V2), &AtomicBool::new(false), &mut |progress| seen.push(progress)).unwrap();
    for phase in [Phase::Measure, Phase::Write, Phase::Golden, Phase::Verify] {
        let of_phase: Vec<_> = seen.iter().filter(|progress| progress.phase == phase).collect();
        assert!(of_phase.iter().all(|progress| progress.done <= progress.total && progress.total == of_phase[0].total), "{phase:?}");
        assert!(of_phase.len() > 1, "{phase:?}");
    }
    assert_eq!(seen.last().map(|progress| (progress.phase, progress.done)), Some((Phase::Verify, 1)));
}
