//! Format 1 against files that dormouse's layout describes, and Llama models in it.

use super::tiny::{CONFIG, tiny, tokenizer};
use crate::DType;
use crate::arch::dormouse::DormouseConfig;
use crate::arch::dormouse::tensors::{Role, TensorSpec};
use crate::bytes::{u32_at, u64_at};
use crate::file::ModelFile;
use crate::host::{HeaderV1, Measure, Padding, Tokenizer, llama_config_v1, to_bytes_v1, verify, write_v1};
use std::path::Path;

const NAMES: [&str; 7] = ["default", "dense", "gr", "mhc", "mor", "nokda", "plain"];

/// A dormouse fixture; `None`, with a line saying so, where the folder is absent.
pub(super) fn fixture(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../shared/data/dormouse/{name}.f32.dmexp"));
    let bytes = std::fs::read(&path).ok();
    if bytes.is_none() {
        println!("skipped: {} is not there", path.display());
    }
    bytes
}

fn header_of(bytes: &[u8]) -> (&str, &[u8]) {
    let end = 24 + u32_at(bytes, 8) as usize;
    (std::str::from_utf8(&bytes[24..end]).unwrap(), &bytes[end..])
}

#[test]
fn dormouse_files_are_written_again_byte_for_byte() {
    for name in NAMES {
        let Some(bytes) = fixture(name) else { return };
        let (text, payload) = header_of(&bytes);
        let (header, unknown) = HeaderV1::parse(text).unwrap();
        assert_eq!(unknown, Vec::<String>::new(), "{name}");
        assert_eq!(header.to_text().unwrap(), text, "{name}");
        assert_eq!(to_bytes_v1(&header, payload, Padding::None).unwrap(), bytes, "{name}");
        let padded = to_bytes_v1(&header, payload, Padding::To16).unwrap();
        let (padded_text, padded_payload) = header_of(&padded);
        assert_eq!(padded_text.trim_end_matches('\n'), text.trim_end_matches('\n'), "{name}");
        assert!((24 + padded_text.len()).is_multiple_of(16));
        assert_eq!(padded_payload, payload, "{name}");
        assert_eq!(HeaderV1::parse(padded_text).unwrap().0, header);
    }
}

#[test]
fn dormouse_files_verify_and_say_what_was_left() {
    for name in NAMES {
        let Some(bytes) = fixture(name) else { return };
        let report = verify(&bytes).unwrap();
        assert!(report.done.contains(&"checksum of the payload; weights are finite"), "{name}: {report:?}");
        assert!(report.left.iter().any(|left| left.why.contains("norm_eps, max_seq_len")), "{name}: {report:?}");
    }
}

/// dormouse's own exporter states the values as stored, other writers of its files those before narrowing; what is neither is damage. For other architectures only the first is right.
#[test]
fn figures_are_those_as_stored_or_for_dormouse_those_before_narrowing() {
    // In f16 0.1 becomes 0.099975586, 70.01 becomes 70.0, and 1e-9 becomes 0.
    let values = [0.1_f32, -70.01, 1e-9, 0.0];
    // As small a model as there is: all zeros, but for its last norm.
    let config =
        "d_model = 4\nn_heads = 1\nhead_dim = 4\nd_ffn = 4\nvocab = 4\nmax_iter = 1\nn_experts = 1\nengram_rows = 2\nengram_dim = 4\n";
    let (n_heads, head_dim, max_iter, n_experts) = (1, 4, 1, 1);
    let model = DormouseConfig {
        d_model: 4,
        n_heads,
        head_dim,
        d_ffn: 4,
        vocab: 4,
        max_iter,
        n_experts,
        engram_rows: 2,
        engram_dim: 4,
        ..DormouseConfig::DEFAULT
    };
    let specs: Vec<_> = (0..model.num_tensors()).map(|number| model.tensor(number).unwrap()).collect();
    let file = |dtype: DType, flushed: u64, max_abs: f32, min_nonzero_abs: f32| {
        let narrowed: Vec<u8> = match dtype {
            DType::F16 => values.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|value| half::bf16::from_f32(*value).to_le_bytes()).collect(),
        };
        let bytes_of = |spec: &TensorSpec| if spec.role == Role::Norm { narrowed.clone() } else { vec![0; 2 * spec.dims.count() as usize] };
        let payload: Vec<u8> = specs.iter().flat_map(bytes_of).collect();
        let tensors = specs.iter().map(|spec| crate::host::TensorV1 { name: spec.to_string(), dims: spec.dims }).collect();
        let header =
            HeaderV1 { dtype, source: "a@step0".into(), step: 0, flushed, max_abs, min_nonzero_abs, config: config.into(), tensors };
        let bytes = to_bytes_v1(&header, &payload, Padding::None).unwrap();
        verify(&bytes).map(|report| report.done.iter().any(|done| done.contains("before narrowing"))).map_err(|error| error.to_string())
    };
    let narrow = |value: f32| half::f16::from_f32(value).to_f32();
    let dormouse = |flushed, max_abs, min_nonzero_abs| file(DType::F16, flushed, max_abs, min_nonzero_abs);
    assert_eq!(dormouse(1, narrow(70.01), narrow(0.1)), Ok(false));
    assert_eq!(dormouse(1, 70.01, narrow(0.1)), Ok(true));
    assert_eq!(dormouse(0, 70.01, 0.1), Ok(true));
    assert_eq!(dormouse(1, 70.01, 1e-9), Ok(true));
    // Nothing became 0, so 1e-9 was none of the values.
    assert!(dormouse(0, 70.01, 1e-9).unwrap_err().contains("min_nonzero_abs"));
    assert!(dormouse(1, 70.01, 0.0).unwrap_err().contains("min_nonzero_abs"));
    assert!(dormouse(1, 70.1, 0.1).unwrap_err().contains("max_abs"));
    assert!(dormouse(1, 70.01, 0.2).is_err());
    let bf16 = |max_abs, min_nonzero_abs| file(DType::Bf16, 0, max_abs, min_nonzero_abs);
    assert_eq!(bf16(70.01, 1e-9), Ok(true));
    assert!(bf16(70.6, 1e-9).is_err());
}

/// The tiny model as format 1, all in one type.
fn llama(dtype: DType, padding: Padding) -> Vec<u8> {
    let model = tiny(DType::F32);
    let mut measure = Measure::contiguous();
    let mut tensors = Vec::new();
    for (number, entry) in model.header.tensors.iter().take(CONFIG.weight_tensors() as usize).enumerate() {
        let mut spec = entry.spec.clone();
        spec.dtype = dtype;
        let bytes = super::tiny::weights(number as u32, spec.dims.count(), dtype);
        measure.tensor(spec, &bytes, 0).unwrap();
        tensors.push(bytes);
    }
    let payload = measure.finish();
    let config = llama_config_v1(&CONFIG, Some(10_000.0), &[1.0], &tokenizer()).unwrap();
    let header = HeaderV1::new("tiny.bin@step0".into(), 0, config, &payload).unwrap();
    let mut out = Vec::new();
    let length = write_v1(&mut out, &header, &payload, padding, |number, out| out.write_all(&tensors[number])).unwrap();
    assert_eq!(length, out.len() as u64);
    assert_eq!(out, to_bytes_v1(&header, &tensors.concat(), padding).unwrap());
    out
}

pub(super) fn example() -> Vec<u8> {
    llama(DType::F32, Padding::To16)
}

#[test]
fn a_llama_in_format_1_has_exactly_its_bytes_and_opens() {
    for (dtype, size) in [(DType::F32, 4), (DType::F16, 2), (DType::Bf16, 2)] {
        for padding in [Padding::None, Padding::To16] {
            let bytes = llama(dtype, padding);
            assert_eq!(bytes.len() as u64, 24 + u64::from(u32_at(&bytes, 8)) + size * CONFIG.num_params());
            assert_eq!(u64_at(&bytes, 12), size * CONFIG.num_params());
            let file = ModelFile::open(&bytes).unwrap();
            assert_eq!(file.version(), 1);
            assert_eq!(file.llama_config(), Ok(CONFIG));
            assert_eq!(file.num_params(), CONFIG.num_params());
            let mut frequencies = [0.0];
            file.rope_inv_freq(&mut frequencies).unwrap();
            assert_eq!(frequencies, [1.0]);
            let facts = file.tokenizer_facts().unwrap();
            assert_eq!((facts.bos, facts.eos[0], facts.add_bos), (1, 2, true));
            let report = verify(&bytes).unwrap();
            assert!(report.done.contains(&"the configuration, and the architecture's tensors by name and dims"));
        }
    }
}

/// What toml 0.8 gives for dormouse's struct, and what a strict TOML parser makes of it.
#[test]
fn the_config_string_is_plain_toml_inside_toml() {
    let bytes = llama(DType::F32, Padding::To16);
    let (text, _) = header_of(&bytes);
    assert!(text.starts_with("format = 1\ndtype = \"f32\"\nsource = \"tiny.bin@step0\"\nstep = 0\nnum_params = 140\nnum_tensors = 11\nflushed = 0\nmax_abs = "), "{text}");
    assert!(text.contains("config = \"\"\"\narch = \"llama\"\ndim = 4\n"), "{text}");
    assert!(text.contains("norm_eps = 0.000009999999747378752\n"), "{text}");
    let table: toml::Table = text.parse().unwrap();
    let config: toml::Table = table["config"].as_str().unwrap().parse().unwrap();
    let keys = "arch dim hidden_dim n_layers n_heads n_kv_heads head_dim vocab_size max_seq_len norm_eps rope_layout rope_theta attention_factor tied_embeddings qkv_bias sliding_window rope_inv_freq bos eos add_bos";
    for key in keys.split(' ') {
        assert!(config.contains_key(key), "{key}");
    }
    assert_eq!(config.len(), keys.split(' ').count());
}

#[test]
fn a_config_that_a_reader_could_not_borrow_is_refused() {
    let bytes = llama(DType::F32, Padding::None);
    let (header, _) = HeaderV1::parse(header_of(&bytes).0).unwrap();
    for config in ["a = '\\'\n", "a = '\"\"\"'\n", "a = \"b\"", "a = 1\r\n"] {
        let header = HeaderV1 { config: config.into(), ..header.clone() };
        let refused = header.to_text().unwrap_err().to_string();
        assert!(refused.contains("config") && refused.contains("needs no escapes"), "{refused}");
    }
}

#[test]
fn frequencies_must_fit_the_head() {
    for frequencies in [&[][..], &[1.0, 2.0], &[f32::NAN]] {
        let refused = llama_config_v1(&CONFIG, None, frequencies, &Tokenizer::NONE).unwrap_err().to_string();
        assert!(refused.contains("rope_inv_freq") && refused.contains("1 finite numbers"), "{refused}");
    }
}

#[test]
fn mixed_types_are_refused_by_name() {
    let payload = {
        let mut measure = Measure::contiguous();
        let model = tiny(DType::Bf16);
        for (entry, bytes) in model.header.tensors.iter().zip(&model.tensors).take(2) {
            measure.tensor(entry.spec.clone(), bytes, 0).unwrap();
        }
        measure.finish()
    };
    let refused = HeaderV1::new("x".into(), 0, String::new(), &payload).unwrap_err().to_string();
    assert!(refused.contains("layers.0.attention_norm.weight") && refused.contains("f32") && refused.contains("bf16"), "{refused}");
}

#[test]
fn headers_that_contradict_themselves_are_refused_by_key() {
    let bytes = llama(DType::F32, Padding::None);
    let (text, _) = header_of(&bytes);
    let cases = [
        ("format = 1", "format = 2", "format", "2", "1"),
        ("dtype = \"f32\"", "dtype = \"q8\"", "dtype", "\"q8\"", "\"bf16\""),
        ("num_params = 140", "num_params = 141", "num_params", "141", "140"),
        ("num_tensors = 11", "num_tensors = 12", "num_tensors", "12", "11"),
        ("overflowed = 0", "overflowed = 1", "tensors[0].overflowed", "1", "0"),
        ("dims = [8, 4]", "dims = [8, 0]", "tensors[0].dims", "[8, 0]", "none 0"),
        ("dims = [8, 4]", "dims = [4294967295, 4294967295, 4294967295]", "tensors[0].dims", "4294967295", "2^48"),
        ("dims = [8, 4]", "dims = [1, 1, 1, 8, 4]", "tensors[0].dims", "[1, 1, 1, 8, 4]", "1 to 4 sizes"),
        ("step = 0", "step = -1", "step", "-1", "from 0"),
        ("source = \"tiny.bin@step0\"\n", "", "source", "nothing", "a string"),
        ("name = \"norm.weight\"", "name = \"\"", "tensors[10].name", "\"\"", "printable ASCII"),
    ];
    for (from, to, key, found, allowed) in cases {
        assert!(text.contains(from), "{from}");
        let refused = HeaderV1::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(refused.contains(key) && refused.contains(found) && refused.contains(allowed), "{from}: {refused}");
    }
    let twice = text.replacen("name = \"norm.weight\"", "name = \"tok_embeddings.weight\"", 1);
    let refused = HeaderV1::parse(&twice).unwrap_err().to_string();
    assert!(refused.contains("tensors 0 and 10"), "{refused}");
    let (_, unknown) = HeaderV1::parse(&text.replacen("overflowed = 0", "overflowed = 0\nnote = 1", 1)).unwrap();
    assert_eq!(unknown, ["tensors[0].note"]);
}
