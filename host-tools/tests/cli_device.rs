//! `dmexp device`, by running the real binary: what is no device. What devices answer is tested in the library (`device::tests`), and by `cargo xtask probe --check`.

mod cli_support;

use cli_support::{folder, line};

#[test]
fn what_is_no_device_is_refused() {
    let folder = folder();
    let at = folder.path();
    line(at, "device info qemu:nothing").refused(1, &["nothing", "an386"]);
    line(at, "device stats qemu:an386").refused(1, &["cargo xtask probe an386"]);
    line(at, "device self-test none/tty").refused(1, &["none/tty", "serial port"]);
    line(at, "device info qemu:an386 --export none.dmexp").refused(1, &["none.dmexp"]);
    line(at, "device info qemu:").refused(2, &["qemu:BOARD"]);
    line(at, "device generate qemu:an386 --seed 0").refused(2, &["--seed"]);
    line(at, "device info").refused(2, &["DEVICE"]);
}
