//! The files of a project.

use super::boards::{Board, Kind, LINK, Port};
use super::fit::fit;
use crate::decode::Loaded;
use crate::error::{Class, Error, Result};
use crate::folder::FolderTarget;
use crate::plan::{Facts, Plan};
use dmexp_format::KvDType;
use dmexp_format::arch::Architecture;
use dmexp_format::host;
use dmexp_format::tokenizer::TokenizerKind;
use std::io::Write;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Where a project's Cargo.toml finds the crate `dmexp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the folder `runtime` of a checkout.
    Path(PathBuf),
    /// Of this version, from the registry.
    Registry(String),
}

impl Source {
    /// The crate in `folder`: a checkout of this repository, or its folder `runtime`.
    ///
    /// # Errors
    /// [`Class::Request`] where it is neither.
    pub fn in_folder(folder: &Path) -> Result<Self> {
        if folder.to_str().is_none() {
            return Err(Error::new(Class::Request, "has a name that is not UTF-8, which a Cargo.toml cannot hold")
                .advise("rename it, or name it by a link")
                .in_file(folder));
        }
        [folder.join("runtime"), folder.to_path_buf()].into_iter().find_map(|folder| crate_in(&folder)).ok_or_else(|| {
            Error::new(Class::Request, "is no checkout of dmexp: there is no runtime/Cargo.toml of the crate `dmexp` in it")
                .advise("name the root of the checkout")
                .in_file(folder)
        })
    }

    /// The checkout that `start` lies in, or else the one that this program was built from, or, where there is none, the crate of this program's version.
    pub fn around(start: &Path) -> Self {
        Self::nearest(start, Path::new(env!("CARGO_MANIFEST_DIR")))
    }

    /// The checkout that `start` lies in, or that with the crate of this program at `built`, or the crate of its version from the registry.
    pub(super) fn nearest(start: &Path, built: &Path) -> Self {
        let checkout = start.ancestors().find_map(|folder| crate_in(&folder.join("runtime")));
        let found = checkout.or_else(|| crate_in(&built.join("../runtime")));
        found.unwrap_or_else(|| Self::Registry(env!("CARGO_PKG_VERSION").to_owned()))
    }

    /// The key of the dependency, and its value.
    fn key(&self) -> (&'static str, String) {
        match self {
            Self::Path(folder) => ("path", folder.to_string_lossy().into_owned()),
            Self::Registry(version) => ("version", version.clone()),
        }
    }

    /// The same as TOML.
    fn keys(&self) -> String {
        let (key, value) = self.key();
        format!("{key} = {}", Value::String(value))
    }
}

/// The crate `dmexp` in `folder`, if it is there and a Cargo.toml can say where that is.
fn crate_in(folder: &Path) -> Option<Source> {
    let manifest: Table = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?.parse().ok()?;
    let name = manifest.get("package")?.get("name")?.as_str()?;
    let folder = (name == "dmexp").then(|| folder.canonicalize().ok()).flatten()?;
    folder.to_str()?;
    Some(Source::Path(plain(folder)))
}

/// The same path as Cargo takes it: Windows begins canonical ones with `\\?\`.
pub(super) fn plain(folder: PathBuf) -> PathBuf {
    let text = folder.to_str().and_then(|text| text.strip_prefix(r"\\?\"));
    match text.filter(|rest| !rest.starts_with("UNC")) {
        Some(rest) => rest.into(),
        None => folder,
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The board.
    pub board: &'static Board,
    /// The model file, which is copied into the project.
    pub model: &'a Path,
    /// Positions of the context; those of the model where there is none.
    pub context: Option<u32>,
    /// How keys and values are kept.
    pub kv: KvDType,
    /// What the text begins with; chosen by the context where there is none.
    pub prompt: Option<&'a str>,
    /// Where the crate `dmexp` comes from.
    pub dmexp: Source,
}

/// The largest context for which a text begins of itself: beside a longer prompt there would be no room for it.
const SHORT: u32 = 128;

/// Writes the project to the folder `out`, whole or not at all.
///
/// # Errors
/// [`Class::Request`] for a model that does not run or has no room on the board; those of [`Loaded::open`] and of a file that is not sound; [`Class::Unwritable`].
pub fn write(request: &Request<'_>, out: &Path) -> Result<Plan> {
    let loaded = Loaded::open(request.model)?;
    host::verify(loaded.bytes()).map_err(|error| Error::damaged(error.to_string()).in_file(request.model))?;
    let file = loaded.file()?;
    if file.architecture() != Architecture::Llama {
        let what = format!("is a {} model; the projects written here run models of the Llama family", file.architecture().name());
        let advice = match file.architecture() {
            Architecture::Sequential => "include_model! takes it into firmware of your own: docs/small-networks.md",
            _ => "include_model! takes it into firmware of your own: docs/dormouse.md",
        };
        return Err(Error::new(Class::Request, what).advise(advice).in_file(request.model));
    }
    let model = loaded.model()?;
    let facts = model.tokenizer().facts();
    if facts.kind == TokenizerKind::None {
        let what = "carries no tokenizer, so firmware could neither read a prompt nor write text";
        return Err(Error::new(Class::Request, what).advise("export it with --tokenizer, as format 2").in_file(request.model));
    }
    let facts_of_model = Facts::of(&loaded)?;
    let context = request.context.unwrap_or(facts_of_model.config.max_seq_len);
    let plan = fit(request.board, &facts_of_model, context, request.kv).map_err(|error| error.in_file(request.model))?;
    let mut dtypes: Vec<_> =
        file.tensors().filter(|tensor| tensor.view.dims().rank() > 1).map(|tensor| tensor.view.dtype().name()).collect();
    dtypes.sort_unstable();
    dtypes.dedup();
    let features = features(request.board, &dtypes, request.kv, facts.kind);
    let prompt = request.prompt.unwrap_or(if context < SHORT { "" } else { "Once upon a time" });
    let project = Project { request, plan: &plan, features, prompt };

    let files = project.files()?;
    let target = FolderTarget::new(out)?;
    for (name, text) in files {
        let path = Path::new(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(target.path().join(folder)).map_err(|source| target.failed(source))?;
        }
        target.file(name)?.write_all(text.as_bytes()).map_err(|source| target.failed(source))?;
    }
    target.file("model.dmexp")?.write_all(loaded.bytes()).map_err(|source| target.failed(source))?;
    loaded.unchanged()?;
    target.commit()?;
    Ok(plan)
}

/// The features of `dmexp` that the firmware needs.
fn features(board: &Board, dtypes: &[&str], kv: KvDType, tokenizer: TokenizerKind) -> Vec<String> {
    let mut features = vec!["llama".to_owned(), "macros".to_owned()];
    features.extend(dtypes.iter().map(|&dtype| dtype.to_owned()));
    features.push(format!("kv-{kv}"));
    if tokenizer == TokenizerKind::ByteLevelBpe {
        features.push("bpe".to_owned());
    }
    if board.has_soft_floats() {
        features.push("soft-float".to_owned());
    }
    if board.has_optional_dsp() {
        features.push("dsp".to_owned());
    }
    features
}

/// A project before it is written.
struct Project<'a> {
    request: &'a Request<'a>,
    plan: &'a Plan,
    features: Vec<String>,
    prompt: &'a str,
}

impl Project<'_> {
    /// Its files but for the model: where they lie in its folder, and their text.
    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        let values = [
            ("TITLE", self.request.board.title()),
            ("NAME", self.request.board.name.to_owned()),
            ("TARGET", self.request.board.target().to_owned()),
            ("CONTEXT", self.plan.context.to_string()),
            ("KV", self.request.kv.to_string()),
            ("MODEL_BYTES", self.plan.model_bytes.to_string()),
            ("ARENA_BYTES", self.plan.layout.total_bytes.to_string()),
        ];
        let mut files = match &self.request.board.kind {
            Kind::Emulated { machine, base, port } => self.emulated(machine, base, port),
            Kind::Real { .. } => self.real()?,
        };
        files.push((".gitignore", "/target\n".to_owned()));
        files.push(("rust-toolchain.toml", include_str!("templates/rust-toolchain.toml").to_owned()));
        for (_, text) in &mut files {
            *text = filled(text, &values);
            // Last, for it may hold anything.
            *text = filled(text, &[("PROMPT", format!("{:?}", self.prompt))]);
        }
        Ok(files)
    }

    fn emulated(&self, machine: &str, base: &str, port: &Port) -> Vec<(&'static str, String)> {
        let board = self.request.board;
        let (rt, start, program, bios) = if board.is_riscv() {
            ("riscv-rt = \"0.18.0\"", include_str!("templates/riscv.rs"), "qemu-system-riscv32", " -bios none")
        } else {
            ("cortex-m-rt = \"0.7.7\"", include_str!("templates/arm.rs"), "qemu-system-arm", "")
        };
        let qemu = format!(
            "{program} -machine {machine}{bios} -display none -monitor none -serial stdio -semihosting-config enable=on,target=native -kernel"
        );
        let words = if port.words { include_str!("templates/serial/words.rs") } else { "" };
        let serial = [include_str!("templates/serial.rs"), words, port.code, start].concat();
        let more = if board.target().starts_with("thumbv6m") { ATOMICS } else { "" };
        let features: Vec<_> = self.features.iter().map(|feature| format!("\"{feature}\"")).collect();
        let values = [
            ("RT", rt.to_owned()),
            ("FEATURES", features.join(", ")),
            ("MORE", more.to_owned()),
            ("PROGRAM", program.to_owned()),
            ("QEMU", qemu),
            ("BASE", base.to_owned()),
            ("DMEXP", self.request.dmexp.keys()),
        ];
        [
            ("Cargo.toml", include_str!("templates/emulated.toml")),
            // What cargo resolved for the repository's own boards, so that a project builds with versions that are known to work.
            ("Cargo.lock", include_str!("templates/emulated.lock")),
            (".cargo/config.toml", include_str!("templates/config.toml")),
            ("README.md", include_str!("templates/README.md")),
            ("build.rs", LINK),
            ("memory.x", board.memory),
            ("src/main.rs", include_str!("templates/main.rs")),
            ("src/board.rs", &serial),
        ]
        .map(|(name, text)| (name, filled(text, &values)))
        .to_vec()
    }

    /// The files of the board's own crate, with what that shares with others in their places.
    fn real(&self) -> Result<Vec<(&'static str, String)>> {
        let Kind::Real { manifest, main, build, config, readme, brings_memory } = &self.request.board.kind else { return Ok(Vec::new()) };
        let mut files = vec![
            ("Cargo.toml", self.manifest(manifest)?),
            ("Cargo.lock", include_str!("templates/real.lock").to_owned()),
            (".cargo/config.toml", (*config).to_owned()),
            ("README.md", (*readme).to_owned()),
            ("build.rs", (*build).to_owned()),
        ];
        let main = changed(main, "#[path = \"../../model.rs\"]\n", "")?;
        files.push(("src/main.rs", changed(&changed(&main, "../../probe.rs", "probe.rs")?, "../../story.rs", "story.rs")?));
        let (model, story, probe) =
            (include_str!("templates/real/model.rs"), include_str!("templates/real/story.rs"), include_str!("templates/real/probe.rs"));
        let included = "\"../model.dmexp\", context = @CONTEXT@, kv = @KV@, board = \"@NAME@\"";
        files.push(("src/model.rs", changed(model, "\"model.dmexp\", context = 256, kv = f16", included)?));
        files.push(("src/story.rs", changed(story, "\"Once upon a time\"", "@PROMPT@")?));
        files.push(("src/probe.rs", changed(probe, "env!(\"CARGO_BIN_NAME\")", "\"@NAME@\"")?));
        if !brings_memory {
            files.push(("memory.x", self.request.board.memory.to_owned()));
        }
        Ok(files)
    }

    /// The manifest of the board's crate, with what it takes from its workspace.
    fn manifest(&self, text: &str) -> Result<String> {
        let wrong = || Error::new(Class::Damaged, "this program's own template of a manifest is broken").advise("report this");
        let parsed = |text: &str| text.parse::<Table>().map_err(|_| wrong());
        let (mut board, workspace) = (parsed(text)?, parsed(include_str!("templates/real/workspace.toml"))?);
        let shared = workspace.get("workspace").and_then(|table| table.get("dependencies")).and_then(Value::as_table).ok_or_else(wrong)?;
        let dependencies = board.get_mut("dependencies").and_then(Value::as_table_mut).ok_or_else(wrong)?;
        for (name, dependency) in dependencies.iter_mut() {
            let Some(own) = dependency.as_table_mut().filter(|table| table.contains_key("workspace")) else { continue };
            let (more, optional) = (own.remove("features"), own.remove("optional"));
            let mut whole = match shared.get(name).ok_or_else(wrong)? {
                Value::String(version) => Table::from_iter([("version".to_owned(), Value::String(version.clone()))]),
                Value::Table(table) => table.clone(),
                _ => return Err(wrong()),
            };
            if let Some(Value::Array(more)) = more {
                let features = whole.entry("features").or_insert_with(|| Value::Array(Vec::new()));
                features.as_array_mut().ok_or_else(wrong)?.extend(more);
            }
            whole.extend(optional.map(|optional| ("optional".to_owned(), optional)));
            if name == "dmexp" {
                whole.remove("path");
                let (key, place) = self.request.dmexp.key();
                whole.insert(key.to_owned(), Value::String(place));
                whole.insert("features".to_owned(), Value::Array(self.features.iter().cloned().map(Value::String).collect()));
            }
            *own = whole;
        }
        let kept = [
            ("features", board.remove("features")),
            ("dependencies", board.remove("dependencies")),
            ("profile", workspace.get("profile").cloned()),
        ];
        let kept: Table = kept.into_iter().filter_map(|(name, table)| Some((name.to_owned(), table?))).collect();
        Ok(format!("{}\n{kept}", include_str!("templates/real.toml")))
    }
}

/// The text with `old`, which occurs once, replaced.
fn changed(text: &str, old: &str, new: &str) -> Result<String> {
    if text.matches(old).count() != 1 {
        return Err(Error::new(Class::Damaged, format!("this program's own template has not once {old:?}")).advise("report this"));
    }
    Ok(text.replace(old, new))
}

/// What Armv6-M needs besides.
const ATOMICS: &str = "
# This core has no atomic swap, which a static cell asks for; one core without interrupts needs none.
[dependencies.portable-atomic]
version = \"1\"
default-features = false
features = [\"unsafe-assume-single-core\"]
";

/// The text with every `@NAME@` replaced by its value.
fn filled(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value))
}
