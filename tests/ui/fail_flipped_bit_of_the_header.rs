//! One bit of the header is another one.

dmexp::include_model!(Flipped = "generated/flipped_header.dmexp");

fn main() {}
