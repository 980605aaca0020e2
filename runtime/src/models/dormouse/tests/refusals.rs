//! Files whose header and tensors do not go together: dormouse loads many of them in silence.

use super::made::{Made, Tensor, file};
use crate::format::file::ModelFile;
use crate::format::{ConfigKey, Error, Rule};
use crate::models::dormouse::Dormouse;

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
        ("use_mor = true\nmor_k = 9\n", ConfigKey::MorK, Rule::Range),
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
