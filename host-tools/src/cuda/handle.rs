//! A model on a device, as sessions see it. The device belongs to a thread of its own: contexts belong to threads, and recorded graphs cannot leave theirs.

use super::cost::{Cost, Machine};
use super::driver::{Device, STATIC_SHARED};
use super::error::{CudaError, NO_THREAD};
use super::family::{Decoder, Plan, Weights};
use super::library::Facts;
use dmexp::Model;
use dmexp::accelerator::{Accelerator, Row};
use dmexp::format::Error as FormatError;
use dmexp_kernels::PTX;
use dmexp_kernels::plan::NOT_FINITE;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// How to run a model on a GPU.
#[derive(Clone, Debug)]
pub struct Options<'o> {
    /// The device's number among those that the driver shows.
    pub ordinal: u32,
    /// Whether the launches of a step are recorded once and then launched as one. Without, every kernel is launched by itself, which is slower and easier to look into.
    pub graphs: bool,
    /// How many sessions there is memory for at the same time.
    pub texts: u32,
    /// The kernels; those that are built in where it is not for a test.
    pub ptx: &'o str,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { ordinal: 0, graphs: true, texts: 1, ptx: PTX }
    }
}

/// A model on a device, with the memory of one session or of several.
#[derive(Debug)]
pub struct Cuda {
    facts: Facts,
    plan: Plan,
    vocab_size: u32,
    link: Mutex<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What calls take turns with.
#[derive(Debug)]
struct Shared {
    /// How many sessions were begun: the number of the last.
    sessions: u64,
    /// None at the end.
    link: Option<Link>,
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
    Feed(Vec<Row>),
    Logits(u64, u32, u32),
    Step(Row),
    Choose(Row),
    Part(u32, Row),
    Run(Row, u32),
}

impl Ask {
    /// The sessions that have to have their memory on the device.
    fn sessions(&self) -> Vec<u64> {
        match self {
            Self::Take(_) | Self::Fill(_) | Self::Begin(..) => Vec::new(),
            Self::Feed(rows) => rows.iter().map(|row| row.session).collect(),
            Self::Logits(session, ..) => vec![*session],
            Self::Step(row) | Self::Choose(row) | Self::Part(_, row) | Self::Run(row, _) => vec![row.session],
        }
    }
}

enum Answer {
    Facts(Facts),
    Done,
    Floats(Vec<f32>),
    /// What was asked for is not what was fed last.
    Lost,
    Token(u32),
    Tokens(Vec<u32>),
}

impl Cuda {
    /// Opens a device, takes all the memory that sessions of `model` need there, with its context and its type of keys and values, and uploads the weights.
    ///
    /// # Errors
    /// Every [`CudaError`].
    pub fn new(model: &Model<'_>, options: &Options<'_>) -> Result<Self, CudaError> {
        let weights = Weights::new(model)?;
        let (asks, questions) = sync_channel(2);
        let (replies, answers) = sync_channel(1);
        let (ordinal, ptx) = (options.ordinal, options.ptx.to_owned());
        let thread = Builder::new()
            .name("dmexp cuda".to_owned())
            .spawn(move || serve(ordinal, &ptx, &questions, &replies))
            .map_err(|_| CudaError::Thread)?;
        let link = Link { ask: asks, answers };
        match made_ready(&link, model, &weights, options) {
            Ok((facts, plan)) => {
                let vocab_size = model.network().vocab_size();
                let link = Mutex::new(Shared { sessions: 0, link: Some(link) });
                Ok(Self { facts, plan, vocab_size, link, thread: Some(thread) })
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
        self.plan.cost(position, machine)
    }

    /// Feeds `row` and then the likeliest after each, `count` tokens in all; the likeliest after each of them. The tokens stay on the device but for the end of every 32.
    ///
    /// # Errors
    /// [`FormatError::PromptTooLong`] for more than there are positions; [`FormatError::Token`]; [`FormatError::NonFiniteLogits`]; [`FormatError::Accelerator`].
    pub fn run(&self, row: Row, count: u32) -> Result<Vec<u32>, FormatError> {
        let room = self.plan.context().saturating_sub(row.position);
        if count > room {
            return Err(FormatError::PromptTooLong { tokens: count.into(), room: room.into() });
        }
        self.known(&row)?;
        let Answer::Tokens(chosen) = self.ask(Ask::Run(row, count))? else {
            return Err(FormatError::Accelerator { code: NO_THREAD });
        };
        match (row.position..).zip(&chosen).find(|(_, token)| **token == NOT_FINITE) {
            Some((position, _)) => Err(FormatError::NonFiniteLogits { position }),
            None => Ok(chosen),
        }
    }

    /// Refuses a token that is not in the vocabulary, and a position that there is no room for.
    fn known(&self, row: &Row) -> Result<(), FormatError> {
        if row.token >= self.vocab_size {
            return Err(FormatError::Token { found: row.token, vocab_size: self.vocab_size });
        }
        if row.position >= self.plan.context() {
            return Err(FormatError::PromptTooLong { tokens: u64::from(row.position) + 1, room: self.plan.context().into() });
        }
        Ok(())
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, ask: Ask) -> Result<Answer, FormatError> {
        let shared = self.shared();
        if !ask.sessions().into_iter().all(|session| shared.has(session, self.plan.texts())) {
            return Err(FormatError::AcceleratorBusy);
        }
        let answer = shared.link.as_ref().map_or(Err(CudaError::Thread), |link| link.asked(ask));
        answer.map_err(|error| FormatError::Accelerator {
            code: match error {
                CudaError::Failed { code, .. } => code,
                _ => NO_THREAD,
            },
        })
    }

    /// Whether what was asked for is there, and is in `out`.
    fn floats(&self, ask: Ask, out: &mut [f32]) -> Result<bool, FormatError> {
        match self.ask(ask)? {
            Answer::Floats(found) if found.len() == out.len() => {
                out.copy_from_slice(&found);
                Ok(true)
            }
            Answer::Lost => Ok(false),
            _ => Err(FormatError::Accelerator { code: NO_THREAD }),
        }
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // The thread ends when nobody can ask any more; what it has on the device is given back before this returns.
        self.shared().link = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Whether one of the last `texts` sessions is this one.
    fn has(&self, session: u64, texts: u32) -> bool {
        (1..=self.sessions).contains(&session) && session.saturating_add(texts.into()) > self.sessions
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
fn made_ready(link: &Link, model: &Model<'_>, weights: &Weights<'_, '_>, options: &Options<'_>) -> Result<(Facts, Plan), CudaError> {
    let Answer::Facts(facts) = link.answer()? else { return Err(CudaError::Thread) };
    let shared = facts.shared.saturating_sub(STATIC_SHARED);
    let plan = weights.plan(model, options.texts, shared)?;
    link.asked(Ask::Take(Box::new(plan.clone())))?;
    for piece in plan.pieces() {
        link.asked(Ask::Fill(weights.bytes(&plan, piece.contents)?))?;
    }
    link.asked(Ask::Begin((model.network().vocab_size(), model.network().dim()), options.graphs))?;
    Ok((facts, plan))
}

impl Accelerator for Cuda {
    fn begin(&self) -> u64 {
        let mut shared = self.shared();
        shared.sessions += 1;
        shared.sessions
    }

    fn has(&self, session: u64) -> bool {
        self.shared().has(session, self.plan.texts())
    }

    fn block(&self) -> u32 {
        self.plan.block()
    }

    fn feed(&self, rows: &[Row]) -> Result<(), FormatError> {
        if rows.is_empty() {
            return Err(FormatError::NoPrompt);
        }
        if rows.len() > self.block() as usize {
            return Err(FormatError::PromptTooLong { tokens: rows.len() as u64, room: self.block().into() });
        }
        rows.iter().try_for_each(|row| self.known(row))?;
        self.ask(Ask::Feed(rows.to_vec())).map(drop)
    }

    fn logits(&self, session: u64, position: u32, logits: &mut [f32]) -> Result<bool, FormatError> {
        let rows = (logits.len() as u32).checked_div(self.vocab_size).unwrap_or(0);
        self.floats(Ask::Logits(session, position, rows), logits)
    }

    fn step(&self, row: Row, logits: &mut [f32]) -> Result<(), FormatError> {
        self.known(&row)?;
        self.floats(Ask::Step(row), logits).map(drop)
    }

    fn choose(&self, row: Row) -> Result<Option<u32>, FormatError> {
        self.known(&row)?;
        match self.ask(Ask::Choose(row))? {
            Answer::Token(NOT_FINITE) => Err(FormatError::NonFiniteLogits { position: row.position }),
            Answer::Token(token) => Ok(Some(token)),
            _ => Err(FormatError::Accelerator { code: NO_THREAD }),
        }
    }

    fn part(&self, part: u32, row: Row, residual: &mut [f32]) -> Result<(), FormatError> {
        self.known(&row)?;
        self.floats(Ask::Part(part, row), residual).map(drop)
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
                return match plan.take()?.decoder(device, addresses, sizes, graphs) {
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
                Ask::Feed(rows) => {
                    decoder.steps().feed(&rows)?;
                    Answer::Done
                }
                Ask::Logits(session, position, rows) => {
                    decoder.steps().logits(session, position, rows)?.map_or(Answer::Lost, Answer::Floats)
                }
                Ask::Step(row) => Answer::Floats(decoder.steps().step(row)?),
                Ask::Choose(row) => Answer::Token(decoder.choose(row)?),
                Ask::Part(part, row) => Answer::Floats(decoder.steps().part(part, row)?),
                Ask::Run(row, count) => Answer::Tokens(decoder.steps().run(row, count)?),
                Ask::Take(_) | Ask::Fill(_) | Ask::Begin(..) => return Err(CudaError::Thread),
            })
        });
        if replies.send(answer).is_err() {
            return;
        }
    }
}
