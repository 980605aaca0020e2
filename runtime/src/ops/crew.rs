//! Work shared among the threads that a session was given, if it was given any. On a chip this is nothing.
#![cfg_attr(not(feature = "llama"), allow(dead_code, unused_imports, reason = "other networks work on one thread"))]

use super::activation::Activation;
use super::matvec::matvec;
#[cfg(not(target_os = "none"))]
use crate::executor::Executor;
use crate::format::TensorView;
#[cfg(all(feature = "llama", not(target_os = "none")))]
use {super::chip, super::matvec::Rows, crate::format::DType};

/// The threads of a session.
#[derive(Clone, Copy)]
pub struct Crew<'a> {
    #[cfg(not(target_os = "none"))]
    executor: Option<&'a dyn Executor>,
    #[cfg(target_os = "none")]
    none: core::marker::PhantomData<&'a ()>,
}

/// Products of which a thread takes a piece: fewer are done before another thread has heard of them.
#[cfg(not(target_os = "none"))]
const WORTH_SHARING: usize = 32_768;
/// Bytes of weights that a thread takes at a time: little, so that one that is held up holds up little.
#[cfg(not(target_os = "none"))]
const PIECE: usize = 32_768;

impl<'a> Crew<'a> {
    /// The calling thread alone.
    pub const NONE: Self = Self {
        #[cfg(not(target_os = "none"))]
        executor: None,
        #[cfg(target_os = "none")]
        none: core::marker::PhantomData,
    };

    /// The threads of `executor`.
    #[cfg(not(target_os = "none"))]
    pub fn new(executor: &'a dyn Executor) -> Self {
        Self { executor: Some(executor).filter(|executor| executor.threads() > 1) }
    }

    /// [`matvec`] without a bias.
    #[cfg(target_os = "none")]
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "another name for the same")]
    pub(crate) fn matvec(self, out: &mut [f32], w: &TensorView<'_>, x: &mut Activation<'_>) {
        matvec(out, w, x, None);
    }

    /// [`matvec`] without a bias.
    #[cfg(all(feature = "llama", not(target_os = "none")))]
    pub(crate) fn matvec(self, out: &mut [f32], w: &TensorView<'_>, x: &mut Activation<'_>) {
        let shared = w.dtype() != DType::T2 && out.len().saturating_mul(w.cols()) >= WORTH_SHARING;
        let Some(executor) = self.executor.filter(|_| shared) else { return matvec(out, w, x, None) };
        let Some(rows) = Rows::new(w, out.len(), x) else { return out.fill(0.0) };
        let row_bytes = (w.bytes().len() / w.rows().max(1)).max(1);
        // Whole fours of rows go through the kernels together.
        let piece = (PIECE / row_bytes).next_multiple_of(4).max(4);
        chip::gate::share(executor, out, piece, &|first, out| rows.multiply(out, first));
    }
}

impl core::fmt::Debug for Crew<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        #[cfg(not(target_os = "none"))]
        let threads = self.executor.map_or(1, Executor::threads);
        #[cfg(target_os = "none")]
        let threads = 1;
        write!(f, "Crew of {threads}")
    }
}
