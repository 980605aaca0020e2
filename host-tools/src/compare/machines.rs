//! Two sides play the same tokens: where their bits differ first, how far they are apart, and why. The work of `dmexp compare --device`.

use super::divergence::{Divergence, Meter, best};
use super::side::Side;
use crate::error::{Class, Error, Result};

/// What is played.
#[derive(Clone, Copy, Debug)]
pub struct Play<'p> {
    /// What a layer of the model is called: `layer`, or `iteration`.
    pub part: &'static str,
    /// The tokens, at least one.
    pub tokens: &'p [u32],
    /// How many of them both sides continue by their own choice, and by how many tokens at most.
    pub greedy: (usize, u32),
    /// Whether the residual stream is compared after every layer of every position, and not only where the logits differ first.
    pub trace: bool,
    /// Whether all that the second side computed is kept.
    pub keep: bool,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What a layer of the model is called.
    pub part: &'static str,
    /// The positions that were compared: all, or those before a side could not go on, and that one.
    pub positions: Vec<Position>,
    /// All of those with finite logits together; `None` where there are none.
    pub divergence: Option<Divergence>,
    /// The first difference.
    pub first: Option<First>,
    /// Where everything was traced: for each position the largest difference of the residual stream after the embedding and after each layer; `None` where it is not known how large.
    pub layers: Vec<Vec<Option<f64>>>,
    /// The tokens that each side chose, where both could.
    pub greedy: Option<[Vec<u32>; 2]>,
    /// The tensors, compared where something differs.
    pub tensors: Tensors,
    /// What the second side computed, where it was to be kept.
    pub kept: Vec<Kept>,
}

/// One position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// The token that was fed.
    pub token: u32,
    /// Whether all bits of the logits are the same.
    pub same: bool,
    /// How far they are apart; `None` where those of a side are not finite.
    pub divergence: Option<Divergence>,
    /// The best token of each side.
    pub best: [Option<u32>; 2],
}

/// The first difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// The position, from 0.
    pub position: u32,
    /// What is the first to differ there.
    pub place: Place,
}

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The embedding.
    Embedding,
    /// This layer, from 0.
    Layer(u32),
    /// The last norm, the classifier or the checks after it: the residual stream is the same after all layers.
    Logits,
    /// A side does not know its layers.
    Unknown,
}

impl Place {
    /// The place after so many layers.
    fn after(layers: u32) -> Self {
        layers.checked_sub(1).map_or(Self::Embedding, Self::Layer)
    }
}

/// What came of comparing the tensors where they lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    /// How many were compared.
    pub compared: u32,
    /// The numbers of those that differ.
    pub wrong: Vec<u32>,
}

/// What a side computed at a position.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The token that was fed.
    pub token: u32,
    /// The checksums of the residual stream after the embedding and each layer; empty where they were not asked for.
    pub layers: Vec<u32>,
    /// The logits; `None` where they are not finite.
    pub logits: Option<Vec<f32>>,
}

impl Found {
    /// Whether everything that was compared is the same.
    pub fn is_same(&self) -> bool {
        self.first.is_none()
    }
}

/// Plays on both sides. `watch` is told how many steps of how many are done.
///
/// # Errors
/// [`Class::Mismatch`] for sides whose models have not the same shape, [`Class::Request`] for tokens that do not fit, those of the sides and of `watch`.
pub fn play(sides: [&mut dyn Side; 2], play: &Play<'_>, watch: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<Found> {
    let [one, other] = sides;
    check(one, other, play)?;
    let n_layers = one.about().n_layers;
    let steps = play.tokens.len() as u64 + if one.is_free() && other.is_free() { 2 * u64::from(play.greedy.1) } else { 0 };
    let mut done = 0;
    let mut tick = |watch: &mut dyn FnMut(u64, u64) -> Result<()>| {
        done += 1;
        watch(done.min(steps), steps)
    };
    let mut found = Found {
        part: play.part,
        positions: Vec::new(),
        divergence: None,
        first: None,
        layers: Vec::new(),
        greedy: None,
        tensors: Tensors::default(),
        kept: Vec::new(),
    };
    let mut meter = Meter::new();
    one.begin()?;
    other.begin()?;
    for (number, token) in (0u32..).zip(play.tokens.iter().copied()) {
        let mut kept = Kept { token, layers: Vec::new(), logits: None };
        if play.trace {
            let mut deltas = Vec::new();
            for layers in stages(n_layers) {
                let (a, b) = (one.layers(token, layers)?, other.layers(token, layers)?);
                kept.layers.extend(b);
                deltas.push(match (a, b) {
                    (Some(a), Some(b)) if a == b => Some(0.0),
                    (Some(_), Some(_)) => {
                        found.first.get_or_insert(First { position: number, place: Place::after(layers) });
                        one.residual()?.zip(other.residual()?).map(|(a, b)| largest_delta(&a, &b))
                    }
                    _ => None,
                });
            }
            found.layers.push(deltas);
        }
        let (a, b) = (one.step(token)?, other.step(token)?);
        let same = a == b && a.is_some();
        let reference = if a.is_some() { Some(one.logits()?) } else { None };
        let logits = match b {
            Some(_) if same => reference.clone(),
            Some(_) => Some(other.logits()?),
            None => None,
        };
        let mut alone = Meter::new();
        if let (Some(reference), Some(logits)) = (&reference, &logits) {
            let next = play.tokens.get(number as usize + 1).copied();
            if !meter.add(reference, logits, next) || !alone.add(reference, logits, next) {
                return Err(Error::mismatch("the sides have not the same number of logits"));
            }
        }
        if !same {
            found
                .first
                .get_or_insert(First { position: number, place: if play.trace && n_layers > 0 { Place::Logits } else { Place::Unknown } });
        }
        let both_go_on = a.is_some() && b.is_some();
        found.positions.push(Position {
            token,
            same,
            divergence: alone.divergence(),
            best: [&reference, &logits].map(|logits| logits.as_deref().and_then(best)),
        });
        if play.keep {
            kept.logits = logits;
            found.kept.push(kept);
        }
        tick(watch)?;
        if !both_go_on {
            break;
        }
    }
    found.divergence = meter.divergence();
    if let Some(first) = found.first {
        if first.place == Place::Unknown || found.layers.iter().flatten().any(Option::is_none) {
            found.first = Some(First { place: place(one, other, play.tokens, first.position)?, ..first });
        }
        found.tensors = tensors(one, other)?;
    }
    if play.greedy.1 > 0 && one.is_free() && other.is_free() && found.positions.len() == play.tokens.len() {
        let prompt = play.tokens.get(..play.greedy.0).unwrap_or(play.tokens);
        let mut chosen = |side: &mut dyn Side| greedy(side, prompt, play.greedy.1, &mut || tick(watch));
        found.greedy = Some([chosen(one)?, chosen(other)?]);
    }
    Ok(found)
}

fn check(one: &dyn Side, other: &dyn Side, play: &Play<'_>) -> Result<()> {
    let (a, b) = (one.about(), other.about());
    for (what, of_one, of_other) in
        [("layers", a.n_layers, b.n_layers), ("values in the residual stream", a.dim, b.dim), ("tokens", a.vocab_size, b.vocab_size)]
    {
        if of_one != of_other {
            return Err(Error::mismatch(format!("{} has {of_one} {what}, {} has {of_other}", a.name, b.name))
                .advise("compare one model with itself"));
        }
    }
    if a.kv != b.kv {
        let what = format!("{} keeps keys and values in {}, {} in {}", a.name, a.kv, b.name, b.kv);
        return Err(Error::mismatch(what).advise("choose the same with --kv"));
    }
    if play.tokens.is_empty() {
        return Err(Error::new(Class::Request, "there are no tokens to play").advise("give a text that is not empty"));
    }
    let room = a.context.min(b.context);
    if play.tokens.len() as u64 > u64::from(room) {
        return Err(Error::new(
            Class::Request,
            format!("there are {} tokens, and the shorter context has {room} positions", play.tokens.len()),
        )
        .advise("use fewer --positions"));
    }
    Ok(())
}

/// What differs first at `position`, at which the logits do: both sides come there once more, layer by layer.
fn place(one: &mut dyn Side, other: &mut dyn Side, tokens: &[u32], position: u32) -> Result<Place> {
    one.begin()?;
    other.begin()?;
    let (before, rest) = tokens.split_at_checked(position as usize).unwrap_or((tokens, &[]));
    for token in before {
        one.step(*token)?;
        other.step(*token)?;
    }
    let Some(token) = rest.first().copied() else { return Ok(Place::Unknown) };
    for layers in stages(one.about().n_layers) {
        match (one.layers(token, layers)?, other.layers(token, layers)?) {
            (Some(a), Some(b)) if a == b => {}
            (Some(_), Some(_)) => return Ok(Place::after(layers)),
            _ => return Ok(Place::Unknown),
        }
    }
    Ok(if one.about().n_layers == 0 { Place::Unknown } else { Place::Logits })
}

/// The numbers of layers after which the residual stream is compared, 0 after the embedding; none of a network that is not computed layer by layer.
fn stages(n_layers: u32) -> std::ops::Range<u32> {
    0..if n_layers == 0 { 0 } else { n_layers + 1 }
}

/// Compares the tensors that both have, where they lie.
fn tensors(one: &mut dyn Side, other: &mut dyn Side) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    for number in 0..one.about().tensors.min(other.about().tensors) {
        if let (Some(a), Some(b)) = (one.tensor(number)?, other.tensor(number)?) {
            tensors.compared += 1;
            if a != b {
                tensors.wrong.push(number);
            }
        }
    }
    Ok(tensors)
}

/// What `side` continues `prompt` by: the likeliest tokens, at most `most` and as far as the context goes.
///
/// # Errors
/// Those of the side.
pub fn continued(side: &mut dyn Side, prompt: &[u32], most: u32) -> Result<Vec<u32>> {
    greedy(side, prompt, most, &mut || Ok(()))
}

/// The likeliest tokens after `prompt`, at most `most` and as far as the context goes.
fn greedy(side: &mut dyn Side, prompt: &[u32], most: u32, tick: &mut dyn FnMut() -> Result<()>) -> Result<Vec<u32>> {
    side.begin()?;
    let mut chosen = Vec::new();
    let mut finite = true;
    for token in prompt {
        finite = side.step(*token)?.is_some();
    }
    while finite && chosen.len() < most as usize {
        let Some(token) = best(&side.logits()?) else { break };
        chosen.push(token);
        tick()?;
        if prompt.len() + chosen.len() > side.about().context as usize {
            break;
        }
        if chosen.len() < most as usize {
            finite = side.step(token)?.is_some();
        }
    }
    Ok(chosen)
}

fn largest_delta(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs()).fold(0.0, f64::max)
}
