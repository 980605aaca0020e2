//! More positions than the model was trained for.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", context = 65);

fn main() {}
