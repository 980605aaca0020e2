//! A board that nobody knows.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", board = "rp2041");

fn main() {}
