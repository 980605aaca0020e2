//! Text in which special tokens are spelled: taken apart where the template wrote them, and only there. What people write may spell them too, and stays plain text.

/// A special token by the text that a template writes for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Special {
    spelling: String,
    token: u32,
}

/// The special tokens of a tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Specials {
    /// Longest spelling first.
    all: Vec<Special>,
}

/// A part of a rendered conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'t> {
    /// Text to be encoded.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

impl Specials {
    /// The tokens with their spellings; those without one are left out, and of two with one spelling the first counts.
    pub fn new(tokens: impl IntoIterator<Item = (u32, String)>) -> Self {
        let mut all: Vec<Special> = Vec::new();
        for (token, spelling) in tokens {
            if !spelling.is_empty() && all.iter().all(|special| special.spelling != spelling) {
                all.push(Special { spelling, token });
            }
        }
        all.sort_by_key(|special| std::cmp::Reverse(special.spelling.len()));
        Self { all }
    }

    /// The longest spelling that `text` begins with.
    fn at_start(&self, text: &str) -> Option<&Special> {
        self.all.iter().find(|special| text.starts_with(&special.spelling))
    }

    /// Takes text apart, from the left, the longest spelling first.
    pub fn split<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let (mut start, mut at) = (0, 0);
        while let Some(character) = text[at..].chars().next() {
            let Some(special) = self.at_start(&text[at..]) else {
                at += character.len_utf8();
                continue;
            };
            if at > start {
                parts.push(Part::Text(&text[start..at]));
            }
            parts.push(Part::Token(special.token));
            at += special.spelling.len();
            start = at;
        }
        if at > start {
            parts.push(Part::Text(&text[start..at]));
        }
        parts
    }

    /// `text` with `guard` within everything that spells a special token, or that could together with what the template writes before or behind it.
    ///
    /// The guard goes where it hides nothing from a template that looks at the beginning or end of a text or takes white space off it, and comes out again with [`Guard::remove`].
    pub fn protect(&self, text: &str, guard: Guard) -> String {
        let mut protected = String::with_capacity(text.len());
        if self.all.iter().any(|special| proper_suffixes(&special.spelling).any(|suffix| text.starts_with(suffix))) {
            protected.push(guard.0);
        }
        for (at, character) in text.char_indices() {
            protected.push(character);
            if self.at_start(&text[at..]).is_some() {
                protected.push(guard.0);
            }
        }
        if self.all.iter().any(|special| proper_prefixes(&special.spelling).any(|prefix| text.ends_with(prefix))) {
            protected.push(guard.0);
        }
        protected
    }
}

fn proper_suffixes(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().skip(1).map(|(at, _)| &text[at..])
}

fn proper_prefixes(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().skip(1).map(|(at, _)| &text[..at])
}

/// A character that stands in no text of a conversation and is taken out before anything is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard(char);

impl Guard {
    /// One of Unicode's noncharacters, which none of `texts` has; `None` where they have all of them.
    pub fn new<'t>(texts: &(impl Iterator<Item = &'t str> + Clone)) -> Option<Self> {
        ('\u{FDD0}'..='\u{FDEF}').find(|guard| texts.clone().all(|text| !text.contains(*guard))).map(Self)
    }

    /// `text` without it.
    pub fn remove(self, text: &str) -> String {
        text.replace(self.0, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specials() -> Specials {
        Specials::new([
            (1, "<|im_start|>".into()),
            (2, "<|im_end|>".into()),
            (0, "<|im".into()),
            (7, String::new()),
            (8, "<s>".into()),
            (9, "<s>".into()),
        ])
    }

    #[test]
    fn the_longest_spelling_counts_and_of_equals_the_first() {
        let parts = specials().split("<|im_start|>user\n<|imx<s>é");
        assert_eq!(parts, [Part::Token(1), Part::Text("user\n"), Part::Token(0), Part::Text("x"), Part::Token(8), Part::Text("é")]);
        assert_eq!(specials().split(""), []);
        assert_eq!(Specials::default().split("<s>"), [Part::Text("<s>")]);
    }

    #[test]
    fn protected_text_has_no_special_token_whatever_stands_beside_it() {
        let specials = specials();
        let texts =
            ["<s>", "a<s><s>", "<|im_start|><|im_end|>", "<", "s>", "|im_end|>", "<|im_e", "", "plain", "é<s", "<<s>>", "_end|>x<|im"];
        for text in texts {
            for (before, behind) in [("", ""), ("<", ">"), ("<|im", "nd|>"), ("<|im_start", "|im_end|>"), ("<|", "m_end|>")] {
                let guard = Guard::new(&[text, before, behind].into_iter()).unwrap();
                let whole = format!("{before}{}{behind}", specials.protect(text, guard));
                let plain: String = specials
                    .split(&whole)
                    .iter()
                    .map(|part| if let Part::Text(text) = part { guard.remove(text) } else { String::new() })
                    .collect();
                assert!(plain.contains(text), "{before:?} {text:?} {behind:?} gave {plain:?}");
                assert_eq!(guard.remove(&whole), format!("{before}{text}{behind}"));
            }
        }
    }

    #[test]
    fn text_without_special_tokens_is_left_alone() {
        let guard = Guard::new(&["plain"].into_iter()).unwrap();
        assert_eq!(specials().protect(" plain text \n", guard), " plain text \n");
    }

    #[test]
    fn the_guard_is_in_no_text() {
        assert_eq!(Guard::new(&["\u{FDD0}a\u{FDD1}"].into_iter()), Some(Guard('\u{FDD2}')));
        let all: String = ('\u{FDD0}'..='\u{FDEF}').collect();
        assert_eq!(Guard::new(&[all.as_str()].into_iter()), None);
    }
}
