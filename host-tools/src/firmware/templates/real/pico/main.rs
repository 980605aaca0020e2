//! Firmware for the Raspberry Pi Pico (RP2040) and Pico 2 (RP2350): tells a story on the first serial port (GP0, GP1) while the LED blinks.

#![no_std]
#![no_main]

#[path = "../../model.rs"]
mod model;
// With the feature `probe` the firmware answers `dmexp compare`, otherwise it tells a story.
#[cfg_attr(feature = "probe", path = "../../probe.rs")]
#[cfg_attr(not(feature = "probe"), path = "../../story.rs")]
mod work;

use embassy_executor::Spawner;
use embassy_rp::gpio::{Level, Output};
use embassy_rp::uart::{Config, Uart};
use embassy_time::Timer;

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    let chip = embassy_rp::init(embassy_rp::config::Config::default());
    if let Ok(task) = blink(Output::new(chip.PIN_25, Level::Low)) {
        spawner.spawn(task);
    }
    let (mut output, mut input) = Uart::new_blocking(chip.UART0, chip.PIN_0, chip.PIN_1, Config::default()).split();
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
