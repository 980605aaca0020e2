fn set_up() {
    // The divider must be 16 or more; bit 0 of CTRL enables the transmitter.
    write(0x10, 16);
    write(0x08, 1);
}

fn send(byte: u8) {
    while read(0x04) & 1 != 0 {}
    write(0, u32::from(byte));
}
