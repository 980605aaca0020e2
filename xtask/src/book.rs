//! `cargo xtask book`: checks the links of every document and builds `docs/` as a book of web pages, with mdBook. The step `book` of `test` does the same.

mod links;

pub(crate) use links::{files_under, text_of};

use crate::failure::{Failure, Outcome};
use crate::tool::Tool;
use crate::{paths, process};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const HELP: &str = "\
Usage: cargo xtask book [OPTIONS]

Checks every document (*.md) of the repository: each link leads to a file and a heading that are there, each path that a text names
is there, every page of docs/ is in docs/SUMMARY.md, and every document that a source file names is there. Then builds the pages
into target/book with mdBook, which is built from crates.io into target/tools where it is missing (some 80 seconds of one
processor). Links to other sites are not followed.

Options:
  --check   The documents alone: builds nothing and needs no network
  --open    Opens the book in a browser
";

/// What builds the pages.
const MDBOOK: Tool =
    Tool { name: "mdbook", version: "0.5.4", subcommand: &[], options: &["--no-default-features", "--features", "search"] };

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let (mut check_alone, mut open) = (false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => check_alone = true,
            Long("open") => open = true,
            other => return Err(other.unexpected().into()),
        }
    }
    if check_alone && open {
        return Err(Failure::cannot_run("--check builds no book that --open could show; leave one of them out"));
    }
    check_documents()?;
    if check_alone {
        return Ok(());
    }
    let first_page = build(&MDBOOK.program()?)?;
    println!("{}", first_page.display());
    if open { process::run(Command::new(browser()).arg(first_page)) } else { Ok(()) }
}

/// The step of `test`: documents are checked everywhere, and the book is built where mdBook is or can be had.
pub(crate) fn check() -> Outcome {
    check_documents()?;
    match MDBOOK.program() {
        Ok(program) => build(&program).map(drop),
        Err(failure) => {
            println!("the book was NOT built, mdBook cannot be had here: {failure}");
            Ok(())
        }
    }
}

/// Refuses links and paths that lead nowhere, with each of them.
fn check_documents() -> Outcome {
    let documents = links::documents(paths::root())?;
    let mut complaints = links::complaints(paths::root(), &documents);
    let named = links::named_in_sources(paths::root())?;
    let missing = named.iter().filter(|(.., document)| !documents.contains_key(document));
    complaints.extend(missing.map(|(source, line, document)| format!("{source}:{line}: the document `{document}` is not there")));
    if complaints.is_empty() {
        println!("{} documents: every link and path leads somewhere; sources name {} documents", documents.len(), named.len());
        return Ok(());
    }
    Err(Failure::found_wrong(format!("{}\n{} links or paths lead nowhere", complaints.join("\n"), complaints.len())))
}

/// Builds the book and returns its first page. A warning of mdBook is a fault.
fn build(mdbook: &Path) -> Outcome<PathBuf> {
    let (source, book) = (paths::root().join("target/book-source"), paths::root().join("target/book"));
    links::copy_for_book(paths::root(), &source, env!("CARGO_PKG_REPOSITORY"))?;
    let output = Command::new(mdbook)
        .env("MDBOOK_LOG", "warn")
        .args(["build", "--dest-dir"])
        .arg(&book)
        .arg(&source)
        .output()
        .map_err(|error| Failure::cannot_run(format!("cannot start {}: {error}", mdbook.display())))?;
    let said = process::said(&output);
    if !output.status.success() || said.contains("WARN") || said.contains("ERROR") {
        return Err(Failure::found_wrong(format!("mdBook finds fault with docs/ ({}):\n{said}", output.status)));
    }
    Ok(book.join("index.html"))
}

/// What opens a page on this system.
fn browser() -> &'static str {
    match std::env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    }
}
