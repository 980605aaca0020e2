//! A model on a device, as sessions see it. The device belongs to a thread of its own: contexts belong to threads, and recorded graphs cannot leave theirs.

use super::cost::{Cost, Machine};
use super::decoder::Decoder;
use super::driver::{Device, STATIC_SHARED};
use super::error::{CudaError, NO_THREAD};
use super::library::Facts;
use super::upload;
use dmexp::Model;
use dmexp::accelerator::Accelerator;
use dmexp::format::Error as FormatError;
use dmexp::models::llama::Llama;
use dmexp_kernels::plan::NOT_FINITE;
use dmexp_kernels::{COLUMNS, PTX, Plan};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// How to run a model on a GPU.
#[derive(Clone, Debug)]
pub struct Options<'o> {
    /// The device's number among those that the driver shows.
    pub ordinal: u32,
    /// Whether the launches of a step are recorded once and then launched as one. Without, every kernel is launched by itself, which is slower and easier to look into.
    pub graphs: bool,
    /// The kernels; those that are built in where it is not for a test.
    pub ptx: &'o str,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { ordinal: 0, graphs: true, ptx: PTX }
    }
}

/// A model on a device, with the memory of one session.
#[derive(Debug)]
pub struct Cuda {
    facts: Facts,
    plan: Plan,
    vocab_size: u32,
    /// How many sessions were begun.
    sessions: AtomicU64,
    link: Mutex<Option<Link>>,
    thread: Option<JoinHandle<()>>,
}

/// The way to the thread: an answer for every question.
#[derive(Debug)]
struct Link {
    ask: SyncSender<Ask>,
    answers: Receiver<Result<Answer, CudaError>>,
}

enum Ask {
    /// Takes the memory.
    Take(Box<Plan>),
    /// Fills the next piece, with zeros where there are no bytes.
    Fill(Option<Vec<u8>>),
    /// Makes ready for steps: the sizes of logits and residual stream, and whether there are graphs.
    Begin((u32, u32), bool),
    Feed(Vec<u32>, u32),
    Logits(u32, u32),
    Step(u32, u32),
    Choose(u32, u32),
    Part(u32, u32, u32),
    Run(u32, u32, u32),
}

enum Answer {
    Facts(Facts),
    Done,
    Floats(Vec<f32>),
    Token(u32),
    Tokens(Vec<u32>),
}

impl Cuda {
    /// Opens a device, takes all the memory that sessions of `model` need there, with its context and its type of keys and values, and uploads the weights.
    ///
    /// # Errors
    /// Every [`CudaError`].
    pub fn new(model: &Model<'_>, options: &Options<'_>) -> Result<Self, CudaError> {
        let Some(network) = model.network().llama() else { return Err(CudaError::Unsupported("models of dormouse")) };
        let (asks, questions) = sync_channel(2);
        let (replies, answers) = sync_channel(1);
        let (ordinal, ptx) = (options.ordinal, options.ptx.to_owned());
        let thread = Builder::new()
            .name("dmexp cuda".to_owned())
            .spawn(move || serve(ordinal, &ptx, &questions, &replies))
            .map_err(|_| CudaError::Thread)?;
        let link = Link { ask: asks, answers };
        match made_ready(&link, model, network, options.graphs) {
            Ok((facts, plan)) => {
                let vocab_size = model.network().vocab_size();
                Ok(Self { facts, plan, vocab_size, sessions: AtomicU64::new(0), link: Mutex::new(Some(link)), thread: Some(thread) })
            }
            Err(error) => {
                // As when it is dropped: what was taken is given back before this returns.
                drop(link);
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// What the device is.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Bytes of the device's memory that were taken.
    pub fn bytes(&self) -> u64 {
        self.plan.bytes(1)
    }

    /// What a step at `position` should cost on `machine`.
    pub fn cost(&self, position: u32, machine: &Machine) -> Cost {
        Cost::new(&self.plan, position, machine)
    }

    /// Feeds `token` at `position` and then the likeliest after each, `count` tokens in all; the likeliest after each of them. The tokens stay on the device but for the end of every 32.
    ///
    /// # Errors
    /// [`FormatError::PromptTooLong`] for more than there are positions; [`FormatError::Token`]; [`FormatError::NonFiniteLogits`]; [`FormatError::Accelerator`].
    pub fn run(&self, token: u32, position: u32, count: u32) -> Result<Vec<u32>, FormatError> {
        let room = self.plan.context().saturating_sub(position);
        if count > room {
            return Err(FormatError::PromptTooLong { tokens: count.into(), room: room.into() });
        }
        if token >= self.vocab_size {
            return Err(FormatError::Token { found: token, vocab_size: self.vocab_size });
        }
        let Answer::Tokens(chosen) = self.ask(Ask::Run(token, position, count))? else {
            return Err(FormatError::Accelerator { code: NO_THREAD });
        };
        match (position..).zip(&chosen).find(|(_, token)| **token == NOT_FINITE) {
            Some((position, _)) => Err(FormatError::NonFiniteLogits { position }),
            None => Ok(chosen),
        }
    }

    fn ask(&self, ask: Ask) -> Result<Answer, FormatError> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = link.as_ref().map_or(Err(CudaError::Thread), |link| link.asked(ask));
        answer.map_err(|error| FormatError::Accelerator {
            code: match error {
                CudaError::Failed { code, .. } => code,
                _ => NO_THREAD,
            },
        })
    }

    fn floats(&self, ask: Ask, out: &mut [f32]) -> Result<(), FormatError> {
        match self.ask(ask)? {
            Answer::Floats(found) if found.len() == out.len() => {
                out.copy_from_slice(&found);
                Ok(())
            }
            _ => Err(FormatError::Accelerator { code: NO_THREAD }),
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // The thread ends when nobody can ask any more; what it has on the device is given back before this returns.
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Link {
    fn answer(&self) -> Result<Answer, CudaError> {
        self.answers.recv().map_err(|_| CudaError::Thread)?
    }

    fn asked(&self, ask: Ask) -> Result<Answer, CudaError> {
        self.ask.send(ask).map_err(|_| CudaError::Thread)?;
        self.answer()
    }
}

/// Asks for everything up to the first step: what the device is, and what is taken there.
fn made_ready(link: &Link, model: &Model<'_>, network: &Llama<'_>, graphs: bool) -> Result<(Facts, Plan), CudaError> {
    let Answer::Facts(facts) = link.answer()? else { return Err(CudaError::Thread) };
    let shared = facts.shared.saturating_sub(STATIC_SHARED);
    let plan = Plan::new(*network.config(), |number| upload::tensor(network, number), (model.context(), model.kv()), shared)
        .map_err(CudaError::Refused)?;
    link.asked(Ask::Take(Box::new(plan.clone())))?;
    for piece in plan.pieces() {
        link.asked(Ask::Fill(upload::bytes(network, &plan, piece.contents)?))?;
    }
    link.asked(Ask::Begin((model.network().vocab_size(), model.network().dim()), graphs))?;
    Ok((facts, plan))
}

impl Accelerator for Cuda {
    fn begin(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn current(&self) -> u64 {
        self.sessions.load(Ordering::Acquire)
    }

    fn block(&self) -> u32 {
        COLUMNS
    }

    fn feed(&self, tokens: &[u32], position: u32) -> Result<(), FormatError> {
        if tokens.is_empty() {
            return Err(FormatError::NoPrompt);
        }
        if tokens.len() > COLUMNS as usize {
            return Err(FormatError::PromptTooLong { tokens: tokens.len() as u64, room: COLUMNS.into() });
        }
        if let Some(&found) = tokens.iter().find(|token| **token >= self.vocab_size) {
            return Err(FormatError::Token { found, vocab_size: self.vocab_size });
        }
        self.ask(Ask::Feed(tokens.to_vec(), position)).map(drop)
    }

    fn logits(&self, first: u32, logits: &mut [f32]) -> Result<(), FormatError> {
        let rows = (logits.len() as u32).checked_div(self.vocab_size).unwrap_or(0);
        self.floats(Ask::Logits(first, rows), logits)
    }

    fn step(&self, token: u32, position: u32, logits: &mut [f32]) -> Result<(), FormatError> {
        self.floats(Ask::Step(token, position), logits)
    }

    fn choose(&self, token: u32, position: u32) -> Result<Option<u32>, FormatError> {
        match self.ask(Ask::Choose(token, position))? {
            Answer::Token(NOT_FINITE) => Err(FormatError::NonFiniteLogits { position }),
            Answer::Token(token) => Ok(Some(token)),
            _ => Err(FormatError::Accelerator { code: NO_THREAD }),
        }
    }

    fn part(&self, part: u32, token: u32, position: u32, residual: &mut [f32]) -> Result<(), FormatError> {
        self.floats(Ask::Part(part, token, position), residual)
    }
}

/// The thread: opens the device, answers until nobody can ask any more, and gives back what it took.
fn serve(ordinal: u32, ptx: &str, questions: &Receiver<Ask>, replies: &SyncSender<Result<Answer, CudaError>>) {
    let opened = Device::open(ordinal, ptx);
    let (answer, device) = match opened {
        Ok(device) => (Ok(Answer::Facts(device.facts().clone())), Some(device)),
        Err(error) => (Err(error), None),
    };
    if replies.send(answer).is_err() {
        return;
    }
    let Some(decoder) = device.and_then(|device| make_ready(device, questions, replies)) else { return };
    answer_all(decoder, questions, replies);
}

/// Takes the memory and fills it; `None` where that failed or is not wanted any more.
fn make_ready(mut device: Device, questions: &Receiver<Ask>, replies: &SyncSender<Result<Answer, CudaError>>) -> Option<Decoder> {
    let (mut plan, mut addresses, mut filled) = (None, Vec::new(), 0);
    while let Ok(ask) = questions.recv() {
        let done = match ask {
            Ask::Take(wanted) => device.take(&wanted).map(|found| {
                addresses = found;
                plan = Some(*wanted);
            }),
            Ask::Fill(contents) => {
                let piece = filled;
                filled += 1;
                match contents {
                    Some(bytes) => device.fill(piece, &bytes),
                    None => device.zero(piece),
                }
            }
            Ask::Begin(sizes, graphs) => {
                return match Decoder::new(device, plan.take()?, addresses, sizes, graphs) {
                    Ok(decoder) => replies.send(Ok(Answer::Done)).ok().map(|()| decoder),
                    Err(error) => {
                        let _ = replies.send(Err(error));
                        None
                    }
                };
            }
            _ => Err(CudaError::Thread),
        };
        replies.send(done.map(|()| Answer::Done)).ok()?;
    }
    None
}

fn answer_all(mut decoder: Decoder, questions: &Receiver<Ask>, replies: &SyncSender<Result<Answer, CudaError>>) {
    while let Ok(ask) = questions.recv() {
        let answer = decoder.attempt(|decoder| {
            Ok(match ask {
                Ask::Feed(tokens, position) => {
                    decoder.feed(&tokens, position)?;
                    Answer::Done
                }
                Ask::Logits(first, rows) => Answer::Floats(decoder.logits(first, rows)?),
                Ask::Step(token, position) => Answer::Floats(decoder.step(token, position)?),
                Ask::Choose(token, position) => Answer::Token(decoder.choose(token, position)?),
                Ask::Part(part, token, position) => Answer::Floats(decoder.part(part, token, position)?),
                Ask::Run(token, position, count) => Answer::Tokens(decoder.run(token, position, count)?),
                Ask::Take(_) | Ask::Fill(_) | Ask::Begin(..) => return Err(CudaError::Thread),
            })
        });
        if replies.send(answer).is_err() {
            return;
        }
    }
}
