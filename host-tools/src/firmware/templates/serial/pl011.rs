fn set_up() {
    // Eight bits a character; the device and its transmitter on.
    write(0x2C, 0x60);
    write(0x30, 0x101);
}

fn send(byte: u8) {
    while read(0x18) & 0x20 != 0 {}
    write(0, u32::from(byte));
}
