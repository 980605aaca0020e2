//! The launches of steps: the same list for every step of so many new positions.

use super::{Placed, Plan, RECUR, VectorPieces};
use crate::launch::{Arg, Job, Kernel, Launch, Vector};
use crate::plan::{COLUMNS, Step, threads};
use dmexp_format::arch::dormouse::Attention;
use dmexp_format::arch::dormouse::tensors::{Layer, Part, Role};

/// The most blocks of kernels that take a block a position.
const BLOCKS: u32 = 64;
/// The most blocks that share the positions of a row.
const ROW_BLOCKS: u32 = 8;

impl Plan {
    /// The launches for `count` positions from the state's on, whose tokens are there; the logits are those of the last of them. [`Step::choose`] goes with one position alone.
    ///
    /// # Panics
    /// If `count` is 0, or there is not one address, a multiple of 16, for each of [`Plan::pieces`].
    pub fn step(&self, addresses: &[u64], count: u32) -> Step {
        assert!(count > 0, "positions");
        Stages::new(self, addresses, count).step()
    }

    /// What the piece of [`Contents::Table`](crate::Contents::Table) holds.
    ///
    /// # Panics
    /// As [`Plan::step`].
    pub fn table(&self, addresses: &[u64]) -> Vec<u8> {
        let mut stages = Stages::new(self, addresses, 1);
        stages.step();
        stages.table
    }
}

/// The launches, as they are put together, and the products that they refer to.
struct Stages<'p> {
    placed: Placed<'p>,
    count: u32,
    table: Vec<u8>,
}

/// Which positions products are done for.
#[derive(Clone, Copy)]
enum For {
    /// The new ones, and the old ones whose inputs for this iteration have changed.
    Iteration(u32),
    /// The last one.
    Last,
}

impl<'p> Stages<'p> {
    fn new(plan: &'p Plan, addresses: &'p [u64], count: u32) -> Self {
        Self { placed: Placed::new(plan, addresses), count, table: Vec::new() }
    }

    fn plan(&self) -> &'p Plan {
        self.placed.plan
    }

    fn step(&mut self) -> Step {
        let loops = self.plan().config.max_iter;
        Step {
            embed: vec![self.begin()],
            layers: (0..loops).map(|n| self.iteration(n)).collect(),
            head: self.head(),
            choose: self.choose(),
        }
    }

    /// Part `number` of a piece that has one of `each` floats an iteration.
    fn of_iteration(&self, piece: usize, number: u32, each: u64) -> u64 {
        self.placed.at(piece) + 4 * u64::from(number) * each
    }

    fn each(&self, of_position: u64) -> u64 {
        u64::from(self.plan().settings.context) * of_position
    }

    fn scalars(&self, n: u32) -> u64 {
        self.of_iteration(self.plan().work.scalars, n, self.each(self.plan().scalars()))
    }

    fn kda(&self, n: u32) -> u64 {
        self.of_iteration(self.plan().work.kda, n, self.each(self.plan().kda_stride()))
    }

    /// How many old positions have other inputs for iteration `n` than they had; 0 where none ever has.
    fn limit(&self, n: u32) -> Arg {
        let some = self.plan().again() && n >= 2 && n < self.plan().config.max_iter;
        Arg::Pointer(if some { self.of_iteration(self.plan().work.limits, n, 1) } else { 0 })
    }

    fn pointer(&self, piece: usize) -> Arg {
        Arg::Pointer(self.placed.at(piece))
    }

    fn vector(&self, pieces: VectorPieces) -> Arg {
        Arg::Vector(self.placed.vector(pieces))
    }

    /// A launch with a block a position, of which each has about `wanted` numbers; every such kernel ends with the loop, the state, where old positions end, and how many are new.
    fn positions(&self, kernel: Kernel, wanted: u32, mut args: Vec<Arg>, limit: Option<Arg>) -> Launch {
        let plan = self.plan();
        args.push(Arg::Loop(plan.loop_of()));
        args.push(self.pointer(plan.work.state));
        args.extend(limit);
        args.push(Arg::U32(self.count));
        Launch { kernel, grid: [plan.settings.context.min(BLOCKS), 1, 1], block: threads(wanted), shared: 0, args }
    }

    /// One launch for products; none where there are none.
    fn rows(&mut self, jobs: Vec<Job>, positions: For, partials: Option<usize>) -> Option<Launch> {
        let first = self.table.len() as u64;
        let mut rows = 0;
        let number = jobs.len() as u32;
        for mut job in jobs {
            job.first_row = rows;
            rows += job.matrix.rows;
            job.write(&mut self.table);
        }
        if number == 0 {
            return None;
        }
        let plan = self.plan();
        let (limit, skip, count) = match positions {
            For::Iteration(n) => (self.limit(n), 0, self.count),
            For::Last => (Arg::Pointer(0), self.count - 1, 1),
        };
        let groups = plan.settings.context.div_ceil(COLUMNS).min(ROW_BLOCKS);
        let block = if rows > 2048 { 128 } else { 64 };
        let args = vec![
            Arg::Pointer(self.placed.at(plan.work.table) + first),
            Arg::U32(number),
            Arg::U32(rows),
            Arg::Pointer(partials.map_or(0, |piece| self.placed.at(piece))),
            self.pointer(plan.work.state),
            limit,
            Arg::U32(skip),
            Arg::U32(count),
        ];
        Some(Launch { kernel: Kernel::DormouseRows, grid: [rows.div_ceil(block / 8), groups, 1], block, shared: 0, args })
    }

    /// A product, with `rows` rows of the matrix.
    fn job(&self, role: Role, rows: u64, input: VectorPieces, (out, stride): (u64, u64)) -> Job {
        let mut matrix = self.placed.matrix(role);
        matrix.rows = rows as u32;
        Job { matrix, input: self.placed.vector(input), out, stride: stride as u32, ..Job::default() }
    }

    /// A product whose results are the input of others: of each position, or of one alone.
    fn ordered(&self, role: Role, input: VectorPieces, out: VectorPieces, alone: bool) -> Job {
        let Vector { floats, cols, .. } = self.placed.vector(out);
        let stride = if alone { 0 } else { u64::from(cols).next_multiple_of(crate::plan::PADDING) };
        Job { ordered: true, ..self.job(role, u64::from(cols), input, (floats, stride)) }
    }

    /// The first factor of a projection, with its factors.
    fn first_factor(&self, layer: Layer, input: VectorPieces, out: VectorPieces, alone: bool) -> Job {
        let factor = self.placed.numbers(Role::Linear(layer, Part::S));
        Job { factor, ..self.ordered(Role::Linear(layer, Part::U), input, out, alone) }
    }

    fn bias(&self, layer: Layer) -> u64 {
        self.placed.numbers(Role::Linear(layer, Part::Bias))
    }

    fn quantise(&self, pieces: VectorPieces, n: u32) -> Option<Launch> {
        let plan = self.plan();
        let vector = self.placed.vector(pieces);
        let args = vec![Arg::Vector(vector), self.pointer(plan.work.state), self.limit(n), Arg::U32(self.count)];
        let grid = [plan.settings.context.min(BLOCKS), 1, 1];
        (vector.integers > 0).then(|| Launch { kernel: Kernel::DormouseQuantise, grid, block: threads(vector.cols), shared: 0, args })
    }

    fn begin(&self) -> Launch {
        let (plan, work) = (self.plan(), &self.plan().work);
        let (embedding, memory) = (self.placed.matrix(Role::Embedding), self.placed.matrix(Role::Memory));
        let args = vec![
            self.vector(work.streams[0]),
            self.vector(work.recalled),
            Arg::Matrix(embedding),
            Arg::Matrix(memory),
            self.pointer(work.tokens),
        ];
        self.positions(Kernel::DormouseBegin, plan.config.d_model, args, None)
    }

    fn iteration(&mut self, n: u32) -> Vec<Launch> {
        let mut launches = Vec::new();
        if n == 0 && self.plan().config.use_engram {
            let (work, d) = (&self.plan().work, u64::from(self.plan().config.d_model));
            let products = [(Role::MemoryKey, work.keys), (Role::MemoryValue, work.values)];
            let jobs = products.map(|(role, piece)| self.job(role, d, work.recalled, (self.placed.at(piece), d)));
            launches.extend(self.rows(jobs.to_vec(), For::Iteration(0), None));
        }
        launches.push(self.read(n));
        launches.extend(self.first_products(n));
        launches.extend(self.second_products(n));
        launches.push(self.mix(n));
        if self.plan().config.attention == Attention::Kda {
            launches.extend(self.attention(n));
        }
        launches.push(self.write(n));
        launches
    }

    fn read(&self, n: u32) -> Launch {
        let (plan, work) = (self.plan(), &self.plan().work);
        let d = plan.config.d_model;
        let floats = |n: u32| Arg::Pointer(self.placed.at(plan.stream(n)));
        let (attention_limit, experts_limit) = plan.limits();
        let args = vec![
            self.vector(work.x),
            self.vector(work.for_attention),
            self.vector(work.for_experts),
            self.vector(work.both),
            Arg::Pointer(self.scalars(n)),
            floats(n),
            floats(0),
            Arg::Pointer(self.placed.numbers(Role::IterEmbed) + 4 * u64::from(n) * u64::from(d)),
            Arg::Pointer(self.placed.numbers(Role::LoopNorm)),
            Arg::Pointer(if plan.config.use_engram { self.placed.at(work.keys) } else { 0 }),
            Arg::Pointer(self.placed.numbers(Role::MorRouter(0))),
            Arg::Pointer(self.placed.numbers(Role::MorRouter(1))),
            Arg::F32(attention_limit),
            Arg::F32(experts_limit),
        ];
        self.positions(Kernel::DormouseRead, d, args, Some(self.limit(n)))
    }

    /// Products with what the iteration reads.
    fn first_products(&mut self, n: u32) -> Vec<Launch> {
        let (plan, work, c) = (self.plan(), &self.plan().work, self.plan().config);
        let (d, width, stride) = (u64::from(c.d_model), c.width(), plan.kda_stride());
        let mut jobs = Vec::new();
        if c.attention == Attention::Kda {
            let products = [(Role::Qkv(0), 0), (Role::Qkv(1), 1), (Role::Qkv(2), 2), (Role::OGate, 4), (Role::Beta, 5)];
            jobs.extend(products.map(|(role, place)| {
                let rows = if role == Role::Beta { u64::from(c.n_heads) } else { width };
                self.job(role, rows, work.for_attention, (self.kda(n) + 4 * place * width, stride))
            }));
            jobs.push(self.ordered(Role::DecayUp, work.for_attention, work.decay, false));
        }
        jobs.push(self.job(Role::Controller, 3 + u64::from(c.n_experts), work.both, (self.scalars(n), plan.scalars())));
        if c.use_engram {
            jobs.push(self.job(Role::MemDense, d, work.x, (self.placed.at(work.dense), d)));
        }
        for (number, expert) in (0..).zip(&work.experts) {
            let layer = Layer::GateUp(number);
            jobs.push(if c.use_tsct {
                self.first_factor(layer, work.for_experts, expert.up, false)
            } else {
                let dense = self.ordered(Role::Linear(layer, Part::Weight), work.for_experts, expert.hidden, false);
                Job { bias: self.bias(layer), active: true, ..dense }
            });
        }
        let mut launches: Vec<_> = self.rows(jobs, For::Iteration(n), None).into_iter().collect();
        if c.attention == Attention::Kda {
            launches.extend(self.quantise(work.decay, n));
        }
        if !c.use_tsct {
            launches.extend(work.experts.iter().filter_map(|expert| self.quantise(expert.hidden, n)));
        }
        launches
    }

    /// Products with the results of products.
    fn second_products(&mut self, n: u32) -> Vec<Launch> {
        let (plan, work, c) = (self.plan(), &self.plan().work, self.plan().config);
        let (d, width) = (u64::from(c.d_model), c.width());
        let down = |number: u32| (self.of_iteration(work.down, number, self.each(d)), d);
        let mut stages = [Vec::new(), Vec::new(), Vec::new()];
        if c.attention == Attention::Kda {
            stages[0].push(self.job(Role::DecayDown, width, work.decay, (self.kda(n) + 12 * width, plan.kda_stride())));
        }
        for (number, expert) in (0..).zip(&work.experts) {
            let (gate_up, layer) = (Layer::GateUp(number), Layer::Down(number));
            if c.use_tsct {
                let hidden = self.ordered(Role::Linear(gate_up, Part::V), expert.up, expert.hidden, false);
                stages[0].push(Job { active: true, ..hidden });
                stages[1].push(self.first_factor(layer, expert.hidden, expert.down, false));
                stages[2].push(self.job(Role::Linear(layer, Part::V), d, expert.down, down(number)));
            } else {
                let dense = self.job(Role::Linear(layer, Part::Weight), d, expert.hidden, down(number));
                stages[0].push(Job { bias: self.bias(layer), ..dense });
            }
        }
        stages.into_iter().filter_map(|jobs| self.rows(jobs, For::Iteration(n), None)).collect()
    }

    fn mix(&self, n: u32) -> Launch {
        let (plan, work) = (self.plan(), &self.plan().work);
        let c = &plan.config;
        let (attends, recalls) = (c.attention == Attention::Kda, c.use_engram);
        let piece = |used: bool, piece: usize| Arg::Pointer(if used { self.placed.at(piece) } else { 0 });
        let args = vec![
            Arg::Pointer(if attends { self.kda(n) } else { 0 }),
            Arg::Pointer(self.placed.numbers(Role::DecayBias)),
            piece(attends, work.decays),
            Arg::Pointer(self.scalars(n)),
            piece(recalls, work.values),
            piece(recalls, work.dense),
            self.pointer(work.down),
            Arg::Pointer(self.terms(n)),
        ];
        self.positions(Kernel::DormouseMix, c.d_model.max(c.width() as u32), args, Some(self.limit(n)))
    }

    fn terms(&self, n: u32) -> u64 {
        self.of_iteration(self.plan().work.terms, n, self.each(2 * u64::from(self.plan().config.d_model)))
    }

    /// The recurrence, and its results as they join the others.
    fn attention(&mut self, n: u32) -> Vec<Launch> {
        let (plan, work, c) = (self.plan(), &self.plan().work, self.plan().config);
        let (d, width) = (u64::from(c.d_model), c.width() as u32);
        let outputs = Arg::Pointer(self.of_iteration(work.outputs, n, self.each(c.width())));
        let end = |n: u32| Arg::Pointer(self.of_iteration(work.ends, n, plan.state_len()));
        let states = u64::from(dmexp_format::arch::dormouse::layout::saved_states(plan.settings.context));
        let again = plan.again() && n > 0;
        let none = Arg::Pointer(0);
        let saved = if again { Arg::Pointer(self.of_iteration(work.saved, n - 1, states * plan.state_len())) } else { none };
        let args = vec![
            outputs,
            end(n),
            if n > 0 { end(n - 1) } else { none },
            saved,
            if again { self.pointer(work.stops) } else { none },
            Arg::Pointer(self.kda(n)),
            Arg::U32(u32::from(again)),
            Arg::Loop(plan.loop_of()),
            self.pointer(work.state),
            self.limit(n),
            Arg::U32(self.count),
        ];
        let grid = [width.div_ceil(RECUR / 8), 1, 1];
        let recur = Launch { kernel: Kernel::DormouseRecur, grid, block: RECUR, shared: plan.recur_bytes(), args };
        // Of the last iteration only the new positions are read.
        let followed = again && n + 1 < c.max_iter;
        let args = vec![
            self.vector(work.attended),
            outputs,
            Arg::Pointer(self.kda(n)),
            Arg::Pointer(self.placed.numbers(Role::ONorm)),
            if followed { self.pointer(work.stops) } else { none },
            self.limit(n + 1),
        ];
        let gate = self.positions(Kernel::DormouseGate, width, args, None);
        let job = self.job(Role::OProj, d, work.attended, (self.placed.at(work.projected), d));
        [recur, gate].into_iter().chain(self.rows(vec![job], For::Iteration(n + 1), None)).collect()
    }

    fn write(&self, n: u32) -> Launch {
        let (plan, work) = (self.plan(), &self.plan().work);
        let d = plan.config.d_model;
        let attends = plan.config.attention == Attention::Kda;
        let args = vec![
            self.vector(work.streams[n as usize + 1]),
            Arg::Pointer(self.placed.at(plan.stream(n))),
            Arg::Pointer(self.placed.numbers(Role::IterEmbed) + 4 * u64::from(n) * u64::from(d)),
            Arg::Pointer(self.placed.numbers(Role::ResidualScale)),
            Arg::Pointer(if attends { self.placed.at(work.projected) } else { 0 }),
            Arg::Pointer(self.terms(n)),
            Arg::Pointer(self.scalars(n)),
        ];
        self.positions(Kernel::DormouseWrite, d, args, Some(self.limit(n + 1)))
    }

    fn head(&mut self) -> Vec<Launch> {
        let (work, c) = (&self.plan().work, self.plan().config);
        let d = u64::from(c.d_model);
        let out = |n: u32| (self.of_iteration(work.result, n, d), 0);
        let streams = work.streams.iter().skip(1);
        let logits = (self.placed.at(work.logits), 0);
        let vocab = u64::from(c.vocab);
        let (mut results, mut last) = (Vec::new(), Vec::new());
        if c.use_tsct {
            results
                .push(streams.zip(&work.results).map(|(stream, inner)| self.first_factor(Layer::OutProj, *stream, *inner, true)).collect());
            let second = Role::Linear(Layer::OutProj, Part::V);
            results.push((0..).zip(&work.results).map(|(n, inner)| Job { alone: true, ..self.job(second, d, *inner, out(n)) }).collect());
            last.push(Job { alone: true, ..self.first_factor(Layer::LmHead, work.normed, work.classified, true) });
            last.push(Job { alone: true, ..self.job(Role::Linear(Layer::LmHead, Part::V), vocab, work.classified, logits) });
        } else {
            let dense = Role::Linear(Layer::OutProj, Part::Weight);
            let bias = self.bias(Layer::OutProj);
            results.push((0..).zip(streams).map(|(n, stream)| Job { bias, ..self.job(dense, d, *stream, out(n)) }).collect());
            let dense = self.job(Role::Linear(Layer::LmHead, Part::Weight), vocab, work.normed, logits);
            last.push(Job { alone: true, bias: self.bias(Layer::LmHead), ..dense });
        }
        let mut launches: Vec<Launch> = results.into_iter().filter_map(|jobs: Vec<Job>| self.rows(jobs, For::Last, None)).collect();
        launches.push(self.mean());
        let logits = last.len() - 1;
        for (number, job) in last.into_iter().enumerate() {
            launches.extend(self.rows(vec![job], For::Last, (number == logits).then_some(work.partials)));
        }
        launches
    }

    fn mean(&self) -> Launch {
        let (plan, work) = (self.plan(), &self.plan().work);
        let c = &plan.config;
        let args = vec![
            self.vector(work.normed),
            self.pointer(work.result),
            Arg::Pointer(self.scalars(0)),
            Arg::Pointer(self.placed.numbers(Role::Norm)),
            Arg::U32(c.max_iter),
            Arg::U32(if c.use_mor { c.mor_k } else { 0 }),
        ];
        Launch { grid: [1, 1, 1], ..self.positions(Kernel::DormouseMean, c.d_model, args, None) }
    }

    fn choose(&self) -> Launch {
        let (plan, work) = (self.plan(), &self.plan().work);
        let mut args: Vec<_> = [work.tokens, work.picks, work.state, work.partials].map(|piece| self.pointer(piece)).into();
        args.extend([Arg::U32(plan.config.vocab), Arg::U32(plan.settings.context)]);
        Launch { kernel: Kernel::Choose, grid: [1, 1, 1], block: threads(plan.config.vocab), shared: 0, args }
    }
}
