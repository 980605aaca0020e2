//! Bits computed once, to which every machine is held: whoever computes something else computes another arithmetic.

use super::math::{exp, sigmoid, silu, sin_cos};
use super::sum::{dot8, sum8};
use super::test_rng::Rng;

const EXP: [(f32, u32); 9] = [
    (1.0, 0x402d_f854),
    (-1.0, 0x3ebc_5ab2),
    (0.5, 0x3fd3_094c),
    (0.347, 0x3fb5_18b7),
    (-0.347, 0x3f34_f132),
    (-20.25, 0x30dc_9ef1),
    (-87.25, 0x008b_923c),
    (88.5, 0x7f4c_dcc4),
    (1e-6, 0x3f80_0008),
];
const SIN_COS: [(f32, u32, u32); 7] = [
    (1.0, 0x3f57_6aa4, 0x3f0a_5140),
    (-2.0, 0xbf68_c7b7, 0xbed5_1132),
    (0.785, 0x3f34_f27f, 0x3f35_1766),
    (100.0, 0xbf01_a12e, 0x3f5c_c0ee),
    (8191.0, 0xbf43_5469, 0xbf25_79d9),
    (99_999.0, 0x3f5c_393b, 0xbf02_8731),
    (1e20, 0x3f24_185f, 0xbf44_7db9),
];
const SILU: [(f32, u32); 4] = [(1.5, 0x3f9c_f96b), (-3.25, 0xbdf8_72a0), (0.01, 0x3ba4_a8c1), (-60.0, 0x9722_99bc)];
const SIGMOID: [(f32, u32); 3] = [(0.75, 0x3f2d_dea8), (-4.5, 0x3c34_0294), (12.0, 0x3f7f_ff98)];

#[test]
fn the_functions_give_the_golden_bits() {
    for (x, bits) in EXP {
        assert_eq!(exp(x).to_bits(), bits, "exp({x})");
    }
    for (x, sin, cos) in SIN_COS {
        assert_eq!((sin_cos(x).0.to_bits(), sin_cos(x).1.to_bits()), (sin, cos), "sin_cos({x})");
    }
    for (x, bits) in SILU {
        assert_eq!(silu(x).to_bits(), bits, "silu({x})");
    }
    for (x, bits) in SIGMOID {
        assert_eq!(sigmoid(x).to_bits(), bits, "sigmoid({x})");
    }
}

#[test]
fn the_sums_give_the_golden_bits() {
    let mut rng = Rng::new(172);
    let (w, x) = (rng.floats(172), rng.floats(172));
    assert_eq!((w[0].to_bits(), x[171].to_bits()), (0xbe27_53b8, 0x3f05_b74a), "the test's numbers themselves");
    assert_eq!((sum8(&w).to_bits(), dot8(&w, &x).to_bits()), (0x40d7_30f4, 0xbffb_798e));
}
