//! Every command that a document shows is run here, or by a step of `cargo xtask test`, or is marked with what it needs that a test has not. CONTRIBUTING.md says how blocks are written.
#![cfg(unix)]

mod blocks;
mod code;
mod foreign;
mod options;
mod server;
mod shell;
mod steps;
mod world;

use blocks::{Block, Mark};
use shell::{Ran, Shell};
use std::collections::BTreeMap;
use std::time::Instant;
use steps::Stands;

/// The blocks of every document.
fn all() -> Vec<(String, Vec<Block>)> {
    let (found, wrong): (Vec<_>, Vec<_>) = blocks::documents()
        .into_iter()
        .map(|document| (document.clone(), blocks::of_document(&document)))
        .partition(|(_, blocks)| blocks.is_ok());
    let wrong: Vec<String> = wrong.into_iter().filter_map(|(_, error)| error.err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    found.into_iter().map(|(document, blocks)| (document, blocks.unwrap())).collect()
}

/// Runs the commands of one page. Returns what went wrong, each with its place.
fn run(document: &str, blocks: &[Block]) -> Vec<String> {
    let folder = dmexp_tests::folder();
    let missing = world::make(folder.path(), blocks);
    let mut shell = Shell::new(folder.path());
    let mut wrong = Vec::new();
    for block in blocks.iter().filter(|block| block.mark.is_none() && block.has_commands()) {
        if let Some(name) = missing.iter().find(|name| block.commands().iter().any(|command| world::names(command, name))) {
            println!("{}: not run: {name} is not here", block.place());
            continue;
        }
        let start = Instant::now();
        match shell.run(block) {
            Ok(Ran::Well) => println!("{}: {:.1} s", block.place(), start.elapsed().as_secs_f32()),
            // What comes after it may need what it makes.
            Ok(Ran::Without(program)) => {
                println!("{}: from here on not run: there is no {program}", block.place());
                break;
            }
            Err(why) => wrong.push(format!("{}: {why}", block.place())),
        }
    }
    wrong.extend(shell.end().err().map(|why| format!("{document}: {why}")));
    wrong
}

#[test]
fn every_command_does_what_its_page_shows() {
    let only = std::env::var("DMEXP_DOCUMENT").unwrap_or_default();
    let mut wrong = Vec::new();
    for (document, blocks) in all() {
        if document.contains(&only) && blocks.iter().any(|block| block.mark.is_none() && block.has_commands()) {
            wrong.extend(run(&document, &blocks));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_takes_long_is_a_step_of_the_tests() {
    let steps = steps::xtask_prints(&["test", "--list"]);
    let there = |step: &String| steps.lines().any(|line| line == step);
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for block in all().into_iter().flat_map(|(_, blocks)| blocks).filter(Block::has_commands) {
        for command in block.commands() {
            let stands = steps::stands_for(&command);
            let kind = match (&block.mark, stands) {
                (None, _) => if block.is_session() { "compared" } else { "run" }.to_owned(),
                (Some(Mark::Step(_) | Mark::Long), Some(Stands::Step(step))) if !there(&step) => {
                    wrong.push(format!("{}: there is no step `{step}` for: {command}", block.place()));
                    continue;
                }
                (Some(Mark::Step(step)), _) if !there(step) => {
                    wrong.push(format!("{}: there is no step `{step}`", block.place()));
                    continue;
                }
                (Some(Mark::Step(_)), _) | (Some(Mark::Long), Some(Stands::Step(_))) => "by a step".to_owned(),
                (Some(Mark::Long), Some(Stands::Nothing(why))) => {
                    println!("{}: {command}: {why}", block.place());
                    "by no step".to_owned()
                }
                (Some(Mark::Long), None) => {
                    wrong.push(format!("{}: no step is known that does this: {command}", block.place()));
                    continue;
                }
                (Some(mark), _) => format!("{mark:?}"),
            };
            *counts.entry(kind).or_default() += 1;
        }
    }
    println!("{counts:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
