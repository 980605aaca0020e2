//! A weight that is not a number, under right checksums.

dmexp::include_model!(Broken = "generated/not_finite.dmexp");

fn main() {}
