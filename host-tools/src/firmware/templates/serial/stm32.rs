fn set_up() {
    // The device and its transmitter on. A chip also wants its clock and the baud rate: see the reference manual, RCC_APB2ENR and USART_BRR.
    write(0x0C, 1 << 13 | 1 << 3);
}

fn send(byte: u8) {
    while read(0) & 0x80 == 0 {}
    write(0x04, u32::from(byte));
}
