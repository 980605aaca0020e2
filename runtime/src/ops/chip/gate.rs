//! What threads need to work together on memory of the caller's: the only part of it that the compiler cannot check.
#![cfg_attr(not(feature = "llama"), allow(dead_code, reason = "other networks work on one thread"))]

use crate::executor::Executor;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A place where one thread offers work and others come to take part in it.
///
/// The work may borrow from the stack of the thread that offers it: [`Gate::run`] returns only when everyone who took part is done.
#[derive(Debug, Default)]
pub struct Gate {
    /// [`OPEN`], [`TAKEN`], [`FAILED`], and how many threads are inside.
    state: AtomicUsize,
    work: UnsafeCell<Option<Work>>,
}

/// Set while work is offered.
const OPEN: usize = 1 << (usize::BITS - 1);
/// Set while a thread offers work or gets ready to.
const TAKEN: usize = OPEN >> 1;
/// Set when a thread that took part left by a panic: its part of the work is not done.
const FAILED: usize = TAKEN >> 1;

/// What is offered, without its lifetime.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn() + Sync + 'static));

impl core::fmt::Debug for Work {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Work")
    }
}

// SAFETY: `work` is written by the thread that has set TAKEN, while the gate is closed and nobody is inside; it is read by those that went in while it was open. What it points to is Sync, so it may be
// called from any thread.
unsafe impl Sync for Gate {}
// SAFETY: nothing in it belongs to a thread, and while `run` borrows it, it stays where it is.
unsafe impl Send for Gate {}

/// Closes the gate and waits for those inside, also when the work panics; notes whether one of them failed.
struct Closing<'g, W: FnMut()> {
    gate: &'g Gate,
    wait: W,
    failed: &'g Cell<bool>,
}

impl<W: FnMut()> Drop for Closing<'_, W> {
    fn drop(&mut self) {
        self.gate.state.fetch_and(!OPEN, Ordering::AcqRel);
        while self.gate.is_busy() {
            (self.wait)();
        }
        let state = self.gate.state.fetch_and(!(TAKEN | FAILED), Ordering::AcqRel);
        self.failed.set(state & FAILED != 0);
    }
}

/// Leaves the gate, also when the work panics, which is noted before.
struct Leaving<'g> {
    gate: &'g Gate,
    done: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.gate.state.fetch_or(FAILED, Ordering::AcqRel);
        }
        self.gate.state.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    /// A gate without work.
    pub const fn new() -> Self {
        Self { state: AtomicUsize::new(0), work: UnsafeCell::new(None) }
    }

    /// Offers `work`, calls `wake`, then `work` itself; then no more threads come in, and as long as others are inside `wait` is called. Where another thread offers something already, `work` is only
    /// called.
    ///
    /// # Panics
    /// When `work` panics, on whichever thread: what it left undone must not be taken for a result.
    pub fn run(&self, work: &(dyn Fn() + Sync), wake: impl FnOnce(), wait: impl FnMut()) {
        if self.state.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return work();
        }
        #[expect(clippy::transmute_ptr_to_ptr, reason = "says that a lifetime is lost, where a cast says nothing")]
        // SAFETY: only the lifetime changes. `Closing` keeps this function from returning, and from unwinding, before the gate is closed and everybody has left, and the pointer is used by those inside
        // alone.
        let erased = unsafe { core::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync + 'static)>(work) };
        // SAFETY: this thread has set TAKEN, the gate is closed and nobody is inside: the state was 0.
        unsafe { *self.work.get() = Some(Work(erased)) };
        let failed = Cell::new(false);
        let closing = Closing { gate: self, wait, failed: &failed };
        self.state.fetch_or(OPEN, Ordering::AcqRel);
        wake();
        work();
        drop(closing);
        assert!(!failed.get(), "a thread that helped panicked: its part of the work is not done");
    }

    /// Takes part in the work, if there is any; returns whether there was.
    pub fn enter(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & OPEN == 0 {
                return false;
            }
            match self.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        let mut leaving = Leaving { gate: self, done: false };
        // SAFETY: the gate was open when this thread went in, so `work` was written before, and it is not written again before this thread has left.
        if let Some(Work(work)) = unsafe { *self.work.get() } {
            // SAFETY: the thread that offers it waits until this one has left.
            unsafe { (*work)() };
        }
        leaving.done = true;
        drop(leaving);
        true
    }

    /// Whether threads other than the one that offers work are inside.
    pub fn is_busy(&self) -> bool {
        self.state.load(Ordering::Acquire) & !(OPEN | TAKEN | FAILED) != 0
    }
}

/// Memory of which each thread writes the pieces that it took.
struct Pieces(*mut f32);

// SAFETY: each piece is given to one thread at a time, so no element is reached from two.
unsafe impl Sync for Pieces {}

impl Pieces {
    /// # Safety
    /// The elements are within the memory, and nobody else reaches them while the result lives.
    unsafe fn get<'p>(&self, first: usize, len: usize) -> &'p mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.0.add(first), len) }
    }
}

/// Calls `part` once with every number below `pieces`, and with a number of the caller's own: below `slots`, and nobody else has the same at the same time. At least one slot.
fn claim(executor: Option<&dyn Executor>, pieces: usize, slots: usize, part: &(dyn Fn(usize, usize) + Sync)) {
    let (next, next_slot) = (AtomicUsize::new(0), AtomicUsize::new(1));
    let work = |slot: usize| {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return;
            }
            part(piece, slot);
        }
    };
    if let Some(executor) = executor {
        executor.run(&|| {
            let slot = next_slot.fetch_add(1, Ordering::Relaxed);
            if slot < slots {
                work(slot);
            }
        });
    }
    // What nobody has done: all of it, for an executor that calls nothing.
    work(0);
}

/// Calls `part` with every piece of `out` and the number of its first element: `piece` elements each, the last one may have fewer.
pub(crate) fn share(executor: &dyn Executor, out: &mut [f32], piece: usize, part: &(dyn Fn(usize, &mut [f32]) + Sync)) {
    share_rows(Some(executor), out, 1, piece, &|first, _, out| part(first, out));
}

/// The same columns of several rows.
#[cfg_attr(not(x86_64_host), allow(dead_code, reason = "what takes them whole is there alone"))]
pub(crate) struct Columns<'p> {
    memory: &'p Pieces,
    width: usize,
    first: usize,
    len: usize,
    rows: usize,
}

#[cfg_attr(not(x86_64_host), allow(dead_code, reason = "as above"))]
impl Columns<'_> {
    /// How many columns there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Those of a row; none of a row that there is not.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        if row >= self.rows {
            return &mut [];
        }
        // SAFETY: who made this has these columns of all rows alone, and lent it exclusively; they lie within the memory.
        unsafe { self.memory.get(row * self.width + self.first, self.len) }
    }
}

/// Calls `part` with pieces of the `rows` rows that `out` is made of, which are the same `piece` columns of all of them, and with the number of the first column and a piece of `scratch` that no other
/// thread has: it is cut into `slots`, one more than there are threads.
#[cfg_attr(not(x86_64_host), allow(dead_code, reason = "as above"))]
pub(crate) fn share_columns(
    executor: Option<&dyn Executor>,
    out: &mut [f32],
    rows: usize,
    piece: usize,
    (scratch, slots): (&mut [f32], usize),
    part: &(dyn Fn(usize, Columns<'_>, &mut [f32]) + Sync),
) {
    let (width, piece, slots) = (out.len().checked_div(rows).unwrap_or(0), piece.max(1), slots.max(1));
    let slot_len = scratch.len() / slots;
    let (memory, scratch) = (Pieces(out.as_mut_ptr()), Pieces(scratch.as_mut_ptr()));
    claim(executor, width.div_ceil(piece), slots, &|number, slot| {
        let (memory, scratch, first) = (&memory, &scratch, number * piece);
        // SAFETY: the slot lies within `scratch`, and no other thread has its number before this call has returned.
        let scratch = unsafe { scratch.get(slot * slot_len, slot_len) };
        part(first, Columns { memory, width, first, len: piece.min(width - first), rows }, scratch);
    });
}

/// The same without scratch, the rows of a piece one after the other: `part` is told the first column and the row.
pub(crate) fn share_rows(
    executor: Option<&dyn Executor>,
    out: &mut [f32],
    rows: usize,
    piece: usize,
    part: &(dyn Fn(usize, usize, &mut [f32]) + Sync),
) {
    let (width, piece) = (out.len().checked_div(rows).unwrap_or(0), piece.max(1));
    let memory = Pieces(out.as_mut_ptr());
    claim(executor, width.div_ceil(piece), usize::MAX, &|number, _| {
        let first = number * piece;
        let mut columns = Columns { memory: &memory, width, first, len: piece.min(width - first), rows };
        for row in 0..rows {
            part(first, row, columns.row(row));
        }
    });
}

/// What is called with the number of the first element, a piece, and scratch.
type PartWithScratch<'p> = dyn Fn(usize, &mut [f32], &mut [f32]) + Sync + 'p;

/// The same as [`share`] with a piece of `scratch` for each thread: it is cut into `slots`, one more than there are threads.
pub(crate) fn share_with_scratch(
    executor: Option<&dyn Executor>,
    out: &mut [f32],
    piece: usize,
    (scratch, slots): (&mut [f32], usize),
    part: &PartWithScratch<'_>,
) {
    let (len, piece, slots) = (out.len(), piece.max(1), slots.max(1));
    let slot_len = scratch.len() / slots;
    let (memory, scratch) = (Pieces(out.as_mut_ptr()), Pieces(scratch.as_mut_ptr()));
    claim(executor, len.div_ceil(piece), slots, &|number, slot| {
        let (memory, scratch, first) = (&memory, &scratch, number * piece);
        // SAFETY: the piece lies within `out`, which nobody else has while this function runs, and every number is given out once.
        let out = unsafe { memory.get(first, piece.min(len - first)) };
        // SAFETY: the slot lies within `scratch`, and no other thread has its number before this call has returned.
        let scratch = unsafe { scratch.get(slot * slot_len, slot_len) };
        part(first, out, scratch);
    });
}

#[cfg(test)]
mod tests {
    use super::{Gate, share, share_rows, share_with_scratch};
    use crate::executor::Executor;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Threads that look at a gate until they are told to stop.
    struct Threads<'g>(&'g Gate, usize);

    impl Executor for Threads<'_> {
        fn run(&self, work: &(dyn Fn() + Sync)) {
            self.0.run(work, || {}, std::hint::spin_loop);
        }

        fn threads(&self) -> usize {
            self.1
        }
    }

    fn with_threads(count: usize, check: impl FnOnce(&Threads<'_>)) {
        let (gate, stop) = (Gate::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 1..count {
                scope.spawn(|| {
                    while !stop.load(Ordering::Acquire) {
                        if !gate.enter() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            check(&Threads(&gate, count));
            stop.store(true, Ordering::Release);
        });
    }

    #[test]
    fn every_piece_is_done_once() {
        with_threads(3, |threads| {
            for len in [0usize, 1, 7, 100, if cfg!(miri) { 101 } else { 1001 }] {
                for piece in [0, 1, 3, 64, 2000] {
                    let mut out = vec![0.0; len];
                    share(threads, &mut out, piece, &|first, out| {
                        for (i, y) in out.iter_mut().enumerate() {
                            *y += (first + i) as f32 + 1.0;
                        }
                    });
                    assert!(out.iter().enumerate().all(|(i, y)| *y == i as f32 + 1.0), "{len} in pieces of {piece}");
                }
            }
        });
    }

    #[test]
    fn work_that_panics_is_waited_for() {
        with_threads(2, |threads| {
            let inside = AtomicUsize::new(0);
            let main = std::thread::current().id();
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                threads.run(&|| {
                    inside.fetch_add(1, Ordering::AcqRel);
                    if std::thread::current().id() == main {
                        while inside.load(Ordering::Acquire) < 2 {
                            std::thread::yield_now();
                        }
                        inside.fetch_sub(1, Ordering::AcqRel);
                        panic!("on purpose");
                    }
                    std::thread::sleep(std::time::Duration::from_millis(20));
                    inside.fetch_sub(1, Ordering::AcqRel);
                });
            }));
            assert!(result.is_err());
            assert_eq!(inside.load(Ordering::Acquire), 0, "another thread still reads what has been unwound");
        });
    }

    #[test]
    fn work_that_panics_on_a_thread_that_helps_gives_no_result() {
        let gate = Gate::new();
        let helper_came = std::sync::atomic::AtomicBool::new(false);
        let main = std::thread::current().id();
        std::thread::scope(|scope| {
            let helper = scope.spawn(|| {
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    while !gate.enter() {
                        std::thread::yield_now();
                    }
                }))
            });
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let work = || {
                    if std::thread::current().id() != main {
                        helper_came.store(true, Ordering::Release);
                        panic!("on purpose");
                    }
                    while !helper_came.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                };
                gate.run(&work, || {}, std::thread::yield_now);
            }));
            assert!(helper.join().is_ok_and(|helped| helped.is_err()));
            assert!(result.is_err(), "the helper's part is missing and nobody says so");
        });
        // The gate is as before.
        let calls = AtomicUsize::new(0);
        let work = || {
            calls.fetch_add(1, Ordering::AcqRel);
        };
        gate.run(&work, || {}, || {});
        assert_eq!(calls.load(Ordering::Acquire), 1);
    }

    #[test]
    fn an_executor_that_does_nothing_leaves_nothing_undone() {
        struct Idle;
        impl Executor for Idle {
            fn run(&self, _: &(dyn Fn() + Sync)) {}
            fn threads(&self) -> usize {
                2
            }
        }
        let mut out = [0.0; 10];
        share(&Idle, &mut out, 3, &|_, out| out.fill(1.0));
        assert_eq!(out, [1.0; 10]);
    }

    #[test]
    fn no_two_threads_have_the_same_scratch() {
        with_threads(3, |threads| {
            let (mut out, mut scratch) = (vec![0.0; 300], vec![0.0; 4 * 7]);
            share_with_scratch(Some(threads), &mut out, 2, (&mut scratch, 4), &|first, out, scratch| {
                scratch.fill(first as f32);
                std::thread::yield_now();
                out.fill(scratch.iter().sum::<f32>() / 7.0);
            });
            assert!(out.iter().enumerate().all(|(i, y)| *y == (i & !1) as f32));
        });
    }

    #[test]
    fn rows_are_cut_into_the_same_columns() {
        for executor in [false, true] {
            with_threads(2, |threads| {
                let mut out = vec![0.0; 5 * 11];
                let executor = executor.then_some(threads as &dyn Executor);
                share_rows(executor, &mut out, 5, 4, &|first, row, out| {
                    for (i, y) in out.iter_mut().enumerate() {
                        *y += (100 * row + first + i) as f32;
                    }
                });
                assert!(out.iter().enumerate().all(|(i, y)| *y == (100 * (i / 11) + i % 11) as f32));
            });
        }
    }

    #[test]
    fn work_within_work_is_done() {
        with_threads(2, |threads| {
            let mut out = [0.0; 8];
            share(threads, &mut out, 1, &|_, out| share(threads, out, 1, &|_, out| out.fill(2.0)));
            assert_eq!(out, [2.0; 8]);
        });
    }
}
