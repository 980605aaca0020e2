//! Sets of elements that a layer works on by themselves: each in the order of a walk; on hosts as rows where they lie side by side, else eight sets at a time, each in a lane of the machine's
//! vectors. The bits are the same: every sum is the canonical one of its set.

use super::walk::Walk;
use crate::format::TensorView;
use crate::ops::sum::Lanes;
#[cfg(not(target_os = "none"))]
use {
    super::depthwise::{BLOCK, Channels, values},
    crate::ops::parts::next_mut,
    crate::ops::sum::{lanes_of, tree},
};

/// A vector of a layer.
pub(super) enum Numbers<'a> {
    /// None: every element is this.
    All(f32),
    /// Where it can be read as it lies.
    Floats(&'a [f32]),
    /// At any address.
    Stored(TensorView<'a>),
}

impl<'a> Numbers<'a> {
    pub(super) fn of(view: TensorView<'a>) -> Self {
        view.as_f32().map_or(Self::Stored(view), Self::Floats)
    }

    #[inline]
    pub(super) fn at(&self, index: usize) -> f32 {
        match self {
            Self::All(number) => *number,
            Self::Floats(numbers) => numbers.get(index).copied().unwrap_or(0.0),
            Self::Stored(view) => view.get_float(index),
        }
    }
}

/// A number of one set, or one of each of eight.
pub(super) trait Number: Copy {
    /// The same for every set.
    fn all(number: f32) -> Self;
    fn map(self, each: impl Fn(f32) -> f32) -> Self;
    fn with(self, other: Self, each: impl Fn(f32, f32) -> f32) -> Self;
}

impl Number for f32 {
    #[inline]
    fn all(number: f32) -> Self {
        number
    }

    #[inline]
    fn map(self, each: impl Fn(f32) -> f32) -> Self {
        each(self)
    }

    #[inline]
    fn with(self, other: Self, each: impl Fn(f32, f32) -> f32) -> Self {
        each(self, other)
    }
}

#[cfg(not(target_os = "none"))]
impl Number for [f32; BLOCK] {
    #[inline]
    fn all(number: f32) -> Self {
        [number; BLOCK]
    }

    #[inline]
    fn map(mut self, each: impl Fn(f32) -> f32) -> Self {
        for number in &mut self {
            *number = each(*number);
        }
        self
    }

    #[inline]
    fn with(mut self, other: Self, each: impl Fn(f32, f32) -> f32) -> Self {
        for (number, other) in self.iter_mut().zip(other) {
            *number = each(*number, other);
        }
        self
    }
}

/// One set, or eight alike, of the elements of an array.
pub(super) trait Set {
    type Number: Number;

    /// Calls `each` with the elements in their order.
    fn visit(&self, x: &[f32], each: impl FnMut(Self::Number));

    /// Gives the elements new values, in their order.
    fn update(&self, x: &mut [f32], new: impl FnMut(Self::Number) -> Self::Number);

    /// What `numbers` hold `place` behind the place of the set's first element.
    fn own(&self, numbers: &Numbers<'_>, place: usize) -> Self::Number;

    /// The canonical sum of `term` of the elements.
    #[inline]
    fn sum(&self, x: &[f32], term: impl Fn(Self::Number) -> Self::Number) -> Self::Number {
        let mut lanes = [Self::Number::all(0.0); size_of::<Lanes>() / 4];
        let mut lane = 0usize;
        self.visit(x, |value| {
            if let Some(sum) = lanes.get_mut(lane) {
                *sum = sum.with(term(value), |sum, term| sum + term);
            }
            lane = lane.wrapping_add(1) & 7;
        });
        let plus = |a: Self::Number, b: Self::Number| a.with(b, |a, b| a + b);
        let [a0, a1, a2, a3, a4, a5, a6, a7] = lanes;
        plus(plus(plus(a0, a4), plus(a2, a6)), plus(plus(a1, a5), plus(a3, a7)))
    }

    /// `normal(element) * gamma + beta`, with the gamma and beta of the element's number.
    #[inline]
    fn scale(&self, x: &mut [f32], normal: impl Fn(Self::Number) -> Self::Number, gamma: &Numbers<'_>, beta: &Numbers<'_>) {
        let mut place = 0usize;
        self.update(x, |value| {
            let (gamma, beta) = (Self::Number::all(gamma.at(place)), Self::Number::all(beta.at(place)));
            place = place.wrapping_add(1);
            normal(value).with(gamma, |value, gamma| value * gamma).with(beta, |value, beta| value + beta)
        });
    }
}

/// What is done to a set.
pub(super) trait Work {
    /// `count` elements of each of the sets.
    fn on<S: Set>(&self, x: &mut [f32], set: &S, count: usize);
}

/// Does the work on the sets that begin at `starts` and have their elements at `offsets` from there.
pub(super) fn for_sets(x: &mut [f32], starts: Walk, offsets: &Walk, work: &impl Work) {
    let count = offsets.len();
    #[cfg(not(target_os = "none"))]
    {
        if offsets.is_block() {
            let (mut rest, mut start) = (x, 0usize);
            while !rest.is_empty() && count > 0 {
                work.on(next_mut(&mut rest, count), &Row { start }, count);
                start = start.wrapping_add(count);
            }
            return;
        }
        if starts.len() >= FEWEST {
            let mut starts = starts;
            while let Some(set) = Eight::next(&mut starts, offsets) {
                work.on(x, &set, count);
            }
            return;
        }
    }
    for start in starts {
        work.on(x, &One { start, offsets }, count);
    }
}

/// One set.
struct One<'w> {
    start: usize,
    offsets: &'w Walk,
}

impl Set for One<'_> {
    type Number = f32;

    #[inline]
    fn visit(&self, x: &[f32], mut each: impl FnMut(f32)) {
        self.offsets.visit(|at| {
            if let Some(value) = x.get(self.start.wrapping_add(at)) {
                each(*value);
            }
        });
    }

    #[inline]
    fn update(&self, x: &mut [f32], mut new: impl FnMut(f32) -> f32) {
        self.offsets.visit(|at| {
            if let Some(y) = x.get_mut(self.start.wrapping_add(at)) {
                *y = new(*y);
            }
        });
    }

    #[inline]
    fn own(&self, numbers: &Numbers<'_>, place: usize) -> f32 {
        numbers.at(self.start.wrapping_add(place))
    }
}

/// The whole slice, one element after the other; it begins `start` elements behind the beginning of the array.
#[cfg(not(target_os = "none"))]
struct Row {
    start: usize,
}

#[cfg(not(target_os = "none"))]
impl Set for Row {
    type Number = f32;

    #[inline]
    fn visit(&self, x: &[f32], each: impl FnMut(f32)) {
        x.iter().copied().for_each(each);
    }

    #[inline]
    fn update(&self, x: &mut [f32], mut new: impl FnMut(f32) -> f32) {
        for y in x {
            *y = new(*y);
        }
    }

    #[inline]
    fn own(&self, numbers: &Numbers<'_>, place: usize) -> f32 {
        numbers.at(self.start.wrapping_add(place))
    }

    #[inline]
    fn sum(&self, x: &[f32], term: impl Fn(f32) -> f32) -> f32 {
        tree(lanes_of(x, term))
    }

    #[inline]
    fn scale(&self, x: &mut [f32], normal: impl Fn(f32) -> f32, gamma: &Numbers<'_>, beta: &Numbers<'_>) {
        if let (Numbers::Floats(gamma), Numbers::Floats(beta)) = (gamma, beta) {
            for ((y, gamma), beta) in x.iter_mut().zip(*gamma).zip(*beta) {
                *y = normal(*y) * gamma + beta;
            }
            return;
        }
        for (place, y) in x.iter_mut().enumerate() {
            *y = normal(*y) * gamma.at(place) + beta.at(place);
        }
    }
}

/// With fewer sets than this each is taken by itself.
#[cfg(not(target_os = "none"))]
const FEWEST: usize = 3;

/// Up to eight sets.
#[cfg(not(target_os = "none"))]
struct Eight<'w> {
    /// The first element of each; of those past the last, that of the first.
    starts: Channels,
    used: usize,
    offsets: &'w Walk,
}

#[cfg(not(target_os = "none"))]
impl<'w> Eight<'w> {
    /// The next eight, or as many as there are.
    fn next(starts: &mut Walk, offsets: &'w Walk) -> Option<Self> {
        let first = starts.next()?;
        let (mut all, mut used) = ([first; BLOCK], 1usize);
        for (to, start) in all.iter_mut().skip(1).zip(starts) {
            *to = start;
            used = used.wrapping_add(1);
        }
        let run = all.iter().zip(first..).all(|(start, place)| *start == place);
        Some(Self { starts: if run { Channels::Run(first) } else { Channels::Any(all) }, used, offsets })
    }
}

#[cfg(not(target_os = "none"))]
impl Set for Eight<'_> {
    type Number = [f32; BLOCK];

    #[inline]
    fn visit(&self, x: &[f32], mut each: impl FnMut([f32; BLOCK])) {
        self.offsets.visit(|at| each(values(x, at, &self.starts)));
    }

    #[inline]
    fn update(&self, x: &mut [f32], mut new: impl FnMut([f32; BLOCK]) -> [f32; BLOCK]) {
        self.offsets.visit(|at| {
            let new = new(values(x, at, &self.starts));
            match &self.starts {
                Channels::Run(first) => {
                    if let Some(y) = x.get_mut(at.wrapping_add(*first)..).and_then(|x| x.first_chunk_mut()) {
                        *y = new;
                    }
                }
                Channels::Any(starts) => {
                    for (start, new) in starts.iter().zip(new).take(self.used) {
                        if let Some(y) = x.get_mut(at.wrapping_add(*start)) {
                            *y = new;
                        }
                    }
                }
            }
        });
    }

    #[inline]
    fn own(&self, numbers: &Numbers<'_>, place: usize) -> [f32; BLOCK] {
        if let Numbers::Floats(numbers) = numbers {
            return values(numbers, place, &self.starts);
        }
        match &self.starts {
            Channels::Run(first) => core::array::from_fn(|j| numbers.at(place.wrapping_add(*first).wrapping_add(j))),
            Channels::Any(starts) => starts.map(|start| numbers.at(place.wrapping_add(start))),
        }
    }
}

#[cfg(all(test, not(target_os = "none")))]
mod tests {
    use super::*;
    use crate::format::{DType, Dims};
    use crate::ops::test_rng::Rng;

    /// Asks a set for everything.
    struct All<'a>(Numbers<'a>);

    impl Work for All<'_> {
        fn on<S: Set>(&self, x: &mut [f32], set: &S, count: usize) {
            let mut largest = S::Number::all(f32::NEG_INFINITY);
            set.visit(x, |value| largest = value.with(largest, f32::max));
            let mean = set.sum(x, |value| value.map(|value| value * value)).map(|sum| sum / count as f32);
            let mut place = 0;
            set.update(x, |value| {
                place = (place + 1) % 3;
                value.with(set.own(&self.0, place), |value, own| value * own).with(largest, |value, largest| value - largest)
            });
            set.scale(x, |value| value.with(mean, |value, mean| value * mean), &self.0, &self.0);
        }
    }

    #[test]
    fn rows_and_eight_at_a_time_have_the_bits_of_one_set() {
        let mut rng = Rng::new(3);
        let numbers = rng.floats(2000);
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        // At an address where floats cannot be read as they lie.
        let odd: Vec<u8> = std::iter::once(0).chain(bytes.iter().copied()).collect();
        let stored = |start: usize| TensorView::new(0, DType::F32, Dims::vector(1999), &odd[start..start + 4 * 1999]).unwrap();
        // Sizes and strides of what begins a set, and of a set.
        let cases: [[[(usize, isize); 2]; 2]; 9] = [
            [[(1, 0), (30, 8)], [(1, 0), (8, 1)]],
            [[(1, 0), (1, 0)], [(30, 8), (8, 1)]],
            [[(6, 40), (8, 1)], [(1, 0), (5, 8)]],
            [[(1, 0), (5, 8)], [(8, 1), (6, 40)]],
            [[(1, 0), (19, 1)], [(1, 0), (12, 19)]],
            [[(1, 0), (2, 4)], [(30, 8), (4, 1)]],
            [[(1, 0), (3, 4)], [(30, 12), (4, 1)]],
            [[(1, 0), (1, 0)], [(3, 1), (80, 3)]],
            [[(1, 0), (11, 2)], [(9, 22), (2, 1)]],
        ];
        for [starts, offsets] in cases {
            for numbers in [Numbers::Floats(&numbers), Numbers::Stored(stored(0)), Numbers::Stored(stored(1)), Numbers::All(0.5)] {
                let (starts, offsets) = (Walk::new(0).axes(starts.into_iter()), Walk::new(0).axes(offsets.into_iter()));
                let x = rng.floats(starts.len() * offsets.len());
                let (mut wanted, mut found, work) = (x.clone(), x, All(numbers));
                for start in starts.clone() {
                    work.on(wanted.get_mut(..).unwrap(), &One { start, offsets: &offsets }, offsets.len());
                }
                for_sets(&mut found, starts.clone(), &offsets, &work);
                assert!(found.iter().zip(&wanted).all(|(a, b)| a.to_bits() == b.to_bits()), "{starts:?} {offsets:?}");
            }
        }
    }
}
