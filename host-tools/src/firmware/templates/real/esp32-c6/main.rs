//! Firmware for the ESP32-C6-DevKitC-1: tells a story on the serial port of its USB bridge (GPIO16, GPIO17) while an LED at GPIO10 blinks.

#![no_std]
#![no_main]

#[path = "../../model.rs"]
mod model;
// With the feature `probe` the firmware answers `dmexp compare`, otherwise it tells a story.
#[cfg_attr(feature = "probe", path = "../../probe.rs")]
#[cfg_attr(not(feature = "probe"), path = "../../story.rs")]
mod work;

use embassy_executor::Spawner;
use embassy_time::Timer;
use esp_hal::clock::CpuClock;
use esp_hal::gpio::{Level, Output, OutputConfig};
use esp_hal::timer::timg::TimerGroup;
use esp_hal::uart::{Config, Uart};

esp_bootloader_esp_idf::esp_app_desc!();

#[esp_rtos::main]
async fn main(spawner: Spawner) {
    let chip = esp_hal::init(esp_hal::Config::default().with_cpu_clock(CpuClock::max()));
    esp_rtos::start(TimerGroup::new(chip.TIMG0).timer0, chip.FROM_CPU_INTR0);
    if let Ok(task) = blink(Output::new(chip.GPIO10, Level::Low, OutputConfig::default())) {
        spawner.spawn(task);
    }
    let Ok(serial) = Uart::new(chip.UART0, Config::default()) else { return };
    let (mut input, mut output) = serial.with_tx(chip.GPIO16).with_rx(chip.GPIO17).split();
    let write = |mut bytes: &[u8]| {
        while !bytes.is_empty() {
            let Some(rest) = output.write(bytes).ok().and_then(|sent| bytes.get(sent..)) else { return false };
            bytes = rest;
        }
        true
    };
    let read = || {
        let mut byte = 0;
        input.read(core::slice::from_mut(&mut byte)).ok().map(|_| byte)
    };
    work::run(write, read).await;
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
        core::hint::spin_loop();
    }
}
