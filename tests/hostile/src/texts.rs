//! Chat templates: Jinja that comes out of a model's file.

use crate::Outcome;
use dmexp_tools::chat::{Message, Role, Template, TokenNames};

/// The most bytes that a template may make of the conversation here.
const TEXT_LIMIT: usize = 4 << 20;

/// A template, with a conversation.
///
/// # Panics
/// If it makes more than so many bytes of it.
pub(crate) fn template(bytes: &[u8]) -> Outcome {
    let Ok(source) = std::str::from_utf8(bytes) else { return Outcome::Refused };
    let template = match Template::new(source) {
        Ok(template) => template,
        Err(error) => return Outcome::refused_by_command(&error),
    };
    let say = |role, content: &str| Message { role, content: content.to_owned() };
    let messages =
        [say(Role::System, "Be kind."), say(Role::User, "Hello <s>"), say(Role::Assistant, "Hi"), say(Role::User, "\u{e9} {{ x }}")];
    let names = TokenNames { bos: "<s>".to_owned(), eos: "</s>".to_owned(), ..TokenNames::default() };
    match template.render(&messages, &names, true) {
        Ok(text) => {
            assert!(text.len() <= TEXT_LIMIT, "{} bytes of text", text.len());
            Outcome::accepted(&text)
        }
        Err(error) => Outcome::refused_by_command(&error),
    }
}
