//! What this machine is, and how fast it reads memory.

use crate::decode::Pool;
use dmexp::executor::Executor;
use memmap2::MmapMut;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// More than any cache: what is larger reads as fast.
const MOST: u64 = 512_000_000;
/// Bytes that a thread takes at a time.
const PIECE: usize = 1 << 18;
/// How long memory is read for at least.
const LEAST: Duration = Duration::from_millis(20);

/// Memory that is read to see how fast it can be: in huge pages where the system has them.
pub(super) struct Yardstick {
    memory: MmapMut,
}

impl Yardstick {
    /// Memory of this many bytes, or somewhat less than there is of a large model; `None` where there is none.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        let mut memory = MmapMut::map_anon(usize::try_from(bytes.clamp(64, MOST)).ok()?).ok()?;
        // Where the system has no huge pages the figure is lower, as it is for a model.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        // Pages that nobody wrote to are one page, which is in the cache.
        memory.fill(1);
        Some(Self { memory })
    }

    /// Bytes a second that `threads` threads read, of the first `bytes` bytes again and again.
    pub(super) fn bytes_per_s(&self, bytes: u64, threads: usize) -> f64 {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = self.memory.get(..bytes).unwrap_or(&self.memory);
        let read = || {
            let next = AtomicUsize::new(0);
            let work = || {
                while let Some(piece) = memory.get(next.fetch_add(PIECE, Ordering::Relaxed)..).filter(|rest| !rest.is_empty()) {
                    black_box(sum(piece.get(..PIECE).unwrap_or(piece)));
                }
            };
            if threads > 1 {
                Pool::of(threads).run(&work);
            } else {
                work();
            }
        };
        // What ran before has other memory in the caches; a model that decodes finds there what fits of its own.
        read();
        let (start, mut times) = (Instant::now(), 0.0);
        while start.elapsed() < LEAST {
            read();
            times += 1.0;
        }
        times * memory.len() as f64 / start.elapsed().as_secs_f64()
    }
}

/// The sum of all bytes, eight at a time. Four runs side by side, with what follows fetched ahead, are what memory is read fastest in; the compiler makes vector instructions of the sum, and reading takes
/// longer than adding.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (lines, rest) = bytes.as_chunks::<64>();
    let mut lanes = [0u64; 8];
    let mut add = |line: &[u8; 64]| {
        fetch_behind(line);
        for (lane, word) in lanes.iter_mut().zip(line.as_chunks::<8>().0) {
            *lane = lane.wrapping_add(u64::from_ne_bytes(*word));
        }
    };
    let (runs, more) = lines.split_at(lines.len() - lines.len() % 4);
    let ((ab, cd), half) = (runs.split_at(runs.len() / 2), runs.len() / 4);
    let ((first, second), (third, fourth)) = (ab.split_at(half), cd.split_at(half));
    for (((a, b), c), d) in first.iter().zip(second).zip(third).zip(fourth) {
        [a, b, c, d].into_iter().for_each(&mut add);
    }
    more.iter().for_each(add);
    lanes.into_iter().chain(rest.iter().copied().map(u64::from)).fold(0, u64::wrapping_add)
}

/// Fetches what lies as far behind a line as the kernels of models fetch ahead.
fn fetch_behind(line: &[u8; 64]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        let at = line.as_ptr().cast::<i8>();
        // SAFETY: every x86-64 has the instruction, and what is fetched ahead may lie anywhere.
        #[expect(unsafe_code, reason = "the instruction has no safe form")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(1024));
            _mm_prefetch::<_MM_HINT_T1>(at.wrapping_add(4096));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// When something began, by the clock and by the processor time of the whole process.
pub(super) struct Start {
    clock: Instant,
    processor: Option<f64>,
}

impl Start {
    pub(super) fn now() -> Self {
        Self { clock: Instant::now(), processor: processor_seconds() }
    }

    /// How many a second `count` things are since then: by the clock, and by the processor time of all threads where the system says it.
    pub(super) fn rates(&self, count: f64) -> (f64, Option<f64>) {
        let used = processor_seconds().zip(self.processor).map(|(now, before)| now - before);
        (count / self.clock.elapsed().as_secs_f64(), used.filter(|used| *used > 0.0).map(|used| count / used))
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }
}

/// Seconds that all threads of this process have run.
#[cfg_attr(unix, expect(clippy::unnecessary_wraps, reason = "elsewhere there is none"))]
fn processor_seconds() -> Option<f64> {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
    }
    #[cfg(not(unix))]
    None
}

/// The most memory that this process has had, in bytes: that of mapped files counted as far as they were read. `None` where the system does not say.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The processor's name, where the system says it.
pub fn processor() -> Option<String> {
    let facts = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = facts.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
