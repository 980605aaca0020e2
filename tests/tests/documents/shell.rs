//! Runs the commands of a page, one block after the other in one folder, and holds what they print to what the page shows.

use crate::blocks::Block;
use crate::server::Server;
use dmexp_tests::dmexp;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a block may take; what takes longer is marked `long`.
const LIMIT: Duration = Duration::from_mins(2);

/// A page's folder, and the server that one of its commands has started.
pub(crate) struct Shell<'a> {
    folder: &'a Path,
    server: Option<Server>,
}

/// What running a block came to.
pub(crate) enum Ran {
    /// It was run, and if it shows what comes, that came.
    Well,
    /// A program that it needs is not here.
    Without(String),
}

impl<'a> Shell<'a> {
    pub(crate) fn new(folder: &'a Path) -> Self {
        Self { folder, server: None }
    }

    /// Runs a block; the error says what went wrong.
    pub(crate) fn run(&mut self, block: &Block) -> Result<Ran, String> {
        let missing = block.commands().iter().flat_map(|line| line.split('|')).find_map(|part| missing(part.trim()));
        if let Some(program) = missing {
            return Ok(Ran::Without(program));
        }
        let serves = block.commands().iter().any(|line| line.starts_with("dmexp serve "));
        match (serves, block.is_session()) {
            (true, _) => self.serve(block)?,
            (false, false) => {
                let output = self.script(&block.text)?;
                if output.status.code() != Some(0) {
                    return Err(format!("ended with {}\n{}", output.status, said(&output)));
                }
            }
            (false, true) => {
                for part in parts(&block.text) {
                    let output = self.script(part.command)?;
                    if output.status.code() != Some(part.code) {
                        return Err(format!("{}\nended with {} in place of {}\n{}", part.command, output.status, part.code, said(&output)));
                    }
                    if part.output.is_empty() {
                        continue;
                    }
                    // A terminal shows both; pages show the results, and messages where there is nothing else.
                    let printed = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
                    matches(&part.output, &String::from_utf8_lossy(printed)).map_err(|why| format!("{}\n{why}", part.command))?;
                }
            }
        }
        Ok(Ran::Well)
    }

    /// Ends the server, if one was started.
    pub(crate) fn end(self) -> Result<(), String> {
        self.server.map_or(Ok(()), Server::end)
    }

    /// Starts the server that the one command of a block is, and waits until it listens.
    fn serve(&mut self, block: &Block) -> Result<(), String> {
        let [command] = &block.commands()[..] else { return Err("a server is a block of its own".to_owned()) };
        let shown: Vec<String> =
            block.text.lines().filter(|line| block.is_session() && !line.starts_with("$ ")).map(str::to_owned).collect();
        let command = command.split(" #").next().unwrap_or_default();
        let server = Server::start(self.bash(&format!("exec {command} --port 0")))?;
        let printed = server.printed().replace(&server.address(), "127.0.0.1:8000");
        self.server = Some(server);
        if shown.is_empty() { Ok(()) } else { matches(&shown, &printed) }
    }

    fn bash(&self, script: &str) -> Command {
        let program = dmexp(self.folder);
        let mut path = OsString::from(self.folder.join(".bin"));
        path.push(":");
        path.push(Path::new(program.get_program()).parent().expect("the command lies in a folder"));
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let script = match &self.server {
            Some(server) => script.replace("127.0.0.1:8000", &server.address()),
            None => script.to_owned(),
        };
        let mut bash = Command::new("bash");
        bash.args(["-e", "-o", "pipefail", "-c", &script]).current_dir(self.folder).env("PATH", path).env("NO_COLOR", "1");
        bash.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        bash
    }

    fn script(&self, script: &str) -> Result<Output, String> {
        let mut child = self.bash(script).spawn().map_err(|error| format!("bash does not start: {error}"))?;
        let group = child.id();
        let read = |mut pipe: Box<dyn Read + Send>| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).map(|_| bytes).unwrap_or_default()
            })
        };
        let out = read(Box::new(child.stdout.take().expect("a pipe")));
        let err = read(Box::new(child.stderr.take().expect("a pipe")));
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                break status;
            }
            if start.elapsed() > LIMIT {
                // All that it has started goes with it.
                let _ = Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).status();
                let _ = child.wait();
                return Err(format!("it did not end within {} s; what takes so long is marked `long`", LIMIT.as_secs()));
            }
            thread::sleep(Duration::from_millis(5));
        };
        Ok(Output { status, stdout: out.join().unwrap_or_default(), stderr: err.join().unwrap_or_default() })
    }
}

/// Programs that pages use and that not every machine has.
const NOT_EVERYWHERE: &[&str] = &["curl", "jq", "python3", "xxd"];

/// The program of a command, if it is one of those and is not here.
fn missing(command: &str) -> Option<String> {
    let program = command.split_whitespace().next()?;
    let here = || std::env::split_paths(&std::env::var_os("PATH")?).any(|folder| folder.join(program).is_file()).then_some(());
    (NOT_EVERYWHERE.contains(&program) && here().is_none()).then(|| program.to_owned())
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).trim_end().to_owned()).join("\n")
}

/// A command of a console block, the exit code that it has there, and what it prints.
struct Part<'a> {
    command: &'a str,
    code: i32,
    output: Vec<String>,
}

/// The commands of a console block: each after `$ `, with `? CODE` behind it where that is not 0.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            parts.push(Part { command, code: 0, output: Vec::new() });
        } else if let Some(part) = parts.last_mut() {
            match line.strip_prefix("? ").and_then(|code| code.parse().ok()) {
                Some(code) if part.output.is_empty() => part.code = code,
                _ => part.output.push(line.to_owned()),
            }
        }
    }
    parts
}

/// That the lines printed are those that are shown, where a line `...` stands for any number of lines and `[..]` for any text within one.
pub(crate) fn matches(shown: &[String], printed: &str) -> Result<(), String> {
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let shown: Vec<&str> = shown.iter().map(|line| line.trim_end()).collect();
    let end = |lines: &[&str]| lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    let (printed, shown) = (&printed[..end(&printed)], &shown[..end(&shown)]);
    if lines_match(shown, printed) {
        return Ok(());
    }
    let same = shown.iter().zip(printed).take_while(|(shown, printed)| line_matches(shown, printed)).count();
    Err(format!("prints, from line {} on otherwise than shown:\n{}", same + 1, printed.join("\n")))
}

fn lines_match(shown: &[&str], printed: &[&str]) -> bool {
    match shown {
        [] => printed.is_empty(),
        ["...", rest @ ..] => (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..])),
        [line, rest @ ..] => printed.first().is_some_and(|first| line_matches(line, first)) && lines_match(rest, &printed[1..]),
    }
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let Some((before, after)) = shown.split_once("[..]") else { return shown == printed };
    let Some(rest) = printed.strip_prefix(before) else { return false };
    (0..=rest.len()).filter(|place| rest.is_char_boundary(*place)).any(|place| line_matches(after, &rest[place..]))
}

/// Makes the folder of programs that pages find on PATH beside `dmexp`.
pub(crate) fn program(folder: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;
    let bin = folder.join(".bin");
    fs::create_dir_all(&bin).unwrap();
    fs::write(bin.join(name), script).unwrap();
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(test)]
mod tests {
    use super::{line_matches, matches, parts};

    #[test]
    fn what_is_shown_is_held_to_what_is_printed() {
        let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let printed = "a 1 b\nc\nd\n";
        for text in ["a 1 b\nc\nd", "a [..] b\n...\nd", "...", "a 1 b\n...", "...\nd\n", "a 1 b\n...\nc\nd", "[..]\nc\n[..]"] {
            matches(&shown(text), printed).unwrap();
        }
        for text in ["a 1 b\nc", "a 1 b\nc\nd\ne", "a [..] c\n...", "...\nc", "c\n...", "", "a 1 b\nc\n..."] {
            let right = text.ends_with("...") && text.starts_with("a 1 b");
            assert_eq!(matches(&shown(text), printed).is_ok(), right, "{text}");
        }
        assert!(line_matches("x[..]y[..]z", "x1y2z") && !line_matches("x[..]y[..]z", "x1y2"));
    }

    #[test]
    fn sessions_are_taken_apart() {
        let parts = parts("$ a\nout\n$ b\n? 1\nmore\n? 2\n");
        assert_eq!((parts[0].command, parts[0].code, parts[0].output.len()), ("a", 0, 1));
        assert_eq!((parts[1].command, parts[1].code, &parts[1].output[..]), ("b", 1, &["more".to_owned(), "? 2".to_owned()][..]));
    }
}
