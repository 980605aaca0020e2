//! `dmexp new firmware`: a small firmware project for one board with one model, ready to build. Called by the command line.

mod boards;
mod fit;
mod project;
#[cfg(test)]
mod template_tests;
#[cfg(test)]
mod tests;

pub use boards::{ALL, Board};
pub use project::{Request, Source, write};
