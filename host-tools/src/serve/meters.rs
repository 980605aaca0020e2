//! What a server counts, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Counts of one model.
#[derive(Debug, Default)]
pub(super) struct Meters {
    /// Texts under way.
    pub(super) running: AtomicU64,
    /// Tokens of prompts, and those of them that need not be fed.
    pub(super) prompt_tokens: AtomicU64,
    pub(super) cached_tokens: AtomicU64,
    /// New tokens.
    pub(super) tokens: AtomicU64,
    /// Passes over the weights.
    pub(super) passes: AtomicU64,
    /// Texts that were given up because nobody listened any more or their time was over.
    pub(super) cancelled: AtomicU64,
    /// From the request to the first new token.
    pub(super) first_token: Histogram,
    /// From a new token to the next.
    pub(super) next_token: Histogram,
}

/// Upper bounds of the buckets, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// How long something took.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len()],
    count: AtomicU64,
    microseconds: AtomicU64,
}

impl Histogram {
    pub(super) fn record(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        for (bucket, _) in self.buckets.iter().zip(BOUNDS).filter(|(_, bound)| seconds <= *bound) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    fn write(&self, text: &mut String, name: &str, model: &str) {
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS) {
            let _ = writeln!(text, "{name}_bucket{{model={model},le=\"{bound}\"}} {}", bucket.load(Ordering::Relaxed));
        }
        let count = self.count.load(Ordering::Relaxed);
        let _ = writeln!(text, "{name}_bucket{{model={model},le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum{{model={model}}} {}", self.microseconds.load(Ordering::Relaxed) as f64 / 1e6);
        let _ = writeln!(text, "{name}_count{{model={model}}} {count}");
    }
}

/// Requests by route and status.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<BTreeMap<(&'static str, u16), u64>>);

impl Requests {
    pub(super) fn count(&self, route: &'static str, status: u16) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry((route, status)).or_insert(0) += 1;
    }
}

/// What is known of a model beside its meters: its name, the texts that wait, and how many there is memory for.
pub(super) struct Measured<'m> {
    pub(super) id: &'m str,
    pub(super) meters: &'m Meters,
    pub(super) queued: u64,
    pub(super) slots: u64,
}

type Get = fn(&Measured<'_>) -> u64;
type Find = for<'m> fn(&'m Meters) -> &'m Histogram;

/// All of it, with so many connections open.
pub(super) fn report(requests: &Requests, connections: usize, models: &[Measured<'_>]) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    };
    head(&mut text, "dmexp_http_requests_total", "counter", "Requests answered, by route and status.");
    for ((route, status), count) in &*requests.0.lock().unwrap_or_else(PoisonError::into_inner) {
        let _ = writeln!(text, "dmexp_http_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}");
    }
    head(&mut text, "dmexp_connections", "gauge", "Open connections.");
    let _ = writeln!(text, "dmexp_connections {connections}");
    let simple: [(&str, &str, &str, Get); 8] = [
        ("dmexp_texts_running", "gauge", "Texts under way.", |model| model.meters.running.load(Ordering::Relaxed)),
        ("dmexp_texts_queued", "gauge", "Texts that wait for memory.", |model| model.queued),
        ("dmexp_text_slots", "gauge", "Texts that there is memory for.", |model| model.slots),
        ("dmexp_prompt_tokens_total", "counter", "Tokens of prompts.", |model| model.meters.prompt_tokens.load(Ordering::Relaxed)),
        ("dmexp_prompt_tokens_cached_total", "counter", "Tokens of prompts whose keys and values were there already.", |model| {
            model.meters.cached_tokens.load(Ordering::Relaxed)
        }),
        ("dmexp_tokens_generated_total", "counter", "New tokens.", |model| model.meters.tokens.load(Ordering::Relaxed)),
        ("dmexp_passes_total", "counter", "Passes over the weights.", |model| model.meters.passes.load(Ordering::Relaxed)),
        ("dmexp_texts_cancelled_total", "counter", "Texts given up: the client went away, or the time was over.", |model| {
            model.meters.cancelled.load(Ordering::Relaxed)
        }),
    ];
    for (name, kind, help, get) in simple {
        head(&mut text, name, kind, help);
        for model in models {
            let _ = writeln!(text, "{name}{{model={}}} {}", label(model.id), get(model));
        }
    }
    let histograms: [(&str, &str, Find); 2] = [
        ("dmexp_first_token_seconds", "From the request to the first new token.", |meters| &meters.first_token),
        ("dmexp_next_token_seconds", "From a new token to the next.", |meters| &meters.next_token),
    ];
    for (name, help, find) in histograms {
        head(&mut text, name, "histogram", help);
        for model in models {
            find(model.meters).write(&mut text, name, &label(model.id));
        }
    }
    text
}

/// A label's value in quotes.
fn label(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_labels_escaped() {
        let meters = Meters::default();
        meters.tokens.store(7, Ordering::Relaxed);
        meters.first_token.record(Duration::from_millis(7));
        meters.first_token.record(Duration::from_secs(40));
        let requests = Requests::default();
        requests.count("/health", 200);
        requests.count("/health", 200);
        let text = report(&requests, 5, &[Measured { id: "a\"b", meters: &meters, queued: 3, slots: 4 }]);
        for line in [
            "dmexp_http_requests_total{route=\"/health\",status=\"200\"} 2",
            "dmexp_connections 5",
            "dmexp_texts_queued{model=\"a\\\"b\"} 3",
            "dmexp_tokens_generated_total{model=\"a\\\"b\"} 7",
            "dmexp_first_token_seconds_bucket{model=\"a\\\"b\",le=\"0.005\"} 0",
            "dmexp_first_token_seconds_bucket{model=\"a\\\"b\",le=\"0.01\"} 1",
            "dmexp_first_token_seconds_bucket{model=\"a\\\"b\",le=\"30\"} 1",
            "dmexp_first_token_seconds_bucket{model=\"a\\\"b\",le=\"+Inf\"} 2",
            "dmexp_first_token_seconds_sum{model=\"a\\\"b\"} 40.007",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
