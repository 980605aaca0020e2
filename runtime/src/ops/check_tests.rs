//! The self-check against machines with one wrong routine each: everything that is known to go wrong with floats that come as subroutines, and with modes of a unit.

use super::*;
use crate::ops::convert::widen_f16;

/// `x` without its digits past those of a float that are cut off, towards zero.
fn cut(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near).abs() > x.abs() { f32::from_bits(near.to_bits() - 1) } else { near }
}

/// The same, away from zero.
fn raised(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near).abs() < x.abs() { f32::from_bits(near.to_bits() + 1) } else { near }
}

fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0.0 * x } else { x }
}

/// A machine that is this one but for the methods that are given.
macro_rules! machine {
    ($name:ident $(, $($method:tt)*)?) => {
        struct $name;
        impl Wrong for $name { $($($method)*)? }
    };
}

/// [`Floats`] with methods that need not be given.
trait Wrong {
    fn sum(a: f32, b: f32) -> f32 {
        a + b
    }
    fn product(a: f32, b: f32) -> f32 {
        a * b
    }
    fn product_less(a: f32, b: f32, c: f32) -> f32 {
        Self::sum(Self::product(a, b), -c)
    }
    fn quotient(a: f32, b: f32) -> f32 {
        a / b
    }
    fn root(a: f32) -> f32 {
        a.sqrt()
    }
    fn is_positive(a: f32) -> bool {
        a > 0.0
    }
    fn of_whole(number: i32) -> f32 {
        number as f32
    }
    fn widen(half: u16) -> f32 {
        widen_f16(half)
    }
    fn narrow(value: f32) -> u16 {
        narrow_f16(value)
    }
}

impl<W: Wrong> Floats for W {
    fn sum(a: f32, b: f32) -> f32 {
        W::sum(a, b)
    }
    fn product(a: f32, b: f32) -> f32 {
        W::product(a, b)
    }
    fn product_less(a: f32, b: f32, c: f32) -> f32 {
        W::product_less(a, b, c)
    }
    fn quotient(a: f32, b: f32) -> f32 {
        W::quotient(a, b)
    }
    fn root(a: f32) -> f32 {
        W::root(a)
    }
    fn is_positive(a: f32) -> bool {
        W::is_positive(a)
    }
    fn of_whole(number: i32) -> f32 {
        W::of_whole(number)
    }
    fn widen(half: u16) -> f32 {
        W::widen(half)
    }
    fn narrow_pair(halves: &mut [u16; 2], values: [f32; 2]) {
        *halves = values.map(W::narrow);
    }
    fn narrow(value: f32) -> u16 {
        W::narrow(value)
    }
}

machine!(Right);
machine!(
    SumsAreCut,
    fn sum(a: f32, b: f32) -> f32 {
        cut(f64::from(a) + f64::from(b))
    }
);
machine!(
    SumsAreRaised,
    fn sum(a: f32, b: f32) -> f32 {
        raised(f64::from(a) + f64::from(b))
    }
);
machine!(
    ProductsFlushResults,
    fn product(a: f32, b: f32) -> f32 {
        flushed(a * b)
    }
);
machine!(
    ProductsFlushOperands,
    fn product(a: f32, b: f32) -> f32 {
        flushed(a) * flushed(b)
    }
);
machine!(
    ProductsAreFused,
    fn product_less(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, -c)
    }
);
machine!(
    ProductsAreRaised,
    fn product(a: f32, b: f32) -> f32 {
        raised(f64::from(a) * f64::from(b))
    }
);
machine!(
    ProductsAreCut,
    fn product(a: f32, b: f32) -> f32 {
        cut(f64::from(a) * f64::from(b))
    }
);
machine!(
    QuotientsAreCut,
    fn quotient(a: f32, b: f32) -> f32 {
        cut(f64::from(a) / f64::from(b))
    }
);
machine!(
    QuotientsAreRaised,
    fn quotient(a: f32, b: f32) -> f32 {
        raised(f64::from(a) / f64::from(b))
    }
);
machine!(
    QuotientsByReciprocals,
    fn quotient(a: f32, b: f32) -> f32 {
        a * (1.0 / b)
    }
);
machine!(
    QuotientsFlushResults,
    fn quotient(a: f32, b: f32) -> f32 {
        flushed(a / b)
    }
);
machine!(
    QuotientsFlushOperands,
    fn quotient(a: f32, b: f32) -> f32 {
        flushed(a) / b
    }
);
machine!(
    RootsAreCut,
    fn root(a: f32) -> f32 {
        cut(f64::from(a).sqrt())
    }
);
machine!(
    RootsAreRaised,
    fn root(a: f32) -> f32 {
        raised(f64::from(a).sqrt())
    }
);
machine!(
    SumsFlushOperands,
    fn sum(a: f32, b: f32) -> f32 {
        flushed(a) + flushed(b)
    }
);
machine!(
    SumsFlushResults,
    fn sum(a: f32, b: f32) -> f32 {
        flushed(a + b)
    }
);
machine!(
    ComparisonsFlush,
    fn is_positive(a: f32) -> bool {
        flushed(a) > 0.0
    }
);
machine!(
    WholeNumbersAreCut,
    fn of_whole(number: i32) -> f32 {
        cut(f64::from(number))
    }
);
machine!(
    WholeNumbersAreRaised,
    fn of_whole(number: i32) -> f32 {
        raised(f64::from(number))
    }
);
machine!(
    HalvesHaveNoInfinity,
    fn widen(half: u16) -> f32 {
        if half == 0x7c00 { 65536.0 } else { widen_f16(half) }
    }
);
machine!(
    HalvesAreFlushed,
    fn widen(half: u16) -> f32 {
        if half & 0x7c00 == 0 { 0.0 } else { widen_f16(half) }
    }
);
machine!(
    HalvesAreRoundedUp,
    fn narrow(value: f32) -> u16 {
        narrow_f16(f32::from_bits(value.to_bits() + 1))
    }
);
machine!(
    SmallHalvesAreFlushed,
    fn narrow(value: f32) -> u16 {
        if value < 6.0e-5 { 0 } else { narrow_f16(value) }
    }
);

#[test]
fn this_machine_passes() {
    assert_eq!(self_check(), Ok(()));
    assert_eq!(check::<Right>(), Ok(()));
}

#[test]
fn every_wrong_routine_is_refused_with_advice() {
    let refused: &[(&str, Result<(), Error>, u32)] = &[
        ("sums are cut", check::<SumsAreCut>(), 0),
        ("sums are raised", check::<SumsAreRaised>(), 1),
        ("products flush results", check::<ProductsFlushResults>(), 2),
        ("products flush operands", check::<ProductsFlushOperands>(), 3),
        ("products are fused", check::<ProductsAreFused>(), 4),
        ("products are raised", check::<ProductsAreRaised>(), 4),
        ("quotients are cut", check::<QuotientsAreCut>(), 5),
        ("roots are raised", check::<RootsAreRaised>(), 6),
        ("halves have no infinity", check::<HalvesHaveNoInfinity>(), 7),
        ("halves are flushed", check::<HalvesAreFlushed>(), 7),
        ("halves are rounded up", check::<HalvesAreRoundedUp>(), 7),
        ("small halves are flushed", check::<SmallHalvesAreFlushed>(), 7),
        ("sums flush operands", check::<SumsFlushOperands>(), 8),
        ("sums flush results", check::<SumsFlushResults>(), 8),
        ("quotients flush results", check::<QuotientsFlushResults>(), 9),
        ("quotients flush operands", check::<QuotientsFlushOperands>(), 10),
        ("comparisons flush", check::<ComparisonsFlush>(), 11),
        ("products are cut", check::<ProductsAreCut>(), 12),
        ("quotients are raised", check::<QuotientsAreRaised>(), 13),
        ("quotients are products with reciprocals", check::<QuotientsByReciprocals>(), 13),
        ("roots are cut", check::<RootsAreCut>(), 14),
        ("whole numbers are cut", check::<WholeNumbersAreCut>(), 15),
        ("whole numbers are raised", check::<WholeNumbersAreRaised>(), 16),
    ];
    for (what, outcome, number) in refused {
        let Err(error @ Error::ArithmeticSelfCheck { operation, found, expected }) = outcome else { panic!("{what}: {outcome:?}") };
        assert!(operation == number && found != expected, "{what}: {outcome:?}");
        let text = error.to_string();
        assert!(
            text.contains("flush-to-zero or replaced float routines") && text.contains("link the compiler's routines"),
            "{what}: {text}"
        );
    }
}
