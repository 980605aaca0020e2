//! `dmexp export info`: what a file is and all of its header.

use super::dormouse_words;
use super::failure::{Failure, Outcome};
use super::figures::{TensorLine, by_dtype, tensor_table};
use super::header;
use super::layers::{layer_json, layer_table};
use super::output::{bytes, facts, grouped, json, shown};
use clap::Args;
use dmexp_format::arch::Architecture;
use dmexp_format::arch::sequential::{Samples, Sequential};
use dmexp_format::file::ModelFile;
use dmexp_format::host::{Config, Header, HeaderV1, TensorMeter};
use dmexp_format::layout::LlamaLayout;
use dmexp_format::tokenizer::NO_TOKEN;
use dmexp_format::{KvDType, crc32};
use dmexp_tools::decode::Loaded;
use dmexp_tools::error::shown_path;
use dmexp_tools::predict;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use toml::Table;

/// Show what a .dmexp file is and all of its header
///
/// Reads the whole file once, for its checksum. Exits with 1 where the checksum is wrong or the header contradicts itself; dmexp export verify makes every check.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp export info stories.dmexp
  dmexp export info stories.dmexp --tensors
  dmexp export info stories.dmexp --json | jq .header.config.dim")]
pub(crate) struct Info {
    /// The .dmexp file, of format 1 or 2
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Lists every tensor with its range
    #[arg(long)]
    tensors: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// What was found.
struct Found<'a> {
    path: &'a Path,
    file: ModelFile<'a>,
    file_bytes: u64,
    computed: u32,
    /// The header as it stands in the file; what the index says where there is none.
    header: Table,
    /// What is wrong with the header.
    wrong: Option<String>,
    unknown_keys: Vec<String>,
    tensors: Vec<TensorLine>,
    /// Of a sequential model: its layers, and the names of their types where there is a header.
    layers: Option<(Sequential<'a>, Vec<String>)>,
    /// Of a sequential model: bytes of memory that a run needs, and how many golden vectors there are.
    network: Option<(usize, u32)>,
}

/// Runs the command.
pub(crate) fn run(command: &Info) -> Outcome {
    let loaded = Loaded::open(&command.file)?;
    let found = Found::look(&loaded)?;
    if command.json {
        json(&found.json(command.tensors))?;
    } else {
        found.print(command.tensors)?;
    }
    if found.is_sound() { Ok(()) } else { Err(Failure::FoundWrong) }
}

/// Whether this version runs models of this architecture.
const fn runs_here(architecture: Architecture) -> bool {
    matches!(architecture, Architecture::Llama | Architecture::Dormouse | Architecture::Sequential)
}

impl<'a> Found<'a> {
    fn look(loaded: &'a Loaded) -> Outcome<Self> {
        let file = loaded.file()?;
        let computed = crc32::checksum(&[file.payload()]);
        let (mut wrong, mut unknown_keys, mut flushed) = (None, Vec::new(), Vec::new());
        let mut types = Vec::new();
        let header = match (file.header_text(), file.version()) {
            (None, _) => header::of_index(file.llama_config().ok().as_ref(), &file.tokenizer_facts()?),
            (Some(text), version) => {
                let checked = if version == 1 {
                    HeaderV1::parse(text).map(|(_, unknown)| unknown)
                } else {
                    Header::parse(text).map(|(header, unknown)| {
                        if let Config::Sequential(settings) = &header.config {
                            types = settings.layers.iter().map(|named| named.type_name.clone()).collect();
                        }
                        flushed = header.tensors.iter().map(|tensor| tensor.figures.map(|figures| figures.flushed)).collect();
                        unknown
                    })
                };
                match checked {
                    Ok(unknown) => unknown_keys = unknown,
                    Err(error) => wrong = Some(error.to_string()),
                }
                text.parse().unwrap_or_else(|error: toml::de::Error| {
                    wrong.get_or_insert(error.message().to_owned());
                    Table::new()
                })
            }
        };
        let tensors = file.tensors().enumerate().map(|(place, tensor)| {
            let mut meter = TensorMeter::of(tensor.view.dtype(), tensor.view.dims(), tensor.view.group());
            meter.update(tensor.view.bytes());
            TensorLine {
                name: tensor.name.to_owned(),
                dtype: tensor.view.dtype(),
                dims: tensor.view.dims(),
                bytes: tensor.view.bytes().len() as u64,
                offset: tensor.offset,
                figures: meter.finish().figures,
                flushed: flushed.get(place).copied().flatten(),
            }
        });
        let tensors = tensors.collect();
        let layers = match file.architecture() {
            Architecture::Sequential => Some((file.sequential().map_err(|error| loaded.explain(error))?, types)),
            _ => None,
        };
        let network = layers.as_ref().and_then(|(model, _)| {
            let predictor = predict::predictor(loaded).ok()?;
            Some((predictor.arena_len().ok()?, Samples::of(&file, model).ok()?.count()))
        });
        Ok(Self {
            path: loaded.path(),
            file,
            file_bytes: loaded.bytes().len() as u64,
            computed,
            header,
            wrong,
            unknown_keys,
            tensors,
            layers,
            network,
        })
    }

    fn payload_is_sound(&self) -> bool {
        self.computed == self.file.payload_crc()
    }

    fn is_sound(&self) -> bool {
        self.payload_is_sound() && self.wrong.is_none()
    }

    /// Bytes of arena at the longest context; `None` for what this version does not run.
    fn arena(&self, kv: KvDType) -> Option<(u32, usize)> {
        let config = self.file.llama_config().ok()?;
        let layout = LlamaLayout::new(&config, config.max_seq_len, kv).ok()?;
        Some((config.max_seq_len, layout.total_bytes))
    }

    fn json(&self, tensors: bool) -> Value {
        let golden = self.file.golden().map(|golden| {
            let positions = golden.positions().map(|known| {
                let top: Vec<u32> = known.top.into_iter().filter(|token| *token != NO_TOKEN).collect();
                json!({ "position": known.position, "crc32": format!("{:08x}", known.crc32), "top5": top })
            });
            json!({ "kv": golden.kv().name(), "tokens": golden.tokens().collect::<Vec<_>>(), "positions": positions.collect::<Vec<_>>() })
        });
        let arena = |kv| self.arena(kv).map(|(_, bytes)| bytes);
        let mut value = json!({
            "file": self.path.to_string_lossy(),
            "bytes": self.file_bytes,
            "format": self.file.version(),
            "architecture": self.file.architecture().name(),
            "runs_here": runs_here(self.file.architecture()),
            "num_params": self.file.num_params(),
            "num_tensors": self.file.num_tensors(),
            "alignment": self.file.alignment(),
            "fingerprint": format!("{:08x}", self.file.fingerprint()),
            "stripped": self.file.header_text().is_none(),
            "header_bytes": self.file.fixed().header_len,
            "index_bytes": self.file.fixed().index_len,
            "payload": {
                "offset": self.file.fixed().payload_start(),
                "bytes": self.file.payload().len(),
                "crc32": format!("{:08x}", self.file.payload_crc()),
                "computed_crc32": format!("{:08x}", self.computed),
                "ok": self.payload_is_sound(),
            },
            "header_wrong": self.wrong,
            "unknown_keys": self.unknown_keys,
            "arena_bytes": { "context": self.arena(KvDType::F16).map(|(context, _)| context), "kv_f16": arena(KvDType::F16), "kv_f32": arena(KvDType::F32), "kv_q8": arena(KvDType::Q8) },
            "golden": golden.collect::<Vec<_>>(),
            "header": serde_json::to_value(&self.header).unwrap_or(Value::Null),
        });
        let words = dormouse_words::lines(&self.file);
        if !words.is_empty() {
            value["model"] = words.into_iter().map(|(name, text)| (name.to_owned(), Value::String(text))).collect();
        }
        if let Some((model, types)) = &self.layers {
            value["layers"] = layer_json(model, types);
            value["layers"]["arena_bytes"] = json!(self.network.map(|(bytes, _)| bytes));
            value["layers"]["golden_vectors"] = json!(self.network.map(|(_, count)| count));
        }
        if tensors {
            value["tensors"] = self.tensors.iter().map(TensorLine::json).collect();
        }
        value
    }

    fn print(&self, tensors: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let (file, fixed) = (&self.file, self.file.fixed());
        writeln!(out, "{}: a .dmexp file, format {}", shown_path(self.path), file.version())?;
        let mut rows = vec![
            ("architecture", file.architecture().name().to_owned()),
            ("size", bytes(self.file_bytes)),
            ("parameters", grouped(file.num_params())),
            ("tensors", format!("{}: {}", self.tensors.len(), by_dtype(&self.tensors))),
            ("fingerprint", format!("{:08x}", file.fingerprint())),
        ];
        rows.push(("header", self.header_state()));
        let state = if self.payload_is_sound() {
            format!("checksum ok ({:08x})", self.computed)
        } else {
            format!("CHECKSUM MISMATCH: the file says {:08x}, the bytes give {:08x}", file.payload_crc(), self.computed)
        };
        rows.push(("payload", format!("{} from byte {}, {state}", bytes(file.payload().len() as u64), grouped(fixed.payload_start()))));
        if file.version() == 2 {
            rows.push(("alignment", format!("{} bytes", file.alignment())));
        }
        for golden in file.golden() {
            let positions: Vec<String> = golden.positions().map(|known| known.position.to_string()).collect();
            let what = format!(
                "{} tokens with keys and values in {}, logits known at positions {}",
                golden.len(),
                golden.kv(),
                positions.join(", ")
            );
            rows.push(("golden vector", what));
        }
        if let [Some((context, f16)), Some((_, f32)), Some((_, q8))] = [KvDType::F16, KvDType::F32, KvDType::Q8].map(|kv| self.arena(kv)) {
            let [f16, f32, q8] = [f16, f32, q8].map(|arena| bytes(arena as u64));
            let what = format!("{f16} for {context} positions with --kv f16; {f32} with f32, {q8} with q8");
            rows.push(("memory to run", what));
        }
        if let Some((arena, golden)) = self.network {
            rows.push(("memory to run", bytes(arena as u64)));
            rows.push(("golden vectors", golden.to_string()));
        }
        rows.extend(dormouse_words::lines(file));
        if !runs_here(file.architecture()) {
            rows.push(("runs here", "no: this version lists and checks this architecture, it does not run it".to_owned()));
        }
        facts(&mut out, &rows)?;
        writeln!(out, "{}", if file.header_text().is_some() { "header:" } else { "what the index says:" })?;
        header::print(&mut out, &self.header)?;
        if let Some((model, types)) = &self.layers {
            writeln!(out, "layers:\n{}", layer_table(model, types))?;
        }
        for key in &self.unknown_keys {
            writeln!(out, "not known to this version, and without effect on what is computed: {}", shown(key))?;
        }
        if tensors {
            writeln!(out, "tensors:\n{}", tensor_table(&self.tensors))?;
        }
        out.flush()
    }

    fn header_state(&self) -> String {
        let fixed = self.file.fixed();
        let size = bytes(u64::from(fixed.header_len));
        if let Some(wrong) = &self.wrong {
            return format!("{size}, WRONG: {}", shown(wrong));
        }
        match (self.file.version(), self.file.header_text()) {
            (1, _) => format!("{size}, no checksum over it (format 1 has none)"),
            (_, Some(_)) => format!("{size} and an index of {}, checksum ok ({:08x})", bytes(u64::from(fixed.index_len)), fixed.checksum),
            (_, None) => format!(
                "none (stripped for firmware); an index of {}, checksum ok ({:08x})",
                bytes(u64::from(fixed.index_len)),
                fixed.checksum
            ),
        }
    }
}
