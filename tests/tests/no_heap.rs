//! Sessions and predictions work in the memory that they are given, on hosts too: once they are made, nothing is asked of the system.

use dmexp::format::KvDType;
use dmexp::format::file::ModelFile;
use dmexp::sampler::Settings;
use dmexp::{Model, Prediction, Predictor, Sampler, Session};
use dmexp_tests::{data, folder, line, root, tiny};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// The system's memory, and a count of how often a thread asked for some.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: all is done by the system's allocator; the cell that counts is no memory of the heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.set(TAKEN.get() + 1);
        // SAFETY: what the caller promises of the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: what the caller promises of both, which came from there.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// How often `work` asks for memory.
fn taken(work: impl FnOnce()) -> u64 {
    let before = TAKEN.get();
    work();
    TAKEN.get() - before
}

/// How often a session asks for memory while it is made, fed a prompt and goes on.
fn taken_by_a_text(model: &Model<'_>, sampler: Sampler) -> u64 {
    let mut memory = vec![0; model.arena_len().unwrap() / size_of::<u32>()];
    taken(|| {
        let mut session = Session::new(model, memory.as_mut_slice(), sampler).unwrap();
        session.prompt(b"The cat sat.").unwrap();
        for _ in 0..20 {
            session.step().unwrap();
        }
    })
}

#[test]
fn a_session_takes_no_memory_but_its_arena() {
    assert_eq!(taken(|| drop(std::hint::black_box(vec![1u8]))), 1, "the count counts");
    let folder = folder();
    for (dtype, more) in [("f32", ""), ("f16", ""), ("bf16", ""), ("q8", "--group 8"), ("q4", "--group 8")] {
        let bytes = fs::read(tiny().export(folder.path(), &format!("{dtype}.dmexp"), &format!("--dtype {dtype} {more}"))).unwrap();
        let file = ModelFile::open(&bytes).unwrap();
        for kv in [KvDType::F32, KvDType::F16, KvDType::Q8] {
            let model = Model::bind(&file).unwrap().with_kv(kv);
            let settings = Settings { temperature: 0.8, top_k: 40, top_p: 0.9, repeat_penalty: 1.1, ..Settings::GREEDY };
            let count = taken_by_a_text(&model, Sampler::new(settings).unwrap());
            assert_eq!(count, 0, "weights in {dtype}, keys and values in {kv:?}");
        }
    }
    let Some(dormouse) = data("dormouse/default.f32.dmexp") else { return };
    let dormouse = dormouse.display().to_string();
    for dtype in ["f32", "t2"] {
        line(folder.path(), &format!("export run --checkpoint {dormouse} --format 2 --dtype {dtype} --out d.dmexp --quiet")).ok();
        let bytes = fs::read(folder.path().join("d.dmexp")).unwrap();
        let model = Model::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
        assert_eq!(taken_by_a_text(&model, Sampler::greedy()), 0, "dormouse in {dtype}");
    }
}

#[test]
fn a_prediction_takes_no_memory_to_run() {
    let folder = folder();
    let models = root().join("models").display().to_string();
    for dtype in ["f32", "bf16", "q8"] {
        line(
            folder.path(),
            &format!(
                "export run --checkpoint {models}/tones.bin --arch {models}/tones.arch.toml --dtype {dtype} --out {dtype}.dmexp --quiet"
            ),
        )
        .ok();
        let bytes = fs::read(folder.path().join(format!("{dtype}.dmexp"))).unwrap();
        let predictor = Predictor::bind(&ModelFile::open(&bytes).unwrap()).unwrap();
        let mut memory = vec![0; predictor.arena_len().unwrap() / size_of::<u32>()];
        let mut prediction = Prediction::new(predictor, memory.as_mut_slice()).unwrap();
        let count = taken(|| {
            for level in [0.0, 0.5, -0.25] {
                prediction.input_mut(0).fill(level);
                prediction.run().unwrap();
            }
        });
        assert_eq!(count, 0, "weights in {dtype}");
    }
}
