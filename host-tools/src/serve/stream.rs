//! Texts as server-sent events.

use super::follow::Texts;
use super::reply::Reply;
use axum::body::Bytes;
use futures_core::Stream;
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The body of a streamed reply. Dropped before its end, it ends its texts.
#[derive(Debug)]
pub(super) struct Events {
    /// None when all was sent.
    texts: Option<Texts>,
    reply: Reply,
    quiet: bool,
    opened: bool,
}

impl Events {
    pub(super) fn new(texts: Texts, reply: Reply, quiet: bool) -> Self {
        Self { texts: Some(texts), reply, quiet, opened: false }
    }

    fn close(&mut self) {
        self.texts = None;
        if !self.quiet {
            super::log(&self.reply.line());
        }
    }
}

/// Events with these values.
fn events<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    values.into_iter().fold(String::new(), |text, value| text + "data: " + &value.to_string() + "\n\n")
}

impl Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if !this.opened {
            this.opened = true;
            let opening = events(&this.reply.opening());
            if !opening.is_empty() {
                return Poll::Ready(Some(Ok(opening.into())));
            }
        }
        loop {
            let Some(texts) = &mut this.texts else { return Poll::Ready(None) };
            let mut text = match ready!(texts.chunks.poll_recv(context)) {
                Some(Ok(chunk)) => {
                    let index = chunk.index;
                    this.reply.take(chunk);
                    events(&this.reply.pieces(index))
                }
                Some(Err(refusal)) => {
                    this.close();
                    return Poll::Ready(Some(Ok(events([&refusal.json()]).into())));
                }
                None => {
                    this.close();
                    return Poll::Ready(None);
                }
            };
            if this.reply.is_over() {
                text.push_str(&events(&this.reply.closing()));
                text.push_str("data: [DONE]\n\n");
                this.close();
            }
            if !text.is_empty() {
                return Poll::Ready(Some(Ok(text.into())));
            }
        }
    }
}
