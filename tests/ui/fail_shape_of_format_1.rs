//! The same in format 1, whose header has no checksum.

dmexp::include_model!(Shape = "generated/shape_v1.dmexp");

fn main() {}
