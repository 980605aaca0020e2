//! The threads that share the work of a session. They wait in the kernel when there is nothing to do, but for a few microseconds after each piece of work: the next one follows soon while a token is computed.

use dmexp::executor::{Executor, Gate};
use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

/// How often a thread looks for more work before it sleeps: some 20 microseconds.
const LOOKS: u32 = 400;
/// The same for the thread that waits for the others to finish their last pieces.
const LOOKS_FOR_THE_END: u32 = 100;
/// As much as a server's engine has, whose grammars it helps with. Only what is used of it is memory.
const STACK: usize = 16 << 20;
/// Nobody sleeps longer than this beside work, should a wake-up be missed.
const NAP: Duration = Duration::from_millis(1);

/// Threads that stay until the process ends.
#[derive(Debug)]
pub struct Pool {
    gate: Gate,
    /// Counts pieces of work that were offered.
    offers: AtomicU32,
    helpers: Vec<Helper>,
    /// The thread that waits for the others, if it sleeps.
    waiting: AtomicBool,
    waiter: Mutex<Option<Thread>>,
}

#[derive(Debug, Default)]
struct Helper {
    thread: OnceLock<Thread>,
    asleep: AtomicBool,
}

impl Pool {
    /// The pool of `threads` threads, the calling one counted. There is one pool of each size; its threads begin when it is first asked for.
    pub fn of(threads: usize) -> &'static Self {
        static POOLS: Mutex<BTreeMap<usize, &'static Pool>> = Mutex::new(BTreeMap::new());
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.entry(threads).or_insert_with(|| Self::begin(threads))
    }

    fn begin(threads: usize) -> &'static Self {
        let helpers = (1..threads).map(|_| Helper::default()).collect();
        let pool =
            Self { gate: Gate::new(), offers: AtomicU32::new(0), helpers, waiting: AtomicBool::new(false), waiter: Mutex::new(None) };
        let pool: &'static Self = Box::leak(Box::new(pool));
        for helper in &pool.helpers {
            // Where the system gives no more threads, those that there are do the work.
            let builder = thread::Builder::new().name("dmexp helper".to_owned()).stack_size(STACK);
            if let Ok(thread) = builder.spawn(|| pool.help(helper)) {
                let _ = helper.thread.set(thread.thread().clone());
            }
        }
        pool
    }

    /// Takes part in whatever is offered, for ever.
    fn help(&self, helper: &Helper) {
        // A thread that begins late comes to what was offered meanwhile.
        let (mut seen, mut looks) = (0, 0);
        loop {
            let offers = self.offers.load(Ordering::SeqCst);
            if offers != seen {
                (seen, looks) = (offers, 0);
                // The gate tells the thread that offered the work; this one goes on with the next.
                let _ = catch_unwind(AssertUnwindSafe(|| self.gate.enter()));
                if self.waiting.load(Ordering::SeqCst) && !self.gate.is_busy() {
                    self.wake_waiter();
                }
            } else if looks < LOOKS {
                looks += 1;
                spin_loop();
            } else {
                helper.asleep.store(true, Ordering::SeqCst);
                // An offer before that did not see this thread asleep; one after it wakes it.
                if self.offers.load(Ordering::SeqCst) == seen {
                    thread::park();
                }
                helper.asleep.store(false, Ordering::SeqCst);
                looks = 0;
            }
        }
    }

    fn wake_waiter(&self) {
        if let Some(thread) = self.waiter.lock().unwrap_or_else(PoisonError::into_inner).take() {
            thread.unpark();
        }
    }

    /// Tells the helpers of an offer.
    fn wake_helpers(&self) {
        self.offers.fetch_add(1, Ordering::SeqCst);
        for helper in &self.helpers {
            if helper.asleep.load(Ordering::SeqCst)
                && let Some(thread) = helper.thread.get()
            {
                thread.unpark();
            }
        }
    }

    /// One more look for the end of the others' work. A thread that was put aside by the system with a piece in its hands gets this one's processor.
    fn look_for_the_end(&self, looks: &mut u32) {
        *looks += 1;
        if *looks < LOOKS_FOR_THE_END {
            return spin_loop();
        }
        *self.waiter.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        self.waiting.store(true, Ordering::SeqCst);
        if self.gate.is_busy() {
            thread::park_timeout(NAP);
        }
        self.waiting.store(false, Ordering::SeqCst);
    }
}

impl Executor for Pool {
    fn run(&self, work: &(dyn Fn() + Sync)) {
        let mut looks = 0;
        self.gate.run(work, || self.wake_helpers(), || self.look_for_the_end(&mut looks));
    }

    fn threads(&self) -> usize {
        self.helpers.len() + 1
    }
}

/// How many cores this process may use that are not two threads of one core.
pub fn physical_cores() -> usize {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let siblings = |cpu: usize| std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")).ok();
    let mut cores: Vec<String> = (0..).map_while(siblings).collect();
    let cpus = cores.len();
    cores.sort();
    cores.dedup();
    match cpus {
        0 => threads,
        cpus => (threads * cores.len()).div_ceil(cpus).clamp(1, threads),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn all_threads_come_and_all_work_is_done() {
        let pool = Pool::of(3);
        assert_eq!(pool.threads(), 3);
        assert!(std::ptr::eq(pool, Pool::of(3)));
        for round in 0..300 {
            // Longer than the helpers look for work, at times.
            if round % 100 == 0 {
                thread::sleep(Duration::from_millis(3));
            }
            let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
            pool.run(&|| {
                while next.fetch_add(1, Ordering::SeqCst) < 50 {
                    std::hint::black_box((0..1000).sum::<u64>());
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
            assert_eq!(done.load(Ordering::SeqCst), 50);
        }
    }

    #[test]
    fn two_sessions_may_use_a_pool_at_once() {
        let pool = Pool::of(2);
        let done = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let next = AtomicUsize::new(0);
                        pool.run(&|| {
                            while next.fetch_add(1, Ordering::SeqCst) < 10 {
                                done.fetch_add(1, Ordering::SeqCst);
                            }
                        });
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), 3 * 200 * 10);
    }

    #[test]
    fn a_panic_of_a_helper_is_the_callers_and_the_helper_lives_on() {
        let pool = Pool::of(4);
        let main = thread::current().id();
        let (came, panics) = (AtomicUsize::new(0), AtomicUsize::new(0));
        for _ in 0..20 {
            came.store(0, Ordering::SeqCst);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|| {
                    if thread::current().id() != main {
                        came.fetch_add(1, Ordering::SeqCst);
                        panic!("on purpose");
                    }
                    // Every helper is alive, or this never ends.
                    while came.load(Ordering::SeqCst) < pool.threads() - 1 {
                        spin_loop();
                    }
                });
            }));
            panics.fetch_add(usize::from(result.is_err()), Ordering::SeqCst);
        }
        assert_eq!(panics.load(Ordering::SeqCst), 20);
    }

    #[test]
    fn there_is_a_core() {
        assert!((1..=thread::available_parallelism().map_or(1, usize::from)).contains(&physical_cores()));
    }
}
