//! How many files a process may open: each connection is one.

/// Files that a server has beside its connections: models, devices, what it listens at and writes to.
#[cfg(unix)]
const OTHERS: u64 = 64;

/// How many of `connections` there can be. The limit of this process is raised for them as far as the system allows it.
#[cfg(unix)]
pub(super) fn room_for(connections: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = (connections as u64).saturating_add(OTHERS);
    let limit = getrlimit(Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    let raised = wanted.min(limit.maximum.unwrap_or(u64::MAX));
    let files = if now < raised && setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }).is_ok() { raised } else { now };
    connections.min(usize::try_from(files.saturating_sub(OTHERS)).unwrap_or(usize::MAX)).max(1)
}

/// All of them: nothing is known of the system's limit.
#[cfg(not(unix))]
pub(super) fn room_for(connections: usize) -> usize {
    connections
}
