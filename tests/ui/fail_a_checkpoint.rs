//! A llama2.c checkpoint in place of an export.

dmexp::include_model!(Checkpoint = "../../models/tiny.bin");

fn main() {}
