//! Format 1 does not say with which scale the recurrence was trained.

dmexp::include_model!(Dormouse = "../generated/dormouse_v1.dmexp");

fn main() {}
