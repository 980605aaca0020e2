//! The fenced blocks of the documents, and what each of them is.

use dmexp_tests::root;
use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// The document, from the repository's root.
    pub(crate) document: String,
    /// The line of its fence.
    pub(crate) line: usize,
    /// The first word behind the fence.
    pub(crate) language: String,
    /// Why it is not run as it stands, if it is not.
    pub(crate) mark: Option<Mark>,
    /// What stands in it.
    pub(crate) text: String,
}

/// Why a block of commands is not run as it stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Mark {
    /// A GPU.
    NeedsGpu,
    /// A board at a serial port.
    NeedsBoard,
    /// Something that has to be got first: a program, or a model of others.
    NeedsNetwork,
    /// It takes longer than a test may, and this step of `cargo xtask test` does the same.
    Step(String),
    /// It takes longer than a test may; `steps.rs` knows what stands for it.
    Long,
}

impl Mark {
    fn read(word: &str) -> Option<Self> {
        Some(match word {
            "needs=gpu" => Self::NeedsGpu,
            "needs=board" => Self::NeedsBoard,
            "needs=network" => Self::NeedsNetwork,
            "long" => Self::Long,
            _ => Self::Step(word.strip_prefix("step=")?.to_owned()),
        })
    }
}

/// What blocks hold that are no commands; what can be read by a machine is, in `code.rs`.
const OTHERS: &[&str] = &["text", "markdown", "c", "json", "rust", "toml"];

impl Block {
    /// Whether it holds commands.
    pub(crate) fn has_commands(&self) -> bool {
        self.is_session() || self.language == "sh"
    }

    /// Whether it shows what its commands print.
    pub(crate) fn is_session(&self) -> bool {
        self.language == "console"
    }

    /// Where it is.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }

    /// Its commands, one a line; those that a `\` breaks are put together again.
    pub(crate) fn commands(&self) -> Vec<String> {
        let whole = self.text.replace("\\\n", " ");
        let lines = whole.lines().map(str::trim_start);
        let commands = lines.filter_map(|line| if self.is_session() { line.strip_prefix("$ ") } else { Some(line) });
        commands.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    }
}

/// Every document of the repository, from its root. What tools have put there (`target`, folders that begin with a dot) is not of it.
pub(crate) fn documents() -> Vec<String> {
    fn look(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir()
                && !path.is_symlink()
                && !name.starts_with('.')
                && !["target", "shared", "node_modules"].contains(&name.as_str())
            {
                look(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    look(&root(), &mut found);
    found.sort();
    found.iter().map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()).collect()
}

/// The blocks of a document in their order, or what is wrong with one.
pub(crate) fn of_document(document: &str) -> Result<Vec<Block>, String> {
    of_text(document, &fs::read_to_string(root().join(document)).unwrap())
}

/// The blocks of a text, or what is wrong with one.
pub(crate) fn of_text(document: &str, text: &str) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut before = "";
    while let Some((number, line)) = lines.next() {
        let at = format!("{document}:{}", number + 1);
        let indent = line.len() - line.trim_start().len();
        let Some(info) = line.trim_start().strip_prefix("```") else {
            if indent >= 4 && before.is_empty() && !line.trim().is_empty() && !line.trim_start().starts_with(['-', '*', '|']) {
                return Err(format!("{at}: an indented block: no test sees what it is, so put it between fences"));
            }
            before = line;
            continue;
        };
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default().to_owned();
        let marks: Vec<&str> = words.collect();
        let mut text = String::new();
        loop {
            let Some((_, line)) = lines.next() else { return Err(format!("{at}: the block does not end")) };
            if line.trim() == "```" {
                break;
            }
            text.push_str(line.get(indent.min(line.len() - line.trim_start().len())..).unwrap_or_default());
            text.push('\n');
        }
        before = "```";
        let mark = match marks[..] {
            [] => None,
            [word] => Some(Mark::read(word).ok_or_else(|| {
                format!("{at}: `{word}` is no mark; there are needs=gpu, needs=board, needs=network, step=NAME and long")
            })?),
            _ => return Err(format!("{at}: a block has one mark at most")),
        };
        let block = Block { document: document.to_owned(), line: number + 1, language, mark, text };
        check(&block)?;
        blocks.push(block);
    }
    Ok(blocks)
}

/// Refuses what no test would look at.
fn check(block: &Block) -> Result<(), String> {
    let at = block.place();
    if block.has_commands() {
        if block.commands().is_empty() {
            return Err(format!("{at}: there is no command in it (a line of a console block that begins with `$ `)"));
        }
        return Ok(());
    }
    if !OTHERS.contains(&block.language.as_str()) {
        return Err(format!("{at}: `{}` is no kind of block; there are sh, console, {}", block.language, OTHERS.join(", ")));
    }
    if block.mark.is_some() {
        return Err(format!("{at}: marks are for commands"));
    }
    let programs: &[&str] = if block.language == "text" { &["$ ", "dmexp ", "cargo "] } else { &["$ "] };
    let command = |line: &&str| programs.iter().any(|program| line.starts_with(program));
    block.text.lines().find(command).map_or(Ok(()), |line| Err(format!("{at}: a command that no test runs: {line}")))
}

#[cfg(test)]
mod tests {
    use super::{Mark, of_text};

    #[test]
    fn blocks_are_told_apart() {
        let blocks = of_text(
            "a.md",
            "x\n\n```sh long\ncargo xtask demo   # all\n```\n\n- y:\n  ```console\n  $ dmexp a \\\n      b\n  out\n  ```\n",
        )
        .unwrap();
        assert_eq!(blocks.len(), 2);
        assert_eq!(
            (blocks[0].mark.clone(), blocks[0].line, blocks[0].commands()),
            (Some(Mark::Long), 3, vec!["cargo xtask demo   # all".to_owned()])
        );
        assert_eq!(blocks[1].text, "$ dmexp a \\\n    b\nout\n");
        assert_eq!(blocks[1].commands().len(), 1);
    }

    #[test]
    fn what_no_test_would_run_is_refused() {
        for (text, part) in [
            ("```sh needs=luck\ntrue\n```\n", "`needs=luck` is no mark"),
            ("```sh long needs=gpu\ntrue\n```\n", "one mark"),
            ("```\ntrue\n```\n", "no kind of block"),
            ("```bash\ntrue\n```\n", "no kind of block"),
            ("```text\n$ dmexp help\n```\n", "no test runs"),
            ("```text\ndmexp help\n```\n", "no test runs"),
            ("```toml long\na = 1\n```\n", "marks are for commands"),
            ("```console\nout\n```\n", "no command"),
            ("```sh\ntrue\n", "does not end"),
            ("a\n\n    dmexp help\n", "indented"),
        ] {
            let refused = of_text("a.md", text).unwrap_err();
            assert!(refused.contains(part) && refused.starts_with("a.md:"), "{text}: {refused}");
        }
    }
}
