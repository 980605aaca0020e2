//! `dmexp-train`: trains the models of `models/`, shows what they are trained on and what they say. Spawned by `cargo xtask train`.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};
use dmexp_train::corpus::{BOS, TINY_BOS, distinct_sentences};
use dmexp_train::networks::{made, tones};
use dmexp_train::recipe::{Recipe, STORY, TINY};
use dmexp_train::sample::{Settings, continue_text};
use dmexp_train::shape::Shape;
use dmexp_train::tokenizer::{Encoder, Tokenizer};
use dmexp_train::train::{Trainer, save, write};
use dmexp_train::{bpe, checkpoint, curve, grammar, tiny_grammar};

/// Trains the models that this repository ships, on texts that its own grammars write.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train the story model
    Story(Run),
    /// Train the tiny model
    Tiny(Run),
    /// Train the network that tells tones apart
    Tones {
        /// Where the files go
        #[arg(long, default_value = "models")]
        out: PathBuf,
        /// Batches
        #[arg(long, default_value_t = 4_000)]
        steps: usize,
    },
    /// Make networks of made-up weights, which boards compare with the host
    Networks {
        /// Where the files go
        #[arg(long, default_value = "target/models/networks")]
        out: PathBuf,
    },
    /// Print stories of the grammar, and how many different sentences there are
    Corpus {
        /// Lines of the tiny grammar instead
        #[arg(long)]
        tiny: bool,
        /// How many to print
        #[arg(long, default_value_t = 3)]
        print: u64,
        /// How many to count sentences over
        #[arg(long, default_value_t = 100_000)]
        count: u64,
    },
    /// Continue a text with a trained model (slow, in f64; `dmexp generate` is the real thing)
    Sample {
        /// The checkpoint, v0
        #[arg(long)]
        model: PathBuf,
        /// The vocabulary; without it ids are bytes
        #[arg(long)]
        tokenizer: Option<PathBuf>,
        /// The beginning
        #[arg(long, default_value = "")]
        prompt: String,
        /// 0 takes the most probable id
        #[arg(long, default_value_t = 0.8)]
        temp: f64,
        /// Smallest share of probability that the candidates cover
        #[arg(long, default_value_t = 0.9)]
        top_p: f64,
        /// Seed of the first text; the others count up
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How many texts
        #[arg(long, default_value_t = 1)]
        texts: u64,
    },
}

#[derive(clap::Args)]
struct Run {
    /// Where the files go
    #[arg(long, default_value = "models")]
    out: PathBuf,
    /// Steps instead of the recipe's
    #[arg(long)]
    steps: Option<usize>,
    /// Threads; the result does not depend on them
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    threads: usize,
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Story(run) => train(&STORY, &run),
        Command::Tiny(run) => train(&TINY, &run),
        Command::Tones { out, steps } => {
            let weights = tones::train(steps);
            println!(
                "{} parameters, {:.2} % of 10,000 unseen tones named rightly",
                weights.len(),
                100.0 * tones::accuracy(&weights, tones::UNSEEN, 10_000)
            );
            tones::network(&weights).save(&out)
        }
        Command::Networks { out } => {
            [made::recurrent(), made::image(), made::dense(), made::autoencoder()].iter().try_for_each(|network| network.save(&out))
        }
        Command::Corpus { tiny, print, count } => {
            corpus(tiny, print, count);
            Ok(())
        }
        Command::Sample { model, tokenizer, prompt, temp, top_p, seed, texts } => {
            let (shape, flat) = checkpoint::from_bytes(&read(&model)?)
                .ok_or_else(|| Error::other(format!("{} is not a llama2.c v0 checkpoint with a shared classifier", model.display())))?;
            let tokenizer = match tokenizer {
                Some(path) => Some(Tokenizer::from_bytes(&read(&path)?).ok_or_else(|| {
                    Error::other(format!("{} is not a tokenizer.bin; give the one made beside the model", path.display()))
                })?),
                None => None,
            };
            for seed in seed..seed + texts {
                let settings = Settings { temperature: temp, top_p, seed };
                println!("{}\n", sample(shape, &flat, tokenizer.as_ref(), &prompt, settings));
            }
            Ok(())
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::new(e.kind(), format!("cannot read {}: {e}", path.display())))
}

fn sample(shape: Shape, flat: &[f32], tokenizer: Option<&Tokenizer>, prompt: &str, settings: Settings) -> String {
    let bos = if tokenizer.is_some() { BOS } else { TINY_BOS };
    let mut ids = vec![bos];
    match tokenizer {
        Some(tokenizer) => ids.extend(tokenizer.encode(prompt)),
        None => ids.extend(prompt.bytes().map(u16::from)),
    }
    let ids = continue_text(shape, flat, &ids, bos, settings);
    match tokenizer {
        Some(tokenizer) => tokenizer.decode(&ids[1..]),
        None => ids[1..].iter().map(|&id| id as u8 as char).collect(),
    }
}

fn corpus(tiny: bool, print: u64, count: u64) {
    let text = |seed| if tiny { tiny_grammar::line(seed) } else { grammar::story(seed).text };
    for seed in 0..print {
        println!("{}\n", text(seed));
    }
    println!("{} different sentences in {count} texts", distinct_sentences((0..count).map(text)));
    if !tiny {
        let texts: Vec<String> = (0..2_000).map(text).collect();
        let tokenizer = bpe::train(texts.iter().map(String::as_str), STORY.shape.vocab);
        let mut encoder = Encoder::new(&tokenizer);
        let mut length = |text: &String| {
            let mut ids = Vec::new();
            encoder.encode(text, &mut ids);
            ids.len()
        };
        let mut lengths: Vec<usize> = texts.iter().map(&mut length).collect();
        lengths.sort_unstable();
        println!("ids in a story: median {}, 95% below {}, most {}", lengths[1000], lengths[1900], lengths[1999]);
    }
}

fn train(recipe: &Recipe, run: &Run) -> Result<()> {
    std::fs::create_dir_all(&run.out)?;
    let file = |ending: &str| run.out.join(format!("{}.{ending}", recipe.name));
    let tokenizer = (recipe.vocabulary_stories > 0).then(|| {
        // The first stories that training sees: nothing of the validation splits.
        let texts: Vec<String> =
            (0..recipe.vocabulary_stories).map(grammar::story).filter(|story| !story.held_out).map(|story| story.text).collect();
        bpe::train(texts.iter().map(String::as_str), recipe.shape.vocab)
    });
    if let Some(tokenizer) = &tokenizer {
        write(&file("tokenizer.bin"), &tokenizer.to_bytes())?;
    }
    let steps = run.steps.unwrap_or(recipe.steps);
    println!("{}: {} parameters, {steps} steps of {} tokens", recipe.name, recipe.shape.parameters(), recipe.batch * recipe.shape.seq);
    let mut points = Vec::new();
    let mut trainer = Trainer::new(recipe, tokenizer.as_ref(), steps, run.threads);
    trainer.run(|point, flat| {
        println!(
            "step {:6}  train {:.4}  validation {:.4}  held out {:.4}  {} s",
            point.step, point.train, point.valid, point.held_out, point.seconds
        );
        points.push(point);
        save(&run.out, recipe, flat)?;
        write(&file("loss.csv"), curve::csv(&points).as_bytes())?;
        let title = format!("{} model, {} parameters", recipe.name, recipe.shape.parameters());
        write(&file("loss.svg"), curve::svg(&title, &points).as_bytes())?;
        if points.len().is_multiple_of(8) || point.step == steps {
            let prompt = if tokenizer.is_some() { "Once upon a time" } else { "" };
            let settings = Settings { temperature: 0.8, top_p: 0.9, seed: point.step as u64 };
            println!("{}", sample(recipe.shape, flat, tokenizer.as_ref(), prompt, settings));
        }
        Ok(())
    })
}
