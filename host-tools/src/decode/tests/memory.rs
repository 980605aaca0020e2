//! Where a session keeps what it knows: memory in two banks, and prompts that are merged where positions are still unused.

use super::*;
use dmexp::Session;
use dmexp::format::{Bank, Error};

const KINDS: [KvDType; 3] = [KvDType::F32, KvDType::F16, KvDType::Q8];

/// A model of 200 positions whose room for logits merges 85 bytes of text.
fn loaded() -> (TempDir, Loaded) {
    let folder = TempDir::new().unwrap();
    let mut source = open(Shape { max_seq_len: 200, ..SMALL }.random());
    source.tokenizer = Some(tokenizer(300));
    let report = export(&source, &options(&folder, DType::F32, Format::V2)).unwrap();
    let loaded = Loaded::open(&report.out).unwrap();
    (folder, loaded)
}

fn bits(session: &mut Session<'_>) -> Vec<u32> {
    session.logits().unwrap().iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn a_later_prompt_is_merged_in_unused_positions_and_the_used_ones_stay() {
    let (_folder, loaded) = loaded();
    for kv in KINDS {
        let options = CpuOptions { context: None, kv, tokenizer: None };
        let (mut one, mut other) = (Cpu::new(&loaded, &options).unwrap(), Cpu::new(&loaded, &options).unwrap());
        let mut session = one.session(Sampler::greedy()).unwrap();
        assert_eq!(session.prompt(b"Once upon").unwrap(), 11);
        session.logits().unwrap();
        let text: Vec<u8> = (0..130).map(|i| b'a' + i % 26).collect();
        // A token a byte and the space before them: too many, and nothing has changed.
        let refused = session.prompt(&[text.as_slice(), text.as_slice()].concat()).unwrap_err();
        let expected = if kv == KvDType::Q8 {
            // 4 tables of 189 rows of 8 codes are less than 7 words a symbol.
            Error::ScratchTooSmall { needed: 261 * 7, found: 4 * 189 * 8 / 4 }
        } else {
            Error::PromptTooLong { tokens: 261, room: 189 }
        };
        assert_eq!(refused, expected);
        assert_eq!(session.prompt(&text).unwrap(), 131);
        // Tokens that are known, but were not fed yet, have no keys and values.
        assert_eq!(session.prompt(b"and").unwrap(), 4);
        let tokens = session.tokens().to_vec();
        let mut told = other.session(Sampler::greedy()).unwrap();
        told.push_tokens(&tokens).unwrap();
        assert_eq!(bits(&mut session), bits(&mut told), "{kv:?}");
    }
}

#[test]
fn memory_in_two_banks_gives_the_same_bits_and_names_the_one_that_is_short() {
    let (_folder, loaded) = loaded();
    for kv in KINDS {
        let mut cpu = Cpu::new(&loaded, &CpuOptions { context: Some(30), kv, tokenizer: None }).unwrap();
        let model = *cpu.model();
        let (kv_len, work_len) = model.bank_lens().unwrap();
        assert_eq!(Ok(kv_len + work_len), model.arena_len());
        let mut expected = cpu.session(Sampler::greedy()).unwrap();
        expected.prompt(b"Once").unwrap();
        let (mut far, mut near) = (vec![7u32; kv_len / 4], vec![7u32; work_len / 4]);
        {
            let mut session = Session::new_in_banks(&model, far.as_mut_slice(), near.as_mut_slice(), Sampler::greedy()).unwrap();
            session.prompt(b"Once").unwrap();
            for _ in 0..10 {
                let logits = bits(&mut expected);
                assert_eq!(bits(&mut session), logits);
                session.push_tokens(&[logits[0] % 300]).unwrap();
                expected.push_tokens(&[logits[0] % 300]).unwrap();
            }
        }
        let (needed, found) = (kv_len as u64, kv_len as u64 - 4);
        let refused = Session::new_in_banks(&model, &mut far[1..], near.as_mut_slice(), Sampler::greedy()).map(|_| ());
        assert_eq!(refused, Err(Error::BankTooSmall { bank: Bank::Kv, needed, found }));
        let (needed, found) = (work_len as u64, work_len as u64 - 4);
        let refused = Session::new_in_banks(&model, far.as_mut_slice(), &mut near[1..], Sampler::greedy()).map(|_| ());
        assert_eq!(refused, Err(Error::BankTooSmall { bank: Bank::Work, needed, found }));
        let text = loaded.explain(refused.unwrap_err()).to_string();
        assert!(text.contains("everything but keys and values") && text.contains(&needed.to_string()), "{text}");
    }
}

#[test]
fn a_prompt_in_the_middle_of_a_step_leaves_the_layers_that_are_done() {
    let (_folder, loaded) = loaded();
    for kv in KINDS {
        let options = CpuOptions { context: None, kv, tokenizer: None };
        let (mut one, mut other) = (Cpu::new(&loaded, &options).unwrap(), Cpu::new(&loaded, &options).unwrap());
        let mut session = one.session(Sampler::greedy()).unwrap();
        session.prompt(b"Once upon").unwrap();
        while session.position() < 10 || session.layers_done() != Some(1) {
            session.advance().unwrap();
        }
        let text: Vec<u8> = (0..130).map(|i| b'a' + i % 26).collect();
        assert_eq!(session.prompt(&text).unwrap(), 131);
        let tokens = session.tokens().to_vec();
        let mut told = other.session(Sampler::greedy()).unwrap();
        told.push_tokens(&tokens).unwrap();
        assert_eq!(bits(&mut session), bits(&mut told), "{kv:?}");
    }
}
