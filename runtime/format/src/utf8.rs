//! What is UTF-8, in little code: for headers, and for tokens that hold parts of characters.
//!
//! `core::str::from_utf8` says the same faster, but its code and tables take 600 bytes of flash.

/// How many bytes are missing after `bytes`, of which there is at least one, for them to be one character; `None` where nothing can make them one.
pub fn missing(bytes: &[u8]) -> Option<usize> {
    let (first, rest) = bytes.split_first()?;
    // How many bytes follow the first, and from where to where the second may be: nothing that is too long for what it says, a surrogate, or past U+10FFFF.
    let (mut low, mut high) = (0x80, 0xBF);
    let len = match *first {
        0..=0x7F => 0usize,
        0xC2..=0xDF => 1,
        first @ 0xE0..=0xEF => {
            match first {
                0xE0 => low = 0xA0,
                0xED => high = 0x9F,
                _ => {}
            }
            2
        }
        first @ 0xF0..=0xF4 => {
            match first {
                0xF0 => low = 0x90,
                0xF4 => high = 0x8F,
                _ => {}
            }
            3
        }
        _ => return None,
    };
    for byte in rest {
        if *byte < low || *byte > high {
            return None;
        }
        (low, high) = (0x80, 0xBF);
    }
    len.checked_sub(rest.len())
}

/// Where the first character begins that is none; `None` if `bytes` are UTF-8.
pub fn first_fault(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    while let [first, ..] = rest {
        let character = missing(core::slice::from_ref(first)).and_then(|more| rest.split_at_checked(more.saturating_add(1)));
        match character {
            Some((character, after)) if missing(character) == Some(0) => rest = after,
            _ => return Some(bytes.len().saturating_sub(rest.len())),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first_fault_of_core(bytes: &[u8]) -> Option<usize> {
        core::str::from_utf8(bytes).err().map(|error| error.valid_up_to())
    }

    #[test]
    fn every_beginning_of_a_character_is_judged_as_core_does() {
        for word in (0..=0xFF_FFFFu32).step_by(if cfg!(miri) { 99_991 } else { 1 }) {
            // All of three bytes, and with a fourth that can end a character.
            let [a, b, c, _] = word.to_le_bytes();
            for bytes in [&[a][..], &[a, b], &[a, b, c], &[a, b, c, 0x80], &[a, b, c, 0x41]] {
                let expected = match core::str::from_utf8(bytes) {
                    Ok(text) if text.chars().count() == 1 => Some(true),
                    Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => Some(false),
                    _ => None,
                };
                assert_eq!(missing(bytes).map(|more| more == 0), expected, "{bytes:x?}");
                if a < 0xF0 && bytes.len() > 3 {
                    break;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_first_fault_is_where_core_finds_it(text in any::<String>(), place in 0usize..100, byte in any::<u8>()) {
            let mut bytes = text.into_bytes();
            prop_assert_eq!(first_fault(&bytes), None);
            if let Some(slot) = bytes.get_mut(place) {
                *slot = byte;
            }
            prop_assert_eq!(first_fault(&bytes), first_fault_of_core(&bytes));
            bytes.truncate(place);
            prop_assert_eq!(first_fault(&bytes), first_fault_of_core(&bytes));
        }
    }
}
