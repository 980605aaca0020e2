//! The command `probe`: answers what `dmexp compare` asks of the built-in model or of a file in memory. Called by the application.

#[cfg(any(target_arch = "riscv32", feature = "seeded-rounding"))]
use crate::core_of;
use crate::language::{Command, bind};
use crate::story::{self, Story};
use crate::{Board, stack};
use dmexp::format::Error;
#[cfg(feature = "reader")]
use dmexp::format::file::ModelFile;
use dmexp::probe::{About, Probe, Ticks};
use dmexp::{Memory, Model, Sampler, Session};

/// What a counter of the core says, where the emulator has one that counts.
const TICKS: Option<(Ticks, fn() -> u64)> = {
    #[cfg(target_arch = "riscv32")]
    let ticks: Option<(Ticks, fn() -> u64)> = Some((Ticks::Instructions, core_of::instructions));
    #[cfg(not(target_arch = "riscv32"))]
    let ticks = None;
    ticks
};

/// Answers until the line ends, from a session of the file or model that `command` names.
#[inline(never)]
pub(crate) fn run<B: Board>(board: &mut B, command: &Command, context: Option<u32>) -> Result<(), Error> {
    let (memory, arena) = board.spare_memory();
    match bind(command, memory) {
        Ok(ref mut model) => {
            model.set_kv(command.kv);
            if let Some(context) = context {
                *model = model.with_context(context);
            }
            serve(board, model, about(command, memory)?, arena)
        }
        Err(error) => Err(error),
    }
}

#[inline(never)]
#[cfg_attr(not(feature = "reader"), allow(unused_variables, clippy::unnecessary_wraps, reason = "without the reader there is no file"))]
fn about(command: &Command, memory: &'static [u8]) -> Result<About<'static>, Error> {
    let about = About {
        firmware: concat!("dmexp-board-app ", env!("CARGO_PKG_VERSION")),
        board: env!("DMEXP_TARGET"),
        fingerprint: Story::FINGERPRINT,
        goldens: Some(Story::goldens()),
        ticks: TICKS,
        stack: Some(|| stack::peak() as u32),
    };
    #[cfg(feature = "reader")]
    if let Some(bytes) = command.bytes(memory) {
        let file = ModelFile::open(bytes)?;
        return Ok(About { fingerprint: file.fingerprint(), goldens: Some(file.golden()), ..about });
    }
    Ok(about)
}

#[inline(never)]
fn serve<B: Board>(board: &mut B, model: &Model<'_>, about: About<'static>, arena: &mut [u32]) -> Result<(), Error> {
    let arena = if arena.is_empty() { story::arena()?.words() } else { arena };
    match Session::new(model, arena, Sampler::greedy()) {
        Ok(ref mut session) => {
            #[cfg(feature = "seeded-rounding")]
            core_of::round_towards_zero();
            Probe::new(about).serve(session, board.output());
            Ok(())
        }
        Err(error) => Err(error),
    }
}
