//! The documents of the repository, where their links lead, and their copy for the book.

use crate::failure::{Failure, Outcome};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// The table of contents, from the repository's root.
const SUMMARY: &str = "docs/SUMMARY.md";

/// A path in the text (in backticks) that begins with one of these folders is one from the repository's root.
const FOLDERS: [&str; 8] = ["boards", "docs", "host-tools", "kernels", "models", "runtime", "tests", "xtask"];

/// One document: what others link to, and where it links to.
#[derive(Default)]
pub(super) struct Document {
    /// The anchors of its headings.
    anchors: BTreeSet<String>,
    links: Vec<Link>,
    /// Paths that its text names.
    paths: Vec<(usize, String)>,
}

/// A link or a picture.
struct Link {
    line: usize,
    /// Where it is written in the text, brackets included.
    place: Range<usize>,
    destination: String,
}

/// Every document of the repository by its path from the root, with `/`.
pub(super) fn documents(root: &Path) -> Outcome<BTreeMap<String, Document>> {
    let mut found = BTreeMap::new();
    for path in files_under(root, "")? {
        if is_document(&path) {
            found.insert(path.clone(), read(&text_of(root, &path)?));
        }
    }
    Ok(found)
}

/// Every document that a source file names (`docs/plan.md`), as those who read its messages look for it: file, line, document.
pub(super) fn named_in_sources(root: &Path) -> Outcome<Vec<(String, usize, String)>> {
    let mut named = Vec::new();
    for path in files_under(root, "")? {
        if Path::new(&path).extension().is_some_and(|kind| ["rs", "toml", "h", "json", "html"].iter().any(|source| kind == *source)) {
            // What is no text names nothing.
            let text = String::from_utf8_lossy(&bytes_of(root, &path)?).into_owned();
            named.extend(documents_in(&text).map(|(line, document)| (path.clone(), line, document)));
        }
    }
    Ok(named)
}

/// The documents that a text names, with their lines.
fn documents_in(text: &str) -> impl Iterator<Item = (usize, String)> {
    let in_path = |letter: char| letter.is_ascii_alphanumeric() || "/._-".contains(letter);
    text.lines().enumerate().flat_map(move |(number, line)| {
        let words = line.split(move |letter| !in_path(letter)).map(|word| word.trim_end_matches('.'));
        words.filter(|word| word.starts_with("docs/") && is_document(word)).map(move |word| (number + 1, word.to_owned()))
    })
}

/// A line for each link or path that leads nowhere, and for each page of the book that its table of contents lacks.
pub(super) fn complaints(root: &Path, documents: &BTreeMap<String, Document>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, document) in documents {
        for link in &document.links {
            if let Err(why) = follow(root, documents, name, &link.destination) {
                lines.push(format!("{name}:{}: the link `{}` {why}", link.line, link.destination));
            }
        }
        for (line, path) in &document.paths {
            if !root.join(path).exists() {
                lines.push(format!("{name}:{line}: the path `{path}` is not there"));
            }
        }
    }
    let listed = documents.get(SUMMARY).map(|summary| summary.links.iter().map(|link| format!("docs/{}", link.destination)).collect());
    let listed: BTreeSet<String> = listed.unwrap_or_default();
    let pages = documents.keys().filter(|name| name.starts_with("docs/") && *name != SUMMARY);
    lines.extend(pages.filter(|page| !listed.contains(*page)).map(|page| format!("{page}: the page is not in {SUMMARY}")));
    lines
}

/// Whether the link of a document leads to a file and a heading that are there.
fn follow(root: &Path, documents: &BTreeMap<String, Document>, from: &str, destination: &str) -> Result<(), String> {
    if is_elsewhere(destination) {
        return Ok(());
    }
    let (path, anchor) = destination.split_once('#').map_or((destination, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { from.to_owned() } else { resolve(from, path).ok_or("leads out of the repository")? };
    if !root.join(&target).exists() {
        return Err("leads to no file".into());
    }
    let Some(anchor) = anchor else {
        return Ok(());
    };
    let document = documents.get(&target).ok_or("names a heading of what is no document")?;
    if document.anchors.contains(anchor) { Ok(()) } else { Err(format!("leads to no heading of {target}")) }
}

/// Whether a link leads to another site.
fn is_elsewhere(destination: &str) -> bool {
    ["https://", "http://", "mailto:"].iter().any(|scheme| destination.starts_with(scheme))
}

/// A path of a document's link, from the repository's root; `None` if it leads out of the repository.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::ParentDir => drop(parts.pop()?),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// Takes a document apart.
fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut heading: Option<String> = None;
    let line_at = |place: usize| text[..place].matches('\n').count() + 1;
    for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level: HeadingLevel::H1 | HeadingLevel::H2 | HeadingLevel::H3 | HeadingLevel::H4, .. }) => {
                heading = Some(String::new());
            }
            Event::End(TagEnd::Heading(_)) => {
                if let Some(title) = heading.take() {
                    let anchor = unused(&document.anchors, anchor(&title));
                    document.anchors.insert(anchor);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                document.links.push(Link { line: line_at(place.start), place, destination: dest_url.into_string() });
            }
            Event::Text(words) => {
                if let Some(title) = &mut heading {
                    title.push_str(&words);
                }
            }
            Event::Code(words) => {
                if is_path(&words) {
                    document.paths.push((line_at(place.start), words.to_string()));
                }
                if let Some(title) = &mut heading {
                    title.push_str(&words);
                }
            }
            _ => {}
        }
    }
    document
}

/// Whether words in backticks name a file of the repository.
fn is_path(words: &str) -> bool {
    let plain = words.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
    plain && words.split_once('/').is_some_and(|(folder, _)| FOLDERS.contains(&folder))
}

/// The anchor of a heading, as mdBook and code hosts make it.
fn anchor(title: &str) -> String {
    let kept = title.trim().to_lowercase();
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || "_-".contains(*letter) || letter.is_whitespace())
        .map(|letter| if letter.is_whitespace() { '-' } else { letter })
        .collect()
}

/// The anchor itself, or with a number where earlier headings have it.
fn unused(taken: &BTreeSet<String>, anchor: String) -> String {
    let numbered = |n: usize| format!("{anchor}-{n}");
    if !taken.contains(&anchor) {
        return anchor;
    }
    let mut n = 1;
    while taken.contains(&numbered(n)) {
        n += 1;
    }
    numbered(n)
}

/// Copies docs/ to `to`; links of its pages that leave docs/ lead to the repository's site there, because the book does not have what they name.
pub(super) fn copy_for_book(root: &Path, to: &Path, repository: &str) -> Outcome {
    if to.exists() {
        std::fs::remove_dir_all(to).map_err(|error| cannot("remove", to, &error))?;
    }
    for path in files_under(root, "docs")? {
        let copy = to.join(path.trim_start_matches("docs/"));
        let folder = copy.parent().unwrap_or(to);
        std::fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error))?;
        if is_document(&path) {
            let text = text_of(root, &path)?;
            std::fs::write(&copy, for_book(&path, &text, repository)).map_err(|error| cannot("write", &copy, &error))?;
        } else {
            std::fs::copy(root.join(&path), &copy).map_err(|error| cannot("write", &copy, &error))?;
        }
    }
    Ok(())
}

/// A page with its links out of docs/ turned into links to the repository's site.
fn for_book(path: &str, text: &str, repository: &str) -> String {
    let mut changed = text.to_owned();
    for link in read(text).links.iter().rev().filter(|link| !is_elsewhere(&link.destination) && !link.destination.starts_with('#')) {
        let Some(target) = resolve(path, &link.destination).filter(|target| !target.starts_with("docs/")) else {
            continue;
        };
        let written = format!("({})", link.destination);
        if let Some(at) = text[link.place.clone()].rfind(&written).map(|at| link.place.start + at) {
            changed.replace_range(at..at + written.len(), &format!("({repository}/blob/HEAD/{target})"));
        }
    }
    changed
}

/// Whether a path is that of a document.
fn is_document(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|kind| kind == "md")
}

/// The files under a folder of the repository, by their paths from its root with `/`, sorted; hidden folders and what is built left out.
pub(crate) fn files_under(root: &Path, folder: &str) -> Outcome<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let here = root.join(&folder);
        for entry in std::fs::read_dir(&here).map_err(|error| cannot("read", &here, &error))? {
            let entry = entry.map_err(|error| cannot("read", &here, &error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().map_err(|error| cannot("read", &here, &error))?;
            if kind.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The text of a file by its path from the root.
pub(crate) fn text_of(root: &Path, path: &str) -> Outcome<String> {
    let whole: PathBuf = root.join(path);
    String::from_utf8(bytes_of(root, path)?).map_err(|_| Failure::found_wrong(format!("{} is not UTF-8", whole.display())))
}

fn bytes_of(root: &Path, path: &str) -> Outcome<Vec<u8>> {
    let whole: PathBuf = root.join(path);
    std::fs::read(&whole).map_err(|error| cannot("read", &whole, &error))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::cannot_run(format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{Document, complaints, documents, documents_in, for_book, named_in_sources, read};
    use std::collections::BTreeMap;
    use std::path::Path;

    /// What is wrong with documents of this text, which are looked for in the repository itself.
    fn wrong(texts: &[(&str, &str)]) -> Vec<String> {
        let documents: BTreeMap<String, Document> = texts.iter().map(|(name, text)| ((*name).to_owned(), read(text))).collect();
        complaints(crate::paths::root(), &documents)
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let page = "# One\n## The `two`, and *more*!\n## One\n\
            [a](CONTRIBUTING.md) [b](#the-two-and-more) [c](README.md#one-1) [d](https://example.org/none#x) ![e](models/story.loss.svg)\n";
        assert_eq!(wrong(&[("README.md", page)]), [""; 0]);
        let cases = [
            ("[a](none.md)", "README.md:1: the link `none.md` leads to no file"),
            ("| a |\n|---|\n| [a](none.md) |", "README.md:3: the link `none.md` leads to no file"),
            ("![a](models/none.svg)", "README.md:1: the link `models/none.svg` leads to no file"),
            ("[a][b]\n\n[b]: none.md", "README.md:1: the link `none.md` leads to no file"),
            ("# One\n[a](#two)", "README.md:2: the link `#two` leads to no heading of README.md"),
            ("# One\n[a](#one-1)", "README.md:2: the link `#one-1` leads to no heading of README.md"),
            ("[a](Cargo.toml#one)", "README.md:1: the link `Cargo.toml#one` names a heading of what is no document"),
            ("[a](../README.md)", "README.md:1: the link `../README.md` leads out of the repository"),
            ("[a](/etc/passwd)", "README.md:1: the link `/etc/passwd` leads out of the repository"),
        ];
        for (text, complaint) in cases {
            assert_eq!(wrong(&[("README.md", text)]), [complaint], "{text}");
        }
    }

    #[test]
    fn paths_in_the_text_are_those_of_the_repository() {
        assert_eq!(
            wrong(&[("README.md", "`xtask/src/book.rs`, `runtime`, `docs/adr`, `app/src/none.rs`, `docs/*.md`, `cargo xtask book`")]),
            [""; 0]
        );
        assert_eq!(wrong(&[("README.md", "one\n`xtask/src/none.rs`")]), ["README.md:2: the path `xtask/src/none.rs` is not there"]);
    }

    #[test]
    fn every_page_is_in_the_table_of_contents() {
        let (summary, page) = (("docs/SUMMARY.md", "[Plan](plan.md)"), "# A page");
        assert_eq!(wrong(&[summary, ("docs/plan.md", page)]), [""; 0]);
        assert_eq!(wrong(&[summary, ("docs/cuda.md", page)]), ["docs/cuda.md: the page is not in docs/SUMMARY.md"]);
    }

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let page = "[a](../../runtime/c/README.md#b) [c](../plan.md) [d](#e) ![f](../../models/story.loss.svg) `](../../x)`";
        let book = "[a](https://site/blob/HEAD/runtime/c/README.md#b) [c](../plan.md) [d](#e) \
            ![f](https://site/blob/HEAD/models/story.loss.svg) `](../../x)`";
        assert_eq!(for_book("docs/format/index.md", page, "https://site"), book);
    }

    #[test]
    fn documents_that_sources_name_are_found() {
        let named: Vec<_> = documents_in("/// (docs/plan.md), see\n\"docs/format/index.md.\", docs/format, docs/x.rs").collect();
        assert_eq!(named, [(1, "docs/plan.md".to_owned()), (2, "docs/format/index.md".to_owned())]);
        assert!(named_in_sources(crate::paths::root()).unwrap().iter().any(|(source, ..)| source.starts_with("host-tools/src/cli")));
    }

    #[test]
    fn documents_of_the_repository_are_found_and_built_ones_are_not() {
        let documents = documents(crate::paths::root()).unwrap();
        for name in ["README.md", "docs/SUMMARY.md", "docs/format/index.md", "boards/real/pico/README.md"] {
            assert!(documents.contains_key(name), "{name}");
        }
        assert!(documents.keys().all(|name| Path::new(name).components().all(|part| part.as_os_str() != "target")));
    }
}
