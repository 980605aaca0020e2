//! Bits computed once, to which every target is held.
