//! Tensors for RAM that are not a list.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", ram = "norm.weight");

fn main() {}
