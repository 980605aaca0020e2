//! What firmware with a small network does: it names what it hears in the golden vectors that came with the network's file, and measures.

use crate::command::Words;
use crate::text::Text;
use crate::{Board, DONE, FAILED, UNKNOWN};
use dmexp::format::Error;
#[cfg(feature = "measure")]
use dmexp::format::TensorView;
#[cfg(all(feature = "measure", feature = "reader"))]
use dmexp::format::arch::sequential::Samples;
#[cfg(all(feature = "measure", feature = "reader"))]
use dmexp::format::file::ModelFile;
use dmexp::{Arena, Prediction, include_model};
use static_cell::ConstStaticCell;

include_model!(Network = "$DMEXP_MODEL", section = ".dmexp_model");

static ARENA: ConstStaticCell<Arena<{ Network::ARENA_LEN }>> = ConstStaticCell::new(Arena::new());

/// A command that the application knows.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// Where the file in memory begins and how long it is; `None` is the built-in network.
    #[cfg(all(feature = "measure", feature = "reader"))]
    place: Option<(usize, usize)>,
    #[cfg(feature = "measure")]
    replay: bool,
}

impl Command {
    /// The command on a line; `None` where it is none of those that the application knows.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut words = Words::new(line);
        let word = words.next();
        #[cfg(all(feature = "measure", feature = "reader"))]
        let (place, word) = match word {
            b"file" => (Some((words.number()? as usize, words.number()? as usize)), words.next()),
            _ => (None, word),
        };
        if !(word.is_empty() || cfg!(feature = "measure") && word == b"replay") {
            return None;
        }
        Some(Self {
            #[cfg(all(feature = "measure", feature = "reader"))]
            place,
            #[cfg(feature = "measure")]
            replay: !word.is_empty(),
        })
    }
}

/// Does one command and returns the exit status for the emulator, after a line of text that says what went wrong, if anything did.
pub(crate) fn run<B: Board>(board: &mut B, command: Option<&Command>) -> i32 {
    let outcome = command.map(|command| obey(board, command));
    let mut text = Text::new(board.output());
    let status = match outcome {
        Some(Ok(())) => DONE,
        None => {
            text.say("dmexp: unknown command; this firmware names what it hears, with no word or, if it measures, `replay`\n");
            UNKNOWN
        }
        Some(Err(error)) => {
            text.say("dmexp: refused: ");
            text.error(&error);
            FAILED
        }
    };
    if text.finish().is_ok() { status } else { FAILED }
}

#[cfg_attr(not(feature = "measure"), allow(unused_variables, reason = "there is one command"))]
#[allow(clippy::trivially_copy_pass_by_ref, reason = "how large it is depends on what the firmware was built with")]
fn obey<B: Board>(board: &mut B, command: &Command) -> Result<(), Error> {
    #[cfg(all(feature = "measure", feature = "reader"))]
    if let Some((shift, len)) = command.place {
        let (memory, arena) = board.spare_memory();
        let file = ModelFile::open(memory.get(shift..).and_then(|rest| rest.get(..len)).unwrap_or(&[]))?;
        let samples = Samples::of(&file, &file.sequential()?)?;
        let mut prediction = Prediction::new(dmexp::Predictor::bind(&file)?, arena)?;
        return replay(board, &mut prediction, &|place| samples.inputs(place), &|place| samples.outputs(place));
    }
    let (inputs, outputs) = Network::golden();
    let (inputs, outputs) = (|place: u32| inputs.get(place as usize).copied(), |place: u32| outputs.get(place as usize).copied());
    let arena = ARENA.try_take().ok_or(Error::ArenaTooSmall { needed: Network::ARENA_LEN as u64, found: 0 })?;
    let mut prediction = Prediction::new(Network::bind(), arena)?;
    #[cfg(feature = "measure")]
    if command.replay {
        return replay(board, &mut prediction, &inputs, &outputs);
    }
    let mut text = Text::new(board.output());
    let mut number = 0;
    while prediction.write_sample(number, inputs) {
        prediction.run()?;
        text.say(prediction.predictor().label(prediction.class()).unwrap_or("class"));
        if prediction.predictor().label(0).is_none() {
            text.number(prediction.class());
        }
        text.say(if prediction.has_results(number, outputs) { "\n" } else { " (other bits than the host's)\n" });
        number = number.wrapping_add(1);
    }
    text.finish()
}

/// Runs every golden vector, each run a counted region, and says how many have other bits than they must have.
#[cfg(feature = "measure")]
fn replay<'t, B: Board>(
    board: &mut B,
    prediction: &mut Prediction<'_>,
    inputs: &dyn Fn(u32) -> Option<TensorView<'t>>,
    outputs: &dyn Fn(u32) -> Option<TensorView<'t>>,
) -> Result<(), Error> {
    let (mut number, mut wrong) = (0, 0u32);
    while prediction.write_sample(number, inputs) {
        board.count_begin();
        let ran = prediction.run();
        board.count_end();
        ran?;
        wrong = wrong.wrapping_add(u32::from(!prediction.has_results(number, outputs)));
        number = number.wrapping_add(1);
    }
    let (arena, peak) = (prediction.memory_len() as u32, board.stack_peak() as u32);
    let mut text = Text::new(board.output());
    for (name, value) in [("samples", number), ("wrong", wrong), ("arena_bytes", arena), ("stack_peak_bytes", peak)] {
        text.figure(name, value);
    }
    text.finish()
}
