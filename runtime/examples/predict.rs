//! A small network in the program names what its numbers stand for; those here are the samples that its file carries. `cargo run --example predict`
use dmexp::{Arena, Prediction, include_model};

include_model!(Tones = "tones.dmexp");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (inputs, _) = Tones::golden();
    let mut arena = Arena::<{ Tones::ARENA_LEN }>::new();
    let mut prediction = Prediction::new(Tones::bind(), &mut arena)?;
    let mut sample = 0;
    // Numbers of your own go into `prediction.input_mut(0)`.
    while prediction.write_sample(sample, |number| inputs.get(number as usize).copied()) {
        prediction.run()?;
        let class = prediction.class();
        println!("sample {sample}: {} ({})", prediction.predictor().label(class).unwrap_or("?"), prediction.output(0)[class as usize]);
        sample += 1;
    }
    Ok(())
}
