//! From the engine's tokens to text: whole characters, up to a stop string. A task for each text, which ends when nobody listens to it any more; then the engine gives the text up.

use super::job::{Chosen, Event, Finish};
use super::meters::Meters;
use super::refusal::{Answer, Refusal};
use axum::http::StatusCode;
use dmexp::StopStrings;
use dmexp::tokenizer::Utf8Stream;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Pieces of text that wait for a client that reads slowly, before the task waits too.
const WAITING: usize = 64;

/// What is new of a text.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    /// Which of the texts of the request.
    pub(super) index: usize,
    /// Whole characters, none of them part of a stop string.
    pub(super) text: String,
    /// New tokens. Their text may still be held back.
    pub(super) chosen: Vec<Chosen>,
    /// Tokens that need not be fed, told once.
    pub(super) cached: u32,
    /// Set in the last.
    pub(super) finish: Option<Finish>,
}

/// All texts of a request.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) chunks: Receiver<Answer<Chunk>>,
    /// Ends them when it is dropped.
    _followers: JoinSet<()>,
}

/// What tasks have in common.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) stops: Vec<String>,
    pub(super) start: Instant,
    pub(super) deadline: Instant,
    pub(super) meters: Arc<Meters>,
}

impl Texts {
    /// Follows the texts that these events are of.
    pub(super) fn follow(events: Vec<UnboundedReceiver<Event>>, terms: &Terms) -> Self {
        let (sender, chunks) = channel(WAITING);
        let mut followers = JoinSet::new();
        for (index, events) in events.into_iter().enumerate() {
            let follower = Follower { index, events, finished: false, terms: terms.clone() };
            followers.spawn(follower.run(sender.clone()));
        }
        Self { chunks, _followers: followers }
    }
}

struct Follower {
    index: usize,
    events: UnboundedReceiver<Event>,
    finished: bool,
    terms: Terms,
}

impl Drop for Follower {
    fn drop(&mut self) {
        if !self.finished {
            self.terms.meters.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Follower {
    async fn run(mut self, out: Sender<Answer<Chunk>>) {
        let deadline = self.terms.deadline;
        let refusal = match timeout_at(deadline, self.text(&out)).await {
            Ok(Ok(())) => return,
            Ok(Err(refusal)) => refusal,
            Err(_) => {
                Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the time for this request is over; ask for fewer tokens").with_code("timeout")
            }
        };
        // The engine gives the text up now; a client that does not read ends with its connection, and this with it.
        self.events.close();
        let _ = out.send(Err(refusal)).await;
    }

    async fn text(&mut self, out: &Sender<Answer<Chunk>>) -> Answer<()> {
        let strings = self.terms.stops.clone();
        let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
        let mut text = Text { utf8: Utf8Stream::new(), stops: StopStrings::new(&strings)?, over: false };
        let mut last: Option<Instant> = None;
        loop {
            let Some(event) = self.events.recv().await else {
                return Err(Refusal::internal("the engine of this model has stopped"));
            };
            let mut chunk = Chunk { index: self.index, ..Chunk::default() };
            match event {
                Event::Begun { cached } => chunk.cached = cached,
                Event::Token(chosen) => {
                    let now = Instant::now();
                    match last.replace(now) {
                        None => self.terms.meters.first_token.record(now - self.terms.start),
                        Some(last) => self.terms.meters.next_token.record(now - last),
                    }
                    chunk.text = text.push(&chosen.bytes);
                    chunk.chosen.push(chosen);
                    chunk.finish = text.over.then_some(Finish::Stop);
                }
                Event::Done(finish) => {
                    chunk.text = text.end();
                    chunk.finish = Some(if text.over { Finish::Stop } else { finish });
                }
                Event::Failed(what) => return Err(Refusal::internal(what)),
                Event::Row(_) => continue,
            }
            let over = chunk.finish.is_some();
            self.finished |= over;
            if out.send(Ok(chunk)).await.is_err() || over {
                return Ok(());
            }
        }
    }
}

/// The bytes of tokens become text, as the command line shows it.
struct Text<'s> {
    utf8: Utf8Stream,
    stops: StopStrings<'s>,
    over: bool,
}

impl Text<'_> {
    /// What is certain of the text after these bytes.
    fn push(&mut self, bytes: &[u8]) -> String {
        let Self { utf8, stops, over } = self;
        let mut shown = String::new();
        let Ok(()) = utf8.push(bytes, |text| take(stops, over, &mut shown, text));
        shown
    }

    /// What was held back.
    fn end(&mut self) -> String {
        let Self { utf8, stops, over } = self;
        let mut shown = String::new();
        let Ok(()) = utf8.finish(|text| take(stops, over, &mut shown, text));
        if !*over {
            let Ok(()) = stops.finish(|text| add(&mut shown, text));
        }
        shown
    }
}

/// Passes text through the stop strings; after one came up nothing passes.
fn take(stops: &mut StopStrings<'_>, over: &mut bool, shown: &mut String, text: &str) -> Result<(), Infallible> {
    if !*over {
        *over = stops.push(text, |text| add(shown, text))?;
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "the form of sinks")]
fn add(shown: &mut String, text: &str) -> Result<(), Infallible> {
    shown.push_str(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn an_error_reaches_a_client_that_reads_slowly() {
        let (events, listener) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..2 * WAITING {
            events.send(Event::Token(Chosen { bytes: b"x".to_vec(), logprob: None, likeliest: Vec::new() })).unwrap();
        }
        let start = Instant::now();
        let terms = Terms { stops: Vec::new(), start, deadline: start + Duration::from_millis(50), meters: Arc::default() };
        let mut texts = Texts::follow(vec![listener], &terms);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut last = None;
        while let Some(chunk) = texts.chunks.recv().await {
            last = Some(chunk.is_err());
        }
        assert!(last == Some(true) && events.is_closed());
    }
}
