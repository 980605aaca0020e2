//! Tensors for RAM that the model does not have.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", ram = ["norm.weight", "layers.*.query.*"]);

fn main() {}
