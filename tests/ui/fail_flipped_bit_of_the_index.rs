//! One bit of the index is another one.

dmexp::include_model!(Flipped = "generated/flipped_index.dmexp");

fn main() {}
