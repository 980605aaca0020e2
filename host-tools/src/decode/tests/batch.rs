//! Several texts at once: each gets the bits that it gets alone, whatever the others are at.

use super::*;
use crate::export::tests::bits;
use dmexp::{Batch, Part, sampler::argmax};
use std::sync::Mutex;

/// Large enough for its matrices, and attention of the later positions, to be shared among threads.
pub(crate) const SHAPE: Shape =
    Shape { dim: 96, hidden_dim: 200, n_layers: 2, n_heads: 6, n_kv_heads: 2, vocab_size: 300, tied: false, max_seq_len: 64 };
pub(crate) const TEXTS: u32 = 16;
/// New tokens behind each prompt.
const NEW: usize = 6;

/// A prompt of another length for each text; the longest takes more than one batch.
fn prompt(text: u32) -> Vec<u32> {
    (0..=text * 7 % 53).map(|place| 3 + (text * 31 + place * 13) % 290).collect()
}

/// A text under way.
struct Text<'a> {
    session: Session<'a>,
    /// The logits after the last token of the prompt and after each new one, or after every token.
    rows: Vec<Vec<f32>>,
    every: bool,
}

/// All texts as a server has them: each gets a position, and the first that has more of them what room is left.
pub(crate) fn at_once(model: &dmexp::Model<'_>, positions: u32) -> Vec<(Vec<u32>, Vec<Vec<f32>>)> {
    let mut arenas: Vec<Vec<u32>> = (0..TEXTS).map(|_| vec![0; model.arena_len().unwrap().div_ceil(4)]).collect();
    let mut memory = vec![0; Batch::arena_len(model, positions, 5).unwrap().div_ceil(4)];
    let mut batch = Batch::new(model, positions, 5, memory.as_mut_slice()).unwrap();
    let mut texts: Vec<Text<'_>> = Vec::new();
    for (text, arena) in (0..TEXTS).zip(&mut arenas) {
        let mut session = Session::new(model, arena.as_mut_slice(), Sampler::greedy()).unwrap();
        session.push_tokens(&prompt(text)).unwrap();
        texts.push(Text { session, rows: Vec::new(), every: text % 5 == 4 });
    }
    loop {
        let mut room = batch.positions();
        let mut waiting: Vec<&mut Text<'_>> = texts.iter_mut().filter(|text| text.session.waiting() > 0).collect();
        if waiting.is_empty() {
            break;
        }
        waiting.truncate(room as usize);
        room -= waiting.len() as u32;
        let (mut parts, mut rows) = (Vec::new(), Vec::new());
        for text in waiting {
            let more = (text.session.waiting() - 1).min(room);
            room -= more;
            parts.push(Part { session: &mut text.session, count: 1 + more, every: text.every });
            rows.push(Mutex::new((&mut text.rows, Vec::new())));
        }
        let known: Vec<Vec<u32>> = parts.iter().map(|part| part.session.tokens().to_vec()).collect();
        batch
            .feed(&mut parts, &|fed| {
                assert_eq!(fed.tokens, known[fed.part]);
                rows[fed.part].lock().unwrap().1.push((fed.position, fed.logits.unwrap().to_vec()));
            })
            .unwrap();
        // They come in any order.
        for (rows, mut new) in rows.into_iter().map(|rows| rows.into_inner().unwrap()) {
            new.sort_by_key(|(position, _)| *position);
            rows.extend(new.into_iter().map(|(_, row)| row));
        }
        for (text, prompt) in texts.iter_mut().zip((0..).map(prompt)) {
            let new = text.session.tokens().len() - prompt.len();
            if text.session.waiting() == 0 && new < NEW {
                let (token, _) = argmax(text.rows.last().unwrap()).unwrap();
                text.session.push_tokens(&[token]).unwrap();
            }
        }
    }
    texts.into_iter().map(|text| (text.session.tokens().to_vec(), text.rows)).collect()
}

#[test]
fn sixteen_texts_at_once_have_the_bits_of_each_alone() {
    let checkpoint = open(SHAPE.random());
    let kinds = [
        (DType::F32, KvDType::F32),
        (DType::F16, KvDType::F16),
        (DType::Bf16, KvDType::Q8),
        (DType::Q8, KvDType::F16),
        (DType::Q8, KvDType::Q8),
        (DType::Q4, KvDType::F32),
    ];
    for (dtype, kv) in kinds {
        let folder = TempDir::new().unwrap();
        let loaded = Loaded::open(&export(&checkpoint, &options(&folder, dtype, Format::V2)).unwrap().out).unwrap();
        let mut cpu = Cpu::new(&loaded, &CpuOptions { kv, ..CpuOptions::default() }).unwrap();
        let mut session = cpu.session(Sampler::greedy()).unwrap();
        for (threads, positions) in [(1, 64), (3, 64), (2, 17), (2, 3)] {
            let mut model = loaded.model().unwrap().with_kv(kv);
            if threads > 1 {
                model = model.with_executor(Pool::of(threads));
            }
            for (text, (tokens, rows)) in at_once(&model, positions).into_iter().enumerate() {
                assert_eq!(tokens.len(), prompt(text as u32).len() + NEW);
                Decoder::reset(&mut session);
                let mut alone = Vec::new();
                for token in &tokens {
                    alone.push(session.feed(&[*token]).unwrap().to_vec());
                }
                let first = if text % 5 == 4 { 0 } else { tokens.len() - NEW - 1 };
                assert!(bits(&rows) == bits(&alone[first..]), "{dtype}, kv {kv:?}, {threads} threads, text {text} of {positions} at once");
            }
        }
    }
}

#[test]
fn what_cannot_be_fed_is_refused_before_anything_is_done() {
    let (_folder, loaded) = exported(Format::V2);
    let model = loaded.model().unwrap();
    let mut arena = vec![0; model.arena_len().unwrap().div_ceil(4)];
    let mut session = Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap();
    let words = Batch::arena_len(&model, 4, 1).unwrap().div_ceil(4);
    assert!(matches!(
        Batch::new(&model, 4, 1, vec![0; words - 1].as_mut_slice()).map(|_| ()),
        Err(dmexp::format::Error::ArenaTooSmall { .. })
    ));
    let mut memory = vec![0; words];
    let mut batch = Batch::new(&model, 4, 1, memory.as_mut_slice()).unwrap();
    session.push_tokens(&[1, 2, 3, 4, 5]).unwrap();
    for (count, wanted) in [(0, "prompt"), (6, "prompt"), (5, "5 tokens")] {
        let error = batch.feed(&mut [Part { session: &mut session, count, every: true }], &|_| panic!("nothing is fed")).unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert_eq!((session.position(), session.waiting()), (0, 5));
    }
}

#[test]
fn sessions_of_other_models_and_half_fed_ones_are_fed_beside_the_others() {
    let (_folder, loaded) = exported(Format::V2);
    let (_other_folder, other_loaded) = with_text();
    let (model, other_model) = (loaded.model().unwrap(), other_loaded.model().unwrap());
    let tokens = [1, 40, 7, 299];
    let mut expected = Vec::new();
    for loaded in [&loaded, &loaded, &other_loaded] {
        let mut cpu = Cpu::new(loaded, &CpuOptions::default()).unwrap();
        expected.push(cpu.session(Sampler::greedy()).unwrap().feed(&tokens).unwrap().to_vec());
    }
    let mut arenas = [&model, &model, &other_model].map(|model| vec![0; model.arena_len().unwrap().div_ceil(4)]);
    let [first, second, third] = &mut arenas;
    let mut sessions = [(&model, first), (&model, second), (&other_model, third)].map(|(model, arena)| {
        let mut session = Session::new(model, arena.as_mut_slice(), Sampler::greedy()).unwrap();
        session.push_tokens(&tokens).unwrap();
        session
    });
    // The second is in the middle of its first token.
    sessions[1].poll().unwrap();
    let mut memory = vec![0; Batch::arena_len(&model, 64, 2).unwrap().div_ceil(4)];
    let mut batch = Batch::new(&model, 64, 2, memory.as_mut_slice()).unwrap();
    let found = Mutex::new(vec![Vec::new(); 3]);
    let mut parts: Vec<Part<'_, '_>> = sessions.iter_mut().map(|session| Part { session, count: 4, every: false }).collect();
    batch
        .feed(&mut parts, &|fed| {
            assert_eq!((fed.position, fed.tokens), (3, tokens.as_slice()));
            found.lock().unwrap()[fed.part] = fed.logits.unwrap().to_vec();
        })
        .unwrap();
    assert_eq!(bits(&found.into_inner().unwrap()), bits(&expected));
}

#[test]
fn what_was_cut_off_is_forgotten_and_the_rest_goes_on_with_the_same_bits() {
    let (_folder, loaded) = exported(Format::V2);
    let mut cpu = Cpu::new(&loaded, &CpuOptions::default()).unwrap();
    let mut session = cpu.session(Sampler::greedy()).unwrap();
    let expected = session.feed(&[1, 40, 7, 9]).unwrap().to_vec();
    session.truncate(2);
    assert_eq!((session.tokens(), session.position()), (&[1, 40][..], 2));
    session.push_tokens(&[8, 8]).unwrap();
    session.poll().unwrap();
    session.truncate(2);
    assert_eq!(session.feed(&[7, 9]).unwrap(), expected);
    // Waiting tokens alone.
    session.push_tokens(&[3, 4]).unwrap();
    session.truncate(5);
    assert_eq!((session.waiting(), session.position()), (1, 4));
    session.truncate(9);
    assert_eq!(session.waiting(), 1);
    session.truncate(0);
    assert_eq!(session.feed(&[1, 40, 7, 9]).unwrap(), expected);
}

#[test]
fn models_of_dormouse_take_part_and_can_be_cut() {
    let Some(folder) = data("dormouse") else { return };
    let path =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "dmexp"));
    let path = path.min().expect("there is one");
    let loaded = Loaded::open(&path).unwrap();
    let model = loaded.model().unwrap().with_context(16);
    let mut arena = vec![0; model.arena_len().unwrap().div_ceil(4)];
    let mut session = Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap();
    let expected = session.feed(b"once upon".map(u32::from).as_slice()).unwrap().to_vec();
    session.truncate(5);
    session.push_tokens(&b"upon".map(u32::from)).unwrap();
    let mut batch_memory = vec![0; Batch::arena_len(&model, 64, 2).unwrap().div_ceil(4)];
    let mut batch = Batch::new(&model, 64, 2, batch_memory.as_mut_slice()).unwrap();
    let count = session.waiting();
    let found = Mutex::new(Vec::new());
    let mut parts = [Part { session: &mut session, count, every: false }];
    batch.feed(&mut parts, &|fed| found.lock().unwrap().push(fed.logits.unwrap().to_vec())).unwrap();
    assert_eq!(bits(&found.into_inner().unwrap()), bits(&[expected]));
}
