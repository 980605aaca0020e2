//! Tells a story: `cargo run --example story -- model.dmexp`, with the first words behind it if you like.
use dmexp::{Model, Sampler, Session, Step, format::file::ModelFile};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::read(std::env::args_os().nth(1).ok_or("name a .dmexp file")?)?;
    let prompt = std::env::args().nth(2).unwrap_or("Once upon a time".into());
    let model = Model::bind(&ModelFile::open(&bytes)?)?;
    let mut memory = vec![0; model.arena_len()?.div_ceil(4)];
    let mut session = Session::new(&model, memory.as_mut_slice(), Sampler::greedy())?;
    session.prompt(prompt.as_bytes())?;
    print!("{prompt}");
    loop {
        match session.step()? {
            Step::Token { text, .. } => std::io::stdout().write_all(text.as_bytes())?,
            Step::Stop(_) => return Ok(()),
            _ => {}
        }
    }
}
