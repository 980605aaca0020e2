//! Files whose header and tensors do not go together: dormouse loads many of them in silence.

use super::made::{Made, Tensor, file};
use crate::format::file::ModelFile;
use crate::format::{ConfigKey, Error, Rule};
use crate::models::dormouse::Dormouse;
use crate::{Model, Sampler, Session};

fn bind(bytes: &[u8]) -> Result<(), Error> {
    Dormouse::bind(&ModelFile::open(bytes)?).map(|_| ())
}

/// The file with a configuration of these lines besides.
fn with_lines(lines: &str) -> Result<(), Error> {
    let made = Made::tiny("", |_| ());
    bind(&file(&format!("{}{lines}", made.text), &made.tensors()))
}

fn key_of(result: Result<(), Error>) -> (ConfigKey, Rule) {
    match result {
        Err(Error::Config { key, rule, .. }) => (key, rule),
        other => panic!("{other:?}"),
    }
}

#[test]
fn configurations_are_validated_before_anything_is_bound() {
    assert_eq!(with_lines(""), Ok(()));
    for (lines, key, rule) in [
        ("bf16 = true\n", ConfigKey::Bf16, Rule::Unsupported),
        ("use_msa = true\n", ConfigKey::UseMsa, Rule::Unsupported),
        ("use_gr = true\nuse_mhc = true\n", ConfigKey::ResidualArm, Rule::Unsupported),
        ("use_plain_attn = true\n", ConfigKey::UseKda, Rule::Unsupported),
        ("norm_eps = 0.0\n", ConfigKey::NormEps, Rule::Positive),
        ("norm_eps = nan\n", ConfigKey::NormEps, Rule::Finite),
        ("max_iter = 0\n", ConfigKey::MaxIter, Rule::NotZero),
        ("max_iter = 4000000000\n", ConfigKey::MaxIter, Rule::TooLarge),
        ("max_iter = 99999999999\n", ConfigKey::MaxIter, Rule::TooLarge),
        ("max_iter = -4\n", ConfigKey::MaxIter, Rule::Range),
        ("max_iter = \"4\"\n", ConfigKey::MaxIter, Rule::Type),
        ("vocab = 99999999\n", ConfigKey::Vocab, Rule::TooLarge),
        ("use_mor = true\nmor_k = 9\n", ConfigKey::MorK, Rule::TooLarge),
        ("use_mor = true\nmor_k = 0\n", ConfigKey::MorK, Rule::NotZero),
        ("moe_topk = 4\n", ConfigKey::MoeTopk, Rule::TooLarge),
        ("act_quant = \"int3\"\n", ConfigKey::ActQuant, Rule::Unknown),
        ("act_quant = 4\nact_group = 5\n", ConfigKey::ActGroup, Rule::Divides),
        ("engram_orders = [2, 3]\n", ConfigKey::EngramOrders, Rule::Length),
        ("engram_orders = [2, 3, 40]\n", ConfigKey::EngramOrders, Rule::Range),
        ("engram_lam_max = 1.5\n", ConfigKey::EngramLamMax, Rule::TooLarge),
        ("use_kda = 1\n", ConfigKey::Flag, Rule::Type),
        ("jepa_weight = -0.5\n", ConfigKey::Training, Rule::Range),
        ("use_new_arm = true\n", ConfigKey::Other, Rule::Unknown),
    ] {
        assert_eq!(key_of(with_lines(lines)), (key, rule), "{lines}");
    }
    let made = Made::tiny("", |_| ());
    let byteflow = made.text.replace("use_byteflow = false", "use_byteflow = true");
    assert_eq!(key_of(bind(&file(&byteflow, &made.tensors()))), (ConfigKey::UseByteflow, Rule::Unsupported));
    // A key that only a model which is refused reads, and one that nothing reads any more.
    assert_eq!(with_lines("byteflow_depth = 3\nponder_prior = 0.2\n"), Ok(()));
}

#[test]
fn tensors_are_those_of_the_configuration() {
    let made = Made::tiny("", |_| ());
    let good = made.tensors();
    let number = |name: &str| good.iter().position(|(other, _, _)| other == name).unwrap();
    let changed = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let mut tensors = good.clone();
        change(&mut tensors);
        bind(&file(&made.text, &tensors))
    };
    // dormouse matches by name, so another order is the same model.
    assert_eq!(changed(&|tensors| tensors.reverse()), Ok(()));
    // An arm that is not known here would be dropped in silence.
    let extra = ("loop_block.new_arm.weight".to_owned(), vec![2], vec![0.0; 2]);
    assert_eq!(changed(&|tensors| tensors.push(extra.clone())), Err(Error::TensorName { tensor: good.len() as u32 }));
    assert_eq!(changed(&|tensors| tensors.push(("aux.new.weight".to_owned(), vec![2], vec![0.0; 2]))), Ok(()));
    let again = good[3].clone();
    assert!(matches!(changed(&|tensors| tensors.push(again.clone())), Err(Error::DuplicateName { first: 3, .. })));
    let last = number("norm.weight");
    assert_eq!(changed(&|tensors| drop(tensors.remove(last))), Err(Error::MissingTensor { wanted: last as u32 }));
    // Without what inference does not read the model is the same.
    let router = number("loop_block.mor_router.proj.bias");
    assert_eq!(changed(&|tensors| drop(tensors.remove(router))), Ok(()));
    let shape = changed(&|tensors| tensors[last].1 = vec![8, 4]);
    assert_eq!(shape, Err(Error::Shape { tensor: last as u32, found: [8, 4, 1, 1], expected: [32, 1, 1, 1] }));
    // An arm turned on whose tensors are not there.
    assert!(matches!(with_lines("use_gr = true\n"), Err(Error::MissingTensor { .. })));
    // A size that the tensors do not have.
    assert!(matches!(with_lines("n_experts = 2\n"), Err(Error::Shape { .. } | Error::TensorName { .. })));
}

/// Whatever stands in the header, the file is refused, or it is run in the memory that it asks for: nothing panics.
#[test]
fn thousands_of_edited_headers_are_refused_or_run() {
    let made = Made::tiny("use_mor = true\nmor_k = 2\nact_quant = \"8\"\nact_group = 16\nmoe_topk = 2\n", |_| ());
    let whole = made.file();
    let (len, start) = (u32::from_le_bytes(*whole[8..].first_chunk().unwrap()) as usize, 24);
    let (header, payload) = whole[start..].split_at(len);
    let mut state = 0x2545_f491u32;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below
    };
    let tokens = [3, 200, 90];
    let (mut refused, mut run) = (0, 0);
    let tries = if cfg!(miri) { 40 } else { 4_000 };
    for number in 0..tries {
        // Mostly in the part before the list of tensors, which decides what is computed.
        let reach = if number % 4 == 0 { header.len() } else { 700 };
        let mut text = header.to_vec();
        for _ in 0..=random(3) {
            let at = random(reach.min(text.len()));
            match random(6) {
                0 => text[at] = random(256) as u8,
                1 => text[at] = b'0' + random(10) as u8,
                2 => text[at] ^= 1 << random(8),
                3 => {
                    text.remove(at);
                }
                4 => text.insert(at, b"019.-=\"\n "[random(9)]),
                _ => {
                    // A line once more, or none of it.
                    let line_start = text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
                    let line_end = text[at..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |place| at + place + 1);
                    let line = text[line_start..line_end].to_vec();
                    let put = if random(2) == 0 { [line.clone(), line].concat() } else { Vec::new() };
                    text.splice(line_start..line_end, put);
                }
            }
        }
        let mut bytes = whole[..start].to_vec();
        bytes[8..12].copy_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend(text);
        bytes.extend(payload);
        let Ok(model) = ModelFile::open(&bytes).and_then(|file| Model::bind(&file)) else {
            refused += 1;
            continue;
        };
        let model = model.with_context(model.context().min(4));
        let needed = model.arena_len().unwrap();
        assert!(needed < 4_000_000, "a small model asks for {needed} bytes");
        let mut memory = vec![0x7fc0_0001; needed / 4];
        let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy()).unwrap();
        let fed = tokens.len().min(model.context() as usize);
        if session.push_tokens(&tokens[..fed]).is_ok() {
            match session.logits() {
                Ok(logits) => assert!(logits.iter().all(|logit| logit.is_finite())),
                Err(error) => assert!(matches!(error, Error::NonFiniteLogits { .. }), "{error}"),
            }
        }
        run += 1;
    }
    println!("{refused} refused, {run} run");
    assert!(refused > tries / 4 && run > tries / 40, "{refused} refused, {run} run");
}
