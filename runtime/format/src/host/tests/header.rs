//! Header text and value are inverses, a header has one text, and what is wrong is refused by key with both sides.

use super::tiny::{CONFIG, made_up, tiny, tokenizer};
use crate::arch::llama::{LlamaConfig, RopeLayout};
use crate::host::{Figures, Golden, GoldenPosition, Header, HeaderError, Scalar, Tokenizer, derive_index};
use crate::tokenizer::{Normalizer, PreTokenizer, TokenizerKind};
use crate::{DType, Error, KvDType};
use proptest::prelude::*;

fn config() -> impl Strategy<Value = LlamaConfig> {
    let sizes = (1u32..40, 1u32..40, 1u32..4, 1u32..4, 1u32..4, 1u32..20, 6u32..50, 4u32..50);
    let rest = (1e-20f32..1.0, any::<bool>(), 0.1f32..9.0, any::<bool>(), any::<bool>(), any::<u32>());
    (sizes, rest).prop_map(|(sizes, rest)| {
        let (dim, hidden_dim, n_layers, n_kv_heads, groups, half_head, vocab_size, max_seq_len) = sizes;
        let (norm_eps, half, attention_factor, tied_embeddings, qkv_bias, sliding_window) = rest;
        LlamaConfig {
            dim,
            hidden_dim,
            n_layers,
            n_heads: n_kv_heads * groups,
            n_kv_heads,
            head_dim: 2 * half_head,
            vocab_size,
            max_seq_len,
            norm_eps,
            rope_layout: if half { RopeLayout::Half } else { RopeLayout::Interleaved },
            attention_factor,
            tied_embeddings,
            qkv_bias,
            sliding_window,
        }
    })
}

fn figures() -> impl Strategy<Value = Figures> {
    (any::<u32>(), any::<u32>()).prop_map(|(a, b)| {
        let number = |bits: u32| f32::from_bits(bits % 0x7f80_0000);
        let (a, b) = (number(a), number(b));
        Figures { flushed: 1, subnormal: 0, max_abs: a.max(b), min_nonzero_abs: a.min(b) }
    })
}

fn scalar() -> impl Strategy<Value = Scalar> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Scalar::Bool),
        any::<i64>().prop_map(Scalar::Integer),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Scalar::Float),
        any::<String>().prop_map(Scalar::Text),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| proptest::collection::vec(inner, 0..4).prop_map(Scalar::List))
}

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(any::<String>())
}

fn golden(vocab: u32) -> impl Strategy<Value = Golden> {
    (any::<bool>(), proptest::collection::vec(0..vocab, 1..4), any::<u32>(), proptest::array::uniform5(0..vocab)).prop_map(
        |(half, tokens, crc32, top5)| {
            let positions = (0..tokens.len() as u32).map(|position| GoldenPosition { position, crc32, top5 }).collect();
            Golden { kv: if half { KvDType::F16 } else { KvDType::F32 }, tokens, positions }
        },
    )
}

prop_compose! {
    fn header()(config in config())(
        golden in proptest::collection::vec(golden(config.vocab_size), 0..3),
        config in Just(config),
        figures in proptest::collection::vec(figures(), 1..5),
        scaling in proptest::collection::vec((any::<String>(), scalar()), 0..3),
        theta in proptest::option::of(1.0f64..1e9),
        texts in (text(), text(), any::<String>(), any::<String>()),
        tokenizer in (0u32..4, any::<bool>(), any::<bool>(), proptest::option::of(0u32..6), proptest::collection::vec(0u32..6, 0..8), 1u32..256),
    ) -> Header {
        let (kind, add_bos, dummy_prefix, special, eos, max_piece_len) = tokenizer;
        let kind = [TokenizerKind::None, TokenizerKind::Bytes, TokenizerKind::SentencepieceBpe, TokenizerKind::ByteLevelBpe][kind as usize];
        let byte_level = kind == TokenizerKind::ByteLevelBpe;
        let tokenizer = Tokenizer {
            kind,
            n_pieces: if kind == TokenizerKind::None { 0 } else { config.vocab_size },
            add_bos: add_bos && special.is_some(),
            dummy_prefix: dummy_prefix && !byte_level,
            bos: special,
            eos,
            pad: special.map(|token| token / 2),
            unk: None,
            byte_base: None,
            max_piece_len,
            special: if kind.arrays().is_some() { (0..6).filter(|token| max_piece_len >> token & 1 != 0).collect() } else { Vec::new() },
            pre_tokenizer: if byte_level { PreTokenizer::ALL[max_piece_len as usize % 5] } else { PreTokenizer::None },
            ignore_merges: byte_level && add_bos,
            normalizer: if byte_level && dummy_prefix { Normalizer::Nfc } else { Normalizer::None },
            chat_template: texts.0,
        };
        let mut header = made_up(config, tokenizer, &figures, scaling);
        header.golden = golden;
        header.provenance.licence = texts.1;
        header.provenance.source = texts.2;
        header.provenance.importer = texts.3;
        let crate::host::Config::Llama(settings) = &mut header.config else { panic!("it is a Llama") };
        settings.rope_theta = theta;
        header
    }
}

proptest! {
    #[test]
    fn text_and_value_are_inverse(header in header()) {
        let text = header.to_text();
        let (parsed, unknown) = Header::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&parsed, &header);
        prop_assert!(unknown.is_empty(), "{:?}", unknown);
        prop_assert_eq!(parsed.to_text(), text);
        let index = derive_index(&header).unwrap();
        let read = crate::file::index::Index::parse(&index, 64, header.payload_bytes());
        prop_assert!(read.is_ok(), "{:?}", read.map(|_| ()));
    }
}

#[test]
fn a_header_as_json_has_the_keys_of_its_text() {
    let header = tiny(DType::F32).header;
    let table = toml::Table::try_from(&header).unwrap();
    assert_eq!(Ok(&table), header.to_table().as_ref());
    assert_eq!(table["config"]["dim"].as_integer(), Some(4));
    assert_eq!(table["tensors"].as_array().unwrap().len(), header.tensors.len());
}

#[test]
fn unknown_keys_are_listed_where_they_change_nothing() {
    let text = tiny(DType::F32).header.to_text();
    let text = text
        .replace("format = 2", "colour = \"blue\"\nformat = 2")
        .replace("[provenance]", "[provenance]\nauthor = \"nobody\"")
        .replace("[tokenizer]", "[tokenizer]\nlanguage = \"en\"")
        .replacen("[[tensors]]", "[[tensors]]\nnote = 1", 1);
    let (header, unknown) = Header::parse(&text).unwrap();
    assert_eq!(header, tiny(DType::F32).header);
    assert_eq!(unknown, ["colour", "provenance.author", "tensors[0].note", "tokenizer.language"]);
}

#[test]
fn unknown_values_that_change_the_function_are_refused() {
    let cases = [
        ("[config]", "[config]\nlogit_softcap = 30.0", "config.logit_softcap", "attention_factor", ""),
        ("kind = \"sentencepiece_bpe\"", "kind = \"unigram\"", "tokenizer.kind", "\"unigram\"", "\"sentencepiece_bpe\""),
        ("dtype = \"f32\"", "dtype = \"q5\"", "tensors[0].dtype", "\"q5\"", "\"bf16\""),
        ("kind = \"trainable\"", "kind = \"frozen\"", "tensors[0].kind", "\"frozen\"", "\"non_trainable\""),
        ("arch = \"llama\"", "arch = \"mamba\"", "arch", "\"mamba\"", "\"llama\""),
        ("arithmetic = 1", "arithmetic = 2", "arithmetic", "2", "1"),
        ("format = 2", "format = 3", "format", "3", "2"),
        ("rope_layout = \"interleaved\"", "rope_layout = \"split\"", "config.rope_layout", "\"split\"", "\"half\""),
        ("group = 0", "group = 32", "tensors[0].group", "32", "0"),
    ];
    refused_each(&tiny(DType::F32).header.to_text(), &cases);
}

#[test]
fn a_normaliser_is_known_by_name_or_left_out() {
    let tokenizer = Tokenizer {
        kind: TokenizerKind::ByteLevelBpe,
        n_pieces: CONFIG.vocab_size,
        max_piece_len: 3,
        pre_tokenizer: PreTokenizer::Qwen2,
        ..Tokenizer::NONE
    };
    let header = |normalizer| made_up(CONFIG, Tokenizer { normalizer, ..tokenizer.clone() }, &[], Vec::new());
    assert!(!header(Normalizer::None).to_text().contains("normalizer"));
    let text = header(Normalizer::Nfc).to_text();
    assert_eq!(Header::parse(&text).unwrap().0.tokenizer.normalizer, Normalizer::Nfc);
    let stated = "normalizer = \"nfc\"";
    let cases = [
        (stated, "normalizer = \"nfkc\"", "tokenizer.normalizer", "\"nfkc\"", "\"nfc\""),
        (stated, "normalizer = \"none\"", "tokenizer.normalizer", "\"none\"", "\"nfc\""),
        (stated, "normalizer = true", "tokenizer.normalizer", "true", ""),
    ];
    refused_each(&text, &cases);
}

/// Each case: replace, by, then what the message must contain.
fn refused_each(text: &str, cases: &[(&str, &str, &str, &str, &str)]) {
    for (from, to, key, found, allowed) in cases {
        assert!(text.contains(from), "{from} is not in the header");
        let refused = Header::parse(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(refused.contains(key) && refused.contains(found) && refused.contains(allowed), "{from} -> {to}: {refused}");
    }
}

#[test]
fn contradictions_are_refused_by_key_with_both_sides() {
    let text = tiny(DType::F32).header.to_text();
    let figures = tiny(DType::F32).header.figures();
    let max = format!("max_abs = {:?}\n", f64::from(figures.max_abs));
    let cases = [
        ("num_params = 140", "num_params = 139", "num_params", "139", "140"),
        ("num_tensors = 16", "num_tensors = 15", "num_tensors", "15", "16"),
        ("flushed = 0", "flushed = 1", "flushed", "1", "0"),
        (max.as_str(), "max_abs = 2.5\n", "max_abs", "2.5", "allowed"),
        ("dim = 4", "dim = 5", "tensors[0].dims", "[8, 4]", "[8, 5]"),
        ("dim = 4", "dim = 0", "dim", "0", "must not be 0"),
        ("dims = [8, 4]", "dims = [8, 5]", "tensors[0].bytes", "128", "160"),
        ("bytes = 128", "bytes = 127", "tensors[0].bytes", "127", "128"),
        ("offset = 0", "offset = 16", "tensors[0].offset", "16", "from 0"),
        ("offset = 128", "offset = 112", "tensors[1].offset", "112", "from 128"),
        ("offset = 128", "offset = 9223372036854775792", "tensors[1].offset", "9223372036854775792", "from 128"),
        ("offset = 128", "offset = 132", "tensors[1].offset", "132", "multiple"),
        ("n_pieces = 8", "n_pieces = 9", "VocabSize", "9", "8"),
        ("bos = 1", "bos = 8", "Bos", "8", "8"),
        ("eos = [2]", "eos = [1, 1, 1, 1, 1, 1, 1, 1, 1]", "tokenizer.eos", "9 tokens", "at most 8"),
        ("name = \"tokenizer.sorted\"", "name = \"tokenizer.extra\"", "tensors[15].name", "tokenizer.extra", "tokenizer.sorted"),
        ("name = \"norm.weight\"", "name = \"norm\\u0007\"", "tensors[10].name", "\\u{7}", "printable ASCII"),
        ("kind = \"trainable\"", "kind = \"non_trainable\"", "tensors[0].kind", "non_trainable", "trainable"),
        ("kind = \"sentencepiece_bpe\"", "kind = \"bytes\"", "tensors[12].name", "tokenizer.pieces", "12 tensors"),
    ];
    refused_each(&text, &cases);
    let twice = text.replacen("name = \"norm.weight\"", "name = \"tok_embeddings.weight\"", 1);
    assert_eq!(Header::parse(&twice).unwrap_err(), HeaderError::Rule(Error::DuplicateName { first: 0, second: 10 }));
    let cut = text[..text.rfind("\n[[tensors]]").unwrap()].replace("num_tensors = 16", "num_tensors = 15");
    let refused = Header::parse(&cut).unwrap_err().to_string();
    assert!(refused.contains("tensors[15].name") && refused.contains("nothing") && refused.contains("tokenizer.sorted"), "{refused}");
}

#[test]
fn golden_vectors_that_no_run_could_give_are_refused() {
    let good =
        Golden { kv: KvDType::F16, tokens: vec![1, 4], positions: vec![GoldenPosition { position: 1, crc32: 1, top5: [1, 2, 3, 4, 5] }] };
    let refused = |change: &dyn Fn(&mut Golden)| {
        let mut header = tiny(DType::F32).header;
        let mut golden = good.clone();
        change(&mut golden);
        header.golden.push(golden);
        derive_index(&header).map_or_else(|error| error.to_string(), |_| String::new())
    };
    assert_eq!(refused(&|_| ()), "");
    assert!(refused(&|golden| golden.tokens.clear()).contains("golden[0].tokens: found 0 tokens, allowed: 1 to 16"));
    assert!(refused(&|golden| golden.tokens = vec![0; 17]).contains("17 tokens"));
    assert!(refused(&|golden| golden.tokens[0] = 8).contains("golden[0].tokens: found 8, allowed: tokens below 8"));
    assert!(refused(&|golden| golden.positions.clear()).contains("golden[0].positions"));
    assert!(refused(&|golden| golden.positions[0].position = 2).contains("golden[0].positions[0].position: found 2"));
    assert!(refused(&|golden| golden.positions.push(golden.positions[0])).contains("positions[1].position: found 1"));
    assert!(refused(&|golden| golden.positions[0].top5[4] = 8).contains("positions[0].top5"));
}

#[test]
fn a_checksum_of_the_source_is_64_digits() {
    let mut header = tiny(DType::F32).header;
    header.provenance.sha256 = Some("0123456789abcdef".repeat(4));
    assert_eq!(Header::parse(&header.to_text()).unwrap().0, header);
    header.provenance.sha256 = Some("ABC".into());
    let refused = header.check().unwrap_err().to_string();
    assert!(refused.contains("provenance.sha256") && refused.contains("ABC") && refused.contains("64"), "{refused}");
}

#[test]
fn biases_and_an_untied_classifier_are_in_the_list() {
    let config = LlamaConfig { qkv_bias: true, tied_embeddings: false, ..CONFIG };
    let header = made_up(config, tokenizer(), &[Figures::NONE], vec![]);
    assert_eq!(header.num_params(), config.num_params());
    assert_eq!(Header::parse(&header.to_text()).unwrap().0, header);
}
