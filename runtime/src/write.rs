//! Bytes to a writer of the caller's. Used by [`crate::Session::generate`] and the probe.

use embedded_io::Write;

/// `embedded_io::Write::write_all` panics when a writer takes nothing; here that is a failure like any other, and false.
pub(crate) fn write_all(out: &mut impl Write, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        match out.write(rest) {
            Ok(taken) if taken > 0 => rest = rest.get(taken..).unwrap_or(&[]),
            _ => return false,
        }
    }
    true
}
