//! A convolution was built for a number of steps.

dmexp::include_model!(Tones = "generated/tones.dmexp", length = 25);

fn main() {}
