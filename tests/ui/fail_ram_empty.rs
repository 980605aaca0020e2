//! A list of no tensors.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", ram = []);

fn main() {}
