//! Tests of the Llama configuration and its list of tensors.

use super::*;

/// stories260K.
pub(crate) const CONFIG: LlamaConfig = LlamaConfig {
    dim: 64,
    hidden_dim: 172,
    n_layers: 5,
    n_heads: 8,
    n_kv_heads: 4,
    head_dim: 8,
    vocab_size: 512,
    max_seq_len: 512,
    norm_eps: 1e-5,
    rope_layout: RopeLayout::Interleaved,
    attention_factor: 1.0,
    tied_embeddings: true,
    qkv_bias: false,
    sliding_window: 0,
};

fn with(change: impl FnOnce(&mut LlamaConfig)) -> Result<(), Error> {
    let mut config = CONFIG;
    change(&mut config);
    config.validate()
}

#[test]
fn counts_are_those_of_stories260k() {
    assert_eq!(CONFIG.num_params(), 260_032);
    assert_eq!(CONFIG.weight_tensors(), 47);
}

#[test]
fn numbers_and_descriptions_are_inverse() {
    for (tied_embeddings, qkv_bias) in [(true, false), (false, false), (true, true), (false, true)] {
        let config = LlamaConfig { tied_embeddings, qkv_bias, ..CONFIG };
        let mut total = 0;
        for number in 0..=config.weight_tensors() {
            let spec = config.tensor(number).unwrap();
            assert_eq!(config.tensor_number(spec.kind, spec.layer.unwrap_or(0)), number);
            assert!(spec.is_named(spec.to_string().as_bytes()), "{spec}");
            assert!(spec.kind == TensorKind::RopeInvFreq || config.elements_before(spec.kind, spec.layer.unwrap_or(0)) == total, "{spec}");
            if spec.kind != TensorKind::RopeInvFreq {
                total += spec.dims.count();
            }
        }
        assert_eq!(config.tensor(config.weight_tensors() + 1), None);
        assert_eq!(config.num_params(), total);
    }
}

#[test]
fn only_the_one_spelling_of_a_name_is_taken() {
    let spec = CONFIG.tensor(CONFIG.tensor_number(TensorKind::Wq, 3)).unwrap();
    assert!(spec.is_named(b"layers.3.attention.wq.weight"));
    for other in [
        "layers.03.attention.wq.weight",
        "layers..attention.wq.weight",
        "layers.3attention.wq.weight",
        "layers.3.attention.wq.weigh",
        "attention.wq.weight",
        "",
    ] {
        assert!(!spec.is_named(other.as_bytes()), "{other}");
    }
}

#[test]
fn each_wrong_value_is_refused_by_its_key() {
    let key = |r: Result<(), Error>| match r {
        Err(Error::Config { key, .. }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(key(with(|c| c.dim = 0)), ConfigKey::Dim);
    assert_eq!(key(with(|c| c.hidden_dim = 0)), ConfigKey::HiddenDim);
    assert_eq!(key(with(|c| c.n_layers = 0)), ConfigKey::NLayers);
    assert_eq!(key(with(|c| c.n_layers = 2_000_000_000)), ConfigKey::NLayers);
    assert_eq!(key(with(|c| c.n_heads = 0)), ConfigKey::NHeads);
    assert_eq!(key(with(|c| c.n_kv_heads = 0)), ConfigKey::NKvHeads);
    assert_eq!(key(with(|c| c.n_kv_heads = 3)), ConfigKey::NKvHeads);
    assert_eq!(key(with(|c| c.n_kv_heads = 16)), ConfigKey::NKvHeads);
    assert_eq!(key(with(|c| c.head_dim = 7)), ConfigKey::HeadDim);
    assert_eq!(key(with(|c| c.head_dim = 0)), ConfigKey::HeadDim);
    assert_eq!(key(with(|c| c.vocab_size = 0)), ConfigKey::VocabSize);
    assert_eq!(key(with(|c| c.max_seq_len = 0)), ConfigKey::MaxSeqLen);
    assert_eq!(key(with(|c| c.max_seq_len = 1 << 30)), ConfigKey::MaxSeqLen);
    for eps in [0.0, -0.0, -1.0, f32::NAN, f32::INFINITY] {
        assert_eq!(key(with(|c| c.norm_eps = eps)), ConfigKey::NormEps);
        assert_eq!(key(with(|c| c.attention_factor = eps)), ConfigKey::AttentionFactor);
    }
    assert_eq!(with(|_| ()), Ok(()));
}

#[test]
fn the_record_is_read_as_it_is_written() {
    let config = LlamaConfig {
        rope_layout: RopeLayout::Half,
        qkv_bias: true,
        tied_embeddings: false,
        sliding_window: 7,
        attention_factor: 1.25,
        ..CONFIG
    };
    assert_eq!(LlamaConfig::from_record(&config.to_record()), Ok(config));
    for byte in 52..64 {
        let mut record = config.to_record();
        record[byte] = 1;
        assert!(LlamaConfig::from_record(&record).is_err());
    }
}
