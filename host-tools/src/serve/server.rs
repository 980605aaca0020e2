//! Connections: how many there are, how slow they may be, and how the server ends.

use super::files;
use super::meters::Requests;
use super::models::{Served, Serving};
use super::refusal::{Answer, Refusal};
use super::reply::now;
use super::routes::router;
use crate::error::{Class, Error, Result};
use axum::Router;
use axum::http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
#[cfg(unix)]
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

/// How a server works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens.
    pub address: SocketAddr,
    /// What every request has to know, if anything.
    pub api_key: Option<String>,
    /// The origin whose pages may ask, or `*`; none by default.
    pub cors: Option<String>,
    /// Texts that wait for memory, of each model.
    pub queue: usize,
    /// Connections at the same time, as far as the system has files for them; others wait until it gives them up.
    pub connections: usize,
    /// Bytes of a request's body.
    pub body_limit: usize,
    /// How long a request may take.
    pub time_limit: Duration,
    /// How long the head of a request may take to arrive, and its body, and how long a client may not read.
    pub patience: Duration,
    /// Writes no log.
    pub quiet: bool,
}

/// How long requests under way have when the server is told to end.
const GRACE: Duration = Duration::from_secs(30);

/// What all requests see.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) models: Vec<Serving>,
    pub(super) options: Options,
    /// The places of connections, and how many there are.
    pub(super) places: Arc<Semaphore>,
    pub(super) connections: usize,
    pub(super) requests: Requests,
    pub(super) started: u64,
}

impl Server {
    /// The model that a request names; where there is one alone it need not.
    pub(super) fn model(&self, id: Option<&str>) -> Answer<&Serving> {
        let ids = || self.models.iter().map(|serving| serving.id.as_str()).collect::<Vec<_>>().join(", ");
        let found = match (id, self.models.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => return Err(Refusal::field("model", format_args!("is missing; there are {}", ids()))),
            (Some(id), models) => models.iter().find(|serving| serving.id == id),
        };
        found.ok_or_else(|| {
            let what = format!("there is no model {:?}; there are {}", id.unwrap_or_default(), ids());
            Refusal::new(StatusCode::NOT_FOUND, what).with_code("model_not_found")
        })
    }
}

/// Serves `models` until the process is told to end (SIGTERM or Ctrl-C): then no more connections are taken, requests under way have half a minute, and a second signal ends it at once. `ready` is called
/// with the address when it listens.
///
/// # Errors
/// [`Class::Request`] where the memory for texts is more than there is, two models have one name, or the address cannot be listened at.
pub fn run(models: Vec<Served>, options: Options, ready: impl FnOnce(SocketAddr, &[String])) -> Result<()> {
    let mut threads = Vec::new();
    let mut serving: Vec<Serving> = Vec::new();
    for served in models {
        if serving.iter().any(|other| other.id == served.id) {
            let what = format!("two models are called {:?}", served.id);
            return Err(Error::new(Class::Request, what).advise("rename one of the files").in_file(served.loaded.path()));
        }
        let (model, thread) = Serving::start(served, options.queue)?;
        serving.push(model);
        threads.push(thread);
    }
    let mut facts: Vec<String> = serving.iter().map(facts).collect();
    let connections = files::room_for(options.connections).min(Semaphore::MAX_PERMITS);
    if connections < options.connections {
        facts.push(format!(
            "the system lets this process open so few files that there are {connections} connections at the same time at most, not {}",
            options.connections
        ));
    }
    let system = |error: std::io::Error| Error::new(Class::Request, format!("the server cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(system)?;
    let places = Arc::new(Semaphore::new(connections));
    let server = Arc::new(Server { models: serving, options, places, connections, requests: Requests::default(), started: now() });
    let outcome = runtime.block_on(async {
        // From here on no signal is missed.
        let ends = Ends::new();
        let address = server.options.address;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let what = format!("{address} cannot be listened at: {error}");
            Error::new(Class::Request, what).advise("choose another --port or --host")
        })?;
        ready(listener.local_addr().map_err(system)?, &facts);
        serve(listener, server, ends).await;
        Ok(())
    });
    // Whatever is left of requests goes with it, and with the last of them the engines.
    runtime.shutdown_timeout(Duration::from_secs(1));
    for thread in threads {
        // An engine that panicked has said so.
        let _ = thread.join();
    }
    outcome
}

/// A line about a model and its memory.
fn facts(serving: &Serving) -> String {
    let (all, one) = serving.memory;
    let (texts, context) = (serving.parallel, serving.model.context());
    format!("{}: {texts} texts at once of {context} positions, {one} bytes each, {all} bytes of memory in all", serving.id)
}

async fn serve(listener: TcpListener, server: Arc<Server>, mut ends: Ends) {
    let (places, patience) = (Arc::clone(&server.places), server.options.patience);
    let router = router(server);
    let graceful = GracefulShutdown::new();
    loop {
        let accepted = async {
            // Nobody else takes places, so one that is free now still is when somebody comes; until then it counts as free. The semaphore is never closed.
            drop(places.acquire().await);
            let accepted = listener.accept().await;
            (accepted, Arc::clone(&places).try_acquire_owned().ok())
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            () = ends.next() => break,
        };
        match accepted {
            Ok((stream, _)) => connect(stream, place, patience, &router, &graceful),
            // Most often there are too many open files: some will be closed.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
    drop(listener);
    tokio::select! {
        _ = timeout(GRACE, graceful.shutdown()) => {}
        () = ends.next() => {}
    }
}

/// Lets a task answer the requests of a connection.
fn connect(stream: TcpStream, place: Option<OwnedSemaphorePermit>, patience: Duration, router: &Router, graceful: &GracefulShutdown) {
    // Without it, small events would wait for each other; where it cannot be had they do.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(patience));
    let service = TowerToHyperService::new(router.clone());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // What goes wrong with a connection is its client's: it went away, or sent what is no HTTP.
        let _ = connection.await;
        drop(place);
    });
}

/// SIGTERM and Ctrl-C.
struct Ends {
    #[cfg(unix)]
    signals: Vec<tokio::signal::unix::Signal>,
}

impl Ends {
    /// Where the system does not let them be caught, they end the process.
    fn new() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Self { signals: [SignalKind::terminate(), SignalKind::interrupt()].into_iter().filter_map(|kind| signal(kind).ok()).collect() }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Waits for the next of them, also one that came since the last call.
    async fn next(&mut self) {
        #[cfg(unix)]
        std::future::poll_fn(|context| {
            let came = self.signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if came { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
