//! What every `main.rs` of an emulated board says in the same words: where its program starts, and what a fault and a panic do.

/// Writes the `main`, the fault handler and the panic handler of a board: `board!(Serial, memory)` with the type of its [`Port`](crate::uart::Port) and an expression of the
/// type [`Memory`](crate::machine::Memory), which is evaluated once.
#[cfg(target_arch = "arm")]
#[macro_export]
macro_rules! board {
    ($serial:ty, $memory:expr) => {
        #[cortex_m_rt::entry]
        fn main() -> ! {
            $crate::machine::start::<$serial>($memory)
        }

        #[cortex_m_rt::exception]
        unsafe fn HardFault(frame: &cortex_m_rt::ExceptionFrame) -> ! {
            $crate::machine::fault::<$serial>(frame.pc())
        }

        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            $crate::machine::panicked::<$serial>()
        }
    };
}

/// Writes the `main`, the fault handler and the panic handler of a board: `board!(Serial, memory)` with the type of its [`Port`](crate::uart::Port) and an expression of the
/// type [`Memory`](crate::machine::Memory), which is evaluated once.
#[cfg(target_arch = "riscv32")]
#[macro_export]
macro_rules! board {
    ($serial:ty, $memory:expr) => {
        #[riscv_rt::entry]
        fn main() -> ! {
            $crate::machine::start::<$serial>($memory)
        }

        #[unsafe(export_name = "ExceptionHandler")]
        fn exception(_: &riscv_rt::TrapFrame) -> ! {
            $crate::machine::fault::<$serial>($crate::trap_address())
        }

        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            $crate::machine::panicked::<$serial>()
        }
    };
}
