//! Why a request was refused, in the form that clients of OpenAI's API expect.

use crate::error::{Class, Error};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    code: Option<&'static str>,
    param: Option<String>,
    message: String,
}

/// What a handler returns.
pub(super) type Answer<T = Response> = Result<T, Refusal>;

impl Refusal {
    /// With this status and message.
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, code: None, param: None, message: message.into() }
    }

    /// A request that is wrong.
    pub(super) fn request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field of the request that is wrong.
    pub(super) fn field(name: &str, message: impl std::fmt::Display) -> Self {
        Self { param: Some(name.to_owned()), ..Self::request(format!("{name}: {message}")) }
    }

    /// The engine is gone or gave no answer.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Adds the machine-readable reason.
    #[must_use]
    pub(super) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The object of OpenAI's API.
    pub(super) fn json(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = if error.class() == Class::Damaged { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST };
        Self::new(status, error.to_string())
    }
}

impl From<dmexp::format::Error> for Refusal {
    fn from(error: dmexp::format::Error) -> Self {
        Self::request(error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = super::json_response(self.status, &self.json());
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
