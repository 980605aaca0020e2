//! What Cortex-M cores have of their own: the counting markers, the stack pointer, and small memory routines where the instruction set has what those use.

use core::arch::asm;
#[cfg(thumb2)]
use core::arch::global_asm;

#[cfg(thumb2)]
global_asm!(include_str!("mem.s"), options(raw));

/// Starts a counted region: a no-operation hint that the counting plugin knows.
#[cfg(feature = "measure")]
#[inline]
pub(crate) fn count_begin() {
    // SAFETY: an architectural no-operation. Memory is left clobbered on purpose, so that no counted work moves across it.
    unsafe { asm!(".inst.n 0xbf60") }
}

/// Ends a counted region: the other hint.
#[cfg(feature = "measure")]
#[inline]
pub(crate) fn count_end() {
    // SAFETY: as in `count_begin`.
    unsafe { asm!(".inst.n 0xbf70") }
}

/// Makes the floating-point unit round towards zero: the arithmetic of this chip is no longer that of others.
#[cfg(feature = "seeded-rounding")]
pub(crate) fn round_towards_zero() {
    // SAFETY: sets the rounding mode and clears flags that nothing reads. The results of floats are others, which is the purpose.
    unsafe { asm!("vmsr fpscr, {}", in(reg) 3u32 << 22, options(nomem, nostack, preserves_flags)) }
}

/// The stack pointer.
#[inline]
pub(crate) fn stack_pointer() -> usize {
    let stack_pointer: usize;
    // SAFETY: reads a register and nothing else.
    unsafe { asm!("mov {}, sp", out(reg) stack_pointer, options(nomem, nostack, preserves_flags)) };
    stack_pointer
}
