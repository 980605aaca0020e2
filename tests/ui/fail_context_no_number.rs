//! A context that is no number.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", context = many);

fn main() {}
