fn set_up() {
    // SAFETY: the port's line control register. Eight bits a character.
    unsafe { ((BASE + 3) as *mut u8).write_volatile(3) }
}

fn send(byte: u8) {
    // SAFETY: the port's line status register, then its transmitter.
    unsafe {
        while ((BASE + 5) as *const u8).read_volatile() & 0x20 == 0 {}
        (BASE as *mut u8).write_volatile(byte);
    }
}
