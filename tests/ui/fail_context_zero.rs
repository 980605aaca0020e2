//! No positions.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", context = 0);

fn main() {}
