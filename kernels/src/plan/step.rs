//! The launches of a step: one position.

use super::{NO_ROWS, Placed, Plan, input_bytes, rows_grid, threads};
use crate::launch::{Arg, Kernel, Launch, Matrix};
use dmexp_format::arch::llama::TensorKind;

/// The launches of one step, in order. Every step of a reach is the same list: the position is in the device's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The embedding of `tokens[position]`.
    pub embed: Vec<Launch>,
    /// Layer after layer.
    pub layers: Vec<Vec<Launch>>,
    /// The logits of the position.
    pub head: Vec<Launch>,
    /// The likeliest token is written into [`Plan::picks`], and into [`Plan::tokens`] behind the position unless that one is given; the position goes on by 1.
    pub choose: Launch,
}

impl Step {
    /// All of them.
    pub fn launches(&self) -> impl Iterator<Item = &Launch> {
        self.embed.iter().chain(self.layers.iter().flatten()).chain(&self.head).chain([&self.choose])
    }
}

impl Plan {
    /// The launches of a step with the pieces at `addresses`, of positions whose [`Plan::reach`] is `reach` or less. With a reach of 0 one block of threads attends for each head, whatever the position.
    ///
    /// # Panics
    /// If there is not one address, a multiple of 16, for each of [`Plan::pieces`], or if `reach` is none of [`Plan::reaches`].
    pub fn step(&self, addresses: &[u64], reach: u32) -> Step {
        self.check_reach(reach);
        let placed = Placed::new(self, addresses);
        Step {
            embed: vec![placed.embed(1, NO_ROWS)],
            layers: (0..self.config.n_layers).map(|layer| placed.step_layer(layer, reach)).collect(),
            head: placed.step_head(),
            choose: placed.choose(),
        }
    }
}

impl Placed<'_> {
    pub(super) fn embed(&self, count: u32, rows: Arg) -> Launch {
        let work = &self.plan.work;
        let table = self.matrix(TensorKind::TokEmbeddings, 0);
        let args = vec![self.pointer(work.x), Arg::Matrix(table), self.pointer(work.tokens), self.pointer(work.state), rows];
        let block = threads(table.cols);
        Launch { kernel: Kernel::Embed, grid: [table.cols.div_ceil(block), count, 1], block, shared: 0, args }
    }

    fn step_layer(&self, layer: u32, reach: u32) -> Vec<Launch> {
        let work = &self.plan.work;
        let mut launches = self.step_qkv(layer);
        if reach == 0 {
            launches.push(self.rope_attend(layer));
        } else {
            launches.push(self.append(layer, 1, NO_ROWS));
            launches.extend(self.attend_long(layer, 1, reach, NO_ROWS));
        }
        launches.extend(self.project_add(work.attended, self.matrix(TensorKind::Wo, layer)));
        launches.extend(self.step_gate_up(layer));
        launches.extend(self.project_add(work.hidden, self.matrix(TensorKind::W2, layer)));
        launches
    }

    /// Whether an input of these matrices fits shared memory, and how many bytes it takes there.
    fn shared(&self, matrices: &[Matrix]) -> Option<u32> {
        let bytes = input_bytes(matrices.first()?.cols, matrices);
        (bytes <= u64::from(self.plan.shared_limit)).then_some(bytes as u32)
    }

    fn eps(&self) -> Arg {
        Arg::F32(self.plan.config.norm_eps)
    }

    fn step_qkv(&self, layer: u32) -> Vec<Launch> {
        let work = &self.plan.work;
        let matrices = [TensorKind::Wq, TensorKind::Wk, TensorKind::Wv].map(|kind| self.matrix(kind, layer));
        let Some(shared) = self.shared(&matrices) else { return self.block_qkv(layer, 1) };
        let (blocks, block) = rows_grid(matrices.iter().map(|matrix| matrix.rows).sum());
        let [q, k, v] = matrices.map(Arg::Matrix);
        let gain = self.gain(TensorKind::AttentionNorm, layer);
        let args = vec![self.pointer(work.qkv), self.pointer(work.x), gain, self.eps(), q, k, v, self.bias(layer, 0)];
        vec![Launch { kernel: Kernel::NormQkv, grid: [blocks, 1, 1], block, shared, args }]
    }

    fn rope_attend(&self, layer: u32) -> Launch {
        let work = &self.plan.work;
        let (block, shared) = self.attention_block();
        let mut args = vec![self.pointer(work.attended), self.pointer(work.qkv)];
        args.extend(self.cache(layer));
        args.extend([self.pointer(work.cos), self.pointer(work.sin), self.scores(), Arg::Heads(self.heads()), self.pointer(work.state)]);
        Launch { kernel: Kernel::RopeAttend, grid: [self.plan.config.n_heads, 1, 1], block, shared, args }
    }

    fn project_add(&self, input: usize, matrix: Matrix) -> Vec<Launch> {
        let Some(shared) = self.shared(&[matrix]) else { return self.block_add(input, matrix, 1) };
        let (blocks, block) = rows_grid(matrix.rows);
        let args = vec![self.pointer(self.plan.work.x), self.pointer(input), Arg::Matrix(matrix)];
        vec![Launch { kernel: Kernel::ProjectAdd, grid: [blocks, 1, 1], block, shared, args }]
    }

    fn step_gate_up(&self, layer: u32) -> Vec<Launch> {
        let work = &self.plan.work;
        let matrices = [TensorKind::W1, TensorKind::W3].map(|kind| self.matrix(kind, layer));
        let Some(shared) = self.shared(&matrices) else { return self.block_gate_up(layer, 1) };
        let (blocks, block) = rows_grid(self.plan.config.hidden_dim);
        let [gate, up] = matrices.map(Arg::Matrix);
        let gain = self.gain(TensorKind::FfnNorm, layer);
        let args = vec![self.pointer(work.hidden), self.pointer(work.x), gain, self.eps(), gate, up];
        vec![Launch { kernel: Kernel::NormGateUp, grid: [blocks, 1, 1], block, shared, args }]
    }

    fn step_head(&self) -> Vec<Launch> {
        let work = &self.plan.work;
        let matrix = self.classifier();
        let (blocks, block) = rows_grid(matrix.rows);
        let (gain, partials) = (self.gain(TensorKind::Norm, 0), self.pointer(work.partials));
        // Wider streams than shared memory holds are prepared in global memory; the kernel is told by the missing gain.
        let (mut launches, gain, shared) = match self.shared(&[matrix]) {
            Some(shared) => (Vec::new(), gain, shared),
            None => (vec![self.prepare((work.x, self.plan.config.dim), Some(gain), &[matrix], 1)], Arg::Pointer(0), 0),
        };
        let mut args = vec![self.pointer(work.logits), partials, self.pointer(work.x), gain, self.eps(), Arg::Matrix(matrix)];
        args.extend(self.prepared());
        launches.push(Launch { kernel: Kernel::NormHead, grid: [blocks, 1, 1], block, shared, args });
        launches
    }

    fn choose(&self) -> Launch {
        let (plan, work) = (self.plan, &self.plan.work);
        let mut args: Vec<_> = [work.tokens, work.picks, work.state, work.partials].map(|piece| self.pointer(piece)).into();
        let partials = rows_grid(plan.config.vocab_size).0;
        args.extend([Arg::U32(partials), Arg::U32(plan.context)]);
        Launch { kernel: Kernel::Choose, grid: [1, 1, 1], block: threads(partials), shared: 0, args }
    }
}
