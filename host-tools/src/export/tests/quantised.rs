//! Exports in q8, q4 and t2: what they cost in fidelity, what they hold, what they refuse.

use super::*;
use crate::compare::{Divergence, Meter, divergence::best};
use dmexp_format::file::ModelFile;
use std::fs;

/// The logits of the values that a file's codes and scales stand for, in f32 arithmetic: what only the weights lose.
fn widened_logits(path: &Path, tokens: &[u32]) -> Vec<Vec<f32>> {
    let bytes = fs::read(path).unwrap();
    let file = ModelFile::open(&bytes).unwrap();
    let config = file.llama_config().unwrap();
    let widened: Vec<(Dims, Vec<u8>)> = file
        .tensors()
        .take(config.weight_tensors() as usize + 1)
        .map(|tensor| {
            let values = (0..tensor.view.dims().count() as usize).flat_map(|element| tensor.view.get_f32(element).to_le_bytes());
            (tensor.view.dims(), values.collect())
        })
        .collect();
    let table: Vec<_> = widened.iter().map(|(dims, bytes)| TensorView::new(0, DType::F32, *dims, bytes).unwrap()).collect();
    let model = Model::from_parts(Llama::from_table(config, &table), Tokenizer::NONE, tokens.len() as u32, KvDType::F32);
    let mut arena = vec![0u32; model.arena_len().unwrap().div_ceil(4)];
    rows(&mut Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap(), tokens)
}

fn divergence(reference: &[Vec<f32>], found: &[Vec<f32>]) -> Divergence {
    let mut meter = Meter::new();
    for (a, b) in reference.iter().zip(found) {
        assert!(meter.add(a, b, None));
    }
    meter.divergence().unwrap()
}

/// The greedy path of stories260K and its logits in double precision.
fn greedy_reference() -> Option<(Checkpoint, Vec<u32>, Vec<Vec<f32>>)> {
    let (model, greedy, logits) =
        (data("stories260K/stories260K.bin")?, data("ref/stories260K_greedy.json")?, data("ref/stories260K_greedy_logits_f64.f32")?);
    let json: serde_json::Value = serde_json::from_slice(&fs::read(greedy).unwrap()).unwrap();
    let tokens = json["fed_tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap() as u32).collect();
    let floats: Vec<f32> = fs::read(logits).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    Some((checkpoint::open(&model).unwrap(), tokens, floats.chunks(512).map(<[f32]>::to_vec).collect()))
}

#[test]
fn stories260k_keeps_its_text_in_q8_and_loses_little_in_q4() {
    let Some((source, tokens, reference)) = greedy_reference() else { return };
    let folder = TempDir::new().unwrap();
    let measure = |dtype: DType, group: u32, select: &[&str]| {
        let options = Options {
            group,
            select: select.iter().map(|text| text.parse().unwrap()).collect(),
            golden: false,
            ..options(&folder, dtype, Format::V2)
        };
        let report = export(&source, &options).unwrap();
        let found = file_logits(&report.out, &tokens, KvDType::F32);
        let figures = divergence(&reference, &found);
        let same = reference.iter().zip(&found).take_while(|(a, b)| best(a) == best(b)).count();
        println!(
            "{dtype} groups of {group} {select:?}: {} bytes, KL {:.3e}, top-1 {:.4}, the same best token for {same} positions",
            report.file_bytes, figures.kl, figures.top1
        );
        // The kernels lose nothing that the weights did not lose: activations have 16 bits.
        let kernels = divergence(&widened_logits(&report.out, &tokens), &found).kl;
        assert!(kernels < 1e-5, "{kernels}");
        // What `include_model!` links: the payload, some 40 bytes a tensor that say where it lies, and 8.4 KB of tokenizer, which this export has not.
        let bytes = fs::read(&report.out).unwrap();
        let file = ModelFile::open(&bytes).unwrap();
        let linked = file.payload().len() + 40 * file.num_tensors() as usize + 8400;
        let most = if dtype == DType::Q8 {
            300_000
        } else if select.is_empty() {
            220_000
        } else {
            185_000
        };
        assert!(linked <= most, "{linked}");
        (figures.kl, same)
    };
    let (kl, same) = measure(DType::Q8, 32, &[]);
    assert!(kl <= 3e-4 && same >= 100, "{kl} {same}");
    let (kl, _) = measure(DType::Q8, 0, &[]);
    assert!(kl <= 1e-3, "{kl}");
    let (kl, _) = measure(DType::Q4, 32, &[]);
    assert!(kl <= 0.05, "{kl}");
    let (kl, _) = measure(DType::Q4, 16, &[]);
    assert!(kl <= 0.05, "{kl}");
    let (kl, _) = measure(DType::Q4, 32, &["*=q4"]);
    assert!(kl <= 0.09, "{kl}");
}

#[test]
fn tensors_are_stored_as_they_were_selected() {
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    let dtypes = |dtype: DType, group: u32, select: &[&str]| {
        let select = select.iter().map(|text| text.parse().unwrap()).collect();
        let report = export(&source, &Options { group, select, golden: true, ..options(&folder, dtype, Format::V2) }).unwrap();
        let checks = crate::decode::verify_all(&report.out).unwrap();
        assert!(checks.passed(), "{checks:?}");
        assert_eq!(report.golden, 2);
        let stripped = dmexp_format::host::strip(&fs::read(&report.out).unwrap()).unwrap();
        assert_eq!(ModelFile::open(&stripped).unwrap().fingerprint(), report.fingerprint);
        let stored = |name: &str| {
            let entry = report.tensors.iter().find(|entry| entry.spec.name == name).unwrap();
            (entry.spec.dtype, entry.spec.group)
        };
        ["tok_embeddings.weight", "layers.0.attention.wq.weight", "layers.1.feed_forward.w2.weight", "norm.weight"].map(stored)
    };
    let f32 = (DType::F32, 0);
    // Rows of 16 are one group of 32, rows of 24 too.
    assert_eq!(dtypes(DType::Q8, 32, &[]), [(DType::Q8, 0), (DType::Q8, 0), (DType::Q8, 0), f32]);
    assert_eq!(dtypes(DType::Q8, 8, &[]), [(DType::Q8, 8), (DType::Q8, 8), (DType::Q8, 8), f32]);
    assert_eq!(dtypes(DType::Q4, 16, &[]), [(DType::Q8, 0), (DType::Q4, 0), (DType::Q4, 16), f32]);
    assert_eq!(dtypes(DType::Q4, 8, &["*=q4"]), [(DType::Q4, 8), (DType::Q4, 8), (DType::Q4, 8), f32]);
    let mixed = dtypes(DType::Bf16, 8, &["layers.*=q8", "layers.1.*=q4:16", "tok_embeddings.weight=f16"]);
    assert_eq!(mixed, [(DType::F16, 0), (DType::Q8, 8), (DType::Q4, 16), f32]);
}

#[test]
fn requests_that_name_nothing_or_cannot_be_met_are_refused() {
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    let refused = |change: &dyn Fn(&mut Options)| {
        let mut options = options(&folder, DType::Q8, Format::V2);
        change(&mut options);
        let error = export(&source, &options).unwrap_err();
        assert!(!options.out.exists());
        error.to_string()
    };
    let select = |text: &str| vec![text.parse().unwrap()];
    let text = refused(&|options| options.select = select("output.weight=q8"));
    assert!(text.contains("no tensor of this model is called \"output.weight\"") && text.contains("tok_embeddings.weight"), "{text}");
    let text = refused(&|options| options.select = select("*norm.weight=q8"));
    assert!(text.contains("vectors"), "{text}");
    let text = refused(&|options| options.group = 12);
    assert!(text.contains("groups of 12") && text.contains("multiple of 8"), "{text}");
    let text = refused(&|options| options.format = Format::V1);
    assert!(text.contains("format 1"), "{text}");
    let text = refused(&|options| options.dtype = DType::T2);
    assert!(text.contains("t2 holds 0 and one value") && text.contains("--dtype q8"), "{text}");
}

#[test]
fn quantised_sources_are_coded_again_from_their_own_codes() {
    let (Some(derived), Some(reference), Some((_, tokens, _))) = (data("stories260K-derived"), data("ref"), greedy_reference()) else {
        return;
    };
    let folder = TempDir::new().unwrap();
    // Groups of 64 straddle the rows of w2, which have 172 elements.
    for group in [4, 64] {
        let source = checkpoint::open(&derived.join(format!("stories260K_v2_q80_gs{group}.bin"))).unwrap();
        let path = reference.join(format!("stories260K_q80_gs{group}_weightsonly_f64_logits_on_greedy_path.f32"));
        let floats: Vec<f32> = fs::read(path).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let reference: Vec<_> = floats.chunks(512).map(<[f32]>::to_vec).collect();
        let report = export(&source, &Options { golden: false, ..options(&folder, DType::Q8, Format::V2) }).unwrap();
        let found = file_logits(&report.out, &tokens[..reference.len()], KvDType::F32);
        let figures = divergence(&reference, &found);
        println!("q80 in groups of {group} as q8: KL {:.3e} from the source's own values, top-1 {}", figures.kl, figures.top1);
        assert!(figures.kl < 3e-4, "{}", figures.kl);
    }
}

#[test]
fn the_same_source_gives_the_same_file_and_a_small_model_in_q4_a_warning() {
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    let options = options(&folder, DType::Q4, Format::V2);
    let report = export(&source, &options).unwrap();
    assert!(report.warnings.iter().any(|warning| warning.contains("q4 is coarse for a model of")), "{:?}", report.warnings);
    let first = fs::read(&options.out).unwrap();
    export(&source, &options).unwrap();
    assert!(fs::read(&options.out).unwrap() == first);
    assert!(!export(&source, &Options { dtype: DType::Q8, ..options }).unwrap().warnings.iter().any(|warning| warning.contains("q4")));
}

/// The same on every machine: the search is IEEE arithmetic in a fixed order.
#[test]
fn quantised_files_are_known_by_their_fingerprints() {
    let folder = TempDir::new().unwrap();
    let source = open(SMALL.random());
    for (dtype, fingerprint) in [(DType::Q8, 0x8c12_37de), (DType::Q4, 0xdfb4_4ca5)] {
        let report = export(&source, &Options { golden: false, group: 8, ..options(&folder, dtype, Format::V2) }).unwrap();
        assert_eq!(report.fingerprint, fingerprint, "{dtype}: {:#010x}", report.fingerprint);
    }
}

#[test]
fn the_report_says_what_a_text_shows_of_the_loss() {
    let folder = TempDir::new().unwrap();
    let mut source = open(SMALL.random());
    let text = folder.path().join("text");
    fs::write(&text, "a text of more than one window: ".repeat(25)).unwrap();
    let with = |dtype: DType, text: &Path| Options { quality: Some(text.to_path_buf()), ..options(&folder, dtype, Format::V2) };
    let error = export(&source, &with(DType::Q8, &text)).unwrap_err().to_string();
    assert!(error.contains("no tokenizer") && error.contains("--tokenizer"), "{error}");
    source.tokenizer = Some(tokenizer(300));
    let quality = |dtype| export(&source, &with(dtype, &text)).unwrap().quality.unwrap();
    let same = quality(DType::F32);
    assert_eq!((same.windows, same.divergence.kl, same.divergence.top1), (3, 0.0, 1.0));
    assert!(same.divergence.positions > 60 && same.divergence.perplexity == same.divergence.reference_perplexity);
    let (eight, four) = (quality(DType::Q8).divergence, quality(DType::Q4).divergence);
    assert!(eight.kl > 0.0 && four.kl > eight.kl, "{eight:?} {four:?}");
    // What was needed for it is gone.
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{names:?}");
    fs::write(&text, "").unwrap();
    let options = Options { out: folder.path().join("new.dmexp"), ..with(DType::Q8, &text) };
    assert!(export(&source, &options).unwrap_err().to_string().contains("empty"));
    let missing = Options { quality: Some(folder.path().join("missing")), ..options };
    assert!(export(&source, &missing).unwrap_err().to_string().contains("missing"));
}
