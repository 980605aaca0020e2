//! A file that ends early.

dmexp::include_model!(Cut = "generated/truncated.dmexp");

fn main() {}
