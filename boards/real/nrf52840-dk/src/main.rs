//! Firmware for the nRF52840-DK: tells a story on the serial port of the debugger (P0.06, P0.08) while LED 1 blinks.

#![no_std]
#![no_main]

#[path = "../../model.rs"]
mod model;
// With the feature `probe` the firmware answers `dmexp compare`, otherwise it tells a story.
#[cfg_attr(feature = "probe", path = "../../probe.rs")]
#[cfg_attr(not(feature = "probe"), path = "../../story.rs")]
mod work;

use embassy_executor::Spawner;
use embassy_nrf::gpio::{Level, Output, OutputDrive};
use embassy_nrf::uarte::{Config, InterruptHandler, Uarte};
use embassy_nrf::{bind_interrupts, peripherals};
use embassy_time::Timer;

bind_interrupts!(struct Irqs {
    UARTE0 => InterruptHandler<peripherals::UARTE0>;
});

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    let chip = embassy_nrf::init(embassy_nrf::config::Config::default());
    if let Ok(task) = blink(Output::new(chip.P0_13, Level::High, OutputDrive::Standard)) {
        spawner.spawn(task);
    }
    let (mut output, mut input) = Uarte::new(chip.UARTE0, chip.P0_08, chip.P0_06, Irqs, Config::default()).split();
    let read = || {
        let mut byte = 0;
        input.blocking_read(core::slice::from_mut(&mut byte)).ok().map(|()| byte)
    };
    work::run(|bytes| output.blocking_write(bytes).is_ok(), read).await;
}

/// Shows that other tasks run while the model computes.
#[embassy_executor::task]
async fn blink(mut led: Output<'static>) {
    loop {
        led.toggle();
        Timer::after_millis(500).await;
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    // Where it was, for who looks with a debugger; `cargo xtask real` looks for places of ours in what is linked.
    core::hint::black_box(info.location());
    loop {
        cortex_m::asm::bkpt();
    }
}
