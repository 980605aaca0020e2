//! Tests of the host side: one file a subject.

mod damage;
mod examples;
mod header;
mod quantised;
mod stats;
pub(super) mod tiny;
mod v1;
mod write;
