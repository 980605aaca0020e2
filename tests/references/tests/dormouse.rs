//! Checkpoints of dormouse whose records the crate `burn-pack` writes (burn's own writer), of every kind of model: what is exported is, value for value, what was written.

use burn_pack::{Bytes, DType, Scalar, Tensor, Writer};
use dmexp_format::host::HeaderV1;
use dmexp_tools::checkpoint::{self, Checkpoint};
use dmexp_tools::error::Class;
use dmexp_tools::export::{Format, Options, run};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Tensors as a configuration calls for them, in the order in which burn's modules declare them.
#[derive(Clone)]
struct Model {
    /// `[model]` of the snapshot.
    config: String,
    /// Name, dims, values as little-endian f32.
    tensors: Vec<(String, Vec<u32>, Vec<u8>)>,
}

impl Model {
    /// The model of a `.dmexp` that an evaluator written apart from this repository has made; `None`, said in one line, without the shared data.
    fn of_fixture(name: &str) -> Option<Self> {
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/dormouse")).join(format!("{name}.f32.dmexp"));
        if !path.exists() {
            println!("not run: ../shared/data/dormouse/{name}.f32.dmexp is not here");
            return None;
        }
        let (header, payload) = parts(&path);
        let mut rest = payload.as_slice();
        let tensors = header.tensors.iter().map(|tensor| {
            let (values, others) = rest.split_at(4 * usize::try_from(tensor.dims.count()).unwrap());
            rest = others;
            (tensor.name.clone(), tensor.dims.as_slice().to_vec(), values.to_vec())
        });
        Some(Self { config: header.config.clone(), tensors: tensors.collect() })
    }

    /// A model in which no two sizes are equal that could be, whose list of tensors comes from that same evaluator.
    fn odd() -> Self {
        let config = "d_model = 24\nn_heads = 3\nhead_dim = 16\nd_ffn = 20\nvocab = 98\nrank = 6\nn_experts = 2\nmax_iter = 3\nengram_rows = 7\nengram_dim = 8\naux_fb_weight = 0.1\nuse_attnres = true\n";
        let mut model = Self { config: config.to_owned(), tensors: Vec::new() };
        for line in include_str!("dormouse/odd_shapes.txt").lines() {
            let (name, dims) = line.split_once(' ').unwrap();
            model.tensors.push((name.to_owned(), dims.split('x').map(|size| size.parse().unwrap()).collect(), Vec::new()));
        }
        model.filled()
    }

    /// New values, each another one.
    fn filled(mut self) -> Self {
        let mut number = 0_i16;
        for (_, dims, values) in &mut self.tensors {
            *values = (0..dims.iter().product::<u32>())
                .flat_map(|_| {
                    number = number.wrapping_add(257);
                    (f32::from(number) / 4096.0).to_le_bytes()
                })
                .collect();
        }
        self
    }

    /// The checkpoint in a folder, with its snapshot.
    fn write(&self, name: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("{name}.bin"));
        std::fs::write(&path, container(&self.record())).unwrap();
        let snapshot = format!("source = \"made\"\n\n[model]\n{}\n[train]\nquant = \"fp32\"\n", self.config);
        std::fs::write(path.with_extension("config.toml"), snapshot).unwrap();
        (folder, path)
    }

    fn writer(&self) -> Writer {
        let tensor = |(number, (name, dims, values)): (u64, &(String, Vec<u32>, Vec<u8>))| {
            let shape: Vec<usize> = dims.iter().map(|size| *size as usize).collect();
            // Some with an id of 64 bits, some with a small one, some with none.
            let id = [None, Some(number), Some(u64::MAX - number)][(number % 3) as usize];
            Tensor::new(name.clone(), DType::F32, shape, id, Bytes::from_bytes_vec(values.clone()))
        };
        Writer::new((0..).zip(&self.tensors).map(tensor).collect())
    }

    fn record(&self) -> Vec<u8> {
        self.writer().into_bytes().unwrap().to_vec()
    }

    /// That the checkpoint in `path` is this model, and its export too.
    fn is_exported(&self, path: &Path) {
        let checkpoint = checkpoint::open(path).unwrap();
        assert!(checkpoint.notes.is_empty(), "{:?}", checkpoint.notes);
        let (header, payload) = exported(&checkpoint, &path.with_extension("dmexp"));
        let names: Vec<_> = header.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.dims.as_slice())).collect();
        let wanted: Vec<_> = self.tensors.iter().map(|(name, dims, _)| (name.as_str(), dims.as_slice())).collect();
        assert_eq!(names, wanted, "{}", path.display());
        let values: Vec<u8> = self.tensors.iter().flat_map(|(_, _, values)| values.iter().copied()).collect();
        assert!(payload == values, "{}", path.display());
        assert_eq!(header.step, 7);
    }
}

fn exported(checkpoint: &Checkpoint, out: &Path) -> (HeaderV1, Vec<u8>) {
    let options = Options { dtype: dmexp_format::DType::F32, format: Format::V1, golden: false, ..Options::new(out) };
    run(checkpoint, &options, &AtomicBool::new(false), &mut |_| ()).unwrap();
    parts(out)
}

/// Header and payload of a format-1 file.
fn parts(path: &Path) -> (HeaderV1, Vec<u8>) {
    let file = std::fs::read(path).unwrap();
    let len = u32::from_le_bytes(file[8..12].try_into().unwrap()) as usize;
    let (header, unknown) = HeaderV1::parse(std::str::from_utf8(&file[24..24 + len]).unwrap()).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    (header, file[24 + len..].to_vec())
}

/// A container of step 7 with this model, an optimizer's record and a teacher's, each burn's own, and factors known to be ternary.
fn container(model: &[u8]) -> Vec<u8> {
    let moments = Tensor::new("m".to_owned(), DType::F32, [3], None, Bytes::from_bytes_vec(vec![0; 12]));
    let optimizer = Writer::new(vec![moments]).with_scalar("step", Scalar::UInt(20)).into_bytes().unwrap().to_vec();
    let teacher = Writer::new(Vec::new()).into_bytes().unwrap().to_vec();
    let mut bytes = b"DMCK\0\x02\0\0".to_vec();
    for number in [7, model.len() as u64, optimizer.len() as u64, teacher.len() as u64, 1] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    [bytes, model.to_vec(), optimizer, teacher].concat()
}

#[test]
fn models_of_every_kind_are_exported_as_written() {
    for name in ["default", "nokda", "dense", "mor", "gr", "mhc", "plain"] {
        let Some(model) = Model::of_fixture(name) else { return };
        let (_folder, path) = model.write(name);
        model.is_exported(&path);
        let (header, _) = parts(&path.with_extension("dmexp"));
        assert_eq!(header.config, model.config, "{name}");
    }
}

#[test]
fn odd_sizes_and_what_changed_between_versions_are_exported_as_written() {
    let odd = Model::odd();
    let mut no_gain = odd.clone();
    no_gain.tensors.retain(|(name, ..)| name.rsplit('.').next() != Some("gain"));
    let mut earlier_head = odd.clone();
    earlier_head.tensors.iter_mut().filter(|(name, ..)| name == "aux.conf.proj.weight").for_each(|(_, dims, _)| dims[0] = 24);
    let mut gated = odd.clone();
    gated.config += "use_situ = true\n";
    gated.tensors.iter_mut().filter(|(name, ..)| name.ends_with("gate_up.inner.Tsct.v")).for_each(|(_, dims, _)| dims[0] = 40);
    let mut no_arm = odd.clone();
    no_arm.config = odd.config.replace("use_attnres = true", "use_attnres = false\nmoe_topk = 2");
    no_arm.tensors.retain(|(name, ..)| !name.contains(".attnres."));
    for (name, model) in [("odd", odd), ("no_gain", no_gain), ("earlier_head", earlier_head), ("gated", gated), ("no_arm", no_arm)] {
        let model = model.filled();
        let (_folder, path) = model.write(name);
        model.is_exported(&path);
    }
}

/// What burn's stores add to a record is passed over, and the order in which tensors were written does not matter.
#[test]
fn records_of_other_writers_of_burn_read_the_same() {
    let odd = Model::odd();
    let (_folder, path) = odd.write("odd");
    let writer = odd.writer().with_metadata("format", "burnpack").with_metadata("producer", "burn").with_metadata("version", "0.22.1");
    let writer = writer.with_scalar("a", Scalar::Float(0.5)).with_scalar("b", Scalar::Int(-3)).with_scalar("c", Scalar::Bool(true));
    std::fs::write(&path, container(&writer.into_bytes().unwrap())).unwrap();
    odd.is_exported(&path);
    let mut reversed = odd.clone();
    reversed.tensors.reverse();
    std::fs::write(&path, container(&reversed.record())).unwrap();
    odd.is_exported(&path);
}

#[test]
fn records_that_are_not_the_models_are_refused() {
    let odd = Model::odd();
    let (_folder, path) = odd.write("odd");
    let refused = |record: &[u8], class: Class, parts: &[&str]| {
        std::fs::write(&path, container(record)).unwrap();
        let error = checkpoint::open(&path).unwrap_err();
        assert!(error.class() == class && parts.iter().all(|part| error.to_string().contains(part)), "{error}\n{parts:?}");
    };
    let edited = |edit: fn(&mut Model)| {
        let mut model = odd.clone();
        edit(&mut model);
        model.filled().record()
    };
    // One gain of three: neither version has that.
    refused(
        &edited(|model| model.tensors.retain(|(name, ..)| name != "loop_block.attnres.1.gain")),
        Class::Mismatch,
        &["no tensor loop_block.attnres.1.gain [24]"],
    );
    refused(&edited(|model| model.tensors.push(("extra".to_owned(), vec![2], Vec::new()))), Class::Mismatch, &["a tensor extra [2]"]);
    refused(&edited(|model| model.tensors[0].1 = vec![24, 98]), Class::Mismatch, &["embedding.weight [24, 98]", "[98, 24]"]);
    refused(&edited(|model| model.tensors.clear()), Class::Damaged, &["no tensors"]);
    // Another type than training stores.
    let half = Tensor::new("embedding.weight".to_owned(), DType::F16, [98, 24], None, Bytes::from_bytes_vec(vec![0; 98 * 24 * 2]));
    refused(&Writer::new(vec![half]).into_bytes().unwrap(), Class::Damaged, &["embedding.weight", "F16", "F32"]);
    // A value that is not finite is refused when it is exported, with its tensor; no file comes.
    let mut model = odd.clone();
    model.tensors[9].2[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&path, container(&model.record())).unwrap();
    let out = path.with_extension("dmexp");
    let options = Options { format: Format::V1, golden: false, ..Options::new(&out) };
    let error = run(&checkpoint::open(&path).unwrap(), &options, &AtomicBool::new(false), &mut |_| ()).unwrap_err();
    assert!(error.class() == Class::Damaged && error.to_string().contains("beta_proj.weight"), "{error}");
    assert!(!out.exists());
}
