//! What RISC-V cores have of their own: the counting markers and the stack pointer.

use core::arch::asm;

/// Starts a counted region: a no-operation that the counting plugin knows.
#[cfg(feature = "measure")]
#[inline]
pub(crate) fn count_begin() {
    // SAFETY: writes the register that is always zero. Memory is left clobbered on purpose, so that no counted work moves across it.
    unsafe { asm!(".option push", ".option norvc", "addi x0, x0, 1", ".option pop") }
}

/// Ends a counted region: the other one.
#[cfg(feature = "measure")]
#[inline]
pub(crate) fn count_end() {
    // SAFETY: as in `count_begin`.
    unsafe { asm!(".option push", ".option norvc", "addi x0, x0, 2", ".option pop") }
}

/// Instructions executed since the start.
#[cfg(feature = "probe")]
pub(crate) fn instructions() -> u64 {
    loop {
        let (high, low, again): (u32, u32, u32);
        // SAFETY: reads counters and nothing else.
        unsafe {
            asm!("csrr {}, minstreth", "csrr {}, minstret", "csrr {}, minstreth", out(reg) high, out(reg) low, out(reg) again, options(nomem, nostack));
        }
        // The low half did not run over in between.
        if high == again {
            return u64::from(high) << 32 | u64::from(low);
        }
    }
}

/// The stack pointer.
#[inline]
pub(crate) fn stack_pointer() -> usize {
    let stack_pointer: usize;
    // SAFETY: reads a register and nothing else.
    unsafe { asm!("mv {}, sp", out(reg) stack_pointer, options(nomem, nostack, preserves_flags)) };
    stack_pointer
}

/// The address of the instruction that trapped.
#[must_use]
pub fn trap_address() -> u32 {
    let address: u32;
    // SAFETY: reads the register that holds it and nothing else.
    unsafe { asm!("csrr {}, mepc", out(reg) address, options(nomem, nostack, preserves_flags)) };
    address
}
