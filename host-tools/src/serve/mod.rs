//! An HTTP server that speaks OpenAI's API, on the runtime: what `dmexp serve` runs.
//!
//! A thread a model computes (`engine`): it has the memory of all texts and feeds those that are under way together. Requests come in over hyper and axum (`server`, `routes`), are checked strictly
//! (`params`, `grammar`) and become jobs; a task a text makes whole characters of its tokens (`follow`), which go out as a whole (`reply`) or piece by piece (`stream`).

mod engine;
mod fields;
mod files;
mod follow;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod grammar;
mod guard;
mod job;
mod meters;
mod models;
mod params;
mod refusal;
mod reply;
mod routes;
mod server;
mod shape;
mod stream;

pub use models::Served;
pub use server::{Options, run};

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::io::Write;

/// A response that is JSON.
fn json_response(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], value.to_string()).into_response()
}

/// A line of the log, on stderr. If that is closed, nobody is left to tell.
fn log(value: &Value) {
    let _ = writeln!(std::io::stderr(), "{value}");
}
