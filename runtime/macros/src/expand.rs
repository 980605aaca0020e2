//! From a checked file to the code that stands for it.

mod dormouse;

use crate::parse::{Refusal, Request};
use dmexp_format::arch::Architecture;
use dmexp_format::arch::llama::LlamaConfig;
use dmexp_format::arch::llama_tensors::check_tensors;
use dmexp_format::file::ModelFile;
use dmexp_format::layout::LlamaLayout;
use dmexp_format::tokenizer::TokenizerFacts;
use dmexp_format::vocabulary::Vocabulary;
use dmexp_format::{Dims, KvDType, TensorView, host};
use host::{fit, name_matches};
use proc_macro::TokenStream;
use std::fmt::Write as _;

/// Checks the file and writes the type.
pub(crate) fn model(request: &Request) -> Result<TokenStream, Refusal> {
    let shown = &request.shown;
    let refuse = |message: String| Refusal::new(request.path_span, message);
    let bytes =
        std::fs::read(&request.path).map_err(|error| refuse(format!("{shown}: {error} (looked for {})", request.path.display())))?;
    let file = ModelFile::open(&bytes).map_err(|error| refuse(format!("{shown}: {error}")))?;
    host::verify(&bytes).map_err(|error| refuse(format!("{shown}: {error}")))?;
    if let Some((_, span)) = request.decoding.filter(|_| file.architecture() != Architecture::Dormouse) {
        return Err(Refusal::new(span, format!("{shown}: `decoding` is for dormouse models alone")));
    }
    if file.architecture() == Architecture::Sequential {
        return finished(request, &crate::sequential::code(request, bytes.len(), &file)?);
    }
    if let Some(span) = request.length.map(|(_, span)| span).or(request.streaming) {
        return Err(Refusal::new(span, format!("{shown}: `length` and `streaming` are of sequential models")));
    }
    match file.architecture() {
        Architecture::Llama => (),
        Architecture::Dormouse => return dormouse::model(request, &bytes, &file),
        other => return Err(refuse(format!("{shown}: include_model! cannot place a {} model yet", other.name()))),
    }
    let kv = request.kv.map_or_else(KvDType::default, |(kv, _)| kv);
    let config = check_tensors(&file).map_err(|error| refuse(format!("{shown}: {error}")))?;
    let facts = *Vocabulary::bind(&file).map_err(|error| refuse(format!("{shown}: {error}")))?.facts();
    let context = request.context.unwrap_or(config.max_seq_len);
    let layout = LlamaLayout::new(&config, context, kv).map_err(|error| Refusal::new(request.context_span, format!("{shown}: {error}")))?;

    check_ram(request, &file)?;
    if let Some(room) = &request.room {
        let mut banks = room.banks.clone();
        let hot = Places { request, file: &file, path: "", file_len: bytes.len() }.hot_bytes() as u64;
        if let Some(first) = banks.first_mut() {
            *first = first.saturating_sub(hot);
        }
        if fit::place(&layout, &banks).is_none() {
            let why = fit::refusal(&config, (context, kv), &layout, &banks, &room.place, &Written);
            return Err(Refusal::new(room.span, format!("{shown}: {why}")));
        }
    }
    finished(request, &code(request, &bytes, &file, (&config, context, kv), &facts))
}

/// That every pattern of `ram` names a tensor.
fn check_ram(request: &Request, file: &ModelFile<'_>) -> Result<(), Refusal> {
    for (pattern, span) in &request.ram {
        if !file.tensors().any(|tensor| name_matches(pattern, tensor.name)) {
            let names: Vec<_> = file.tensors().take(6).map(|tensor| tensor.name).collect();
            let shown = &request.shown;
            return Err(Refusal::new(*span, format!("{shown}: no tensor is called {pattern:?}; they are called {}, ..", names.join(", "))));
        }
    }
    Ok(())
}

/// The code behind the caller's attributes.
fn finished(request: &Request, code: &str) -> Result<TokenStream, Refusal> {
    let shown = &request.shown;
    let refuse = |error| Refusal::new(request.path_span, format!("{shown}: the generated code does not parse: {error}"));
    let body: TokenStream = code.parse().map_err(refuse)?;
    Ok(request.prefix.clone().into_iter().chain(body).collect())
}

/// As the options of the macro are written.
struct Written;

impl fit::Ask for Written {
    fn context(&self, context: u32) -> String {
        format!("`context = {context}`")
    }

    fn kv(&self, kv: KvDType) -> String {
        format!("`kv = {}`", kv.name())
    }
}

fn code(
    request: &Request,
    bytes: &[u8],
    file: &ModelFile<'_>,
    (config, context, kv): (&LlamaConfig, u32, KvDType),
    facts: &TokenizerFacts,
) -> String {
    let name = &request.name;
    let path = request.path.display().to_string();
    let places = Places { request, file, path: &path, file_len: bytes.len() };
    let section = request.section.as_ref().map(|section| format!("#[unsafe(link_section = {section:?})]")).unwrap_or_default();
    let weights = config.weight_tensors();
    let mut table = String::new();
    let mut dtypes = String::new();
    for number in 0..weights {
        let _ = writeln!(table, "{},", places.tensor(number));
        if let Some(view) = file.tensor(number).filter(|view| view.dims().rank() > 1) {
            let _ = writeln!(dtypes, "::dmexp::__macro::require_dtype({});", view.dtype().code());
        }
    }
    let mut inv_freq = String::new();
    if file.version() > 1 {
        let _ = writeln!(table, "{},", places.tensor(weights));
    } else {
        // Format 1 has its frequencies in the configuration: they become one more tensor.
        let mut frequencies = vec![0.0; config.head_dim as usize / 2];
        let stored: Vec<u8> = match file.rope_inv_freq(&mut frequencies) {
            Ok(()) => frequencies.iter().flat_map(|f| f.to_le_bytes()).collect(),
            Err(_) => Vec::new(),
        };
        let _ = writeln!(
            inv_freq,
            "static INV_FREQ: ::dmexp::__macro::Aligned<[u8; {}]> = ::dmexp::__macro::Aligned({stored:?});",
            stored.len()
        );
        let _ = writeln!(table, "::dmexp::__macro::tensor(&INV_FREQ.0, 0, 0, 0, {}),", dims(Dims::vector(config.head_dim / 2)));
    }
    let arrays = match facts.kind.arrays() {
        Some(_) => facts.arrays.map(|number| places.tensor(number)).join(", "),
        None => ["::dmexp::format::TensorView::EMPTY"; 4].join(", "),
    };
    let (kv, fingerprint) = (format!("::dmexp::format::KvDType::{kv:?}"), file.fingerprint());
    format!(
        "
        struct {name};
        impl {name} {{
            /// Positions of the context.
            pub const CONTEXT: u32 = {context};
            /// How keys and values are kept.
            pub const KV: ::dmexp::format::KvDType = {kv};
            /// The model's fingerprint: the same for every form of one file.
            pub const FINGERPRINT: u32 = {fingerprint};
            /// The model's configuration.
            pub const CONFIG: ::dmexp::format::arch::llama::LlamaConfig = {config};
            /// Bytes of weights that are copied to RAM.
            pub const RAM_LEN: usize = {ram_len};
            /// Bytes of arena that a session needs.
            pub const ARENA_LEN: usize = Self::LAYOUT.total_bytes;
            /// Those of them that hold keys and values, where memory is given in two banks.
            pub const KV_LEN: usize = Self::LAYOUT.kv_bytes;
            /// Those of them that hold everything else.
            pub const WORK_LEN: usize = Self::LAYOUT.work_bytes();
            const LAYOUT: ::dmexp::format::layout::LlamaLayout = ::dmexp::__macro::layout(&Self::CONFIG, Self::CONTEXT, Self::KV);
            /// The model; nothing is left to check.
            pub fn bind() -> &'static ::dmexp::Model<'static> {{
                const _: () = {{ {dtypes} ::dmexp::__macro::require_tokenizer({kind}); ::dmexp::__macro::require_kv({kv}); }};
                {statics}
                {inv_freq}
                {section}
                static TENSORS: [::dmexp::format::TensorView<'static>; {count}] = [{table}];
                const ARRAYS: [::dmexp::format::TensorView<'static>; 4] = [{arrays}];
                static MODEL: ::dmexp::Model<'static> = ::dmexp::Model::from_parts(
                    ::dmexp::models::llama::Llama::from_table({name}::CONFIG, &TENSORS),
                    ::dmexp::tokenizer::Tokenizer::from_parts({facts}, ARRAYS),
                    {name}::CONTEXT,
                    {name}::KV,
                ).with_layout(&{name}::LAYOUT);
                &MODEL
            }}
            {goldens}
        }}
        ",
        goldens = goldens_code(&places, bytes),
        config = config_code(config),
        statics = places.statics(&section),
        ram_len = places.hot_bytes(),
        count = weights + 1,
        kind = facts.kind as u32,
        facts = facts_code(facts),
    )
}

/// The function that returns the file's golden vectors; `bytes` are the file's.
fn goldens_code(places: &Places<'_>, bytes: &[u8]) -> String {
    let Places { file, path, file_len, .. } = places;
    let goldens = file.golden();
    let goldens = goldens.as_bytes();
    let (len, start) = (goldens.len(), goldens.as_ptr().addr().saturating_sub(bytes.as_ptr().addr()));
    let start = if goldens.is_empty() { 0 } else { start };
    format!(
        "
            /// The golden vectors of the file, with which a program can test the chip that it runs on; they are linked where this is called.
            pub fn goldens() -> ::dmexp::format::file::golden::Goldens<'static> {{
                static GOLDENS: [u8; {len}] = ::dmexp::__macro::piece::<{len}>(include_bytes!({path:?}), {file_len}, {start});
                ::dmexp::format::file::golden::Goldens::from_checked(&GOLDENS)
            }}
        "
    )
}

/// Where the tensors lie in the program: all in one static, or, where some are copied to RAM, each in a static of its own, so that none is there twice.
struct Places<'a> {
    request: &'a Request,
    file: &'a ModelFile<'a>,
    path: &'a str,
    file_len: usize,
}

impl Places<'_> {
    fn is_hot(&self, name: &str) -> bool {
        self.request.ram.iter().any(|(pattern, _)| name_matches(pattern, name))
    }

    /// Bytes of the tensors that are copied to RAM.
    fn hot_bytes(&self) -> usize {
        self.file.tensors().filter(|tensor| self.is_hot(tensor.name)).map(|tensor| tensor.view.bytes().len()).sum()
    }

    /// The statics; `section` is the attribute of those that stay in flash.
    fn statics(&self, section: &str) -> String {
        let Self { file, path, file_len, .. } = self;
        let payload = file.payload();
        let start = file_len - payload.len();
        let piece = |name: &str, section: &str, start: u64, len: usize| {
            format!(
                "{section}
                static {name}: ::dmexp::__macro::Aligned<[u8; {len}]> =
                    ::dmexp::__macro::Aligned(::dmexp::__macro::piece::<{len}>(include_bytes!({path:?}), {file_len}, {start}));"
            )
        };
        if self.request.ram.is_empty() {
            return piece("DMEXP_MODEL", section, start as u64, payload.len());
        }
        let tensors = file.tensors().map(|tensor| {
            // Start-up code copies `.data`. Hosts have no slow flash, and other names for their sections.
            let hot = "#[cfg_attr(target_os = \"none\", unsafe(link_section = \".data.dmexp\"))]";
            let section = if self.is_hot(tensor.name) { hot } else { section };
            piece(&format!("DMEXP_TENSOR_{}", tensor.number), section, start as u64 + tensor.offset, tensor.view.bytes().len())
        });
        tensors.collect()
    }

    /// The view of a tensor in its static.
    fn tensor(&self, number: u32) -> String {
        let view = self.file.tensor(number).unwrap_or(TensorView::EMPTY);
        let (name, offset) = if self.request.ram.is_empty() {
            ("DMEXP_MODEL".to_owned(), view.bytes().as_ptr().addr().saturating_sub(self.file.payload().as_ptr().addr()))
        } else {
            (format!("DMEXP_TENSOR_{number}"), 0)
        };
        format!("::dmexp::__macro::tensor(&{name}.0, {offset}, {}, {}, {})", view.dtype().code(), view.group(), dims(view.dims()))
    }
}

pub(crate) fn dims(dims: Dims) -> String {
    format!("{}, {:?}", dims.rank(), dims.padded())
}

fn config_code(config: &LlamaConfig) -> String {
    // Floats by their bits: no decimal in between.
    let LlamaConfig { dim, hidden_dim, n_layers, n_heads, n_kv_heads, head_dim, vocab_size, max_seq_len, .. } = config;
    format!(
        "::dmexp::format::arch::llama::LlamaConfig {{
            dim: {dim}, hidden_dim: {hidden_dim}, n_layers: {n_layers}, n_heads: {n_heads}, n_kv_heads: {n_kv_heads}, head_dim: {head_dim},
            vocab_size: {vocab_size}, max_seq_len: {max_seq_len}, norm_eps: f32::from_bits({}),
            rope_layout: ::dmexp::format::arch::llama::RopeLayout::{:?}, attention_factor: f32::from_bits({}),
            tied_embeddings: {}, qkv_bias: {}, sliding_window: {},
        }}",
        config.norm_eps.to_bits(),
        config.rope_layout,
        config.attention_factor.to_bits(),
        config.tied_embeddings,
        config.qkv_bias,
        config.sliding_window,
    )
}

fn facts_code(facts: &TokenizerFacts) -> String {
    let TokenizerFacts { n_pieces, add_bos, dummy_prefix, bos, pad, unk, byte_base, max_piece_len, arrays, .. } = facts;
    let TokenizerFacts { kind, n_special, pre_tokenizer, ignore_merges, normalizer, eos, .. } = facts;
    format!(
        "::dmexp::format::tokenizer::TokenizerFacts {{
            kind: ::dmexp::format::tokenizer::TokenizerKind::{kind:?}, n_pieces: {n_pieces}, add_bos: {add_bos}, dummy_prefix: {dummy_prefix},
            bos: {bos}, pad: {pad}, unk: {unk}, byte_base: {byte_base}, max_piece_len: {max_piece_len}, arrays: {arrays:?}, eos: {eos:?},
            n_special: {n_special}, pre_tokenizer: ::dmexp::format::tokenizer::PreTokenizer::{pre_tokenizer:?}, ignore_merges: {ignore_merges},
            normalizer: ::dmexp::format::tokenizer::Normalizer::{normalizer:?},
        }}"
    )
}
