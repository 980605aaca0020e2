//! Conversations with a model: messages become text through the model's chat template, and text becomes tokens with special tokens only where the template wrote them. Called by
//! `dmexp generate --chat`.

mod encode;
mod special;
mod template;

#[cfg(test)]
mod tests;

pub use encode::{encode, names, specials};
pub use special::{Guard, Part, Specials};
pub use template::{Template, TokenNames};

use crate::error::{Class, Error, Result};

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sets the scene.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// Its name in templates.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// By whom.
    pub role: Role,
    /// What.
    pub content: String,
}

/// A part of what a session has to be fed: see [`Part`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feed {
    /// Text to be encoded.
    Text(String),
    /// A special token.
    Token(u32),
}

/// What has to be fed before the model answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whether the session has to begin anew: at the first turn, and where the template writes what was said before in another way now.
    pub fresh: bool,
    /// What to feed.
    pub feed: Vec<Feed>,
}

/// A conversation as the template sees it, and what of it the session knows.
#[derive(Debug)]
pub struct Conversation {
    template: Template,
    names: TokenNames,
    specials: Specials,
    messages: Vec<Message>,
    /// Messages up to the last question that the session was fed; the answer to it follows among them. 0 if there is none that it still knows.
    known: usize,
}

impl Conversation {
    /// A conversation that begins with `system`, if there is one.
    pub fn new(template: Template, names: TokenNames, specials: Specials, system: Option<String>) -> Self {
        let messages = system.map(|content| Message { role: Role::System, content }).into_iter().collect();
        Self { template, names, specials, messages, known: 0 }
    }

    /// What was said so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Adds what the person says; the model's answer has to be added with [`Conversation::answer`] before the next.
    ///
    /// # Errors
    /// Those of [`Template::render`]; what was said is forgotten then. [`Class::Request`] for a text with every noncharacter of Unicode.
    pub fn ask(&mut self, text: String) -> Result<Turn> {
        self.messages.push(Message { role: Role::User, content: text });
        let turn = self.turn();
        if turn.is_err() {
            self.messages.pop();
        }
        turn
    }

    /// Adds the model's answer. `exact` says that the session knows just this text behind the last question and nothing more.
    pub fn answer(&mut self, text: String, exact: bool) {
        self.known = if exact { self.messages.len() } else { 0 };
        self.messages.push(Message { role: Role::Assistant, content: text });
    }

    fn turn(&self) -> Result<Turn> {
        let guard = guard(&self.messages)?;
        let protected = protect(&self.messages, &self.specials, guard);
        let whole = self.template.render(&protected, &self.names, true)?;
        let rest = self.known_text(&protected)?.and_then(|known| whole.strip_prefix(&known));
        Ok(Turn { fresh: rest.is_none(), feed: parts(rest.unwrap_or(&whole), &self.specials, guard) })
    }

    /// The text that the session knows: the conversation up to the last answer, as the template wrote it when it was fed, with the answer as the model gave it.
    fn known_text(&self, protected: &[Message]) -> Result<Option<String>> {
        let Some((asked, [answer, ..])) = protected.split_at_checked(self.known).filter(|_| self.known > 0) else {
            return Ok(None);
        };
        let mut text = self.template.render(asked, &self.names, true)?;
        text.push_str(&answer.content);
        Ok(Some(text))
    }
}

/// What has to be fed for a whole conversation before the model answers.
///
/// # Errors
/// Those of [`Conversation::ask`].
pub fn feed(template: &Template, names: &TokenNames, specials: &Specials, messages: &[Message]) -> Result<Vec<Feed>> {
    let guard = guard(messages)?;
    let whole = template.render(&protect(messages, specials, guard), names, true)?;
    Ok(parts(&whole, specials, guard))
}

/// A guard that none of the texts has.
fn guard(messages: &[Message]) -> Result<Guard> {
    Guard::new(&messages.iter().map(|message| message.content.as_str()))
        .ok_or_else(|| Error::new(Class::Request, "a text has every noncharacter of Unicode").advise("leave one of U+FDD0 to U+FDEF out"))
}

fn protect(messages: &[Message], specials: &Specials, guard: Guard) -> Vec<Message> {
    let protected = |message: &Message| Message { role: message.role, content: specials.protect(&message.content, guard) };
    messages.iter().map(protected).collect()
}

/// The parts of a rendered text, without its guards.
fn parts(text: &str, specials: &Specials, guard: Guard) -> Vec<Feed> {
    let feed = specials.split(text).into_iter().filter_map(|part| match part {
        Part::Text(text) => Some(guard.remove(text)).filter(|text| !text.is_empty()).map(Feed::Text),
        Part::Token(token) => Some(Feed::Token(token)),
    });
    feed.collect()
}
