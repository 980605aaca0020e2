//! Every target in one program, which links in a tenth of the time of one each: the variable DMEXP_FUZZ_TARGET names the one to run. See `cargo xtask fuzz`.
#![no_main]

use dmexp_hostile::{Target, by_name};
use std::sync::LazyLock;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("DMEXP_FUZZ_TARGET").expect("DMEXP_FUZZ_TARGET names the target");
    let target = by_name(&name);
    // What is made once is made before time counts.
    for seed in (target.seeds)() {
        (target.run)(&seed);
    }
    target
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| TARGET.fuzz(bytes));
