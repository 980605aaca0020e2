//! Thousands of damaged inputs, the same each time: every target reads them all without a panic, none takes two seconds, and what is taken although it was damaged is explained.

use dmexp_hostile::{Outcome, Promise, TARGETS, Target};
use std::collections::HashSet;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::time::Duration;

/// Damaged inputs of one kind of damage to one seed: short seeds are damaged everywhere, long ones at places that are spread evenly.
const PLACES: usize = 40;

/// The target whose whole seed is among the reference data, which lie beside the repository or do not.
const WITH_REFERENCE: &str = "dormouse_checkpoint";

/// What came of the inputs of a target.
#[derive(Default)]
struct Count {
    tried: usize,
    refused: usize,
    /// Taken, and what they mean is what an undamaged seed means.
    same: usize,
    /// Taken as another input, which nothing can tell from a whole one.
    another: usize,
    slowest: Duration,
    /// Promises that were broken: the first of them, in words.
    broken: Vec<String>,
}

/// Broken promises of a target that are told.
const TOLD: usize = 5;

/// Places of a seed.
fn places(len: usize) -> impl Iterator<Item = usize> {
    let step = len.div_ceil(PLACES).max(1);
    // Not all at multiples of one number: fields of files lie at such.
    (0..len).step_by(step).enumerate().map(move |(turn, at)| (at + turn % step).min(len - 1))
}

/// Damaged forms of the seed: cut, with bits flipped, with words replaced, with pieces doubled, taken out, or from another seed.
fn damaged(seed: &[u8], other: &[u8]) -> Vec<Vec<u8>> {
    let mut made = vec![Vec::new(), [seed, &[0]].concat(), [seed, seed].concat()];
    for (turn, at) in places(seed.len()).enumerate() {
        let (head, tail) = seed.split_at(at);
        let change = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = seed.to_vec();
            change(bytes.get_mut(at..).unwrap_or_default());
            bytes
        };
        let word = |value: [u8; 4]| change(&|rest: &mut [u8]| rest.iter_mut().zip(value).for_each(|(place, byte)| *place = byte));
        made.extend([
            head.to_vec(),
            change(&|rest| rest.iter_mut().take(1).for_each(|byte| *byte ^= 1 << (turn % 8))),
            word([0; 4]),
            word([0xff; 4]),
            word([1, 0, 0, 0]),
            word([0, 0, 0, 0x80]),
            [head, tail.get(..tail.len().min(7)).unwrap_or_default(), tail].concat(),
            [head, tail.get(tail.len().min(5)..).unwrap_or_default()].concat(),
            [head, other.get(at.min(other.len())..).unwrap_or_default()].concat(),
        ]);
    }
    made
}

fn count(target: &Target) -> Count {
    let seeds = (target.seeds)();
    let mut meanings = HashSet::new();
    for seed in &seeds {
        if let Outcome::Accepted { meaning } = target.timed(seed).0 {
            meanings.insert(meaning);
        }
    }
    // Damage to what is refused anyway shows little.
    assert!(!meanings.is_empty() || target.name == WITH_REFERENCE, "{}: a seed is taken", target.name);
    let mut count = Count::default();
    for (number, seed) in seeds.iter().enumerate() {
        let other = seeds.get((number + 1) % seeds.len()).map_or(&[][..], Vec::as_slice);
        for bytes in damaged(seed, other) {
            if bytes == *seed {
                continue;
            }
            let mut add = |bytes: &[u8], sealed: bool| {
                count.tried += 1;
                let read = catch_unwind(|| target.timed(bytes));
                let broken = match read {
                    Err(panic) => panic
                        .downcast_ref::<String>()
                        .cloned()
                        .or(panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                        .unwrap_or_default(),
                    Ok((outcome, took)) => {
                        count.slowest = count.slowest.max(took);
                        match outcome {
                            Outcome::Refused => count.refused += 1,
                            Outcome::Accepted { meaning } if meanings.contains(&meaning) => count.same += 1,
                            Outcome::Accepted { .. } if sealed || target.promise != Promise::SameMeaning => count.another += 1,
                            Outcome::Accepted { .. } => return count.broken.push(told(target, number, bytes, "taken for another input")),
                        }
                        return;
                    }
                };
                count.broken.push(told(target, number, bytes, &broken));
            };
            add(&bytes, false);
            if let Some(sealed) = target.sealed(&bytes) {
                add(&sealed, true);
            }
        }
    }
    count
}

fn told(target: &Target, seed: usize, bytes: &[u8], what: &str) -> String {
    format!("{}, damaged seed {seed}: {what}; its {} bytes: {}", target.name, bytes.len(), bytes.escape_ascii())
}

#[test]
fn damaged_inputs_are_refused_or_explained() {
    let mut all = Count::default();
    println!("{:<20} {:>7} {:>8} {:>7} {:>8} {:>10}  why others are taken", "target", "tried", "refused", "same", "another", "slowest ms");
    let line = |name: &str, count: &Count, why: &str| {
        let Count { tried, refused, same, another, slowest, .. } = count;
        println!("{name:<20} {tried:>7} {refused:>8} {same:>7} {another:>8} {:>10.1}  {why}", slowest.as_secs_f64() * 1e3);
    };
    let mut broken = Vec::new();
    // Each is told once, below.
    set_hook(Box::new(|_| ()));
    for target in TARGETS {
        let counted = count(target);
        broken.extend(counted.broken.iter().take(TOLD).cloned());
        let why = match target.promise {
            Promise::SameMeaning => "checksums made right again",
            Promise::Another(why) => why,
        };
        line(target.name, &counted, if counted.another == 0 { "" } else { why });
        all.tried += counted.tried;
        all.refused += counted.refused;
        all.same += counted.same;
        all.another += counted.another;
        all.slowest = all.slowest.max(counted.slowest);
    }
    line("all", &all, "");
    let _ = take_hook();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(all.tried > 10_000, "thousands are tried");
    println!("{} damaged inputs: no panic, none over two seconds, none taken without a reason", all.tried);
}
