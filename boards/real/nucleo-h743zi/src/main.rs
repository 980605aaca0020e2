//! Firmware for the STM32 Nucleo-H743ZI2: tells a story on the serial port of the debugger (USART3: PD8, PD9) while the green LED (PB0) blinks. The core runs at 400 MHz.

#![no_std]
#![no_main]

#[path = "../../model.rs"]
mod model;
// With the feature `probe` the firmware answers `dmexp compare`, otherwise it tells a story.
#[cfg_attr(feature = "probe", path = "../../probe.rs")]
#[cfg_attr(not(feature = "probe"), path = "../../story.rs")]
mod work;

use embassy_executor::Spawner;
use embassy_stm32::gpio::{Level, Output, Speed};
use embassy_stm32::rcc::{AHBPrescaler, APBPrescaler, Pll, PllDiv, PllMul, PllPreDiv, PllSource, Sysclk, VoltageScale};
use embassy_stm32::usart::{Config, Uart};
use embassy_time::Timer;

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    let chip = embassy_stm32::init(clocks());
    if let Ok(task) = blink(Output::new(chip.PB0, Level::Low, Speed::Low)) {
        spawner.spawn(task);
    }
    let Ok(serial) = Uart::new_blocking(chip.USART3, chip.PD9, chip.PD8, Config::default()) else { return };
    let (mut output, mut input) = serial.split();
    let read = || {
        let mut byte = 0;
        input.blocking_read(core::slice::from_mut(&mut byte)).ok().map(|()| byte)
    };
    work::run(|bytes| output.blocking_write(bytes).is_ok(), read).await;
}

/// The internal oscillator of 64 MHz, divided by 4, times 50, divided by 2; the buses at half of that and a quarter.
fn clocks() -> embassy_stm32::Config {
    let mut config = embassy_stm32::Config::default();
    let rcc = &mut config.rcc;
    rcc.pll1 = Some(Pll {
        source: PllSource::HSI,
        prediv: PllPreDiv::DIV4,
        mul: PllMul::MUL50,
        fracn: None,
        divp: Some(PllDiv::DIV2),
        divq: None,
        divr: None,
    });
    rcc.sys = Sysclk::PLL1_P;
    rcc.ahb_pre = AHBPrescaler::DIV2;
    rcc.apb1_pre = APBPrescaler::DIV2;
    rcc.apb2_pre = APBPrescaler::DIV2;
    rcc.apb3_pre = APBPrescaler::DIV2;
    rcc.apb4_pre = APBPrescaler::DIV2;
    rcc.voltage_scale = VoltageScale::Scale1;
    config
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
