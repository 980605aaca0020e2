//! A network bound to its weights.

use super::step::Step;
#[cfg(feature = "files")]
use crate::format::DType;
#[cfg(feature = "files")]
use crate::format::Rule;
#[cfg(feature = "files")]
use crate::format::arch::sequential::{LayerKey, Sequential, check_tensors, plan};
use crate::format::arch::sequential::{NODE_LIMIT, Role, SlotWords, Usage, Wanted};
#[cfg(feature = "files")]
use crate::format::file::{IndexedTensors, ModelFile};
use crate::format::{Dims, Error, TensorView};

/// A sequential or graph network bound to its weights: small, and to be copied.
///
/// ```
/// # use dmexp::{Predictor, format::file::ModelFile};
/// let bytes = std::fs::read("examples/tones.dmexp")?;
/// let tones = Predictor::bind(&ModelFile::open(&bytes)?)?;
/// assert_eq!((tones.num_inputs(), tones.label(0)), (1, Some("rising")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Predictor<'a> {
    source: Source<'a>,
    usage: Usage<'a>,
}

/// Where the network stands.
#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    /// In the program.
    Program(&'a Program<'a>),
    /// In a file. What reads it is not called by its name, so that firmware without one need not hold it, and the code of every layer with it.
    #[cfg(feature = "files")]
    File(FileParts<'a>, &'static Reader),
}

/// A network as `include_model!` writes it.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// What each node computes; nothing at the inputs.
    pub nodes: &'a [Option<Step<'a>>],
    /// The nodes whose results each node reads.
    pub links: &'a [&'a [u32]],
    /// The nodes that are the model's inputs.
    pub inputs: &'a [u32],
    /// The nodes whose results are the model's.
    pub outputs: &'a [u32],
    /// What the elements of the first output mean.
    pub labels: &'a [&'a str],
    /// The plan of the arena.
    pub slots: &'a [SlotWords],
    /// How many words of 32 bits the arena has.
    pub words: u32,
}

/// A network in a file.
#[cfg(feature = "files")]
#[derive(Clone, Copy, Debug)]
struct FileParts<'a> {
    model: Sequential<'a>,
    tensors: IndexedTensors<'a>,
}

/// How a network in a file is read.
#[cfg(feature = "files")]
#[derive(Debug)]
struct Reader {
    nodes: fn(&FileParts<'_>) -> u32,
    step: for<'a> fn(&FileParts<'a>, u32) -> Option<Step<'a>>,
    link: fn(&FileParts<'_>, u32, u32) -> Option<u32>,
    links: fn(&FileParts<'_>, u32) -> u32,
    input: fn(&FileParts<'_>, u32) -> Option<u32>,
    output: fn(&FileParts<'_>, u32) -> Option<u32>,
    label: for<'a> fn(&FileParts<'a>, u32) -> Option<&'a str>,
    shape: fn(&FileParts<'_>, u32) -> Option<Dims>,
    plan: fn(&Predictor<'_>, &mut [SlotWords]) -> Result<u32, Error>,
}

#[cfg(feature = "files")]
static READER: Reader = Reader {
    nodes: |file| file.model.num_nodes(),
    step: |file, node| {
        let number = file.model.node(node)?.layer()?;
        let layer = file.model.layer(number)?;
        let mut tensors = [TensorView::EMPTY; 4];
        for ((tensor, _), place) in tensors.iter_mut().zip(layer.roles()).zip(layer.first_tensor..) {
            *tensor = file.tensors.tensor(place)?;
        }
        Some(Step::new(number, layer, tensors))
    },
    link: |file, node, place| file.model.links_of(&file.model.node(node)?).nth(place as usize),
    links: |file, node| file.model.node(node).map_or(0, |node| file.model.links_of(&node).count() as u32),
    input: |file, number| file.model.inputs().nth(number as usize),
    output: |file, number| file.model.outputs().nth(number as usize),
    label: |file, number| file.model.labels().nth(number as usize),
    shape: |file, node| file.model.node(node).map(|node| node.shape()),
    plan: |predictor, table| match &predictor.source {
        Source::File(file, _) => {
            let quantised = |number| file.tensors.tensor(number).is_some_and(|tensor| tensor.dtype().is_quantised());
            plan(&file.model, quantised, predictor.usage, table)
        }
        Source::Program(program) => Ok(program.words),
    },
};

/// Where results lie.
pub(super) enum Plan<'a> {
    /// Known since the program was compiled.
    Known {
        /// A slot a node.
        slots: &'a [SlotWords],
        /// Words of the arena.
        words: u32,
    },
    /// To be made, in a table of a slot a node; gives the words of the arena without the table.
    #[cfg_attr(not(feature = "files"), allow(dead_code, reason = "of files alone"))]
    Unknown(fn(&Predictor<'_>, &mut [SlotWords]) -> Result<u32, Error>),
}

#[cfg(feature = "files")]
impl<'a> Predictor<'a> {
    /// The network of an opened file: every layer and node follows from the others, and every tensor that they call for is there, in order, with its name and dims, and nothing else.
    ///
    /// # Errors
    /// Those of [`check_tensors`]; [`Error::DTypeNotBuilt`] where the cargo feature for a matrix's element type was left out.
    pub fn bind(file: &ModelFile<'a>) -> Result<Self, Error> {
        let model = check_tensors(file)?;
        let roles = model.layers().flat_map(|layer| layer.roles());
        for ((number, view), role) in file.tensors().views().zip(roles) {
            if role.is_matrix() && !is_built(view.dtype()) {
                return Err(Error::DTypeNotBuilt { tensor: number, code: view.dtype().code() });
            }
        }
        match file.indexed_tensors() {
            Some(tensors) => Ok(Self { source: Source::File(FileParts { model, tensors }, &READER), usage: Usage::default() }),
            // `check_tensors` has refused a file without an index.
            None => Err(Error::Layer { layer: 0, key: LayerKey::Tensors, rule: Rule::Missing, found: 0, allowed: 0 }),
        }
    }

    /// The same network run in another way: with other lengths of inputs whose length is free, or streamed. Checked by [`Prediction::new`](super::Prediction::new). What `include_model!` made is
    /// run as the macro was told.
    #[must_use]
    pub const fn with_usage(self, usage: Usage<'a>) -> Self {
        match self.source {
            Source::File(..) => Self { usage, ..self },
            Source::Program(_) => self,
        }
    }
}

/// Whether there are kernels for matrices of this type.
#[cfg(feature = "files")]
const fn is_built(dtype: DType) -> bool {
    cfg!(feature = "f32") && matches!(dtype, DType::F32)
        || cfg!(feature = "f16") && matches!(dtype, DType::F16)
        || cfg!(feature = "bf16") && matches!(dtype, DType::Bf16)
        || cfg!(feature = "q8") && matches!(dtype, DType::Q8)
}

impl<'a> Predictor<'a> {
    /// A network in the program; `usage` is that of its plan.
    #[doc(hidden)]
    #[must_use]
    pub const fn from_program(program: &'a Program<'a>, usage: Usage<'a>) -> Self {
        Self { source: Source::Program(program), usage }
    }

    /// How it is run.
    pub const fn usage(&self) -> Usage<'a> {
        self.usage
    }

    /// How many inputs it has.
    pub fn num_inputs(&self) -> u32 {
        (0..NODE_LIMIT).take_while(|number| self.input_node(*number).is_some()).count() as u32
    }

    /// How many outputs it has.
    pub fn num_outputs(&self) -> u32 {
        (0..NODE_LIMIT).take_while(|number| self.output_node(*number).is_some()).count() as u32
    }

    /// The shape of input `number` as the file has it, without the batch axis; `None` past the last.
    pub fn input_shape(&self, number: u32) -> Option<Dims> {
        self.shape(self.input_node(number)?)
    }

    /// The shape of output `number` as the file has it, without the batch axis; `None` past the last.
    pub fn output_shape(&self, number: u32) -> Option<Dims> {
        self.shape(self.output_node(number)?)
    }

    /// What element `number` of the first output means, where the file says so.
    pub fn label(&self, number: u32) -> Option<&'a str> {
        match &self.source {
            Source::Program(program) => program.labels.get(number as usize).copied(),
            #[cfg(feature = "files")]
            Source::File(file, reader) => (reader.label)(file, number),
        }
    }

    /// Every weight with its path (a [`Wanted`] prints as one: `0.kernel`), in the file's order. A layer that is called more than once has one set of them.
    pub fn weights(&self) -> impl Iterator<Item = (Wanted, TensorView<'a>)> + use<'a> {
        let this = *self;
        (0..this.num_nodes()).filter_map(move |node| Some((node, this.step(node)?))).flat_map(move |(node, step)| {
            let shown = (0..node).any(|before| this.step(before).is_some_and(|before| before.number == step.number));
            let roles: [Option<Role>; 4] = if shown { [None; 4] } else { roles_of(&step) };
            let named = roles.into_iter().zip(step.tensors);
            named.filter_map(move |(role, view)| Some((Wanted { layer: step.number, role: role?, dims: view.dims() }, view)))
        })
    }

    /// The weight with this path, `0.kernel`, as the file stores it: matrices with the axis that is summed over last.
    pub fn weight(&self, path: &str) -> Option<TensorView<'a>> {
        self.weights().find(|(wanted, _)| wanted.is_named(path)).map(|(_, view)| view)
    }

    /// Bytes of memory that a [`Prediction`](super::Prediction) needs.
    ///
    /// # Errors
    /// Those of [`plan`](crate::format::arch::sequential::plan).
    #[cfg(feature = "std")]
    pub fn arena_len(&self) -> Result<usize, Error> {
        let words = match self.plan() {
            Plan::Known { words, .. } => words as usize,
            Plan::Unknown(plan) => {
                let mut table = vec![[0; crate::format::arch::sequential::SLOT_WORDS]; self.num_nodes() as usize];
                let words = plan(self, &mut table)? as usize;
                words.saturating_add(table.as_flattened().len())
            }
        };
        Ok(words.saturating_mul(4))
    }

    pub(super) fn plan(&self) -> Plan<'a> {
        match &self.source {
            Source::Program(program) => Plan::Known { slots: program.slots, words: program.words },
            #[cfg(feature = "files")]
            Source::File(_, reader) => Plan::Unknown(reader.plan),
        }
    }

    pub(super) fn num_nodes(&self) -> u32 {
        match &self.source {
            Source::Program(program) => program.nodes.len() as u32,
            #[cfg(feature = "files")]
            Source::File(file, reader) => (reader.nodes)(file),
        }
    }

    /// What a node computes; `None` at an input.
    pub(super) fn step(&self, node: u32) -> Option<Step<'a>> {
        match &self.source {
            Source::Program(program) => *program.nodes.get(node as usize)?,
            #[cfg(feature = "files")]
            Source::File(file, reader) => (reader.step)(file, node),
        }
    }

    pub(super) fn num_links(&self, node: u32) -> u32 {
        match &self.source {
            Source::Program(program) => program.links.get(node as usize).map_or(0, |links| links.len() as u32),
            #[cfg(feature = "files")]
            Source::File(file, reader) => (reader.links)(file, node),
        }
    }

    pub(super) fn link(&self, node: u32, place: u32) -> Option<u32> {
        match &self.source {
            Source::Program(program) => program.links.get(node as usize)?.get(place as usize).copied(),
            #[cfg(feature = "files")]
            Source::File(file, reader) => (reader.link)(file, node, place),
        }
    }

    pub(super) fn input_node(&self, number: u32) -> Option<u32> {
        match &self.source {
            Source::Program(program) => program.inputs.get(number as usize).copied(),
            #[cfg(feature = "files")]
            Source::File(file, reader) => (reader.input)(file, number),
        }
    }

    pub(super) fn output_node(&self, number: u32) -> Option<u32> {
        match &self.source {
            Source::Program(program) => program.outputs.get(number as usize).copied(),
            #[cfg(feature = "files")]
            Source::File(file, reader) => (reader.output)(file, number),
        }
    }

    fn shape(&self, node: u32) -> Option<Dims> {
        match &self.source {
            Source::Program(program) => {
                program.slots.get(node as usize).map(|words| crate::format::arch::sequential::Slot::unpack(words).shape)
            }
            #[cfg(feature = "files")]
            Source::File(file, reader) => (reader.shape)(file, node),
        }
    }
}

/// The roles of a step's weights; those that follow from the layer are none.
fn roles_of(step: &Step<'_>) -> [Option<Role>; 4] {
    let mut roles = [None; 4];
    for (to, role) in roles.iter_mut().zip(step.layer.roles()) {
        *to = if role.is_computed() { None } else { Some(role) };
    }
    roles
}
