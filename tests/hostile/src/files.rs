//! Model files: opened, checked, bound and run.

use crate::Outcome;
use dmexp::sampler::argmax;
use dmexp::{Model, Prediction, Predictor, Sampler, Session, Step};
use dmexp_format::arch::{Architecture, dormouse, llama_tensors, sequential};
use dmexp_format::file::ModelFile;
use dmexp_format::file::fixed::ALIGNMENT_MIN;
use dmexp_format::file::index::Index;
use dmexp_format::host::{self, Header, HeaderV1};
use dmexp_format::layout::{Decoding, DormouseLayout, LlamaLayout};
use dmexp_format::tokenizer::TokenizerKind;
use dmexp_format::vocabulary::Vocabulary;
use dmexp_format::{Error, KvDType};

/// Positions that are run.
const POSITIONS: u32 = 6;
/// Models that need more memory than this are not run: a file of a few bytes may ask for much, and the user is told how much.
const ARENA_LIMIT: usize = 64 << 20;

/// Opens a file, binds and runs its model, and checks it as `dmexp export verify` does. Accepted is what is right as a whole; its meaning is its bytes.
///
/// # Panics
/// If a file that is right cannot be written again, or a model gives numbers that are none.
pub(crate) fn model(bytes: &[u8]) -> Outcome {
    let opened = ModelFile::open(bytes);
    let verified = host::verify(bytes);
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            assert!(verified.is_err(), "what does not open is not right: {error}");
            return Outcome::refused(&error);
        }
    };
    let ran = run(&file);
    if let Err(error) = verified {
        return Outcome::refused(&error);
    }
    written_again(bytes, &file);
    match ran {
        // These are about the numbers, not about the file.
        Ok(()) | Err(Error::NonFiniteLogits { .. } | Error::NonFinite { .. }) => Outcome::accepted(&bytes),
        Err(error) => Outcome::refused(&error),
    }
}

fn run(file: &ModelFile<'_>) -> Result<(), Error> {
    if file.architecture() == Architecture::Sequential {
        return predict(file);
    }
    let model = Model::bind(file)?;
    let model = model.with_context(model.context().min(POSITIONS));
    for kv in [KvDType::F32, KvDType::F16, KvDType::Q8] {
        if model.network().dormouse().is_none() {
            step(&model.with_kv(kv))?;
        } else if kv == KvDType::F32 {
            step(&model)?;
            step(&model.with_decoding(Decoding::Fast))?;
        }
    }
    Ok(())
}

fn step(model: &Model<'_>) -> Result<(), Error> {
    let bytes = model.arena_len()?;
    if bytes > ARENA_LIMIT {
        return Ok(());
    }
    let mut memory = vec![0u32; bytes.div_ceil(4)];
    let mut session = Session::new(model, memory.as_mut_slice(), Sampler::greedy())?;
    if model.tokenizer().facts().kind == TokenizerKind::None {
        session.push_tokens(&[0, model.network().vocab_size() - 1])?;
    } else {
        match session.prompt("a\u{e9} b".as_bytes()) {
            // Not every tokenizer has these characters, nor every context the room.
            Ok(_) | Err(Error::NoToken { .. } | Error::PromptTooLong { .. }) => {}
            Err(error) => return Err(error),
        }
        if session.tokens().is_empty() {
            session.push_tokens(&[0])?;
        }
    }
    let logits = session.logits()?;
    assert!(logits.iter().all(|logit| logit.is_finite()), "logits are finite or an error");
    let Some((next, _)) = argmax(logits) else { return Ok(()) };
    if session.position() == model.context() {
        return Ok(());
    }
    session.push_tokens(&[next])?;
    while session.position() < model.context() {
        match session.step()? {
            Step::Token { .. } | Step::Prompt { .. } => {}
            _ => break,
        }
    }
    Ok(())
}

fn predict(file: &ModelFile<'_>) -> Result<(), Error> {
    let predictor = Predictor::bind(file)?;
    let bytes = predictor.arena_len()?;
    if bytes > ARENA_LIMIT {
        return Ok(());
    }
    let mut memory = vec![0u32; bytes.div_ceil(4)];
    let mut prediction = Prediction::new(predictor, memory.as_mut_slice())?;
    for number in 0..predictor.num_inputs() {
        prediction.input_mut(number).fill(0.5);
    }
    prediction.run()?;
    for number in 0..predictor.num_outputs() {
        assert!(prediction.output(number).iter().all(|value| value.is_finite()), "results are finite or an error");
    }
    Ok(())
}

/// That what was read can be written, and is the same when it is read again.
fn written_again(bytes: &[u8], file: &ModelFile<'_>) {
    let Some(text) = file.header_text() else { return };
    if file.version() == 1 {
        let (header, _) = HeaderV1::parse(text).expect("it was verified");
        let again = header.to_text().expect("what was read can be written");
        assert_eq!(HeaderV1::parse(&again).expect("what is written can be read").0, header);
        return;
    }
    let (header, _) = Header::parse(text).expect("it was verified");
    let mut again = Vec::new();
    host::rewrite_head(&mut again, bytes, &header).expect("what was read can be written");
    host::verify(&again).expect("what is written is right");
    let rewritten = ModelFile::open(&again).expect("it was verified");
    assert_eq!(Header::parse(rewritten.header_text().expect("a header")).expect("it was verified").0, header);
    assert_eq!((rewritten.payload(), rewritten.fingerprint()), (file.payload(), file.fingerprint()));
    let stripped = host::strip(bytes).expect("what was read can be stripped");
    host::verify(&stripped).expect("what is stripped is right");
    let stripped = ModelFile::open(&stripped).expect("it was verified").fingerprint();
    assert_eq!(stripped, file.fingerprint());
}

/// What `include_model!` does with a file before it writes code, for the first options there are.
///
/// # Panics
/// If a place that it would write into the program is not there.
pub(crate) fn include_model(bytes: &[u8]) -> Outcome {
    match included(bytes) {
        Ok(()) => Outcome::accepted(&bytes),
        Err(error) => Outcome::refused(&error),
    }
}

fn included(bytes: &[u8]) -> Result<(), String> {
    let said = |error: Error| error.to_string();
    let file = ModelFile::open(bytes).map_err(said)?;
    host::verify(bytes).map_err(|error| error.to_string())?;
    match file.architecture() {
        Architecture::Sequential => {
            let model = sequential::check_tensors(&file).map_err(said)?;
            let mut table = vec![[0; sequential::SLOT_WORDS]; model.num_nodes() as usize];
            let quantised = |number| file.tensor(number).is_some_and(|view| view.dtype().is_quantised());
            sequential::plan(&model, quantised, sequential::Usage::default(), &mut table).map_err(said)?;
        }
        Architecture::Dormouse => {
            let config = dormouse::check::check_tensors(&file).map_err(said)?.config;
            DormouseLayout::new(&config, config.max_seq_len, Decoding::Exact).map_err(said)?;
        }
        _ => {
            let config = llama_tensors::check_tensors(&file).map_err(said)?;
            Vocabulary::bind(&file).map_err(said)?;
            LlamaLayout::new(&config, config.max_seq_len, KvDType::default()).map_err(said)?;
        }
    }
    let start = bytes.len() - file.payload().len();
    for tensor in file.tensors() {
        let at = start + tensor.offset as usize;
        assert_eq!(bytes.get(at..at + tensor.view.bytes().len()), Some(tensor.view.bytes()), "tensor {} is elsewhere", tensor.name);
    }
    let goldens = file.golden();
    assert!(goldens.as_bytes().is_empty() || bytes.as_ptr_range().contains(&goldens.as_bytes().as_ptr()));
    Ok(())
}

/// The TOML header of either format, without a file around it.
///
/// # Panics
/// If what is written is not what was read.
pub(crate) fn header(bytes: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    if let Ok((header, _)) = HeaderV1::parse(text) {
        let again = header.to_text().expect("what was read can be written");
        assert_eq!(HeaderV1::parse(&again).expect("what is written can be read").0, header);
        return Outcome::accepted(&again);
    }
    let (header, _) = match Header::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return Outcome::refused(&error),
    };
    let again = header.to_text();
    assert_eq!(Header::parse(&again).expect("what is written can be read").0, header);
    let index = match host::derive_index(&header) {
        Ok(index) => index,
        Err(error) => return Outcome::refused(&error),
    };
    // The alignment is not the header's to say.
    let reads = [ALIGNMENT_MIN, host::DEFAULT_ALIGNMENT].map(|alignment| Index::parse(&index, alignment, header.payload_bytes()));
    match reads {
        [Err(error), Err(_)] => Outcome::refused(&error),
        _ => Outcome::accepted(&again),
    }
}

/// An index behind its payload's length (8 bytes), without a file around it.
pub(crate) fn index(bytes: &[u8]) -> Outcome {
    let Some((len, index)) = bytes.split_first_chunk() else { return Outcome::Refused };
    match Index::parse(index, ALIGNMENT_MIN, u64::from_le_bytes(*len)) {
        Ok(index) => {
            for number in 0..index.num_tensors() {
                assert!(index.record(number).is_some() && index.name(number).is_some(), "a tensor that is counted is there");
            }
            Outcome::accepted(&bytes)
        }
        Err(error) => Outcome::refused(&error),
    }
}
