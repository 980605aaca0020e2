//! Tensors of an opened file that were copied to other memory: the bits stay, and memory that is too small is refused with the bytes that are needed.

use super::*;
use dmexp::format::Error;
use dmexp::format::arch::llama::{TensorKind, TensorSpec};
use dmexp::{Model, Session};

const TOKENS: [u32; 12] = [1, 84, 104, 101, 32, 99, 97, 116, 32, 115, 97, 116];

fn bits(model: &Model<'_>) -> Vec<u32> {
    let mut arena = vec![0u32; model.arena_len().unwrap().div_ceil(4)];
    let mut session = Session::new(model, arena.as_mut_slice(), Sampler::greedy()).unwrap();
    let step = |token: &u32| {
        session.push_tokens(&[*token]).unwrap();
        session.logits().unwrap().iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()
    };
    TOKENS.iter().flat_map(step).collect()
}

#[test]
fn copied_tensors_give_the_same_bits_from_every_form_of_file() {
    for (dtype, format) in [(DType::Q8, Format::V2), (DType::Q4, Format::V2), (DType::Bf16, Format::V2), (DType::F32, Format::V1)] {
        let folder = TempDir::new().unwrap();
        let report = export(&open(SMALL.random()), &options(&folder, dtype, format)).unwrap();
        let loaded = Loaded::open(&report.out).unwrap();
        let model = loaded.model().unwrap();
        let expected = bits(&model);
        let choices: [fn(&TensorSpec) -> bool; 4] = [
            |_| false,
            |tensor| matches!(tensor.kind, TensorKind::Wq | TensorKind::TokEmbeddings | TensorKind::Norm),
            |tensor| tensor.layer == Some(1),
            |_| true,
        ];
        for (choice, chosen) in choices.into_iter().enumerate() {
            let needed = model.ram_len(chosen);
            let mut memory = vec![u32::MAX; needed as usize / 4];
            let mut short = vec![0u32; memory.len() - 1];
            let mut copied = model;
            assert_eq!(
                copied.copy_to_ram(chosen, short.as_mut_slice()),
                Err(Error::CopiesTooLarge { needed, found: needed - 4 }),
                "{dtype} {choice}"
            );
            assert_eq!(bits(&copied), expected, "{dtype} {choice}: the model stayed as it was");
            copied.copy_to_ram(chosen, memory.as_mut_slice()).unwrap();
            assert_eq!(bits(&copied), expected, "{dtype} {choice}");
        }
    }
}
