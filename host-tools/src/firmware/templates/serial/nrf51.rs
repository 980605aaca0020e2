fn set_up() {
    // ENABLE, then the task STARTTX.
    write(0x500, 4);
    write(0x008, 1);
}

fn send(byte: u8) {
    write(0x51C, u32::from(byte));
    while read(0x11C) == 0 {}
    write(0x11C, 0);
}
