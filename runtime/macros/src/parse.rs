//! The macro's input: `[attributes] [pub] Name = "path" [, key = value]*`.

use dmexp_format::KvDType;
use dmexp_format::host::boards::Board;
use dmexp_format::layout::Decoding;
use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};
use std::path::{Path, PathBuf};

/// What the caller asked for.
pub(crate) struct Request {
    /// Attributes and visibility, as written.
    pub(crate) prefix: TokenStream,
    pub(crate) name: Ident,
    /// The file as the caller wrote it.
    pub(crate) shown: String,
    /// The file, absolute.
    pub(crate) path: PathBuf,
    pub(crate) path_span: Span,
    pub(crate) context: Option<u32>,
    pub(crate) context_span: Span,
    /// How keys and values are kept, if the caller said so, and where it stands.
    pub(crate) kv: Option<(KvDType, Span)>,
    /// How a dormouse model treats old positions, if the caller said so, and where it stands.
    pub(crate) decoding: Option<(Decoding, Span)>,
    /// Of a sequential model: the length of its first input, and where it stands.
    pub(crate) length: Option<(u32, Span)>,
    /// Of a sequential model: where it says that it is streamed.
    pub(crate) streaming: Option<Span>,
    pub(crate) section: Option<String>,
    /// Patterns of the tensors that are copied to RAM, and where they stand.
    pub(crate) ram: Vec<(String, Span)>,
    /// The RAM that there is, if the caller said so.
    pub(crate) room: Option<Room>,
}

/// RAM for arenas, and for tensors that are copied to it.
pub(crate) struct Room {
    /// Bytes of each bank; the first takes the tensors.
    pub(crate) banks: Vec<u64>,
    /// What has it, in words.
    pub(crate) place: String,
    pub(crate) span: Span,
}

/// A refusal and where to show it.
pub(crate) struct Refusal {
    pub(crate) span: Span,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// `::core::compile_error! { "message" }`, shown at the span.
    pub(crate) fn into_compile_error(self) -> TokenStream {
        let spanned = |mut tree: TokenTree| {
            tree.set_span(self.span);
            tree
        };
        let path = [TokenTree::Punct(Punct::new(':', Spacing::Joint)), TokenTree::Punct(Punct::new(':', Spacing::Alone))];
        let message = spanned(TokenTree::Literal(Literal::string(&self.message)));
        path.clone()
            .into_iter()
            .chain([TokenTree::Ident(Ident::new("core", self.span))])
            .chain(path)
            .chain([
                TokenTree::Ident(Ident::new("compile_error", self.span)),
                TokenTree::Punct(Punct::new('!', Spacing::Alone)),
                TokenTree::Group(Group::new(Delimiter::Brace, TokenStream::from_iter([message]))),
            ])
            .map(spanned)
            .collect()
    }
}

const USAGE: &str = "include_model! takes: Name = \"file.dmexp\" [, context = POSITIONS] [, kv = f32|f16|q8] [, decoding = exact|full|fast] [, length = STEPS] [, streaming = true|false] [, section = \"NAME\"] [, ram = [\"TENSOR\", ..]] [, ram_limit = BYTES | board = \"NAME\"]";

/// Reads the macro's input.
pub(crate) fn request(input: TokenStream) -> Result<Request, Refusal> {
    let mut trees = input.into_iter().peekable();
    let mut prefix = Vec::new();
    let name = loop {
        match trees.next() {
            Some(TokenTree::Ident(ident)) if ident.to_string() != "pub" => break ident,
            Some(tree) => prefix.push(tree),
            None => return Err(Refusal::new(Span::call_site(), USAGE)),
        }
    };
    expect_equals(&mut trees)?;
    let literal = next_literal(&mut trees)?;
    let path_span = literal.span();
    let shown = string(&literal)?;
    let path = resolve(&shown, path_span)?;
    let mut request = Request {
        prefix: TokenStream::from_iter(prefix),
        name,
        shown,
        path,
        path_span,
        context: None,
        context_span: path_span,
        kv: None,
        decoding: None,
        length: None,
        streaming: None,
        section: None,
        ram: Vec::new(),
        room: None,
    };
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Punct(punct) if punct.as_char() == ',' => {}
            other => return Err(Refusal::new(other.span(), USAGE)),
        }
        let Some(tree) = trees.next() else { break };
        let TokenTree::Ident(key) = tree else { return Err(Refusal::new(tree.span(), USAGE)) };
        expect_equals(&mut trees)?;
        let value = trees.next().ok_or_else(|| Refusal::new(key.span(), USAGE))?;
        let span = value.span();
        match key.to_string().as_str() {
            "context" => {
                let text = value.to_string().replace('_', "");
                let parsed = text.parse().map_err(|_| Refusal::new(span, format!("context = {text}: must be a number of positions")))?;
                request.context = Some(parsed);
                request.context_span = span;
            }
            "kv" => {
                let kv = match value.to_string().as_str() {
                    "f32" => KvDType::F32,
                    "f16" => KvDType::F16,
                    "q8" => KvDType::Q8,
                    other => return Err(Refusal::new(span, format!("kv = {other}: must be f32, f16 or q8"))),
                };
                request.kv = Some((kv, span));
            }
            "decoding" => {
                let decoding = match value.to_string().as_str() {
                    "exact" => Decoding::Exact,
                    "full" => Decoding::Full,
                    "fast" => Decoding::Fast,
                    other => return Err(Refusal::new(span, format!("decoding = {other}: must be exact, full or fast"))),
                };
                request.decoding = Some((decoding, span));
            }
            "length" => {
                let text = value.to_string().replace('_', "");
                let parsed = text.parse().ok().filter(|length| *length > 0);
                let length = parsed.ok_or_else(|| Refusal::new(span, format!("length = {text}: must be a number of steps, 1 or more")))?;
                request.length = Some((length, span));
            }
            "streaming" => request.streaming = crate::sequential::streaming(&value.to_string(), span)?,
            "section" => match value {
                TokenTree::Literal(literal) => request.section = Some(string(&literal)?),
                _ => return Err(Refusal::new(span, "section: must be a string, the name of a linker section")),
            },
            "ram" => match value {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => request.ram = patterns(&group)?,
                _ => return Err(Refusal::new(span, RAM)),
            },
            "ram_limit" => {
                let text = value.to_string().replace('_', "");
                let bytes = text.parse().map_err(|_| Refusal::new(span, format!("ram_limit = {text}: must be a number of bytes")))?;
                request.room = Some(Room { banks: vec![bytes], place: "`ram_limit`".to_owned(), span });
            }
            "board" => {
                let TokenTree::Literal(literal) = value else {
                    return Err(Refusal::new(span, format!("board: must be a string; the boards are: {}", Board::names())));
                };
                let name = string(&literal)?;
                let board = Board::find(&name)
                    .ok_or_else(|| Refusal::new(span, format!("board = {name:?}: the boards are: {}", Board::names())))?;
                request.room = Some(Room { banks: board.free(), place: name, span });
            }
            other => return Err(Refusal::new(key.span(), format!("unknown option `{other}`. {USAGE}"))),
        }
    }
    Ok(request)
}

const RAM: &str = "ram: must be a list of tensors in quotes, such as [\"output.weight\", \"layers.*.attention.*\"]";

/// Strings with commas between them.
fn patterns(list: &Group) -> Result<Vec<(String, Span)>, Refusal> {
    let mut patterns = Vec::new();
    let mut trees = list.stream().into_iter();
    while let Some(tree) = trees.next() {
        let TokenTree::Literal(literal) = tree else { return Err(Refusal::new(tree.span(), RAM)) };
        patterns.push((string(&literal)?, literal.span()));
        match trees.next() {
            None => break,
            Some(TokenTree::Punct(punct)) if punct.as_char() == ',' => {}
            Some(other) => return Err(Refusal::new(other.span(), RAM)),
        }
    }
    if patterns.is_empty() { Err(Refusal::new(list.span(), RAM)) } else { Ok(patterns) }
}

fn expect_equals(trees: &mut impl Iterator<Item = TokenTree>) -> Result<(), Refusal> {
    match trees.next() {
        Some(TokenTree::Punct(punct)) if punct.as_char() == '=' => Ok(()),
        other => Err(Refusal::new(other.map_or_else(Span::call_site, |tree| tree.span()), USAGE)),
    }
}

fn next_literal(trees: &mut impl Iterator<Item = TokenTree>) -> Result<Literal, Refusal> {
    match trees.next() {
        Some(TokenTree::Literal(literal)) => Ok(literal),
        // A path that came through another macro is wrapped in an invisible group.
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::None => next_literal(&mut group.stream().into_iter()),
        other => Err(Refusal::new(other.map_or_else(Span::call_site, |tree| tree.span()), USAGE)),
    }
}

/// The text of a plain string literal.
fn string(literal: &Literal) -> Result<String, Refusal> {
    let text = literal.to_string();
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        Some(inner) if !inner.contains('\\') => Ok(inner.to_owned()),
        _ => Err(Refusal::new(literal.span(), format!("{text}: must be a plain string in double quotes, without escapes"))),
    }
}

/// The absolute path: environment variables put in, then relative to the source file of the call.
fn resolve(path: &str, span: Span) -> Result<PathBuf, Refusal> {
    let mut resolved = PathBuf::new();
    for part in Path::new(path).components() {
        match part.as_os_str().to_str().and_then(|text| text.strip_prefix('$')) {
            Some(variable) => {
                let value = std::env::var_os(variable)
                    .ok_or_else(|| Refusal::new(span, format!("{path}: the environment variable {variable} is not set in this build")))?;
                resolved.push(value);
            }
            None => resolved.push(part),
        }
    }
    if resolved.is_absolute() {
        return Ok(resolved);
    }
    let source = span.local_file().or_else(|| Span::call_site().local_file());
    let folder = source.as_deref().and_then(Path::parent).map_or_else(PathBuf::new, Path::to_path_buf);
    let absolute = std::path::absolute(folder.join(resolved));
    absolute.map_err(|error| Refusal::new(span, format!("{path}: {error}")))
}
