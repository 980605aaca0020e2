//! Numbers as text without `core::fmt`, which costs kilobytes of flash and carries panic paths. Called by the application.

use dmexp::format::Error;
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

/// Writes what kind of error it is, with its place and numbers where it has them: an embedded reader looks the rest up.
///
/// # Errors
/// Those of the writer.
pub fn write_error<W: Write>(out: &mut W, error: Error) -> Result<(), W::Error> {
    let (name, numbers): (&str, [u64; 2]) = match error {
        Error::NotDmexp { .. } => ("not a .dmexp file", [0, 0]),
        Error::Version { found } => ("format version", [u64::from(found), 2]),
        Error::Truncated { needed, found, .. } => ("the file ends early: needed, found", [needed, found]),
        Error::Checksum { stored, computed, .. } => ("checksum: stored, computed", [u64::from(stored), u64::from(computed)]),
        Error::Shape { tensor, .. } | Error::TensorName { tensor } => ("tensor does not fit the configuration", [u64::from(tensor), 0]),
        Error::ArenaTooSmall { needed, found } => ("arena: needed, found", [needed, found]),
        Error::Context { found, allowed } => ("context: asked for, allowed", [found, allowed]),
        Error::PromptTooLong { tokens, room } => ("prompt: tokens, room", [tokens, room]),
        Error::NonFiniteLogits { position } => ("logits not finite at position", [u64::from(position), 0]),
        Error::ArithmeticSelfCheck { operation, .. } => ("this chip's float arithmetic is not IEEE: check", [u64::from(operation), 0]),
        _ => ("see dmexp export verify on a host", [0, 0]),
    };
    out.write_all(name.as_bytes())?;
    for number in numbers {
        out.write_all(b" ")?;
        write_u32(out, u32::try_from(number).unwrap_or(u32::MAX))?;
    }
    Ok(())
}
