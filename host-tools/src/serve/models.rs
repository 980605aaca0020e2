//! The models that a server has, each with the thread that computes, and how work is given to them.

use super::engine::{self, Memory};
use super::job::{Event, Job, Work};
use super::meters::Meters;
use super::refusal::{Answer, Refusal};
use crate::chat::{self, Specials, Template, TokenNames};
use crate::decode::Loaded;
use crate::error::{Class, Error, Result};
use axum::http::StatusCode;
use dmexp::Model;
use dmexp::tokenizer::Utf8Stream;
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerKind};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Grammars are followed rule by rule, as deep as they go.
const ENGINE_STACK: usize = 16 << 20;

/// A model to be served. It stays for as long as the process lives.
#[derive(Debug)]
pub struct Served {
    /// What requests call it.
    pub id: String,
    /// Its file.
    pub loaded: &'static Loaded,
    /// The model, with context, keys and values, tokenizer and threads as they are wanted.
    pub model: &'static Model<'static>,
    /// What conversations are written with.
    pub template: Option<Template>,
    /// Texts that are under way at the same time: there is memory for so many.
    pub parallel: u32,
}

/// A model that is served.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) id: String,
    pub(super) loaded: &'static Loaded,
    pub(super) model: &'static Model<'static>,
    pub(super) template: Option<Template>,
    pub(super) names: TokenNames,
    pub(super) specials: Specials,
    pub(super) meters: Arc<Meters>,
    pub(super) parallel: u32,
    /// Tells files apart.
    pub(super) fingerprint: String,
    /// All memory for texts, and that of one, in bytes.
    pub(super) memory: (u64, u64),
    file_bytes: u64,
    jobs: UnboundedSender<Job>,
    /// The places of the queue, and how many there are.
    places: Arc<Semaphore>,
    queue: usize,
}

impl Serving {
    /// Takes the memory and starts the thread. So many texts may wait for memory.
    ///
    /// # Errors
    /// Those of [`Memory::new`], and what the system says of another thread.
    pub(super) fn start(served: Served, queue: usize) -> Result<(Self, JoinHandle<()>)> {
        let Served { id, loaded, model, template, parallel } = served;
        let mut memory = Memory::new(model, parallel).map_err(|error| error.in_file(loaded.path()))?;
        let bytes = memory.bytes();
        let (jobs, mut waiting) = unbounded_channel();
        let meters = Arc::<Meters>::default();
        let counted = Arc::clone(&meters);
        let name = id.clone();
        let computes = move || {
            if let Err(error) = engine::run(model, &mut memory, &mut waiting, &counted) {
                super::log(&json!({ "event": "engine_failed", "model": name, "error": error.to_string() }));
            }
        };
        let thread = Builder::new().name("engine".to_owned()).stack_size(ENGINE_STACK).spawn(computes);
        let thread = thread.map_err(|error| Error::new(Class::Request, format!("the system gives no thread: {error}")))?;
        let (names, specials) = match model.tokenizer().facts().kind {
            TokenizerKind::None => (TokenNames::default(), Specials::default()),
            _ => (chat::names(model.tokenizer()), chat::specials(model.tokenizer())),
        };
        let serving = Self {
            id,
            loaded,
            model,
            template,
            names,
            specials,
            meters,
            parallel,
            fingerprint: format!("fp_{:08x}", loaded.file()?.payload_crc()),
            memory: bytes,
            file_bytes: loaded.bytes().len() as u64,
            jobs,
            places: Arc::new(Semaphore::new(queue)),
            queue,
        };
        Ok((serving, thread))
    }

    /// Gives work to the engine, all of it or none; what it says of each comes back by itself.
    ///
    /// # Errors
    /// [`Refusal`] where the queue has no room.
    pub(super) fn submit(&self, work: Vec<(Vec<u32>, Work)>) -> Answer<Vec<UnboundedReceiver<Event>>> {
        let (wanted, most) = (work.len(), self.queue);
        if wanted > most {
            return Err(Refusal::request(format!("{wanted} texts are asked for at once, the queue of this server takes {most}")));
        }
        let mut places = Arc::clone(&self.places).try_acquire_many_owned(wanted as u32).map_err(|_| {
            let what = format!("the queue of this server is full ({most} texts at most); try again later");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, what).with_code("queue_full")
        })?;
        let mut listeners = Vec::new();
        for (tokens, work) in work {
            let (events, listener) = unbounded_channel();
            let job = Job { tokens, work, events, place: places.split(1) };
            self.jobs.send(job).map_err(|_| Refusal::internal("the engine of this model has stopped"))?;
            listeners.push(listener);
        }
        Ok(listeners)
    }

    /// Whether the engine takes work.
    pub(super) fn is_alive(&self) -> bool {
        !self.jobs.is_closed()
    }

    /// Texts that wait.
    pub(super) fn queued(&self) -> u64 {
        (self.queue - self.places.available_permits().min(self.queue)) as u64
    }

    pub(super) fn has_tokenizer(&self) -> bool {
        self.model.tokenizer().facts().kind != TokenizerKind::None
    }

    /// The text of tokens, whole characters.
    pub(super) fn text(&self, tokens: &[u32]) -> String {
        let (mut utf8, mut text) = (Utf8Stream::new(), String::new());
        let mut add = |part: &str| {
            text.push_str(part);
            Ok::<(), Infallible>(())
        };
        let mut previous = NO_TOKEN;
        for token in tokens {
            let Ok(()) = utf8.push(self.model.tokenizer().decode(previous, *token).as_bytes(), &mut add);
            previous = *token;
        }
        let Ok(()) = utf8.finish(&mut add);
        text
    }

    /// The same with the file's header, if it has one, and its tensors.
    ///
    /// # Errors
    /// Those of [`Loaded::file`].
    pub(super) fn facts(&self, created: u64) -> Result<Value> {
        let file = self.loaded.file()?;
        let tensors = file.tensors().map(|tensor| {
            let view = tensor.view;
            json!({ "name": tensor.name, "dtype": view.dtype().to_string(), "dims": view.dims().as_slice(), "bytes": view.bytes().len() })
        });
        let tensors: Vec<Value> = tensors.collect();
        let mut facts = self.json(created);
        facts["header"] = Value::from(file.header_text());
        facts["tensors"] = Value::from(tensors);
        Ok(facts)
    }

    /// The object of OpenAI's API, with what this server knows of it.
    pub(super) fn json(&self, created: u64) -> Value {
        let network = self.model.network();
        json!({
            "id": self.id,
            "object": "model",
            "created": created,
            "owned_by": "dmexp",
            "fingerprint": self.fingerprint,
            "file_bytes": self.file_bytes,
            "architecture": if network.dormouse().is_some() { "dormouse" } else { "llama" },
            "context": self.model.context(),
            "vocab_size": network.vocab_size(),
            "layers": network.n_layers(),
            "dim": network.dim(),
            "kv": self.model.kv().name(),
            "parallel": self.parallel,
            "memory_bytes": self.memory.0,
            "chat": self.template.is_some(),
        })
    }
}
