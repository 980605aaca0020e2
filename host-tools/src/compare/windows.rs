//! Windows of a text: evenly spaced, of one length, cut between characters.

/// Up to `count` windows of at most `bytes` bytes, from the text's beginning to its end; one where the text has not two whole ones. A window begins and ends with whole characters where the text is UTF-8.
pub fn windows(text: &[u8], count: u32, bytes: u32) -> Vec<&[u8]> {
    let bytes = (bytes as usize).max(1);
    if text.is_empty() || count == 0 {
        return Vec::new();
    }
    let count = (count as usize).min(text.len() / bytes).max(1);
    let room = text.len().saturating_sub(bytes);
    let window = |number: usize| {
        let start = if count == 1 { 0 } else { (number as u128 * room as u128 / (count - 1) as u128) as usize };
        let start = boundary(text, start);
        let end = boundary(text, (start + bytes).min(text.len()));
        text.get(start..end).unwrap_or_default()
    };
    (0..count).map(window).filter(|window| !window.is_empty()).collect()
}

/// The beginning of the character that `place` is in, if it is in one.
fn boundary(text: &[u8], place: usize) -> usize {
    let continues = |place: usize| text.get(place).is_some_and(|byte| byte & 0xC0 == 0x80);
    (0..4).filter_map(|back| place.checked_sub(back)).find(|place| !continues(*place)).unwrap_or(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_spaced_from_beginning_to_end() {
        let text: Vec<u8> = (0..100).collect();
        let found = windows(&text, 4, 10);
        assert_eq!(found.iter().map(|window| (window[0], window.len())).collect::<Vec<_>>(), [(0, 10), (30, 10), (60, 10), (90, 10)]);
        assert_eq!(windows(&text, 1, 10), [&text[..10]]);
        assert_eq!(windows(&text, 16, 60), [&text[..60]]);
        assert_eq!(windows(&text, 16, 256), [&text[..]]);
        assert_eq!(windows(&text, 16, 25).len(), 4);
        assert!(windows(b"", 16, 256).is_empty() && windows(&text, 0, 256).is_empty());
    }

    #[test]
    fn characters_stay_whole() {
        let text = "\u{e9}\u{4e2d}\u{1f600}".repeat(50);
        for (count, bytes) in [(3, 10), (7, 11), (16, 13), (2, 100)] {
            for window in windows(text.as_bytes(), count, bytes) {
                assert!(std::str::from_utf8(window).is_ok() && window.len() <= bytes as usize + 3);
            }
        }
        // What is no text is cut anywhere.
        assert_eq!(windows(&[0x80; 40], 2, 10).len(), 2);
    }
}
