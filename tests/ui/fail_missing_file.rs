//! A file that is not there.

dmexp::include_model!(Missing = "generated/no_such_file.dmexp");

fn main() {}
