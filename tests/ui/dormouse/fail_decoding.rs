//! A way of decoding that there is not.

dmexp::include_model!(Dormouse = "../generated/dormouse.dmexp", decoding = slow);

fn main() {}
