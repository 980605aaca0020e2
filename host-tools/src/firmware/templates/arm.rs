
pub use cortex_m_rt::entry;

#[cortex_m_rt::exception]
unsafe fn HardFault(_: &cortex_m_rt::ExceptionFrame) -> ! {
    crate::broken(b"hard fault\n")
}
