fn set_up() {
    // TXCTRL: the transmitter on.
    write(0x08, 1);
}

fn send(byte: u8) {
    // The top bit of TXDATA is set while the queue is full.
    while read(0) >> 31 != 0 {}
    write(0, u32::from(byte));
}
