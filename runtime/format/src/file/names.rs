//! Whether two tensors of a file have the same name. Called by [`super::ModelFile::open`].
//!
//! Hosts keep a set of the names. Without a heap a window of names is compared with all that follow, up to a number of tensors that keeps this quick whatever the file says; past
//! it the names are checked by `bind`, which knows the one name that belongs at each place.

use crate::Error;

/// The most tensors among which a build without `std` looks for names that are there twice.
#[cfg(not(feature = "std"))]
const LIMIT: usize = 1024;

/// # Errors
/// [`Error::DuplicateName`] with the two tensors.
#[cfg(feature = "std")]
pub(super) fn check<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Result<(), Error> {
    let mut seen = std::collections::HashMap::new();
    for (second, name) in (0u32..).zip(names) {
        if let Some(first) = seen.insert(name, second) {
            return Err(Error::DuplicateName { first, second });
        }
    }
    Ok(())
}

/// # Errors
/// [`Error::DuplicateName`] with the two tensors.
#[cfg(not(feature = "std"))]
pub(super) fn check<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> Result<(), Error> {
    const WINDOW: usize = 16;
    let mut rest = names.take(LIMIT);
    let mut start = 0u32;
    loop {
        // No name is empty, so an empty one stands for a free place.
        let mut window = [&[][..]; WINDOW];
        for (second, name) in (start..).zip(rest.by_ref().take(WINDOW)) {
            find(&window, start, name, second)?;
            if let Some(slot) = window.iter_mut().find(|slot| slot.is_empty()) {
                *slot = name;
            }
        }
        if window.last().is_none_or(|name| name.is_empty()) {
            return Ok(());
        }
        start += WINDOW as u32;
        for (second, name) in (start..).zip(rest.clone()) {
            find(&window, start - WINDOW as u32, name, second)?;
        }
    }
}

#[cfg(not(feature = "std"))]
fn find(window: &[&[u8]], start: u32, name: &[u8], second: u32) -> Result<(), Error> {
    match (start..).zip(window).find(|(_, known)| **known == name) {
        Some((first, _)) => Err(Error::DuplicateName { first, second }),
        None => Ok(()),
    }
}
