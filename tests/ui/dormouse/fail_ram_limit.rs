//! Less RAM than exact decoding needs for so many positions.

dmexp::include_model!(Dormouse = "../generated/dormouse.dmexp", context = 24, ram_limit = 30_000);

fn main() {}
