//! An option that does not exist.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", contxt = 64);

fn main() {}
