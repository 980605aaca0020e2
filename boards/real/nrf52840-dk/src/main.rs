//! Firmware for the nRF52840-DK: tells a story on the serial port of the debugger (P0.06) while LED 1 blinks.

#![no_std]
#![no_main]

#[path = "../../story.rs"]
mod story;

use embassy_executor::Spawner;
use embassy_nrf::gpio::{Level, Output, OutputDrive};
use embassy_nrf::uarte::{Config, InterruptHandler, UarteTx};
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
    let mut serial = UarteTx::new(chip.UARTE0, Irqs, chip.P0_06, Config::default());
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
