//! Writes the seeds of every target: `hostile-seeds FOLDER` makes a folder of each target's name in it.

use dmexp_hostile::TARGETS;
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: hostile-seeds FOLDER")?;
    for target in TARGETS {
        let folder = out.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number:02}")), seed)?;
        }
        println!("{}", target.name);
    }
    Ok(())
}
