//! Keys and values in a type that this architecture does not keep them in.

dmexp::include_model!(Dormouse = "../generated/dormouse.dmexp", kv = f16);

fn main() {}
