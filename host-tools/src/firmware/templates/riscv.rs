
pub use riscv_rt::entry;

#[unsafe(export_name = "ExceptionHandler")]
fn exception(_: &riscv_rt::TrapFrame) -> ! {
    crate::broken(b"exception\n")
}
