//! Several threads for one session, where there are threads: who has them implements [`Executor`] and gives it to [`Model::with_executor`](crate::Model::with_executor). The results do not depend on it.

pub use crate::ops::chip::gate::Gate;

/// Threads that take part in a computation.
///
/// ```
/// use dmexp::executor::Executor;
///
/// /// Threads that are begun for each piece of work; a pool that waits for it is faster.
/// struct Threads(usize);
///
/// impl Executor for Threads {
///     fn run(&self, work: &(dyn Fn() + Sync)) {
///         std::thread::scope(|scope| {
///             for _ in 1..self.0 {
///                 scope.spawn(work);
///             }
///             work();
///         });
///     }
///
///     fn threads(&self) -> usize {
///         self.0
///     }
/// }
///
/// let calls = std::sync::atomic::AtomicU32::new(0);
/// Threads(3).run(&|| {
///     calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
/// });
/// assert_eq!(calls.into_inner(), 3);
/// ```
pub trait Executor: Sync {
    /// Calls `work` on the calling thread and, meanwhile, on others that have nothing else to do; returns when all calls have returned. A call takes what is left to do piece by piece, so any number of
    /// them does all of it, and a thread that comes late does no harm. [`Gate`] is what this is made of.
    fn run(&self, work: &(dyn Fn() + Sync));

    /// How many threads take part at most, the calling one counted.
    fn threads(&self) -> usize;
}
