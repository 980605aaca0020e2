//! Texts of a given form: which tokens may follow, so that what a model writes is what was asked for (`response_format`).
//!
//! A grammar is a list of rules, each with alternatives of byte sets and other rules. Where a text has got to is a set of stacks of places in it, one for each way of reading the text so far.

mod schema;
#[cfg(test)]
mod tests;

pub(super) use schema::{any_object, of_schema};

use std::collections::HashSet;
use std::sync::Arc;

/// The most ways of reading a text at the same time, and the most places to come back to in one of them: more are not followed.
const MOST: usize = 1000;

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes([u64; 4]);

impl Bytes {
    /// Those from `first` to `last`.
    const fn range(first: u8, last: u8) -> Self {
        Self([0; 4]).and(first, last)
    }

    /// Those from `first` to `last` as well.
    const fn and(mut self, first: u8, last: u8) -> Self {
        let mut byte = first;
        loop {
            self.0[(byte / 64) as usize] |= 1 << (byte % 64);
            if byte >= last {
                return self;
            }
            byte += 1;
        }
    }

    pub(super) const fn has(self, byte: u8) -> bool {
        self.0[(byte / 64) as usize] & 1 << (byte % 64) != 0
    }

    fn add(&mut self, other: Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine |= theirs;
        }
    }
}

/// The number of a rule.
type Rule = usize;

/// A part of an alternative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// One of these bytes.
    Byte(Bytes),
    /// A text of this rule.
    Rule(Rule),
    /// The end of the alternative.
    End,
}

/// Rules, of which one begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Grammar {
    /// The parts of all alternatives, one after the other.
    parts: Vec<Part>,
    /// Where the alternatives of each rule begin.
    rules: Vec<Vec<usize>>,
    start: Rule,
}

impl Grammar {
    /// A rule without alternatives yet: others may name it.
    fn declare(&mut self) -> Rule {
        self.rules.push(Vec::new());
        self.rules.len() - 1
    }

    /// Another alternative of a rule.
    fn add(&mut self, rule: Rule, parts: &[Part]) {
        self.rules[rule].push(self.parts.len());
        self.parts.extend_from_slice(parts);
        self.parts.push(Part::End);
    }

    /// Whether a rule can begin with itself: following it would not come to an end.
    fn is_left_recursive(&self) -> bool {
        let parts = |start: usize| self.parts[start..].iter().take_while(|part| **part != Part::End);
        let mut empty = vec![false; self.rules.len()];
        loop {
            let before = empty.iter().filter(|empty| **empty).count();
            for (rule, alternatives) in self.rules.iter().enumerate() {
                let is_empty = |part: &Part| matches!(part, Part::Rule(rule) if empty[*rule]);
                empty[rule] = empty[rule] || alternatives.iter().any(|start| parts(*start).all(is_empty));
            }
            if before == empty.iter().filter(|empty| **empty).count() {
                break;
            }
        }
        let begins = |rule: Rule| {
            let mut first = Vec::new();
            for start in &self.rules[rule] {
                for part in parts(*start) {
                    let Part::Rule(next) = part else { break };
                    first.push(*next);
                    if !empty[*next] {
                        break;
                    }
                }
            }
            first
        };
        // Rules without a rule that is still to come are taken away, until none is left or all left are in a circle.
        let first: Vec<Vec<Rule>> = (0..self.rules.len()).map(begins).collect();
        let mut waits: Vec<usize> = first.iter().map(Vec::len).collect();
        let mut used = vec![Vec::new(); first.len()];
        for (rule, first) in first.iter().enumerate() {
            for next in first {
                used[*next].push(rule);
            }
        }
        let mut done: Vec<Rule> = (0..first.len()).filter(|rule| waits[*rule] == 0).collect();
        let mut count = 0;
        while let Some(rule) = done.pop() {
            count += 1;
            for user in &used[rule] {
                waits[*user] -= 1;
                if waits[*user] == 0 {
                    done.push(*user);
                }
            }
        }
        count < first.len()
    }

    /// A rule with these alternatives.
    fn rule(&mut self, alternatives: &[&[Part]]) -> Rule {
        let rule = self.declare();
        for parts in alternatives {
            self.add(rule, parts);
        }
        rule
    }
}

/// The parts that are this text.
fn literal(text: &str) -> Vec<Part> {
    text.bytes().map(|byte| Part::Byte(Bytes::range(byte, byte))).collect()
}

/// Places to go on from, the next of them first.
type Stack = Option<Arc<Place>>;

#[derive(Debug)]
struct Place {
    part: usize,
    below: Stack,
    /// How many are below.
    depth: usize,
}

impl Place {
    fn new(part: usize, below: Stack) -> Arc<Self> {
        let depth = below.as_ref().map_or(0, |place| place.depth + 1);
        Arc::new(Self { part, below, depth })
    }
}

/// Tells stacks apart.
fn address(stack: &Stack) -> usize {
    stack.as_ref().map_or(0, |place| Arc::as_ptr(place).addr())
}

/// Where a text has got to.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    grammar: Arc<Grammar>,
    /// On top of each is a set of bytes.
    stacks: Vec<Arc<Place>>,
    /// Whether the text may end here.
    complete: bool,
}

impl Progress {
    /// The beginning of a text.
    pub(super) fn new(grammar: Arc<Grammar>) -> Self {
        let mut ways = Ways::new(&grammar);
        for part in &grammar.rules[grammar.start] {
            ways.follow(*part, None);
        }
        let Ways { stacks, complete, .. } = ways;
        Self { grammar, stacks, complete }
    }

    /// Whether the text may end.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether the text has to end.
    pub(super) fn is_over(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The bytes that may follow.
    pub(super) fn next(&self) -> Bytes {
        let mut all = Bytes::default();
        for stack in &self.stacks {
            if let Part::Byte(bytes) = self.grammar.parts[stack.part] {
                all.add(bytes);
            }
        }
        all
    }

    /// Whether all of `bytes` may follow; `first` is [`Progress::next`].
    pub(super) fn allows(&self, first: Bytes, bytes: &[u8]) -> bool {
        match bytes {
            [] => false,
            [byte, ..] if !first.has(*byte) => false,
            all => self.after(all).is_some(),
        }
    }

    /// Goes on with `bytes`; false, and nothing done, where they may not follow.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(after) = self.after(bytes) else { return false };
        *self = after;
        true
    }

    fn after(&self, bytes: &[u8]) -> Option<Self> {
        let mut now = self.clone();
        for byte in bytes {
            let mut ways = Ways::new(&self.grammar);
            for stack in &now.stacks {
                if matches!(self.grammar.parts[stack.part], Part::Byte(bytes) if bytes.has(*byte)) {
                    ways.follow(stack.part + 1, stack.below.clone());
                }
            }
            let Ways { stacks, complete, .. } = ways;
            if (stacks.is_empty() && !complete) || stacks.len() > MOST {
                return None;
            }
            (now.stacks, now.complete) = (stacks, complete);
        }
        Some(now)
    }
}

/// The ways on from a place.
struct Ways<'g> {
    grammar: &'g Grammar,
    /// On top of each is a set of bytes.
    stacks: Vec<Arc<Place>>,
    complete: bool,
    /// The tops of `stacks`, with what comes after them.
    tops: HashSet<(usize, usize)>,
    /// Rules that were entered, with what comes after them.
    entered: HashSet<(Rule, usize)>,
    /// What was entered with stays, so that its address is no other's.
    kept: Vec<Arc<Place>>,
}

impl<'g> Ways<'g> {
    fn new(grammar: &'g Grammar) -> Self {
        Self { grammar, stacks: Vec::new(), complete: false, tops: HashSet::new(), entered: HashSet::new(), kept: Vec::new() }
    }

    /// Follows what `part`, and `below` after it, may begin with.
    fn follow(&mut self, part: usize, below: Stack) {
        // More are not followed: see `Progress::after`.
        if self.stacks.len() > MOST {
            return;
        }
        match self.grammar.parts[part] {
            Part::Byte(_) => {
                if self.tops.insert((part, address(&below))) {
                    self.stacks.push(Place::new(part, below));
                }
            }
            Part::End => match below {
                None => self.complete = true,
                Some(place) => self.follow(place.part, place.below.clone()),
            },
            Part::Rule(rule) => {
                // What ends anyway need not be come back to: lists do not pile up.
                let ends = self.grammar.parts[part + 1] == Part::End;
                let rest = if ends { below } else { Some(Place::new(part + 1, below)) };
                let too_deep = rest.as_ref().is_some_and(|place| place.depth > MOST);
                if too_deep || !self.entered.insert((rule, address(&rest))) {
                    return;
                }
                self.kept.extend(rest.clone());
                let grammar = self.grammar;
                for alternative in &grammar.rules[rule] {
                    self.follow(*alternative, rest.clone());
                }
            }
        }
    }
}
