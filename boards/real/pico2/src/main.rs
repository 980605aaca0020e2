//! Firmware for the Raspberry Pi Pico 2 (RP2350): tells a story on the first serial port (GP0) while the LED blinks.

#![no_std]
#![no_main]

#[path = "../../story.rs"]
mod story;

use embassy_executor::Spawner;
use embassy_rp::gpio::{Level, Output};
use embassy_rp::uart::{Config, UartTx};
use embassy_time::Timer;

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    let chip = embassy_rp::init(embassy_rp::config::Config::default());
    if let Ok(task) = blink(Output::new(chip.PIN_25, Level::Low)) {
        spawner.spawn(task);
    }
    let mut serial = UartTx::new_blocking(chip.UART0, chip.PIN_0, Config::default());
    story::tell(|bytes| serial.blocking_write(bytes).is_ok()).await;
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
fn panic(_: &core::panic::PanicInfo) -> ! {
    loop {
        cortex_m::asm::bkpt();
    }
}
