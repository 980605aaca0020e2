//! An environment variable that is not set.

dmexp::include_model!(Tiny = "$DMEXP_NOT_SET/tiny.dmexp");

fn main() {}
