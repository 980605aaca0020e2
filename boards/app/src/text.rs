//! Numbers as text without `core::fmt`, which costs kilobytes of flash and carries panic paths. Called by the application.

use embedded_io::Write;

/// Writes `value` in decimal.
///
/// # Errors
/// Those of the writer.
pub fn write_u32<W: Write>(out: &mut W, value: u32) -> Result<(), W::Error> {
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    let mut rest = value;
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (rest % 10) as u8;
        rest /= 10;
        first -= 1;
        if rest == 0 {
            break;
        }
    }
    out.write_all(digits.get(first..).unwrap_or(&digits))
}

/// Writes `value` as eight hexadecimal digits.
///
/// # Errors
/// Those of the writer.
pub fn write_hex32<W: Write>(out: &mut W, value: u32) -> Result<(), W::Error> {
    let mut digits = [0u8; 8];
    for (slot, shift) in digits.iter_mut().zip([28, 24, 20, 16, 12, 8, 4, 0]) {
        let nibble = ((value >> shift) & 15) as u8;
        *slot = if nibble < 10 { b'0' + nibble } else { b'a' + (nibble - 10) };
    }
    out.write_all(&digits)
}
