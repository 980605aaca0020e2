//! A type that keys and values are not kept in.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", kv = q4);

fn main() {}
