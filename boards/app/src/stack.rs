//! The painted stack. It starts at `_stack_start` and grows down towards `__sheap`, the end of the statics; both symbols come from the linker scripts of `cortex-m-rt`
//! and `riscv-rt`. Painting fills what is free with a pattern, and the deepest use is where the pattern ends.

use crate::core_of;

/// The word that marks stack never written.
const PAINT: u32 = 0xA5C3_5A3C;

/// Bytes left unpainted below the stack pointer, so that the painting does not write over its own frame.
const MARGIN: usize = 64;

unsafe extern "C" {
    static mut __sheap: u32;
    static _stack_start: u32;
}

/// Paints the free stack.
#[inline(never)]
pub(crate) fn paint() {
    let end = core_of::stack_pointer().saturating_sub(MARGIN);
    let mut at = &raw mut __sheap;
    while (at as usize) < end {
        // SAFETY: `at` is word-aligned (`__sheap` is) and lies between the end of the statics and the live stack, where
        // nothing is stored: these firmwares have no heap.
        unsafe {
            at.write_volatile(PAINT);
            at = at.add(1);
        }
    }
}

/// Bytes between the top of the stack and the deepest word that is no longer painted.
#[inline(never)]
pub(crate) fn peak() -> usize {
    let top = &raw const _stack_start as usize;
    let mut at = &raw const __sheap;
    // SAFETY: every word from `__sheap` to `_stack_start` is RAM and word-aligned; the loop stops at the top.
    while (at as usize) < top && unsafe { at.read_volatile() } == PAINT {
        // SAFETY: still below the top of the stack.
        at = unsafe { at.add(1) };
    }
    top - at as usize
}
