//! What the system sends to the process: Ctrl-C and SIGTERM stop what can be stopped tidily, and two signals that would end it without a word become errors.

use super::failure::Outcome;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Not SIGHUP: a handler would undo what `nohup` did.
const STOPPING: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// The exit code where a mapped file was cut.
static LOST_CODE: AtomicI32 = AtomicI32::new(1);

/// For a command whose exit code 1 is a result.
pub(crate) fn one_is_a_result() {
    LOST_CODE.store(2, Ordering::Relaxed);
}

/// Set by Ctrl-C and by SIGTERM, so that neither leaves a temporary file. A second one ends the process at once.
pub(crate) fn cancel_flag() -> Outcome<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in STOPPING {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Called once, before anything else.
///
/// A write past the largest file that is allowed (`ulimit -f`) fails like one to a full disk, and takes the temporary file with it. Where a mapped file was cut, or its disk fails, there is no way
/// back to the code that read it: the process says so and ends.
pub(crate) fn prepare() {
    // Where a signal cannot be caught, the system ends the process in its own words.
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    #[cfg(target_os = "linux")]
    tell_of_lost_pages();
}

#[cfg(target_os = "linux")]
fn tell_of_lost_pages() {
    const LOST: &[u8] =
        b"dmexp: a file that is mapped was cut while it was in use, or its disk cannot be read; leave it alone meanwhile, or use --load copy\n";
    let tell = || {
        // SAFETY: stderr is open as long as the process is: the standard library opens what is not.
        #[expect(unsafe_code, reason = "the standard library's stderr takes a lock, which a signal handler must not")]
        let stderr = unsafe { std::os::fd::BorrowedFd::borrow_raw(2) };
        // Nobody is left to tell if this fails.
        let _ = rustix::io::write(stderr, LOST);
        signal_hook::low_level::exit(LOST_CODE.load(Ordering::Relaxed));
    };
    // SAFETY: what is called writes and exits, both of which a signal handler may do; it allocates nothing, takes no lock and cannot panic.
    #[expect(unsafe_code, reason = "a signal handler has no safe form")]
    let registered = unsafe { signal_hook::low_level::register(signal_hook::consts::SIGBUS, tell) };
    // Without it the system ends the process in its own words.
    drop(registered);
}
