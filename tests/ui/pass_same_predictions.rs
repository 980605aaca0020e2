//! A network in the program gives the bits of its golden vectors, in an arena of exactly its size.

use dmexp::{Arena, Prediction};

dmexp::include_model!(
    /// All options that a network without recurrent layers takes.
    pub Tones = "generated/tones.dmexp", section = ".dmexp_model", streaming = false, board = "microbit"
);
dmexp::include_model!(Eight = "generated/tones_q8.dmexp");

fn main() {
    let (inputs, outputs) = Tones::golden();
    let mut arena = Box::new(Arena::<{ Tones::ARENA_LEN }>::new());
    let mut prediction = Prediction::new(Tones::bind(), &mut *arena).unwrap();
    let mut named = Vec::new();
    for sample in 0..8 {
        assert!(prediction.write_sample(sample, |place| inputs.get(place as usize).copied()));
        prediction.run().unwrap();
        assert!(prediction.has_results(sample, |place| outputs.get(place as usize).copied()));
        named.push(prediction.predictor().label(prediction.class()).unwrap());
    }
    assert_eq!(named, ["rising", "rising", "falling", "falling", "steady", "steady", "noise", "noise"]);
    assert!(!prediction.write_sample(8, |place| inputs.get(place as usize).copied()));
    assert_eq!((Tones::INPUT_LENS, Tones::OUTPUT_LENS, prediction.predictor().arena_len()), ([192], [4], Ok(Tones::ARENA_LEN)));
    assert!(Eight::bind().weight("4.kernel").is_some() && Eight::bind().weight("5.kernel").is_none());
    let mut short = Box::new(Arena::<{ Tones::ARENA_LEN - 4 }>::new());
    assert!(Prediction::new(Tones::bind(), &mut *short).is_err());
}
