//! What every request passes: the key, other origins, counts and the log.

use super::log;
use super::refusal::Refusal;
use super::reply::{milliseconds, now};
use super::routes::ROUTES;
use super::server::Server;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;

/// Routes that need no key: they tell nothing of the models.
const OPEN: [&str; 3] = ["/", "/openapi.json", "/health"];

pub(super) async fn guard(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let route = route(request.uri().path());
    let preflight = method == Method::OPTIONS && server.options.cors.is_some();
    let allowed = OPEN.contains(&route) || has_key(server.options.api_key.as_deref(), request.headers());
    let mut response = if preflight {
        StatusCode::NO_CONTENT.into_response()
    } else if allowed {
        next.run(request).await
    } else {
        Refusal::new(StatusCode::UNAUTHORIZED, "the key is missing or wrong: send it as Authorization: Bearer KEY")
            .with_code("invalid_api_key")
            .into_response()
    };
    if let Some(origin) = server.options.cors.as_deref().and_then(|origin| HeaderValue::from_str(origin).ok()) {
        allow(response.headers_mut(), origin);
    }
    let status = response.status().as_u16();
    server.requests.count(route, status);
    if !server.options.quiet {
        let took = milliseconds(start);
        log(&json!({ "event": "request", "time": now(), "method": method.as_str(), "route": route, "status": status, "ms": took }));
    }
    response
}

/// The route of a path: what is counted and logged in its place, since paths are what anybody may send.
fn route(path: &str) -> &'static str {
    let is_model = path.strip_prefix("/v1/models/").is_some_and(|id| !id.is_empty() && !id.contains('/'));
    match ROUTES.into_iter().find(|route| *route == path) {
        Some(route) => route,
        None if is_model => "/v1/models/{model}",
        None => "other",
    }
}

/// Whether the key was sent, if one is asked for. How long this takes does not tell where a wrong one differs.
fn has_key(key: Option<&str>, headers: &HeaderMap) -> bool {
    let Some(key) = key else { return true };
    let sent = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let sent = sent.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case(b"bearer ")).map_or(&[][..], |_| &sent[7..]);
    let differing = key.bytes().zip(sent.iter().chain(std::iter::repeat(&0))).fold(0, |found, (a, b)| found | (a ^ b));
    differing == 0 && sent.len() == key.len()
}

fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, OPTIONS"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type"));
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_compared_whole() {
        let headers = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
        assert!(has_key(None, &HeaderMap::new()));
        assert!(has_key(Some("secret"), &headers("Bearer secret")) && has_key(Some("secret"), &headers("bearer secret")));
        for wrong in ["", "secret", "Bearer secre", "Bearer secrets", "Bearer ", "Basic secret", "Bearer Secret"] {
            assert!(!has_key(Some("secret"), &headers(wrong)), "{wrong}");
        }
        assert!(!has_key(Some("secret"), &HeaderMap::new()));
    }

    #[test]
    fn paths_are_counted_by_route() {
        assert_eq!(route("/v1/completions"), "/v1/completions");
        assert_eq!(route("/v1/models/a"), "/v1/models/{model}");
        assert_eq!(route("/v1/models/a/b"), "other");
        assert_eq!(route("/etc/passwd"), "other");
    }
}
