//! An empty file.

dmexp::include_model!(Empty = "generated/empty.dmexp");

fn main() {}
