//! What all Cortex-M boards share: the counting markers, the painted stack, and small memory routines. Called by the board crates.
//!
//! The stack starts at `_stack_start` and grows down towards `__sheap`, the end of the statics; both symbols come from the
//! linker script of `cortex-m-rt`. Painting fills what is free with a pattern, and the deepest use is where the pattern ends.

use core::arch::{asm, global_asm};

global_asm!(include_str!("mem.s"), options(raw));

/// The word that marks stack never written.
const PAINT: u32 = 0xA5C3_5A3C;

/// Bytes left unpainted below the stack pointer, so that the painting does not write over its own frame.
const MARGIN: usize = 64;

unsafe extern "C" {
    static mut __sheap: u32;
    static _stack_start: u32;
}

/// Starts a counted region: a no-operation hint that the counting plugin knows.
#[inline]
pub fn count_begin() {
    // SAFETY: an architectural no-operation. Memory is left clobbered on purpose, so that no counted work moves across it.
    unsafe { asm!(".inst.n 0xbf60") }
}

/// Ends a counted region: the other hint.
#[inline]
pub fn count_end() {
    // SAFETY: as in `count_begin`.
    unsafe { asm!(".inst.n 0xbf70") }
}

/// Paints the free stack. Call it first thing in `main`.
#[inline(never)]
pub fn paint_stack() {
    let stack_pointer: usize;
    // SAFETY: reads a register and nothing else.
    unsafe { asm!("mov {}, sp", out(reg) stack_pointer, options(nomem, nostack, preserves_flags)) };
    let end = stack_pointer.saturating_sub(MARGIN);
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
pub fn stack_peak() -> usize {
    let top = &raw const _stack_start as usize;
    let mut at = &raw const __sheap;
    // SAFETY: every word from `__sheap` to `_stack_start` is RAM and word-aligned; the loop stops at the top.
    while (at as usize) < top && unsafe { at.read_volatile() } == PAINT {
        // SAFETY: still below the top of the stack.
        at = unsafe { at.add(1) };
    }
    top - at as usize
}
