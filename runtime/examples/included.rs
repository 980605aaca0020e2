//! A model in the program, as firmware has it: a bad file does not compile, and the memory is as large as this model needs. `cargo run --example included`
use dmexp::{Arena, Sampler, Session, Step, include_model};
use std::io::Write;

include_model!(Tiny = "tiny.dmexp", context = 64, kv = f16);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arena = Arena::<{ Tiny::ARENA_LEN }>::new();
    let mut session = Session::new(Tiny::bind(), &mut arena, Sampler::greedy())?;
    session.prompt(b"The bird")?;
    print!("The bird");
    loop {
        match session.step()? {
            Step::Token { text, .. } => std::io::stdout().write_all(text.as_bytes())?,
            Step::Stop(_) => return Ok(()),
            _ => {}
        }
    }
}
