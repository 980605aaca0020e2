//! Bytes to a checked view.
