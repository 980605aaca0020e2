fn write(offset: usize, value: u32) {
    // SAFETY: called with the word-aligned offsets of the port's registers alone.
    unsafe { ((BASE + offset) as *mut u32).write_volatile(value) }
}

fn read(offset: usize) -> u32 {
    // SAFETY: as in `write`.
    unsafe { ((BASE + offset) as *const u32).read_volatile() }
}

