//! One row of a matrix as small integers: row scale, multipliers and offsets searched for the least squared error. The integers are those of docs/format/arithmetic.md.

use super::search::{Fit, code_q4, code_q8, error_q4, error_q8, max_abs, round};

/// Where a row goes: its codes (zero before), its scale, its multipliers and offsets.
pub(super) struct Row<'o> {
    pub(super) codes: &'o mut [u8],
    pub(super) scale: &'o mut f32,
    /// One a group; empty where a row is one group in q8.
    pub(super) multipliers: &'o mut [u8],
    /// One a group in q4.
    pub(super) offsets: &'o mut [i16],
}

/// How a source coded the values of a group: what re-coding tries first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hint {
    /// From one code to the next; not below 0.
    pub(super) step: f32,
    /// The value of the lowest code, where there are sixteen.
    pub(super) lowest: f32,
}

/// What a group is coded by, in units of the row scale, and its squared error in the same units.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    multiplier: u8,
    offset: i16,
    error: f32,
}

/// Room that rows are worked out in, kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    scaled: Vec<f32>,
    choices: Vec<Choice>,
    best: Vec<Choice>,
    pub(super) hints: Vec<Option<Hint>>,
}

/// How many steps of the largest group the row scale is tried as: the more, the finer the multipliers of the other groups; fewer may happen to fit better.
const PARTS_Q8: [f64; 4] = [255.0, 251.0, 247.0, 243.0];
const PARTS_Q4: [f64; 4] = [255.0, 243.0, 231.0, 219.0];

/// The same where the source's own steps are known; 128 makes its largest step a whole one.
const PARTS_OF_HINTS: [f64; 3] = [128.0, 255.0, 192.0];

/// Codes a row in q8 in groups of `group` elements.
pub(super) fn q8(values: &[f32], group: usize, row: &mut Row<'_>, scratch: &mut Scratch) {
    let top = f64::from(max_abs(values)) / 127.0;
    if row.multipliers.is_empty() {
        *row.scale = one_scale(values, top, scratch);
    } else {
        let candidates = scales(top, &PARTS_Q8, scratch, |hint| hint.step);
        *row.scale = search(values, group, &candidates, scratch, choose_q8);
        for (multiplier, choice) in row.multipliers.iter_mut().zip(&scratch.best) {
            *multiplier = choice.multiplier;
        }
    }
    let scale = f64::from(*row.scale);
    if scale == 0.0 {
        return;
    }
    for (number, values) in values.chunks(group).enumerate() {
        let step = row.multipliers.get(number).map_or(1.0, |multiplier| f32::from(*multiplier));
        let inverse = 1.0 / step;
        let codes = row.codes.iter_mut().skip(number * group);
        for (code, value) in codes.zip(values) {
            *code = (code_q8((f64::from(*value) / scale) as f32, inverse) as i8).cast_unsigned();
        }
    }
}

/// Codes a row in q4 in groups of `group` elements.
pub(super) fn q4(values: &[f32], group: usize, row: &mut Row<'_>, scratch: &mut Scratch) {
    let (mut top, mut far) = (0.0, 0.0);
    for values in values.chunks(group) {
        let (low, high) = range(values);
        top = f64::max(top, (f64::from(high) - f64::from(low)) / 15.0);
        far = f64::max(far, f64::from(low.abs().max(high.abs())));
    }
    // An offset is an i16 in units of the row scale, and so has to reach the farthest value.
    let least = far / 32_000.0;
    let mut candidates = scales(top, &PARTS_Q4, scratch, |hint| hint.step);
    candidates.retain(|scale| f64::from(*scale) >= least);
    if candidates.is_empty() {
        candidates.push(least as f32);
    }
    *row.scale = search(values, group, &candidates, scratch, choose_q4);
    for ((multiplier, offset), choice) in row.multipliers.iter_mut().zip(row.offsets.iter_mut()).zip(&scratch.best) {
        (*multiplier, *offset) = (choice.multiplier, choice.offset);
    }
    let scale = f64::from(*row.scale);
    if scale == 0.0 {
        return;
    }
    for ((number, values), choice) in values.chunks(group).enumerate().zip(&scratch.best) {
        let (inverse, offset) = (1.0 / f32::from(choice.multiplier), f32::from(choice.offset));
        for (place, value) in (number * group..).zip(values) {
            let code = code_q4((f64::from(*value) / scale) as f32, inverse, offset) as u8;
            if let Some(pair) = row.codes.get_mut(place / 2) {
                *pair |= if place % 2 == 0 { code } else { code << 4 };
            }
        }
    }
}

/// The row scales to try: the largest step in so many parts, and the source's largest step where it is known. All of them can be stored and are above 0; none for a row of zeros.
fn scales(top: f64, parts: &[f64], scratch: &Scratch, step: impl Fn(&Hint) -> f32) -> Vec<f32> {
    let hinted = scratch.hints.iter().flatten().map(step).fold(0.0, f32::max);
    let of = |top: f64, parts: &[f64]| parts.iter().map(|parts| (top / parts) as f32).collect::<Vec<f32>>();
    let mut scales = of(f64::from(hinted), &PARTS_OF_HINTS);
    scales.extend(of(top, parts));
    scales.retain(|scale| *scale > 0.0);
    scales
}

/// Tries every scale; leaves the choices of the best one in `scratch.best` and returns it. 0, with choices for zeros, where there is none to try.
fn search(values: &[f32], group: usize, candidates: &[f32], scratch: &mut Scratch, choose: impl Fn(&[f32], Option<Hint>) -> Choice) -> f32 {
    let groups = values.len().div_ceil(group);
    scratch.best.clear();
    scratch.best.resize(groups, Choice { multiplier: 1, offset: 0, error: 0.0 });
    let mut best = (0.0, f64::INFINITY);
    for scale in candidates.iter().copied() {
        let unit = f64::from(scale);
        scratch.scaled.clear();
        scratch.scaled.extend(values.iter().map(|value| (f64::from(*value) / unit) as f32));
        scratch.choices.clear();
        let mut error = 0.0;
        for (number, scaled) in scratch.scaled.chunks(group).enumerate() {
            let hint = scratch.hints.get(number).copied().flatten();
            let in_units = |x: f32| (f64::from(x) / unit) as f32;
            let choice = choose(scaled, hint.map(|hint| Hint { step: in_units(hint.step), lowest: in_units(hint.lowest) }));
            error += f64::from(choice.error);
            scratch.choices.push(choice);
        }
        error *= unit * unit;
        if error < best.1 {
            best = (scale, error);
            std::mem::swap(&mut scratch.best, &mut scratch.choices);
        }
    }
    best.0
}

/// The multiplier for a group of q8.
fn choose_q8(y: &[f32], hint: Option<Hint>) -> Choice {
    let most = max_abs(y);
    if most == 0.0 {
        return Choice { multiplier: 1, offset: 0, error: 0.0 };
    }
    let mut best = Choice { multiplier: 1, offset: 0, error: f32::INFINITY };
    let mut attempt = |multiplier: f32| {
        let error = error_q8(y, multiplier);
        if error < best.error {
            best = Choice { multiplier: multiplier as u8, offset: 0, error };
        }
    };
    if let Some(hint) = hint {
        attempt(clamped(round(hint.step)));
    }
    // The step that reaches the largest value. A little less cuts that one off, a little more rounds all of them coarser: either may happen to fit better.
    let full = (most / 127.0).min(255.0);
    let mut multiplier = clamped((full * 0.97).floor());
    let last = clamped((full * 1.1).ceil());
    while multiplier <= last {
        attempt(multiplier);
        multiplier += 1.0;
    }
    best
}

/// Multiplier and offset for a group of q4.
fn choose_q4(y: &[f32], hint: Option<Hint>) -> Choice {
    let (low, high) = range(y);
    let mut best = Choice { multiplier: 1, offset: 0, error: f32::INFINITY };
    let mut attempt = |multiplier: f32, offset: f32| {
        let error = error_q4(y, multiplier, offset);
        if error < best.error {
            best = Choice { multiplier: multiplier as u8, offset: offset as i16, error };
        }
        best
    };
    if let Some(hint) = hint {
        attempt(clamped(round(hint.step)), clamped_offset(hint.lowest));
    }
    if high <= low {
        // One value: the offset alone holds it.
        return attempt(1.0, clamped_offset(low));
    }
    // Codes by a step that covers the range, or less or more than it, from five places around its middle; then the line that fits these codes best.
    for tenths in (0..36u8).step_by(6) {
        let step = (high - low) / (13.6 + f32::from(tenths) / 10.0);
        let middle = low + ((high - low) - 15.0 * step) * 0.5;
        for shift in [-0.4, -0.2, 0.0, 0.2, 0.4] {
            let fit = Fit::new(y, step, middle + shift * step);
            let fitted = fit.step() as f32;
            for multiplier in [fitted.floor(), fitted.ceil()] {
                let multiplier = clamped(multiplier);
                attempt(multiplier, clamped_offset(fit.offset(f64::from(multiplier)) as f32));
            }
        }
    }
    for _ in 0..4 {
        let before = attempt(1.0, clamped_offset(low));
        let (multiplier, offset) = (f32::from(before.multiplier), f32::from(before.offset));
        let fit = Fit::new(y, multiplier, offset);
        let mut after = before;
        for near in [-2.0, -1.0, 0.0, 1.0, 2.0] {
            let near = clamped(multiplier + near);
            after = attempt(near, clamped_offset(fit.offset(f64::from(near)) as f32));
        }
        if after.error >= before.error {
            break;
        }
    }
    best
}

/// The scale of a row that is one group of q8.
fn one_scale(values: &[f32], top: f64, scratch: &mut Scratch) -> f32 {
    let hinted = scratch.hints.iter().flatten().map(|hint| hint.step).fold(0.0, f32::max);
    let mut candidates = vec![hinted];
    candidates.extend((0..24u8).map(|part| (top * (0.92 + 0.005 * f64::from(part))) as f32));
    candidates.push(top as f32);
    let mut best = (0.0, f64::INFINITY);
    for scale in candidates.into_iter().filter(|scale| *scale > 0.0) {
        let unit = f64::from(scale);
        scratch.scaled.clear();
        scratch.scaled.extend(values.iter().map(|value| (f64::from(*value) / unit) as f32));
        let error = f64::from(error_q8(&scratch.scaled, 1.0)) * unit * unit;
        if error < best.1 {
            best = (scale, error);
        }
    }
    best.0
}

/// A multiplier that can be stored.
fn clamped(multiplier: f32) -> f32 {
    multiplier.clamp(1.0, 255.0)
}

/// An offset that can be stored.
fn clamped_offset(offset: f32) -> f32 {
    round(offset.clamp(-32_768.0, 32_767.0))
}

/// The smallest and the largest value.
fn range(values: &[f32]) -> (f32, f32) {
    values.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)))
}
