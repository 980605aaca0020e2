//! A path without quotes.

dmexp::include_model!(Tiny = tiny.dmexp);

fn main() {}
