//! Tests of both sides of the probe, in this process: a device at one end, this crate at the other, and a line between them that can be as bad as wanted.

use super::{Device, Link, Name, Timing, Transport};
use crate::decode::{Cpu, CpuOptions, Loaded};
use crate::error::{Class, Error, Result};
use crate::export::Format;
use crate::export::tests::{SMALL, export, open, options, tokenizer};
use dmexp::probe::{About, Outgoing, Probe, Receiver, Reply, Request, VERSION, checksum};
use dmexp::sampler::Settings;
use dmexp::{Sampler, Session};
use dmexp_format::{DType, crc32};
use std::cell::Cell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;

/// Random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

/// A chip in this process.
struct Chip {
    about: About<'static>,
    probe: Probe<'static>,
    session: Session<'static>,
}

impl Chip {
    /// It lives as long as the tests.
    fn new(loaded: &'static Loaded) -> Self {
        let cpu = Box::leak(Box::new(Cpu::new(loaded, &CpuOptions::default()).unwrap()));
        let file = loaded.file().unwrap();
        let about = About {
            firmware: "test 1",
            board: "this process",
            fingerprint: file.fingerprint(),
            goldens: Some(file.golden()),
            ticks: None,
            stack: Some(|| 1234),
        };
        Self { probe: Probe::new(about.clone()), about, session: cpu.session(Sampler::greedy()).unwrap() }
    }

    fn restart(&mut self) {
        self.probe = Probe::new(self.about.clone());
        self.session.reset();
    }

    /// What it answers to these bytes.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Bytes(Vec::new());
        for byte in bytes {
            assert!(self.probe.receive(&mut self.session, *byte, &mut out));
        }
        out.0
    }
}

struct Bytes(Vec<u8>);

impl embedded_io::ErrorType for Bytes {
    type Error = Infallible;
}

impl embedded_io::Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::result::Result<usize, Infallible> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::result::Result<(), Infallible> {
        Ok(())
    }
}

fn model() -> &'static Loaded {
    let folder = TempDir::new().unwrap();
    let mut checkpoint = open(SMALL.random());
    checkpoint.tokenizer = Some(tokenizer(300));
    let report = export(&checkpoint, &options(&folder, DType::F16, Format::V2)).unwrap();
    let bytes = std::fs::read(&report.out).unwrap();
    Box::leak(Box::new(Loaded::from_bytes("made.dmexp".as_ref(), bytes).unwrap()))
}

/// A line on which every frame may come to harm. Time does not pass on it: where nothing comes, nothing will.
struct Line {
    chip: Chip,
    random: Random,
    /// One frame of so many is harmed; 0 for none.
    one_of: usize,
    faults: Rc<Cell<u64>>,
    late: [Vec<u8>; 2],
    arriving: VecDeque<u8>,
}

impl Line {
    fn new(chip: Chip, seed: u64, one_of: usize, faults: Rc<Cell<u64>>) -> Self {
        Self { chip, random: Random(seed | 1), one_of, faults, late: [Vec::new(), Vec::new()], arriving: VecDeque::new() }
    }

    /// What arrives of `frame` at the end `to` (0 the chip, 1 the host).
    fn harm(&mut self, to: usize, frame: &[u8]) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let mut arrives = std::mem::take(&mut self.late[to]);
        if self.one_of == 0 || self.random.below(self.one_of) != 0 {
            // What was late comes before or after this one.
            if self.random.below(2) == 0 {
                arrives.splice(0..0, frame);
            } else {
                arrives.extend(frame);
            }
            return arrives;
        }
        self.faults.set(self.faults.get() + 1);
        let place = self.random.below(frame.len());
        match self.random.below(8) {
            0 => frame.clear(),
            1 => frame.truncate(place),
            2 => drop(frame.drain(..place)),
            3 => drop(frame.drain(place..(place + 3).min(frame.len()))),
            4 => frame[place] ^= 1 << self.random.below(8),
            5 => frame.extend_from_within(..),
            6 => self.late[to] = std::mem::take(&mut frame),
            _ if to == 0 => {
                self.chip.restart();
                frame.truncate(place);
            }
            _ => {
                let noise = (0..self.random.below(600)).map(|_| self.random.next() as u8);
                frame = noise.collect::<Vec<_>>().into_iter().chain(frame).collect();
            }
        }
        arrives.extend(frame);
        arrives
    }
}

impl Transport for Line {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let arrived = self.harm(0, bytes);
        let answers = self.chip.take(&arrived);
        // Each frame by itself: a 0, what has none, a 0.
        for content in answers.split(|byte| *byte == 0).filter(|content| !content.is_empty()) {
            let frame = [&[0], content, &[0]].concat();
            let arrived = self.harm(1, &frame);
            self.arriving.extend(arrived);
        }
        Ok(())
    }

    fn receive(&mut self, _: Duration) -> Result<Vec<u8>> {
        let count = self.arriving.len().min(1 + self.random.below(40));
        Ok(self.arriving.drain(..count).collect())
    }
}

fn timing(tries: u32) -> Timing {
    Timing { tries, ..Timing::default() }
}

fn device(line: Line, tries: u32) -> Result<Device> {
    Device::open(Link::new(Box::new(line), timing(tries)))
}

/// What the model computes, without a line.
struct Truth {
    tokens: Vec<u32>,
    logits: Vec<Vec<f32>>,
    /// By position, then by layers done.
    residuals: Vec<Vec<Vec<f32>>>,
    tensor: u32,
    text: Vec<u32>,
}

const PROMPT: &[u8] = b"p260 p270";
const TEXT: u32 = 6;

fn truth(loaded: &'static Loaded) -> Truth {
    let mut chip = Chip::new(loaded);
    let tokens = vec![1, 40, 7, 299, 12, 0];
    let (mut logits, mut residuals) = (Vec::new(), Vec::new());
    for token in &tokens {
        chip.session.push_tokens(&[*token]).unwrap();
        residuals.push(
            (0..=SMALL.n_layers)
                .map(|_| {
                    chip.session.advance().unwrap();
                    chip.session.residual().to_vec()
                })
                .collect(),
        );
        logits.push(chip.session.logits().unwrap().to_vec());
    }
    chip.session.reset();
    chip.session.set_sampler(Sampler::new(sampled()).unwrap());
    let prompt = chip.session.prompt(PROMPT).unwrap();
    while chip.session.tokens().len() < (prompt + TEXT) as usize {
        if let dmexp::Step::Stop(_) = chip.session.step().unwrap() {
            break;
        }
    }
    let text = chip.session.tokens()[prompt as usize..].to_vec();
    let tensor = crc32::checksum(&[loaded.file().unwrap().tensor(3).unwrap().bytes()]);
    Truth { tokens, logits, residuals, tensor, text }
}

fn sampled() -> Settings {
    Settings { temperature: 0.9, seed: 77, ..Settings::GREEDY }
}

/// Asks for everything and compares; the first error ends it.
fn ask_everything(device: &mut Device, truth: &Truth, random: &mut Random) -> Result<()> {
    device.begin()?;
    for (position, token) in truth.tokens.iter().enumerate() {
        if random.below(2) == 0 {
            for (layers, residual) in truth.residuals[position].iter().enumerate() {
                assert_eq!(device.layers(*token, layers as u32)?, checksum(residual));
                if random.below(3) == 0 {
                    assert_eq!(device.residual()?, *residual);
                }
            }
        }
        let logits = &truth.logits[position];
        let stepped = device.step(*token)?.expect("finite");
        assert_eq!((stepped.checksum, stepped.top), (checksum(logits), dmexp::probe::top5(logits)));
        if random.below(3) == 0 {
            assert_eq!(device.logits()?, *logits);
        }
    }
    assert_eq!(device.tensor(3)?, truth.tensor);
    assert_eq!(device.stats()?.stack, Some(1234));
    let mut shown = Vec::new();
    let generated = device.generate(PROMPT, sampled(), TEXT, &mut |text| {
        shown.extend_from_slice(text);
        Ok(())
    })?;
    assert_eq!((&generated.tokens, &generated.text), (&truth.text, &shown));
    let tested = device.self_test(1)?.expect("keys and values in f16");
    assert!(tested.positions > 1 && tested.wrong.is_none(), "{tested:?}");
    Ok(())
}

#[test]
fn a_good_line_gives_what_the_model_computes() {
    let loaded = model();
    let truth = truth(loaded);
    let faults = Rc::new(Cell::new(0));
    let mut device = device(Line::new(Chip::new(loaded), 1, 0, faults), 1).unwrap();
    assert_eq!((device.hello().firmware.as_str(), device.hello().board.as_str()), ("test 1", "this process"));
    assert_eq!(device.hello().fingerprint, loaded.file().unwrap().fingerprint());
    let facts = *device.facts();
    assert_eq!((facts.dim, facts.n_layers, facts.vocab_size, facts.context, facts.goldens), (16, 2, 300, 40, 2));
    let mut random = Random(5);
    for _ in 0..4 {
        ask_everything(&mut device, &truth, &mut random).unwrap();
    }
    // What there is not.
    assert!(device.tensor(facts.tensors).unwrap_err().to_string().contains("no such tensor"));
    assert!(device.self_test(2).unwrap_err().to_string().contains("no such golden"));
    assert_eq!(device.self_test(0).unwrap(), None, "keys and values in f32");
    device.begin().unwrap();
    assert!(device.layers(1, 3).unwrap_err().to_string().contains("no such layers: there are 2"));
    assert!(device.step(300).unwrap_err().to_string().contains("no such token: there are 300"));
    for _ in 0..facts.context {
        device.step(5).unwrap();
    }
    assert!(device.step(5).unwrap_err().to_string().contains("no room"));
    let generated = device.generate(PROMPT, sampled(), facts.context + 1, &mut |_| Ok(())).unwrap();
    assert_eq!(generated.stopped.is_some(), generated.tokens.len() <= facts.context as usize);
    assert!(generated.stopped.is_some(), "{generated:?}");
    let broken = Settings { temperature: f32::NAN, ..Settings::GREEDY };
    assert!(device.generate(PROMPT, broken, 1, &mut |_| Ok(())).unwrap_err().to_string().contains("sampler"));
}

#[test]
fn ten_thousand_faults_on_the_line_end_right_or_in_an_error() {
    let loaded = model();
    let truth = truth(loaded);
    let faults = Rc::new(Cell::new(0));
    let (mut right, mut errors) = (0, Vec::new());
    let mut seed = 1;
    while faults.get() < 10_000 {
        seed += 1;
        // Bad lines and worse ones.
        let line = Line::new(Chip::new(loaded), seed * 0x9E37_79B9, 3 + seed as usize % 30, faults.clone());
        let mut random = Random(seed);
        let outcome = device(line, 3 + seed as u32 % 8).and_then(|mut device| {
            for _ in 0..4 {
                ask_everything(&mut device, &truth, &mut random)?;
                right += 1;
            }
            Ok(())
        });
        errors.extend(outcome.err());
    }
    println!("{} faults: {right} sessions ended right, {} in an error", faults.get(), errors.len());
    for error in &errors {
        assert!(matches!(error.class(), Class::Unreadable | Class::Damaged), "{error}");
        assert!(error.to_string().contains("the device"), "{error}");
    }
    assert!(right > 2 * errors.len(), "{right} {}", errors.len());
}

#[test]
fn a_line_that_is_dead_is_an_error_with_what_was_written() {
    struct Dead(VecDeque<u8>);
    impl Transport for Dead {
        fn send(&mut self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn receive(&mut self, _: Duration) -> Result<Vec<u8>> {
            Ok(self.0.drain(..).collect())
        }
    }
    let open = |text: &str| Device::open(Link::new(Box::new(Dead(text.bytes().collect())), timing(3))).unwrap_err();
    assert!(open("").to_string().contains("does not answer; asked 3 times"));
    let error = open("dmexp: refused: arena: needed, found 5 4\n");
    assert!(error.class() == Class::Unreadable && error.to_string().contains("it wrote: dmexp: refused: arena"), "{error}");
}

/// A frame around any message, with a right checksum.
fn framed(version: u8, id: u32, message: &[u8]) -> Vec<u8> {
    let mut content = [&[version][..], &id.to_le_bytes(), message].concat();
    content.extend(crc32::checksum(&[&content]).to_le_bytes());
    let mut frame = vec![0];
    for block in content.split(|byte| *byte == 0) {
        frame.push(block.len() as u8 + 1);
        frame.extend(block);
    }
    frame.push(0);
    frame
}

#[test]
fn a_chip_answers_every_whole_frame_and_survives_every_other() {
    let mut chip = Chip::new(model());
    let mut random = Random(99);
    for round in 0..30_000u32 {
        let mut bytes: Vec<u8> = (0..random.below(40)).map(|_| random.next() as u8).collect();
        // Messages that begin like those that there are, and go on as they like.
        if let (true, Some(first)) = (round % 2 == 0, bytes.first_mut()) {
            *first %= 12;
        }
        if round % 8 == 7 {
            chip.take(&bytes);
            continue;
        }
        let version = if random.below(50) == 0 { 2 } else { VERSION };
        let answer = chip.take(&[&[0][..], &framed(version, round, &bytes)].concat());
        let mut receiver = Receiver::new();
        let mut last = None;
        for byte in answer {
            if let Some(frame) = receiver.push(byte) {
                assert_eq!((frame.version, frame.id), (VERSION, round));
                last = Some(!matches!(postcard::from_bytes(frame.message).unwrap(), Reply::Busy));
            }
        }
        assert_eq!(last, Some(true), "an answer that is not Busy comes last");
    }
    // It still is what it was.
    let mut out = Bytes(Vec::new());
    assert!(Outgoing::new(1, &Request::Hello).unwrap().send(&mut out));
    assert!(chip.take(&out.0).windows(6).any(|window| window == b"test 1"));
}

#[test]
fn a_host_survives_every_answer() {
    /// Answers with the right number and anything.
    struct Babbler {
        random: Random,
        receiver: Receiver,
        arriving: Vec<u8>,
        honest: u32,
    }
    impl Transport for Babbler {
        fn send(&mut self, bytes: &[u8]) -> Result<()> {
            let mut id = 0;
            for byte in bytes {
                id = self.receiver.push(*byte).map_or(id, |frame| frame.id);
            }
            self.honest += 1;
            let facts = dmexp::probe::Facts { dim: 4, n_layers: 1, vocab_size: 5, context: 9, kv: 1, tensors: 2, goldens: 0 };
            let mut out = Bytes(Vec::new());
            match self.honest {
                1 => _ = Outgoing::new(id, &Reply::Hello { firmware: "f", board: "b", fingerprint: 1 }).unwrap().send(&mut out),
                2 => _ = Outgoing::new(id, &Reply::Facts(facts)).unwrap().send(&mut out),
                _ => {
                    let mut message: Vec<u8> = (0..self.random.below(60)).map(|_| self.random.next() as u8).collect();
                    if let Some(first) = message.first_mut() {
                        *first %= 14;
                    }
                    out.0 = framed(if self.random.below(60) == 0 { 3 } else { VERSION }, id, &message);
                }
            }
            self.arriving.extend(out.0);
            Ok(())
        }

        fn receive(&mut self, _: Duration) -> Result<Vec<u8>> {
            Ok(std::mem::take(&mut self.arriving))
        }
    }
    let mut errors = 0;
    for seed in 1..3000 {
        let babbler = Babbler { random: Random(seed * 7919), receiver: Receiver::new(), arriving: Vec::new(), honest: 0 };
        let mut device = Device::open(Link::new(Box::new(babbler), timing(2))).unwrap();
        let outcomes: [Result<()>; 6] = [
            device.begin(),
            device.step(1).map(|_| ()),
            device.logits().map(|_| ()),
            device.layers(1, 1).map(|_| ()),
            device.residual().map(|_| ()),
            device.generate(b"a", Settings::GREEDY, 3, &mut |_| Ok(())).map(|_| ()),
        ];
        errors += outcomes.iter().filter(|outcome| outcome.is_err()).count();
        assert!(outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(|error: &Error| !error.to_string().is_empty()));
    }
    assert!(errors > 3000, "{errors}");
}

#[test]
fn devices_are_named_strictly() {
    let serial = |port: &str, baud| Name::Serial { port: port.into(), baud };
    let emulated = |board: &str, firmware: Option<&str>| Name::Emulated { board: board.to_owned(), firmware: firmware.map(Into::into) };
    for (text, name) in [
        ("qemu:an386", emulated("an386", None)),
        ("qemu:an386:a/b.elf", emulated("an386", Some("a/b.elf"))),
        ("/dev/ttyACM0", serial("/dev/ttyACM0", 115_200)),
        ("/dev/ttyUSB1:9600", serial("/dev/ttyUSB1", 9600)),
        ("COM3", serial("COM3", 115_200)),
        ("/dev/serial/by-id/usb:x", serial("/dev/serial/by-id/usb:x", 115_200)),
    ] {
        assert_eq!(Name::parse(text).unwrap(), name);
    }
    for wrong in ["", "qemu:", "qemu::x", "qemu:an386:", "/dev/ttyUSB1:0", "/dev/ttyUSB1:99999999999"] {
        assert!(Name::parse(wrong).is_err(), "{wrong}");
    }
}
