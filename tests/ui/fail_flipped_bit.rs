//! One bit of the weights is another one.

dmexp::include_model!(Flipped = "generated/flipped.dmexp");

fn main() {}
