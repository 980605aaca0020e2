//! A way of decoding where there is only one.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", decoding = exact);

fn main() {}
