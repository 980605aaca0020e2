//! The steps of texts of a Llama on a device: which launches each call of a session comes to, and what is copied.

use super::driver::Device;
use super::error::CudaError;
use super::family::Steps;
use cudarc::driver::CudaGraph;
use dmexp::accelerator::Row;
use dmexp_kernels::{COLUMNS, Launch, Plan, Step};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Tokens that are chosen one after the other before they are read.
const CHUNK: u32 = 32;

/// A model on a device.
pub(super) struct Decoder {
    // Before the device: graphs go before what they were recorded on.
    steps: Vec<SizedStep>,
    /// Blocks that were recorded when they were first launched, by how many rows they have and how far they reach; none without graphs.
    blocks: Option<BTreeMap<(u32, u32), CudaGraph>>,
    device: Device,
    plan: Plan,
    addresses: Vec<u64>,
    vocab_size: u32,
    dim: u32,
    /// Where the logits are that can be asked for: session and position of what was fed last.
    last: Vec<(u64, u32)>,
    /// The row of which parts are done, and how many.
    parts: Option<(Row, u32)>,
}

/// The launches of steps that reach so far.
struct SizedStep {
    reach: u32,
    step: Step,
    graphs: Option<Graphs>,
}

/// One launch a step, in place of some tens.
struct Graphs {
    /// A token, up to its logits.
    logits: CudaGraph,
    /// The same, and the choice of the next.
    choice: CudaGraph,
}

impl Decoder {
    /// A model whose pieces are filled. With `graphs` the launches of a step are recorded once for each reach.
    pub(super) fn new(
        device: Device,
        plan: Plan,
        addresses: Vec<u64>,
        (vocab_size, dim): (u32, u32),
        graphs: bool,
    ) -> Result<Self, CudaError> {
        device.wait()?;
        let mut steps = Vec::new();
        for reach in plan.reaches() {
            let step = plan.step(&addresses, reach);
            let graphs = if graphs {
                Some(Graphs { logits: device.record(up_to_logits(&step))?, choice: device.record(step.launches())? })
            } else {
                None
            };
            steps.push(SizedStep { reach, step, graphs });
        }
        let blocks = graphs.then(BTreeMap::new);
        Ok(Self { steps, blocks, device, plan, addresses, vocab_size, dim, last: Vec::new(), parts: None })
    }
}

impl Steps for Decoder {
    /// Feeds rows, of one session or of several.
    fn feed(&mut self, rows: &[Row]) -> Result<(), CudaError> {
        if let [row] = rows {
            self.place(*row)?;
            let SizedStep { step, .. } = self.sized(row.position)?;
            self.launch(step.embed.iter().chain(step.layers.iter().flatten()))?;
        } else {
            self.forget();
            let text = |row: &Row| self.text(row.session);
            let listed: Vec<u32> = rows.iter().flat_map(|row| [row.token, row.position, text(row), 0]).collect();
            self.device.write(self.plan.rows(), 0, &words(&listed))?;
            let reach = rows.iter().map(|row| self.plan.reach(row.position)).max().unwrap_or(0);
            self.launch_block((rows.len() as u32).min(COLUMNS), reach)?;
        }
        self.last = rows.iter().map(|row| (row.session, row.position)).collect();
        self.device.wait()
    }

    /// So many rows of logits, from the one after the row of `session` at `position` on, among those that were fed last; `None` where that is not there.
    fn logits(&mut self, session: u64, position: u32, rows: u32) -> Result<Option<Vec<f32>>, CudaError> {
        let found = self.last.iter().position(|fed| *fed == (session, position)).filter(|first| first + rows as usize <= self.last.len());
        let Some(first) = found.filter(|_| rows > 0) else { return Ok(None) };
        if self.last.len() == 1 {
            let SizedStep { step, .. } = self.sized(position)?;
            self.launch(&step.head)?;
        } else {
            self.launch(&self.plan.block_logits(&self.addresses, first as u32, rows))?;
        }
        self.read_floats(self.plan.logits(), rows as usize * self.vocab_size as usize).map(Some)
    }

    /// Feeds one row; its logits.
    fn step(&mut self, row: Row) -> Result<Vec<f32>, CudaError> {
        self.place(row)?;
        let sized = self.sized(row.position)?;
        match &sized.graphs {
            Some(graphs) => launched(&graphs.logits)?,
            None => self.launch(up_to_logits(&sized.step))?,
        }
        self.last = vec![(row.session, row.position)];
        self.read_floats(self.plan.logits(), self.vocab_size as usize)
    }

    /// Feeds one row and `count - 1` more, each the likeliest after the one before it; the likeliest after each.
    fn run(&mut self, row: Row, count: u32) -> Result<Vec<u32>, CudaError> {
        self.place(row)?;
        let (mut chosen, mut done) = (Vec::new(), 0);
        while done < count {
            let chunk = (count - done).min(CHUNK);
            self.choose_on_device(row.position + done, chunk)?;
            chosen.extend(self.read_words(self.plan.picks(), row.position + done, chunk)?);
            done += chunk;
        }
        Ok(chosen)
    }

    /// One part of feeding a row; the residual stream after it. What another row left of the parts before it is done anew.
    fn part(&mut self, part: u32, row: Row) -> Result<Vec<f32>, CudaError> {
        let done = self.parts.filter(|(of, done)| *of == row && *done <= part).map_or(0, |(_, done)| done);
        if done == 0 {
            self.place(row)?;
        }
        let SizedStep { step, .. } = self.sized(row.position)?;
        for part in done..=part {
            match part.checked_sub(1) {
                None => self.launch(&step.embed)?,
                Some(layer) => self.launch(step.layers.get(layer as usize).into_iter().flatten())?,
            }
        }
        let all = step.layers.len() as u32;
        self.parts = Some((row, part + 1));
        self.last = if part >= all { vec![(row.session, row.position)] } else { Vec::new() };
        self.read_floats(self.plan.x(), self.dim as usize)
    }
}

impl Decoder {
    /// Launches a block, as one graph where there are graphs.
    fn launch_block(&mut self, count: u32, reach: u32) -> Result<(), CudaError> {
        let Some(blocks) = &mut self.blocks else { return self.launch(&self.plan.block(&self.addresses, count, reach)) };
        let graph = match blocks.entry((count, reach)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.device.record(self.plan.block(&self.addresses, count, reach).iter())?),
        };
        launched(graph)
    }

    /// So many steps from `position` on, each of which feeds what the one before it chose.
    fn choose_on_device(&self, position: u32, steps: u32) -> Result<(), CudaError> {
        (position..position.saturating_add(steps)).try_for_each(|position| {
            let sized = self.sized(position)?;
            match &sized.graphs {
                Some(graphs) => launched(&graphs.choice),
                None => self.launch(sized.step.launches()),
            }
        })
    }

    /// The launches of a step at `position`.
    fn sized(&self, position: u32) -> Result<&SizedStep, CudaError> {
        let reach = self.plan.reach(position);
        // The plan has no other reaches than those that were made.
        self.steps.iter().find(|sized| sized.reach == reach).ok_or(CudaError::Failed { doing: "a step", code: 1 })
    }

    /// The number of the text that a session has the memory of.
    fn text(&self, session: u64) -> u32 {
        (session % u64::from(self.plan.texts())) as u32
    }

    /// Puts a token where the kernels read it, and its position and text.
    fn place(&mut self, row: Row) -> Result<(), CudaError> {
        self.forget();
        let state = words(&[row.position, row.position + 1, 0, self.text(row.session)]);
        self.device.write(self.plan.tokens(), 4 * row.position as usize, &words(&[row.token]))?;
        self.device.write(self.plan.state(), 0, &state)
    }

    /// Something else is fed than what was done ahead or in parts, and what was fed before is overwritten.
    fn forget(&mut self) {
        self.last.clear();
        self.parts = None;
    }

    fn launch<'l>(&self, launches: impl IntoIterator<Item = &'l Launch>) -> Result<(), CudaError> {
        launches.into_iter().try_for_each(|launch| self.device.launch(launch))
    }

    fn read_floats(&self, piece: usize, count: usize) -> Result<Vec<f32>, CudaError> {
        let mut bytes = vec![0; 4 * count];
        self.device.read(piece, 0, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    fn read_words(&self, piece: usize, first: u32, count: u32) -> Result<Vec<u32>, CudaError> {
        let mut bytes = vec![0; 4 * count as usize];
        self.device.read(piece, 4 * first as usize, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }
}

/// The launches of a step that computes logits and does not choose.
pub(super) fn up_to_logits(step: &Step) -> impl Iterator<Item = &Launch> {
    step.embed.iter().chain(step.layers.iter().flatten()).chain(&step.head)
}

pub(super) fn launched(graph: &CudaGraph) -> Result<(), CudaError> {
    graph.launch().map_err(|error| CudaError::Failed { doing: "a step", code: error.0 as u32 })
}

pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
