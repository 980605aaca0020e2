//! What answers each route.

use super::fields::{self, Fields};
use super::follow::{Terms, Texts};
use super::job::{Event, Work};
use super::meters::{Measured, report};
use super::models::Serving;
use super::params::{Asked, has_tokenizer};
use super::refusal::{Answer, Refusal};
use super::reply::Reply;
use super::server::Server;
use super::stream::Events;
use super::{json_response, log};
use crate::text::encode;
use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_core::Stream;
use serde::Serialize;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout, timeout_at};

/// The routes, as the API's description lists them.
pub(super) const ROUTES: [&str; 11] = [
    "/",
    "/openapi.json",
    "/health",
    "/metrics",
    "/v1/models",
    "/v1/models/{model}",
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/logits",
    "/tokenize",
    "/detokenize",
];

/// How long a body that is too large is still read.
const LINGER: Duration = Duration::from_secs(5);
/// Bytes of logits in a reply at most.
const LOGITS_LIMIT: u64 = 256_000_000;

/// The router.
pub(super) fn router(server: Arc<Server>) -> Router {
    let guard = axum::middleware::from_fn_with_state(Arc::clone(&server), super::guard::guard);
    Router::new()
        .route("/", get(page))
        .route("/openapi.json", get(description))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/models", get(models))
        .route("/v1/models/{model}", get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/logits", post(logits))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(guard)
        .with_state(server)
}

/// The page: all of it is in this file, and it may ask nobody but this server.
async fn page() -> Response {
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:";
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)];
    (headers, include_str!("page.html")).into_response()
}

/// What the server does, for machines.
async fn description() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json")).into_response()
}

async fn unknown(request: Request) -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, format!("there is no {}; the routes are {}", request.uri().path(), ROUTES.join(", ")))
}

async fn wrong_method(request: Request) -> Refusal {
    let what = format!("{} does not take {}", request.uri().path(), request.method());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, what)
}

async fn health(State(server): State<Arc<Server>>) -> Response {
    let alive = server.models.iter().all(Serving::is_alive);
    let (status, word) = if alive { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "an engine has stopped") };
    json_response(status, &json!({ "status": word }))
}

async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let measured = server.models.iter().map(|serving| Measured {
        id: &serving.id,
        meters: &serving.meters,
        queued: serving.queued(),
        slots: u64::from(serving.parallel),
    });
    let connections = server.connections - server.places.available_permits().min(server.connections);
    let text = report(&server.requests, connections, &measured.collect::<Vec<_>>());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn models(State(server): State<Arc<Server>>) -> Response {
    let data: Vec<Value> = server.models.iter().map(|serving| serving.json(server.started)).collect();
    json_response(StatusCode::OK, &json!({ "object": "list", "data": data }))
}

async fn model(State(server): State<Arc<Server>>, id: Result<Path<String>, PathRejection>) -> Answer {
    let Path(id) = id.map_err(|error| Refusal::request(error.to_string()))?;
    Ok(json_response(StatusCode::OK, &server.model(Some(&id))?.facts(server.started)?))
}

async fn completions(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let body = json_body(&server, request).await?;
    let fields = Fields::of(&body)?;
    let serving = server.model(fields.text("model")?)?;
    let asked = block_in_place(|| Asked::completion(fields, serving))?;
    texts(&server, serving, asked).await
}

async fn chat_completions(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let body = json_body(&server, request).await?;
    let fields = Fields::of(&body)?;
    let serving = server.model(fields.text("model")?)?;
    has_tokenizer(serving)?;
    let asked = block_in_place(|| Asked::chat(fields, serving))?;
    texts(&server, serving, asked).await
}

/// Has the texts made, and gives them as they come or as a whole.
async fn texts(server: &Server, serving: &Serving, asked: Asked) -> Answer {
    let mut reply = Reply::new(&asked, serving);
    let work = asked.prompts.iter().flat_map(|prompt| std::iter::repeat_n(&prompt.tokens, asked.n)).enumerate();
    let work = work.map(|(index, tokens)| (tokens.clone(), asked.work(index))).collect();
    let start = Instant::now();
    let terms = Terms { stops: asked.stops, start, deadline: start + server.options.time_limit, meters: Arc::clone(&serving.meters) };
    let mut texts = Texts::follow(serving.submit(work)?, &terms);
    if asked.stream {
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        return Ok((headers, Body::from_stream(Events::new(texts, reply, server.options.quiet))).into_response());
    }
    while !reply.is_over() {
        match texts.chunks.recv().await {
            Some(chunk) => reply.take(chunk?),
            None => return Err(Refusal::internal("a text ended without a word")),
        }
    }
    if !server.options.quiet {
        log(&reply.line());
    }
    Ok(json_response(StatusCode::OK, &reply.whole()))
}

async fn tokenize(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let body = json_body(&server, request).await?;
    let fields = Fields::of(&body)?;
    let serving = server.model(fields.text("model")?)?;
    has_tokenizer(serving)?;
    let text = fields.text("text")?.or(fields.text("content")?).ok_or_else(|| Refusal::field("text", "is missing"))?;
    let special = fields.get("add_special").is_none() || fields.flag("add_special")?;
    let tokens = block_in_place(|| encode(serving.model.tokenizer(), text.as_bytes(), special))?;
    Ok(json_response(StatusCode::OK, &json!({ "tokens": tokens, "count": tokens.len(), "context": serving.model.context() })))
}

async fn detokenize(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let body = json_body(&server, request).await?;
    let fields = Fields::of(&body)?;
    let serving = server.model(fields.text("model")?)?;
    has_tokenizer(serving)?;
    let list = fields.list("tokens")?.ok_or_else(|| Refusal::field("tokens", "is missing"))?;
    let tokens = fields::tokens("tokens", list, serving.model.network().vocab_size())?;
    Ok(json_response(StatusCode::OK, &json!({ "text": serving.text(&tokens) })))
}

/// The logits after a token.
#[derive(Serialize)]
struct Row<'r> {
    position: usize,
    token: u32,
    logits: &'r [f32],
}

async fn logits(State(server): State<Arc<Server>>, request: Request) -> Answer {
    let body = json_body(&server, request).await?;
    let fields = Fields::of(&body)?;
    let serving = server.model(fields.text("model")?)?;
    let vocab_size = serving.model.network().vocab_size();
    let tokens = match (fields.list("tokens")?, fields.text("text")?) {
        (Some(list), None) => fields::tokens("tokens", list, vocab_size)?,
        (None, Some(text)) => {
            has_tokenizer(serving)?;
            block_in_place(|| encode(serving.model.tokenizer(), text.as_bytes(), true))?
        }
        _ => return Err(Refusal::request("give either tokens, a list of ids, or text")),
    };
    let raw = match fields.text("format")? {
        None | Some("json") => false,
        Some("f32") => true,
        Some(other) => return Err(Refusal::field("format", format_args!("{other:?} is neither json nor f32"))),
    };
    let context = serving.model.context();
    if tokens.is_empty() || tokens.len() > context as usize {
        return Err(Refusal::request(format!("there are {} tokens; give from 1 to {context}, the positions of the context", tokens.len())));
    }
    let bytes = tokens.len() as u64 * u64::from(vocab_size) * 4;
    if bytes > LOGITS_LIMIT {
        let most = LOGITS_LIMIT / u64::from(vocab_size) / 4;
        return Err(Refusal::request(format!("{bytes} bytes of logits are more than {LOGITS_LIMIT}; give {most} tokens at most")));
    }
    let listeners = serving.submit(vec![(tokens.clone(), Work::Logits)])?;
    let Some(mut listener) = listeners.into_iter().next() else { return Err(Refusal::internal("nobody computes this")) };
    let all = timeout_at(Instant::now() + server.options.time_limit, rows(&mut listener)).await;
    let rows = all.map_err(|_| Refusal::new(StatusCode::GATEWAY_TIMEOUT, "the time for this request is over").with_code("timeout"))??;
    if raw {
        let bytes: Vec<u8> = block_in_place(|| rows.iter().flatten().flat_map(|logit| logit.to_le_bytes()).collect());
        return Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response());
    }
    let numbered = tokens.iter().zip(&rows).enumerate();
    let rows: Vec<Row<'_>> = numbered.map(|(position, (token, logits))| Row { position, token: *token, logits }).collect();
    let text = block_in_place(|| serde_json::to_vec(&rows)).map_err(|error| Refusal::internal(error.to_string()))?;
    let head = json!({ "object": "logits", "model": serving.id, "vocab_size": vocab_size }).to_string();
    let mut json = head.trim_end_matches('}').as_bytes().to_vec();
    json.extend_from_slice(b",\"rows\":");
    json.extend_from_slice(&text);
    json.push(b'}');
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], json).into_response())
}

async fn rows(listener: &mut UnboundedReceiver<Event>) -> Answer<Vec<Vec<f32>>> {
    let mut rows = Vec::new();
    loop {
        match listener.recv().await {
            Some(Event::Row(row)) => rows.push(row),
            Some(Event::Done(_)) => return Ok(rows),
            Some(Event::Failed(what)) => return Err(Refusal::internal(what)),
            Some(_) => {}
            None => return Err(Refusal::internal("the engine of this model has stopped")),
        }
    }
}

/// The body as JSON, as large as is allowed and no slower than that.
async fn json_body(server: &Server, request: Request) -> Answer<Value> {
    let limit = server.options.body_limit;
    let stated = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let asks_first = request.headers().contains_key(header::EXPECT);
    let mut stream = pin!(request.into_body().into_data_stream());
    if stated.is_some_and(|length| length > limit as u64) {
        if !asks_first {
            read_away(stream).await;
        }
        return Err(too_large(limit));
    }
    let read = timeout(server.options.patience, body(stream.as_mut(), limit)).await;
    let read = read.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body does not arrive"))??;
    let Some(bytes) = read else {
        read_away(stream).await;
        return Err(too_large(limit));
    };
    serde_json::from_slice(&bytes).map_err(|error| Refusal::request(format!("the body is no JSON: {error}")))
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {limit} bytes")).with_code("body_too_large")
}

/// Reads on without keeping anything, for a while: most clients look for an answer only when all is sent, and would find a connection that broke off.
async fn read_away(mut stream: Pin<&mut BodyDataStream>) {
    let rest = async { while poll_fn(|context| stream.as_mut().poll_next(context)).await.is_some_and(|piece| piece.is_ok()) {} };
    // Whoever takes longer has to do without it.
    let _ = timeout(LINGER, rest).await;
}

/// All of a body; `None` where it has more bytes than `limit`.
async fn body(mut stream: Pin<&mut BodyDataStream>, limit: usize) -> Answer<Option<Bytes>> {
    let mut all = Vec::new();
    while let Some(piece) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        let piece = piece.map_err(|error| Refusal::request(format!("the body breaks off: {error}")))?;
        if all.len() + piece.len() > limit {
            return Ok(None);
        }
        all.extend_from_slice(&piece);
    }
    Ok(Some(all.into()))
}
