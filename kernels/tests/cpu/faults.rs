//! The kernels under the sanitizers, and faults seeded into them, each of which must be caught.

use crate::decoder::Decoder;
use crate::device::{Build, Outcome};
use crate::dormouse;
use crate::equality::{compare, mixed};
use crate::long::one_and_many;
use crate::models::{Made, ODD};
use dmexp::format::arch::llama::LlamaConfig;
use dmexp::format::{DType, KvDType};
use dmexp_kernels::plan::SHARED_BY_DEFAULT;
use std::fs;
use std::path::{Path, PathBuf};

/// A model with a matrix of each type, a window and biases.
fn model() -> Made {
    let config = LlamaConfig { n_layers: 1, vocab_size: 43, qkv_bias: true, tied_embeddings: false, sliding_window: 3, ..ODD };
    Made::new(config, mixed)
}

/// A few steps and a block; once with inputs in shared memory and, where that is quick, once without.
fn few_steps(program: &Path, (build, order, fault): (Build, u32, u32), made: &Made, kv: KvDType) -> Outcome<()> {
    let limits: &[u32] = if build == Build::Thread { &[SHARED_BY_DEFAULT] } else { &[SHARED_BY_DEFAULT, 0] };
    for limit in limits {
        let mut decoder = Decoder::new(program, order, made, (6, kv), *limit)?;
        decoder.fault(fault)?;
        let compared = compare(&mut decoder, made, kv, 5, 3);
        // What a sanitizer says comes before what is wrong in the results.
        decoder.end()?;
        compared?;
    }
    Ok(())
}

/// Steps far behind in a text, whose window begins anywhere: attention is spread over blocks.
fn far_steps(program: &Path, order_and_fault: (u32, u32), kv: KvDType) -> Outcome<()> {
    let config = LlamaConfig { n_layers: 1, n_heads: 2, n_kv_heads: 1, max_seq_len: 1100, sliding_window: 701, ..ODD };
    one_and_many(program, order_and_fault, &Made::new(config, |_, _| (DType::F32, 0)), (1100, kv), &[1003])
}

#[test]
fn no_access_is_out_of_bounds_and_nothing_is_undefined() {
    for (order, kv) in [(0, KvDType::F32), (1, KvDType::F16), (2, KvDType::Q8)] {
        few_steps(Build::Address.program(), (Build::Address, order, 0), &model(), kv).unwrap();
        far_steps(Build::Address.program(), (order, 0), kv).unwrap();
    }
}

#[test]
fn no_two_threads_touch_a_word_without_an_order() {
    for kv in [KvDType::F32, KvDType::F16, KvDType::Q8] {
        few_steps(Build::Thread.program(), (Build::Thread, 0, 0), &model(), kv).unwrap();
        far_steps(Build::Thread.program(), (0, 0), kv).unwrap();
    }
}

/// A fault: where it is put, and what must catch it. `FAULT` stands for the question whether this one is on.
pub(crate) struct Seeded {
    pub(crate) what: &'static str,
    pub(crate) file: &'static str,
    pub(crate) original: &'static str,
    pub(crate) changed: &'static str,
    /// The build and the order of threads in which it is caught, and a part of what is said then.
    pub(crate) caught: &'static [(Build, u32, &'static str)],
    /// The type of keys and values where it is caught.
    pub(crate) kv: KvDType,
    /// Where no result shows it, whatever the order.
    pub(crate) silent: bool,
}

pub(crate) const RACE: &str = "ThreadSanitizer: data race";
pub(crate) const OVERRUN: &str = "AddressSanitizer: heap-buffer-overflow";
pub(crate) const WRONG: &str = "of the runtime";
const OTHER: &str = "other logits than of one block";

const FAULTS: &[Seeded] = &[
    Seeded {
        what: "no barrier between an input's elements and their sum",
        file: "input.h",
        original: "  __syncthreads();\n  if (gain) {\n    if (threadIdx.x < 8u) {\n      float sum = 0.0f;\n#pragma unroll 4",
        changed: "  if (!FAULT) __syncthreads();\n  if (gain) {\n    if (threadIdx.x < 8u) {\n      float sum = 0.0f;\n#pragma unroll 4",
        caught: &[(Build::Thread, 0, RACE), (Build::Plain, 0, WRONG)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "no barrier before an array is used again",
        file: "attention.h",
        original: "      x[i] = (float)(i8)code;\n    }\n  }\n  __syncthreads();",
        changed: "      x[i] = (float)(i8)code;\n    }\n  }\n  if (!FAULT) __syncthreads();",
        caught: &[(Build::Thread, 0, RACE)],
        kv: KvDType::Q8,
        silent: false,
    },
    Seeded {
        what: "no barrier between the lanes of attention and their sum",
        file: "attention.h",
        original: "    m.lanes[item] = sum;\n  }\n  __syncthreads();",
        changed: "    m.lanes[item] = sum;\n  }\n  if (!FAULT) __syncthreads();",
        caught: &[(Build::Thread, 0, RACE), (Build::Plain, 0, WRONG)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "no barrier between exponentials and their sum",
        file: "attention.h",
        original: "exponential(sub(m.scores[i], largest));\n  __syncthreads();",
        changed: "exponential(sub(m.scores[i], largest));\n  if (!FAULT) __syncthreads();",
        caught: &[(Build::Thread, 0, RACE)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "several blocks store the same key",
        file: "kernels.cu",
        original: "keep(m.k, key_rows, at, head % group == 0, h);",
        changed: "keep(m.k, key_rows, at, FAULT || head % group == 0, h);",
        caught: &[(Build::Thread, 0, RACE)],
        kv: KvDType::F32,
        silent: true,
    },
    Seeded {
        what: "a block reads the key that another stores",
        file: "kernels.cu",
        original: "span_of(h, position, true)",
        changed: "span_of(h, position, !FAULT)",
        caught: &[(Build::Thread, 0, RACE), (Build::Plain, 1, WRONG)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "one row too many",
        file: "kernels.cu",
        original: "  if (row >= m.rows) return;\n  const float y = one_row(m, row, in);",
        changed: "  if (row >= m.rows + (FAULT ? 1u : 0u)) return;\n  const float y = one_row(m, row, in);",
        caught: &[(Build::Address, 0, OVERRUN)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "lanes leave before an exchange",
        file: "kernels.cu",
        original: "  float y[1];\n",
        changed: "  float y[1];\n  if (FAULT && (threadIdx.x & 7u) * 16u >= m.cols) return 0.0f;\n",
        caught: &[
            (Build::Plain, 0, "an exchange waits for a lane that has left"),
            (Build::Address, 1, "an exchange waits for a lane that has left"),
        ],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "part of the threads pass a barrier",
        file: "kernels.cu",
        original: "  for (u32 i = threadIdx.x; i < n; i += blockDim.x) m.v[i] = v[i];\n  __syncthreads();",
        changed: "  for (u32 i = threadIdx.x; i < n; i += blockDim.x) m.v[i] = v[i];\n  if (!FAULT || threadIdx.x < 32u) __syncthreads();",
        caught: &[(Build::Plain, 0, "threads meet at different barriers")],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "an array of fixed size that is too small",
        file: "kernels.cu",
        original: "SHARED_ARRAY(float, best_of, 32)",
        changed: "SHARED_ARRAY(float, best_of, FAULT ? 4 : 32)",
        caught: &[(Build::Address, 0, OVERRUN)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "scores behind the end of a block's memory",
        file: "attention.h",
        original: "memory + 12u * n :",
        changed: "memory + (FAULT ? 13u : 12u) * n :",
        caught: &[(Build::Address, 0, OVERRUN)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "an input's padding is not zeroed",
        file: "input.h",
        original: "for (u32 i = threadIdx.x; i < padded; i += blockDim.x) floats[place(i)] = i < cols ? x[i] : 0.0f;",
        changed: "for (u32 i = threadIdx.x; i < (FAULT ? cols : padded); i += blockDim.x) floats[place(i)] = i < cols ? x[i] : 0.0f;",
        caught: &[(Build::Plain, 0, WRONG)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "a fused multiply-add",
        file: "rows.h",
        original: "sum[c] = add(sum[c], mul(w3, x.w));",
        changed: "sum[c] = FAULT ? fmaf(w3, x.w, sum[c]) : add(sum[c], mul(w3, x.w));",
        caught: &[(Build::Plain, 0, WRONG)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "lanes added up in another order",
        file: "arithmetic.h",
        original: "  a = add(a, __shfl_xor_sync(mask, a, 4));\n  a = add(a, __shfl_xor_sync(mask, a, 2));\n  return add(a, __shfl_xor_sync(mask, a, 1));",
        changed: "  a = add(a, __shfl_xor_sync(mask, a, FAULT ? 1 : 4));\n  a = add(a, __shfl_xor_sync(mask, a, 2));\n  return add(a, __shfl_xor_sync(mask, a, FAULT ? 4 : 1));",
        caught: &[(Build::Plain, 0, WRONG)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "a window one position too long",
        file: "attention.h",
        original: "span.first = h.window && position + 1u > h.window ?",
        changed: "span.first = h.window && position + 1u > h.window + (FAULT ? 1u : 0u) ?",
        caught: &[(Build::Plain, 0, WRONG)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "exponentials are summed while the next ones take their place",
        file: "long_attention.h",
        original: "own[from + i] = e;\n      }\n    } else if (threadIdx.x < 8u && tile > 0) {\n      const float *kept = memory + ((tile + 1u) & 1u) * SUMMED;",
        changed: "own[from + i] = e;\n      }\n    } else if (threadIdx.x < 8u && tile > 0) {\n      const float *kept = memory + ((tile + (FAULT ? 0u : 1u)) & 1u) * SUMMED;",
        caught: &[(Build::Plain, 0, OTHER)],
        kv: KvDType::F16,
        silent: false,
    },
    Seeded {
        what: "no barrier between tiles of products",
        file: "long_attention.h",
        original: "sum_up(sum, kept[i * SLICE + element]);\n    }\n    __syncthreads();",
        changed: "sum_up(sum, kept[i * SLICE + element]);\n    }\n    if (!FAULT) __syncthreads();",
        caught: &[(Build::Thread, 0, RACE), (Build::Plain, 0, OTHER)],
        kv: KvDType::Q8,
        silent: false,
    },
    Seeded {
        what: "the first two lanes of a weighted sum changed about",
        file: "long_attention.h",
        original: "for (u32 i = (lane - span.first) & 7u; i < there; i += 8u)",
        changed: "for (u32 i = ((FAULT && lane < 2u ? lane ^ 1u : lane) - span.first) & 7u; i < there; i += 8u)",
        caught: &[(Build::Plain, 0, OTHER)],
        kv: KvDType::F32,
        silent: false,
    },
    Seeded {
        what: "a part of the scores goes on into the next one",
        file: "long_attention.h",
        original: "if (span.last - span.first >= SCORED) span.last = span.first + SCORED - 1u;",
        changed: "if (span.last - span.first >= SCORED) span.last = span.first + SCORED - (FAULT ? 0u : 1u);",
        caught: &[(Build::Thread, 0, RACE)],
        kv: KvDType::F32,
        silent: true,
    },
];

/// All of them, by number from 1 on.
fn all() -> impl Iterator<Item = (&'static Seeded, u32)> {
    FAULTS.iter().chain(dormouse::FAULTS).zip(1..)
}

impl Seeded {
    /// The steps in which it is caught.
    fn steps(&self, program: &Path, (build, order, number): (Build, u32, u32), made: &Made) -> Outcome<()> {
        if self.file.starts_with("dormouse") {
            dormouse::few_steps(program, order, number, &dormouse::small())
        } else if self.file == "long_attention.h" {
            far_steps(program, (order, number), self.kv)
        } else {
            few_steps(program, (build, order, number), made, self.kv)
        }
    }
}

/// The kernels with all faults in them, in a folder of their own.
fn seeded() -> PathBuf {
    let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")), Path::new(env!("CARGO_TARGET_TMPDIR")).join("seeded"));
    for folder in ["cpu", "cuda"] {
        fs::create_dir_all(to.join(folder)).expect("a folder");
        for file in fs::read_dir(from.join(folder)).expect("the sources") {
            let file = file.expect("a source").path();
            let mut text = fs::read_to_string(&file).expect("text");
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            for (fault, number) in all().filter(|(fault, _)| fault.file == name) {
                assert_eq!(text.matches(fault.original).count(), 1, "{}: where it is put in {name}", fault.what);
                text = text.replace(fault.original, &fault.changed.replace("FAULT", &format!("(machine::fault == {number})")));
            }
            fs::write(to.join(folder).join(name), text).expect("a source is written");
        }
    }
    to
}

#[test]
fn every_seeded_fault_is_caught() {
    let (folder, made) = (seeded(), model());
    let builds = [Build::Plain, Build::Address, Build::Thread];
    let programs = builds.map(|build| build.compile(&folder, &format!("seeded-{build:?}")).expect("the seeded kernels compile"));
    for (program, build) in programs.iter().zip(builds) {
        few_steps(program, (build, 0, 0), &made, KvDType::Q8).expect("no fault, nothing caught");
    }
    for (fault, number) in all() {
        for (build, order, said) in fault.caught {
            let found = fault.steps(&programs[*build as usize], (*build, *order, number), &made).expect_err(fault.what);
            assert!(found.contains(said), "{}: {build:?}, order {order} says\n{found}", fault.what);
        }
        if fault.silent {
            for order in 0..4 {
                fault.steps(&programs[Build::Plain as usize], (Build::Plain, order, number), &made).expect(fault.what);
            }
        }
    }
}
