//! A network without recurrent layers keeps nothing from run to run.

dmexp::include_model!(Tones = "generated/tones.dmexp", streaming = true);

fn main() {}
