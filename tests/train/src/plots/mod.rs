//! The plots of the story grammar. Read by `grammar.rs`.
//!
//! A plot is a list of parts; a story takes one alternative of each. A part that starts with `/` starts a new paragraph.

mod days;
mod friends;

/// What a plot needs to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Any toy.
    Toy,
    /// A toy that flies.
    Flyer,
    /// Nothing that has to fit.
    Nothing,
}

/// One kind of story.
#[derive(Debug)]
pub struct Plot {
    /// What it is called in tests.
    pub name: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// Alternatives part by part, after the opening.
    pub parts: &'static [&'static [&'static str]],
}

/// How every story begins.
pub const OPENINGS: &[&str] = &[
    "Once upon a time, there was a~ [|{trait} ][|little ]{kind} named {h}[| who lived near {place}| who lived with {his} {g}].",
    "Once upon a time, there was a~ {trait} and {trait2} {kind} named {h}.",
    "Once upon a time, a~ {trait} {kind} named {h} lived near {place}.",
    "Once upon a time, in a [small|quiet|sunny|far away] [town|village|valley], there lived a~ {trait} [|little ]{kind} named {h}.",
    "Once there was a~ {trait} {kind} called {h} who lived near {place}.",
    "{h} was a~ {trait} and {trait2} {kind} who lived near {place}.",
    "There was once a~ {kind} named {h}. {He} was very {trait2}.",
];

/// All plots.
pub fn all() -> Vec<&'static Plot> {
    friends::PLOTS.iter().chain(days::PLOTS).collect()
}
