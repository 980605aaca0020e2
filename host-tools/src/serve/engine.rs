//! The thread that computes: it has the memory of all texts of a model, and feeds those that are under way together, one pass over the weights for all of them (continuous batching). A text gets the
//! tokens that it would get alone: neither its neighbours nor what its memory held before change a bit.

use super::grammar::{Bytes, Progress};
use super::job::{Candidate, Chosen, Event, Finish, Job, Work};
use super::meters::Meters;
use super::shape::mask;
use crate::error::{Class, Error, Result};
use crate::logprobs::logprobs;
use dmexp::format::Error as FormatError;
use dmexp::tokenizer::Tokenizer;
use dmexp::{Batch, Fed, Model, Part, Sampler, Session};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;

/// Positions that are fed at once: the next of every text under way, and then the prompts of those that begin.
const POSITIONS: u32 = 64;

/// How many of them go to prompts while other texts wait for their next token: so many more positions take little longer than those tokens alone.
const BESIDE: u32 = 16;

/// The memory of an engine, taken before the first request.
#[derive(Debug)]
pub(super) struct Memory {
    texts: Vec<Vec<u32>>,
    batch: Vec<u32>,
}

impl Memory {
    /// For `texts` texts of `model` at once.
    ///
    /// # Errors
    /// [`Class::Request`] for a context that the model does not allow, and for more memory than there is.
    pub(super) fn new(model: &Model<'_>, texts: u32) -> Result<Self> {
        let (text, batch) = (model.arena_len()?, Batch::arena_len(model, POSITIONS, texts)?);
        let take = |bytes: usize| {
            let words = bytes.div_ceil(size_of::<u32>());
            let mut memory = Vec::new();
            memory.try_reserve_exact(words).map_err(|_| {
                let what =
                    format!("{texts} texts of {} positions need {text} bytes each, which this machine does not give", model.context());
                Error::new(Class::Request, what).advise("use fewer with --parallel, a shorter --context, or --kv q8")
            })?;
            memory.resize(words, 0);
            Ok::<_, Error>(memory)
        };
        let mut memory = Self { texts: (0..texts).map(|_| take(text)).collect::<Result<_>>()?, batch: take(batch)? };
        // What a session refuses is said before the server listens.
        if let Some(first) = memory.texts.first_mut() {
            Session::new(model, first.as_mut_slice(), Sampler::greedy())?;
        }
        Ok(memory)
    }

    /// All of it, and what a text has of it.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let text = self.texts.first().map_or(0, |text| size_of_val(text.as_slice())) as u64;
        (text * self.texts.len() as u64 + size_of_val(self.batch.as_slice()) as u64, text)
    }
}

/// Does jobs until nobody can send any more and all are done.
///
/// # Errors
/// Those of [`Session::new`] and [`Batch::new`].
pub(super) fn run(model: &Model<'_>, memory: &mut Memory, jobs: &mut UnboundedReceiver<Job>, meters: &Arc<Meters>) -> Result<()> {
    let texts = memory.texts.len() as u32;
    let mut batch = Batch::new(model, POSITIONS, texts, memory.batch.as_mut_slice())?;
    let mut slots = Vec::new();
    for arena in &mut memory.texts {
        let session = Session::new(model, arena.as_mut_slice(), Sampler::greedy())?;
        slots.push(Slot { session, running: None, used: 0 });
    }
    let mut engine = Engine { slots, tokenizer: *model.tokenizer(), meters, waiting: VecDeque::new(), clock: 0 };
    loop {
        let open = engine.admit(jobs);
        if engine.running() == 0 {
            if !open {
                return Ok(());
            }
            continue;
        }
        engine.pass(&mut batch);
    }
}

struct Engine<'a, 'm> {
    slots: Vec<Slot<'a>>,
    tokenizer: Tokenizer<'a>,
    meters: &'m Arc<Meters>,
    /// Jobs that wait for memory.
    waiting: VecDeque<Job>,
    /// Counts jobs.
    clock: u64,
}

/// The memory of a text: what it holds stays when the text is over, for the next that begins alike.
struct Slot<'a> {
    session: Session<'a>,
    running: Option<Running>,
    /// When it was last begun.
    used: u64,
}

/// A text under way.
struct Running {
    job: Job,
    sampler: Sampler,
    order: Vec<u32>,
    /// Logits that were computed just now and are asked for, by position.
    rows: Vec<(u32, Vec<f32>)>,
    /// What came of the last pass, if it had to come to anything.
    next: Option<Next>,
    made: u32,
    generated: BTreeMap<u32, u32>,
    /// Where the text has got to in its grammar.
    progress: Option<Progress>,
}

/// How a text goes on.
enum Next {
    /// With this token.
    Token(u32),
    /// Not at all: this is the last that is said of it.
    Over(Event),
}

impl Engine<'_, '_> {
    fn running(&self) -> usize {
        self.slots.iter().filter(|slot| slot.running.is_some()).count()
    }

    /// Gives up what nobody listens to any more, and begins waiting jobs as long as there is memory for them; waits for one if nothing else is to be done. False when no more can come.
    fn admit(&mut self, jobs: &mut UnboundedReceiver<Job>) -> bool {
        for slot in &mut self.slots {
            if slot.running.as_ref().is_some_and(|running| running.job.events.is_closed()) {
                slot.running = None;
            }
        }
        self.meters.running.store(self.running() as u64, Ordering::Relaxed);
        if self.running() == 0 && self.waiting.is_empty() {
            match jobs.blocking_recv() {
                Some(job) => self.waiting.push_back(job),
                None => return false,
            }
        }
        let open = loop {
            match jobs.try_recv() {
                Ok(job) => self.waiting.push_back(job),
                Err(error) => break error == TryRecvError::Empty,
            }
        };
        self.waiting.retain(|job| !job.events.is_closed());
        while self.running() < self.slots.len()
            && let Some(job) = self.waiting.pop_front()
        {
            self.begin(job);
        }
        self.meters.running.store(self.running() as u64, Ordering::Relaxed);
        open
    }

    /// Begins `job` in the memory that holds the most of it, where that is worth what is lost of another text, or else in that which was not used for the longest time.
    fn begin(&mut self, mut job: Job) {
        job.place = None;
        self.clock += 1;
        let known = |slot: &Slot<'_>| match job.work {
            Work::Generate(_) => slot.session.tokens().iter().zip(&job.tokens).take_while(|(a, b)| a == b).count(),
            // The logits after every token are wanted, so all of them are fed.
            Work::Logits => 0,
        };
        // To keep a token is worth as much as the loss of four.
        let worth = |slot: &Slot<'_>| (5 * known(slot)).saturating_sub(slot.session.tokens().len());
        let free = self.slots.iter().enumerate().filter(|(_, slot)| slot.running.is_none());
        let Some((place, _)) = free.max_by_key(|(_, slot)| (worth(slot), Reverse(slot.used))) else { return };
        // The logits after the last token have to be computed, so at least that one is fed.
        let whole = job.tokens.len() - usize::from(!job.tokens.is_empty());
        let kept = known(&self.slots[place]).min(whole);
        let Some(slot) = self.slots.get_mut(place) else { return };
        slot.used = self.clock;
        slot.session.truncate(kept as u32);
        let cached = slot.session.position();
        let sampler = match &job.work {
            Work::Generate(generate) => Sampler::new(generate.settings),
            Work::Logits => Ok(Sampler::greedy()),
        };
        let begun = sampler.and_then(|sampler| slot.session.push_tokens(&job.tokens[kept..]).map(|()| sampler));
        match begun {
            Ok(sampler) => {
                self.meters.prompt_tokens.fetch_add(job.tokens.len() as u64, Ordering::Relaxed);
                self.meters.cached_tokens.fetch_add(u64::from(cached), Ordering::Relaxed);
                // Should nobody listen any more, the next pass sees it.
                let _ = job.events.send(Event::Begun { cached });
                let progress = match &job.work {
                    Work::Generate(generate) => generate.grammar.clone().map(Progress::new),
                    Work::Logits => None,
                };
                let order = vec![0; sampler.order_words(slot.session.model().network().vocab_size() as usize)];
                let running = Running { job, sampler, order, rows: Vec::new(), next: None, made: 0, generated: BTreeMap::new(), progress };
                slot.running = Some(running);
            }
            Err(error) => {
                let _ = job.events.send(Event::Failed(error.to_string()));
            }
        }
    }

    /// Feeds the next tokens of all texts under way, and goes on with what comes of it.
    fn pass(&mut self, batch: &mut Batch<'_>) {
        let running = self.slots.iter().filter_map(|slot| slot.running.as_ref().map(|running| (slot, running)));
        let waiting =
            running.map(|(slot, running)| Waiting { positions: slot.session.waiting(), goes_on: running.made > 0, begun: slot.used });
        let shares = shares(&waiting.collect::<Vec<_>>(), batch.positions());
        let (mut parts, mut states) = (Vec::new(), Vec::new());
        let running = self.slots.iter_mut().filter_map(|slot| Some((&mut slot.session, slot.running.as_mut()?)));
        for ((session, running), count) in running.zip(shares).filter(|(_, count)| *count > 0) {
            let every = matches!(running.job.work, Work::Logits);
            parts.push(Part { session, count, every });
            // One lock a text: the threads of the model choose the tokens of different texts at the same time.
            states.push(Mutex::new(running));
        }
        let (tokenizer, meters) = (&self.tokenizer, self.meters);
        let fed = batch.feed(&mut parts, &|fed| {
            if let Some(running) = states.get(fed.part) {
                running.lock().unwrap_or_else(PoisonError::into_inner).take(fed, tokenizer, meters);
            }
        });
        self.meters.passes.fetch_add(1, Ordering::Relaxed);
        for slot in &mut self.slots {
            let Some(running) = &mut slot.running else { continue };
            let over = match fed {
                Ok(()) => running.go_on(&mut slot.session),
                Err(error) => Some(failed(error)),
            };
            if let Some(event) = over {
                // What was not computed is not there to go on from.
                if matches!(event, Event::Failed(_)) {
                    slot.session.reset();
                }
                let _ = running.job.events.send(event);
                slot.running = None;
            }
        }
    }
}

impl Running {
    /// Takes what was computed of it.
    fn take(&mut self, fed: Fed<'_>, tokenizer: &Tokenizer<'_>, meters: &Meters) {
        match (fed.logits, &self.job.work) {
            (Ok(logits), Work::Logits) => self.rows.push((fed.position, logits.to_vec())),
            (Ok(logits), Work::Generate(_)) => self.next = self.choose(logits, fed.tokens, tokenizer, meters),
            (Err(error), _) => self.next = Some(Next::Over(failed(error))),
        }
    }

    /// Goes on after a pass; what to say at the end, if this is it.
    fn go_on(&mut self, session: &mut Session<'_>) -> Option<Event> {
        self.rows.sort_unstable_by_key(|(position, _)| *position);
        for (_, row) in self.rows.drain(..) {
            let _ = self.job.events.send(Event::Row(row));
        }
        match (self.next.take(), &self.job.work) {
            (Some(Next::Token(token)), _) => session.push_tokens(&[token]).err().map(failed),
            (Some(Next::Over(event)), _) => Some(event),
            (None, _) if session.waiting() > 0 => None,
            (None, Work::Logits) => Some(Event::Done(Finish::Stop)),
            (None, Work::Generate(_)) => Some(Event::Failed("no token was chosen after all were fed".to_owned())),
        }
    }

    /// Chooses the token after `tokens`, of which these are the logits.
    fn choose(&mut self, logits: &mut [f32], tokens: &[u32], tokenizer: &Tokenizer<'_>, meters: &Meters) -> Option<Next> {
        let Work::Generate(generate) = &self.job.work else { return None };
        let model_says = generate.likeliest.map(|count| (logits.to_vec(), count));
        generate.shaping.apply(logits, &self.generated);
        let before = tokens.last().copied().unwrap_or(0);
        // As sessions see it: a second begin-of-text begins another text.
        let ends = |token: u32| tokenizer.ends_text(token) || token == tokenizer.facts().bos;
        let allowed = |progress: &Progress, first: Bytes, token: u32| {
            if ends(token) {
                return progress.is_complete() && tokenizer.ends_text(token);
            }
            !tokenizer.is_special(token) && progress.allows(first, tokenizer.decode(before, token).as_bytes())
        };
        let first = self.progress.as_ref().map(Progress::next).unwrap_or_default();
        let mut best = None;
        if let Some(progress) = &self.progress {
            best = mask(logits, |token| allowed(progress, first, token));
            if best.is_none() {
                return Some(Next::Over(if progress.is_complete() {
                    Event::Done(Finish::Stop)
                } else {
                    Event::Failed("none of the model's tokens goes on with the text in the form that was asked for".to_owned())
                }));
            }
        }
        let mut token = match self.sampler.sample(logits, &mut self.order, tokens) {
            Ok(token) => token,
            Err(error) => return Some(Next::Over(failed(error))),
        };
        if let (Some(progress), Some(best)) = (&self.progress, best)
            && !allowed(progress, first, token)
        {
            // Rounding can draw one whose probability is 0.
            token = best;
        }
        if ends(token) && (!generate.ignore_end || self.progress.is_some()) {
            return Some(Next::Over(Event::Done(Finish::Stop)));
        }
        let bytes = |token: u32| tokenizer.decode(before, token).as_bytes().to_vec();
        let mut chosen = Chosen { bytes: bytes(token), logprob: None, likeliest: Vec::new() };
        if let Some((logits, count)) = model_says {
            let (logprob, likeliest) = logprobs(&logits, token, count);
            chosen.logprob = Some(logprob);
            chosen.likeliest = likeliest.into_iter().map(|(token, logprob)| Candidate { bytes: bytes(token), logprob }).collect();
        }
        let _ = self.job.events.send(Event::Token(chosen));
        meters.tokens.fetch_add(1, Ordering::Relaxed);
        self.made += 1;
        *self.generated.entry(token).or_insert(0) += 1;
        if let Some(progress) = &mut self.progress {
            progress.push(tokenizer.decode(before, token).as_bytes());
            if progress.is_over() {
                return Some(Next::Over(Event::Done(Finish::Stop)));
            }
        }
        Some(if self.made >= generate.budget { Next::Over(Event::Done(Finish::Length)) } else { Next::Token(token) })
    }
}

/// What waits to be fed of a text.
struct Waiting {
    positions: u32,
    /// Whether it is a new token: somebody waits for the next.
    goes_on: bool,
    /// When the text was begun.
    begun: u64,
}

/// How much of each text is fed of `positions` together: one position of each as far as they go, and of prompts more, the earliest first, as long as that holds up nobody's tokens for long.
fn shares(texts: &[Waiting], positions: u32) -> Vec<u32> {
    let mut room = positions;
    let take = |wanted: u32, room: &mut u32| {
        let taken = wanted.min(*room);
        *room -= taken;
        taken
    };
    let mut shares: Vec<u32> = texts.iter().map(|text| take(text.positions.min(1), &mut room)).collect();
    if texts.iter().any(|text| text.goes_on) {
        room = room.min(BESIDE);
    }
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|place| texts[*place].begun);
    for place in order {
        shares[place] += take(texts[place].positions - shares[place], &mut room);
    }
    shares
}

fn failed(error: FormatError) -> Event {
    Event::Failed(Error::from(error).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(positions: u32, goes_on: bool, begun: u64) -> Waiting {
        Waiting { positions, goes_on, begun }
    }

    #[test]
    fn prompts_have_the_room_that_nobody_waits_for() {
        assert_eq!(shares(&[text(200, false, 2), text(10, false, 1)], 64), [54, 10]);
        assert_eq!(shares(&[text(1, true, 3), text(200, false, 2), text(1, true, 1)], 64), [1, 1 + BESIDE, 1]);
        assert_eq!(shares(&[text(9, false, 1), text(200, false, 2), text(1, true, 3)], 64), [9, 1 + BESIDE - 8, 1]);
        assert_eq!(shares(&[text(1, true, 1), text(1, true, 2), text(5, false, 3)], 2), [1, 1, 0]);
        assert_eq!(shares(&[text(5, false, 1), text(1, true, 2)], 3), [2, 1]);
        assert!(shares(&[], 64).is_empty());
    }
}
