//! Which vector instructions the kernels use on a host. The results do not depend on it, only the speed.
//!
//! On x86-64 the best that the machine has is found when it is first asked for. Elsewhere there is the baseline alone: what every machine of the target has.

#[cfg(x86_64_host)]
use crate::ops::chip::x86_64::detect;
#[cfg(x86_64_host)]
use core::sync::atomic::{AtomicU8, Ordering};

/// A set of vector instructions; each one includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Level {
    /// What every machine of the target has: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// AVX2 and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 VNNI.
    Vnni,
}

/// The level that is used, plus one; 0 while nobody asked.
#[cfg(x86_64_host)]
static CURRENT: AtomicU8 = AtomicU8::new(0);

impl Level {
    /// Every level, the lowest first.
    pub const ALL: [Self; 4] = [Self::Baseline, Self::Avx2, Self::Avx512, Self::Vnni];

    /// Its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Vnni => "vnni",
        }
    }

    /// The highest level that this machine has.
    pub fn best() -> Self {
        #[cfg(x86_64_host)]
        return detect();
        #[cfg(not(x86_64_host))]
        Self::Baseline
    }

    /// The level that the kernels use: [`Level::best`], unless another was chosen.
    #[inline]
    pub fn current() -> Self {
        #[cfg(x86_64_host)]
        {
            // Relaxed: the level stands for itself, and two threads that ask at once find the same.
            let known = CURRENT.load(Ordering::Relaxed).checked_sub(1);
            if let Some(level) = known.and_then(|number| Self::ALL.get(usize::from(number))) {
                return *level;
            }
            let best = detect();
            CURRENT.store(best as u8 + 1, Ordering::Relaxed);
            best
        }
        #[cfg(not(x86_64_host))]
        Self::Baseline
    }

    /// Lets all kernels of the process use this level from now on. For comparisons: no level has other results.
    ///
    /// # Errors
    /// [`Level::best`], where that is lower: the machine has not the instructions. The level stays as it was.
    pub fn choose(self) -> Result<(), Self> {
        let best = Self::best();
        if self > best {
            return Err(best);
        }
        #[cfg(x86_64_host)]
        CURRENT.store(self as u8 + 1, Ordering::Relaxed);
        Ok(())
    }
}

/// Calls `check` with each level that this machine has, while the kernels use it. One caller at a time.
#[cfg(test)]
pub(crate) fn at_every_level(check: impl Fn(Level)) {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let guard = ONE.lock();
    for level in Level::ALL {
        if level.choose().is_ok() {
            check(level);
        }
    }
    let _ = Level::best().choose();
    drop(guard);
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn levels_above_the_best_are_refused() {
        for level in Level::ALL {
            if level > Level::best() {
                assert_eq!(level.choose(), Err(Level::best()));
            }
        }
        assert!(Level::current() <= Level::best());
        assert!(Level::ALL.is_sorted());
    }
}
