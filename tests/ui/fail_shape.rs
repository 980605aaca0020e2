//! A configuration that is not the weights'.

dmexp::include_model!(Shape = "generated/shape.dmexp");

fn main() {}
