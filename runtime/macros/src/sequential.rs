//! The code that stands for a sequential or graph network: its layers as constants, each with the code that it needs and no other, and the plan of its memory.

use crate::expand::dims;
use crate::parse::{Refusal, Request};
use dmexp_format::arch::sequential::{Layer, Role, SLOT_WORDS, Sequential, Slot, Usage, check_tensors, plan};
use dmexp_format::file::ModelFile;
use dmexp_format::{DType, TensorView};
use proc_macro::Span;
use std::fmt::Write as _;

const MODULE: &str = "::dmexp::models::sequential";
const ARCH: &str = "::dmexp::format::arch::sequential";

/// The type for a file that was verified.
pub(crate) fn code(request: &Request, file_len: usize, file: &ModelFile<'_>) -> Result<String, Refusal> {
    let shown = &request.shown;
    for (option, span) in [("context", request.context.map(|_| request.context_span)), ("ram", request.ram.first().map(|(_, span)| *span))]
    {
        if let Some(span) = span {
            return Err(Refusal::new(span, format!("{shown} is a sequential model, which has no `{option}`")));
        }
    }
    let model = check_tensors(file).map_err(|error| Refusal::new(request.path_span, format!("{shown}: {error}")))?;
    let lengths: Vec<u32> = request.length.iter().map(|(length, _)| *length).collect();
    let usage = Usage { lengths: &lengths, streaming: request.streaming.is_some() };
    let mut table = vec![[0; SLOT_WORDS]; model.num_nodes() as usize];
    let span = request.length.map(|(_, span)| span).or(request.streaming).unwrap_or(request.path_span);
    let quantised = |number| file.tensor(number).is_some_and(|view| view.dtype().is_quantised());
    let words = plan(&model, quantised, usage, &mut table).map_err(|error| Refusal::new(span, format!("{shown}: {error}")))?;
    check_room(request, u64::from(words) * 4)?;
    let slots: Vec<Slot> = table.iter().map(Slot::unpack).collect();
    let counts =
        |nodes: &[u32]| nodes.iter().filter_map(|node| slots.get(*node as usize)).map(|slot| slot.shape.count()).collect::<Vec<_>>();
    let (inputs, outputs): (Vec<u32>, Vec<u32>) = (model.inputs().collect(), model.outputs().collect());
    let labels: Vec<&str> = model.labels().collect();
    let (nodes, links, dtypes) = nodes(file, &model);
    // What follows the layers' tensors are golden vectors, which no firmware reads.
    let end = file.tensors().take(model.num_tensors() as usize).map(|tensor| tensor.offset as usize + tensor.view.bytes().len()).max();
    let (len, start, path) = (end.unwrap_or(0), file_len - file.payload().len(), request.path.display().to_string());
    let section = request.section.as_ref().map(|section| format!("#[unsafe(link_section = {section:?})]")).unwrap_or_default();
    let golden_len = file.payload().len() - len;
    let golden = |first: u32, count: usize| {
        let numbers = (first..file.num_tensors()).take(count);
        numbers.filter_map(|number| Some(tensor(file, "DMEXP_GOLDEN", len, &file.tensor(number)?))).collect::<Vec<_>>().join(", ")
    };
    let (golden_inputs, golden_outputs) =
        (golden(model.num_tensors(), inputs.len()), golden(model.num_tensors() + inputs.len() as u32, outputs.len()));
    Ok(format!(
        "
        struct {name};
        impl {name} {{
            /// The model's fingerprint: the same for every form of one file.
            pub const FINGERPRINT: u32 = {fingerprint};
            /// Bytes of arena that a prediction needs.
            pub const ARENA_LEN: usize = {words} * 4;
            /// How many elements each input has.
            pub const INPUT_LENS: [usize; {num_inputs}] = {input_lens:?};
            /// How many elements each output has.
            pub const OUTPUT_LENS: [usize; {num_outputs}] = {output_lens:?};
            /// The network; nothing is left to check.
            pub fn bind() -> ::dmexp::Predictor<'static> {{
                const _: () = {{ {dtypes} }};
                {section}
                static DMEXP_MODEL: ::dmexp::__macro::Aligned<[u8; {len}]> =
                    ::dmexp::__macro::Aligned(::dmexp::__macro::piece::<{len}>(include_bytes!({path:?}), {file_len}, {start}));
                static NODES: [Option<{MODULE}::Step<'static>>; {count}] = [{nodes}];
                static PROGRAM: {MODULE}::Program<'static> = {MODULE}::Program {{
                    nodes: &NODES, links: &[{links}], inputs: &{inputs:?}, outputs: &{outputs:?}, labels: &{labels:?}, slots: &{table:?}, words: {words},
                }};
                ::dmexp::Predictor::from_program(&PROGRAM, {MODULE}::Usage {{ lengths: &{lengths:?}, streaming: {streaming} }})
            }}
            /// The golden vectors of the file, a row a sample: the tensors of the inputs and those of the outputs. A program that does not ask for them does not hold them.
            pub fn golden() -> (&'static [::dmexp::format::TensorView<'static>], &'static [::dmexp::format::TensorView<'static>]) {{
                static DMEXP_GOLDEN: ::dmexp::__macro::Aligned<[u8; {golden_len}]> =
                    ::dmexp::__macro::Aligned(::dmexp::__macro::piece::<{golden_len}>(include_bytes!({path:?}), {file_len}, {start} + {len}));
                (const {{ &[{golden_inputs}] }}, const {{ &[{golden_outputs}] }})
            }}
        }}
        ",
        name = request.name,
        fingerprint = file.fingerprint(),
        num_inputs = inputs.len(),
        input_lens = counts(&inputs),
        num_outputs = outputs.len(),
        output_lens = counts(&outputs),
        count = model.num_nodes(),
        streaming = usage.streaming,
    ))
}

/// Refuses what has not enough RAM in one piece.
fn check_room(request: &Request, needed: u64) -> Result<(), Refusal> {
    let Some(room) = &request.room else { return Ok(()) };
    let largest = room.banks.iter().copied().max().unwrap_or(0);
    if needed <= largest {
        return Ok(());
    }
    let message = format!("{}: the arena needs {needed} bytes in one piece, {} has {largest}", request.shown, room.place);
    Err(Refusal::new(room.span, message))
}

/// The nodes, what each reads, and the types of weights that must be built in.
fn nodes(file: &ModelFile<'_>, model: &Sequential<'_>) -> (String, String, String) {
    let (mut nodes, mut links, mut dtypes) = (String::new(), String::new(), String::new());
    for node in model.nodes() {
        let read: Vec<u32> = model.links_of(&node).collect();
        let _ = write!(links, "&{read:?}, ");
        let Some((number, layer)) = node.layer().and_then(|number| Some((number, model.layer(number)?))) else {
            nodes.push_str("None,\n");
            continue;
        };
        let mut tensors: Vec<String> = Vec::new();
        for (number, role) in (layer.first_tensor..).zip(layer.roles()) {
            let view = file.tensor(number).unwrap_or(TensorView::EMPTY);
            tensors.push(tensor(file, "DMEXP_MODEL", 0, &view));
            if role.is_matrix() && !(role == Role::DepthwiseKernel || view.dtype() == DType::F32 && role == Role::Embeddings) {
                let _ = writeln!(dtypes, "::dmexp::__macro::require_dtype({});", view.dtype().code());
            }
        }
        tensors.resize(4, "::dmexp::format::TensorView::EMPTY".to_owned());
        let _ = writeln!(nodes, "Some({MODULE}::Step::new({number}, {}, [{}])),", layer_code(&layer), tensors.join(", "));
    }
    (nodes, links, dtypes)
}

/// The view of a tensor in the static of this name, which holds the payload from `start` on.
fn tensor(file: &ModelFile<'_>, name: &str, start: usize, view: &TensorView<'_>) -> String {
    let offset = view.bytes().as_ptr().addr().saturating_sub(file.payload().as_ptr().addr()).saturating_sub(start);
    format!("::dmexp::__macro::tensor(&{name}.0, {offset}, {}, {}, {})", view.dtype().code(), view.group(), dims(view.dims()))
}

fn layer_code(layer: &Layer) -> String {
    let Layer { op, spatial, activation, flags, padding, interpolation, units, depth, first_tensor, sizes, a, b, axes } = layer;
    // Floats by their bits: no decimal in between.
    format!(
        "{ARCH}::Layer {{
            op: {ARCH}::Op::{op:?}, spatial: {spatial}, activation: {ARCH}::Activation::{activation:?}, flags: {ARCH}::Flags({}),
            padding: {ARCH}::Padding::{padding:?}, interpolation: {ARCH}::Interpolation::{interpolation:?}, units: {units}, depth: {depth},
            first_tensor: {first_tensor}, sizes: {sizes:?}, a: f32::from_bits({}), b: f32::from_bits({}), axes: {axes:?},
        }}",
        flags.0,
        a.to_bits(),
        b.to_bits(),
    )
}

/// Where an option that needs a recurrent layer stands, if it is `true`.
pub(crate) fn streaming(value: &str, span: Span) -> Result<Option<Span>, Refusal> {
    match value {
        "true" => Ok(Some(span)),
        "false" => Ok(None),
        other => Err(Refusal::new(span, format!("streaming = {other}: must be true or false"))),
    }
}
