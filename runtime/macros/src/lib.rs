//! `include_model!`: a model file becomes a type, and a bad file a compile error.
//!
//! Use it through the runtime crate: `dmexp::include_model!`.

mod expand;
mod parse;
mod sequential;

use proc_macro::TokenStream;

/// Places a `.dmexp` file in the program and makes a type of it.
///
/// ```ignore
/// dmexp::include_model!(pub Stories = "stories.dmexp", context = 256, kv = f16, section = ".model");
/// ```
///
/// The path is relative to the source file that holds the call; `$NAME` in it stands for an environment variable of the build (`"$OUT_DIR/stories.dmexp"`). `context` (positions; default: all
/// that the model was trained for), `kv` (`f32`, `f16`, which is the default, or `q8`), `ram` and `section` (the linker section of the weights) may be left out.
///
/// On chips whose flash is slow (no cache, many wait states, or external) `ram` names tensors that are placed in `.data` instead, which the start-up code copies to RAM:
///
/// ```ignore
/// // 8 KB of RAM for the projections of every layer's attention, and the classifier.
/// dmexp::include_model!(Stories = "stories.dmexp", ram = ["layers.*.attention.w*", "output.weight"]);
/// ```
///
/// In a pattern `*` stands for any characters; one that names no tensor is an error. `RAM_LEN` says how many bytes they are: they come on top of the arena, and the linker says when both do
/// not fit. The weights that are read most often for their size (small matrices, used at every token) pay first; the embedding, of which a token reads one row, never pays unless it is the
/// classifier too. The linker script has to place `.data.*` (those of `cortex-m-rt` and `riscv-rt` do).
///
/// `board = "rp2040"`, one of the boards that `dmexp plan` knows, or `ram_limit = 64_000`, the bytes that arenas and such tensors may take, make too little RAM a compile error that says what
/// is needed, what there is, and which context would fit; where a board's RAM is split, two banks count (`Session::new_in_banks`). Without either the linker says only that it does not fit.
///
/// A sequential or graph network takes `length` (steps of its first input, where a recurrent layer or an embedding reads it) and `streaming = true` (recurrent layers go on from the state of the
/// last run) instead of `context`, `kv` and `ram`:
///
/// ```ignore
/// dmexp::include_model!(Gestures = "gestures.dmexp", streaming = true);
/// ```
///
/// While the program compiles, every check that needs no run of the model is made: container, checksums, header against index, finite weights,
/// names and dims against the configuration, tokenizer arrays. What does not pass is a compile error at the path.
///
/// The type has:
/// - `bind() -> dmexp::Model<'static>`: the model, nothing left to check
/// - `goldens() -> Goldens<'static>`: the golden vectors of the file, for `dmexp::probe::About` and for tests of one's own; empty where it has none, and linked only where this is called
/// - `ARENA_LEN: usize`: bytes of arena that a session needs. All that it needs: keys and values, activations, logits, the sampler's order, the tokens so far, and room to merge prompts in
/// - `KV_LEN`, `WORK_LEN: usize`: the same in two parts, for `Session::new_in_banks` on chips whose RAM is split
/// - `RAM_LEN: usize`: bytes of weights that are copied to RAM
/// - of a dormouse model `DECODING`: what `decoding = exact` (the default), `full` or `fast` says of it; such a file is of format 2, and keys and values, where it has any, are f32
/// - `CONFIG`, `CONTEXT: u32`, `KV`, `FINGERPRINT: u32`: what the file and the call say
///
/// That of a network has `bind() -> dmexp::Predictor<'static>`, `ARENA_LEN`, `FINGERPRINT`, and `INPUT_LENS` and `OUTPUT_LENS`, the number of elements of each; of the code for layers and
/// activations, the program holds what this network needs.
///
/// The weights lie in a static of alignment 64 (with `ram`, in one static a tensor). No header and no parser get into the program.
#[proc_macro]
pub fn include_model(input: TokenStream) -> TokenStream {
    parse::request(input).and_then(|request| expand::model(&request)).unwrap_or_else(parse::Refusal::into_compile_error)
}
