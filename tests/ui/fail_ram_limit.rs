//! Less RAM than a session needs.

dmexp::include_model!(Tiny = "generated/tiny.dmexp", ram_limit = 4_000);

fn main() {}
