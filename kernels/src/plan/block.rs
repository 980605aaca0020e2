//! The launches of a block: several positions at once.

use super::{COLUMNS, Placed, Plan, rows_grid, takes_integers, threads};
use crate::launch::{Arg, Kernel, Launch, Matrix};
use dmexp_format::arch::llama::TensorKind;

impl Plan {
    /// The launches that feed the first `count` of [`Plan::rows`] through all layers, each of which may be of another text: a row attends to those before it in its text, fed earlier or together with it.
    /// The [`Plan::reach`] of their positions is `reach` or less, as in [`Plan::step`]. The state is neither read nor changed.
    ///
    /// # Panics
    /// If `count` is 0 or more than [`COLUMNS`], and as [`Plan::step`].
    pub fn block(&self, addresses: &[u64], count: u32, reach: u32) -> Vec<Launch> {
        assert!((1..=COLUMNS).contains(&count), "1 to {COLUMNS} positions");
        self.check_reach(reach);
        let placed = Placed::new(self, addresses);
        let rows = placed.pointer(self.work.rows);
        let mut launches = vec![placed.embed(count, rows)];
        for layer in 0..self.config.n_layers {
            launches.extend(placed.block_qkv(layer, count));
            launches.push(placed.append(layer, count, rows));
            if reach == 0 {
                launches.push(placed.attend(layer, count, rows));
            } else {
                launches.extend(placed.attend_long(layer, count, reach, rows));
            }
            launches.extend(placed.block_add(self.work.attended, placed.matrix(TensorKind::Wo, layer), count));
            launches.extend(placed.block_gate_up(layer, count));
            launches.extend(placed.block_add(self.work.hidden, placed.matrix(TensorKind::W2, layer), count));
        }
        launches
    }

    /// The launches that compute the logits of the `count` columns from `first` on of a block: they become columns 0 and so on of [`Plan::logits`].
    ///
    /// # Panics
    /// If the columns are not among [`COLUMNS`], and as [`Plan::step`].
    pub fn block_logits(&self, addresses: &[u64], first: u32, count: u32) -> Vec<Launch> {
        assert!(count >= 1 && u64::from(first) + u64::from(count) <= u64::from(COLUMNS), "columns of a block");
        let placed = Placed::new(self, addresses);
        let (work, dim, matrix) = (&self.work, self.config.dim, placed.classifier());
        let gain = placed.gain(TensorKind::Norm, 0);
        let mut prepare = placed.prepare((work.x, dim), Some(gain), &[matrix], count);
        prepare.args[4] = Arg::Pointer(placed.at(work.x) + 4 * u64::from(first) * u64::from(dim));
        vec![prepare, placed.batch_project((placed.at(work.logits), matrix.rows), matrix, Arg::Pointer(0), false, count)]
    }
}

impl Placed<'_> {
    /// The arguments that a kernel reads a prepared input from.
    pub(super) fn prepared(&self) -> [Arg; 4] {
        let work = &self.plan.work;
        [work.prepared, work.codes, work.sums, work.scales].map(|piece| self.pointer(piece))
    }

    /// Makes rows of piece `from`, so many elements wide, ready for `matrices`.
    pub(super) fn prepare(&self, (from, cols): (usize, u32), gain: Option<Arg>, matrices: &[Matrix], count: u32) -> Launch {
        let mut args = self.prepared().to_vec();
        let integers = u32::from(matrices.iter().any(takes_integers));
        args.extend([
            self.pointer(from),
            gain.unwrap_or(Arg::Pointer(0)),
            Arg::F32(self.plan.config.norm_eps),
            Arg::U32(cols),
            Arg::U32(integers),
        ]);
        Launch { kernel: Kernel::Prepare, grid: [count, 1, 1], block: threads(cols), shared: 0, args }
    }

    /// Rows of `out`, which are `stride` floats apart, become (or are increased by) the products of the matrix and the prepared inputs.
    fn batch_project(&self, (out, stride): (u64, u32), matrix: Matrix, bias: Arg, add: bool, count: u32) -> Launch {
        let (blocks, block) = rows_grid(matrix.rows);
        let mut args = vec![Arg::Pointer(out), Arg::U32(stride)];
        args.extend(self.prepared());
        args.extend([Arg::Matrix(matrix), bias, Arg::U32(u32::from(add)), Arg::U32(count)]);
        Launch { kernel: Kernel::BatchProject, grid: [blocks, 1, 1], block, shared: 0, args }
    }

    pub(super) fn block_qkv(&self, layer: u32, count: u32) -> Vec<Launch> {
        let (work, c) = (&self.plan.work, &self.plan.config);
        let stride = (c.q_dim() + 2 * c.kv_dim()) as u32;
        let matrices = [TensorKind::Wq, TensorKind::Wk, TensorKind::Wv].map(|kind| self.matrix(kind, layer));
        let mut launches = vec![self.prepare((work.x, c.dim), Some(self.gain(TensorKind::AttentionNorm, layer)), &matrices, count)];
        let mut from = 0;
        for matrix in matrices {
            launches.push(self.batch_project((self.at(work.qkv) + 4 * from, stride), matrix, self.bias(layer, from), false, count));
            from += u64::from(matrix.rows);
        }
        launches
    }

    /// Rotates queries, and rotates and stores keys and values.
    pub(super) fn append(&self, layer: u32, count: u32, rows: Arg) -> Launch {
        let (work, c) = (&self.plan.work, &self.plan.config);
        let mut args = vec![self.pointer(work.qkv)];
        args.extend(self.cache(layer));
        args.extend([self.pointer(work.cos), self.pointer(work.sin), Arg::Heads(self.heads()), self.pointer(work.state), rows]);
        Launch { kernel: Kernel::RopeAppend, grid: [c.n_heads + 2 * c.n_kv_heads, count, 1], block: 64, shared: 4 * c.head_dim, args }
    }

    fn attend(&self, layer: u32, count: u32, rows: Arg) -> Launch {
        let work = &self.plan.work;
        let (block, shared) = self.attention_block();
        let mut args = vec![self.pointer(work.attended), self.pointer(work.qkv)];
        args.extend(self.cache(layer));
        args.extend([self.scores(), Arg::Heads(self.heads()), self.pointer(work.state), rows]);
        Launch { kernel: Kernel::Attend, grid: [self.plan.config.n_heads, count, 1], block, shared, args }
    }

    /// A matrix times the rows of piece `from`, added to the residual streams.
    pub(super) fn block_add(&self, from: usize, matrix: Matrix, count: u32) -> Vec<Launch> {
        let x = (self.at(self.plan.work.x), self.plan.config.dim);
        vec![self.prepare((from, matrix.cols), None, &[matrix], count), self.batch_project(x, matrix, Arg::Pointer(0), true, count)]
    }

    pub(super) fn block_gate_up(&self, layer: u32, count: u32) -> Vec<Launch> {
        let (work, c) = (&self.plan.work, &self.plan.config);
        let [gate, up] = [TensorKind::W1, TensorKind::W3].map(|kind| self.matrix(kind, layer));
        let project = |piece: usize, matrix| self.batch_project((self.at(piece), c.hidden_dim), matrix, Arg::Pointer(0), false, count);
        let count_of = u64::from(c.hidden_dim) * u64::from(count);
        let args = vec![self.pointer(work.hidden), self.pointer(work.up), Arg::U32(count_of as u32)];
        let block = threads(count_of as u32);
        let gated = Launch { kernel: Kernel::BatchGate, grid: [(count_of as u32).div_ceil(block), 1, 1], block, shared: 0, args };
        let norm = self.prepare((work.x, c.dim), Some(self.gain(TensorKind::FfnNorm, layer)), &[gate, up], count);
        vec![norm, project(work.hidden, gate), project(work.up, up), gated]
    }
}
