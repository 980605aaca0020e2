//! Every file of the shared data, and made ones: what is read, what is refused, and in which order.

mod cases;
mod files;
mod made;
mod mismatches;
