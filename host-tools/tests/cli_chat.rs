//! `dmexp generate --chat` on the real binary, with scripted turns on stdin.

mod cli_support;

#[cfg(unix)]
use cli_support::dmexp;
use cli_support::{Ran, Shape, any, checkpoint, folder, line, piped, run, tokenizer_bin};
#[cfg(unix)]
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
#[cfg(unix)]
use std::process::Stdio;

const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}[{{ message.role }}]{{ message.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// 259 tokens and a few pieces; room for 4,096 positions.
const SHAPE: Shape = Shape { dim: 8, hidden: 12, layers: 1, heads: 2, kv_heads: 1, vocab: 264, seq: 4096 };

/// `m.dmexp` with a tokenizer that has begin and end of text, and `chat.jinja`.
fn model(folder: &Path) {
    model_of(folder, &SHAPE);
}

fn model_of(folder: &Path, shape: &Shape) {
    std::fs::write(folder.join("m.bin"), checkpoint(shape, any)).unwrap();
    std::fs::write(folder.join("tok.bin"), tokenizer_bin(&[" ", "a", "b", "[", "]"])).unwrap();
    std::fs::write(folder.join("chat.jinja"), TEMPLATE).unwrap();
    line(folder, "export run --checkpoint m.bin --tokenizer tok.bin --dtype f32 --out m.dmexp --quiet").ok();
}

/// A chat of these turns: greedy, 8 new tokens an answer where nothing else is asked for.
fn chat(folder: &Path, more: &[&str], turns: &str) -> Ran {
    let fixed = ["generate", "--export", "m.dmexp", "--chat", "--chat-template", "chat.jinja", "--temp", "0", "--ignore-eos"];
    let steps: &[&str] = if more.contains(&"--steps") { &[] } else { &["--steps", "8"] };
    piped(folder, &[&fixed, steps, more].concat(), turns.as_bytes())
}

/// How many turns the last lines on stderr say there were.
fn turns(ran: &Ran) -> String {
    ran.err.lines().find(|line| line.contains("prefill")).and_then(|line| line.split(';').next()).unwrap_or_default().to_owned()
}

/// The new tokens behind these, by a program that knows nothing of chats.
fn answer(folder: &Path, prompt: &[u8]) -> Vec<u8> {
    std::fs::write(folder.join("prompt"), prompt).unwrap();
    let arguments =
        ["generate", "--export", "m.dmexp", "--prompt-file", "prompt", "--temp", "0", "--steps", "8", "--ignore-eos", "--no-echo"];
    run(folder, &arguments).ok().out
}

#[test]
fn every_line_gets_an_answer_and_the_end_of_the_input_ends_it() {
    let folder = folder();
    model(folder.path());
    for (input, count) in
        [("", "0 turns"), ("a\n", "1 turn"), ("a", "1 turn"), ("a\r\nb\n\n  \nab\n", "3 turns"), ("a\\\nb\\\na\n", "1 turn")]
    {
        let ran = chat(folder.path(), &[], input).ok();
        assert_eq!(turns(&ran), count, "{input:?}: {ran:?}");
    }
}

#[test]
fn what_was_said_before_counts_and_the_same_chat_is_the_same_text() {
    let folder = folder();
    model(folder.path());
    let both = chat(folder.path(), &[], "a\nb\n").ok();
    assert_eq!(chat(folder.path(), &[], "a\nb\n").ok().out, both.out);
    let first = chat(folder.path(), &[], "a\n").ok();
    assert!(both.out.starts_with(&first.out) && both.out.len() > first.out.len());
    let second = both.out[first.out.len()..].to_vec();
    assert_ne!(chat(folder.path(), &[], "b\n").ok().out, second, "the second answer knows of the first turn");
    assert_ne!(chat(folder.path(), &["--system", "ab"], "a\n").ok().out, first.out, "the system text counts");
    assert_eq!(chat(folder.path(), &["--prompt", "a"], "b\n").ok().out, both.out, "--prompt is the first turn");
}

#[test]
fn a_first_turn_without_special_tokens_in_it_is_the_plain_prompt() {
    let folder = folder();
    model(folder.path());
    std::fs::write(folder.path().join("chat.jinja"), "{{ messages[0].content }}").unwrap();
    for said in ["ab", "[a]", "é"] {
        assert_eq!(chat(folder.path(), &[], said).ok().out, answer(folder.path(), said.as_bytes()), "{said}");
    }
}

/// Report 23: what a person types is text, whatever it spells.
#[test]
fn special_tokens_that_are_typed_stay_text() {
    let folder = folder();
    model(folder.path());
    std::fs::write(folder.path().join("chat.jinja"), "{{ messages[0].content }}").unwrap();
    for said in ["</s>", "<s>", "a</s><s>b", "</s"] {
        // `generate` keeps what is typed as text, and so must a chat.
        assert_eq!(chat(folder.path(), &[], said).ok().out, answer(folder.path(), said.as_bytes()), "{said}");
    }
    std::fs::write(folder.path().join("chat.jinja"), "{{ messages[0].content }}{{ '</s>' }}").unwrap();
    assert_ne!(chat(folder.path(), &[], "a").ok().out, answer(folder.path(), b"a</s>"), "but the template's is the token");
}

/// Report 35 and 36: a long line is one turn, and nothing is cut.
#[test]
fn a_long_line_is_one_turn() {
    let folder = folder();
    model(folder.path());
    for len in [600, 3_000] {
        let ran = chat(folder.path(), &[], &format!("{}\n", "ab".repeat(len / 2))).ok();
        assert_eq!(turns(&ran), "1 turn");
    }
    let ran = chat(folder.path(), &["--system", &"ab".repeat(300)], "a\n").ok();
    assert_eq!(turns(&ran), "1 turn");
}

#[test]
fn a_full_context_is_said_plainly() {
    let folder = folder();
    model(folder.path());
    let ran = chat(folder.path(), &["--context", "64"], "a\nb\na\nb\na\nb\n");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("the context is full: it has 64 positions") && ran.err.contains("--context"), "{ran:?}");
    assert!(!ran.out.is_empty(), "the answers that had room are there");
    // An answer that fills it ends, and says so.
    let ran = chat(folder.path(), &["--context", "64", "--steps", "1000"], "a\n").ok();
    assert!(ran.err.contains("the context is full: all 64 positions are used"), "{ran:?}");
    let ran = chat(folder.path(), &["--context", "64"], &"a".repeat(100_000));
    assert!(ran.code == Some(1) && ran.err.contains("this turn takes 100"), "{ran:?}");
}

#[test]
fn a_file_without_a_template_names_the_option() {
    let folder = folder();
    model(folder.path());
    line(folder.path(), "generate --export m.dmexp --chat").refused(1, &["m.dmexp carries no chat template", "--chat-template FILE"]);
    line(folder.path(), "generate --export m.dmexp --chat --chat-template none").refused(1, &["none", "cannot be read"]);
    std::fs::write(folder.path().join("bad"), "{% for").unwrap();
    line(folder.path(), "generate --export m.dmexp --chat --chat-template bad").refused(1, &["bad", "no Jinja", "line 1"]);
    std::fs::write(folder.path().join("bad"), b"\xff\xfe").unwrap();
    line(folder.path(), "generate --export m.dmexp --chat --chat-template bad").refused(1, &["bad", "UTF-8"]);
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let folder = folder();
    for more in ["--json", "--no-echo", "--positions 5", "--prompt-file x"] {
        line(folder.path(), &format!("generate --export m.dmexp --chat {more}")).refused(2, &["--chat"]);
    }
    for alone in ["--system x", "--chat-template x"] {
        line(folder.path(), &format!("generate --export m.dmexp {alone}")).refused(2, &["--chat"]);
    }
}

#[test]
fn a_conversation_that_the_template_refuses_ends_with_its_words() {
    let folder = folder();
    model(folder.path());
    std::fs::write(
        folder.path().join("chat.jinja"),
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system text, please') }}{% endif %}a",
    )
    .unwrap();
    let ran = chat(folder.path(), &["--system", "x"], "a\n");
    assert!(ran.code == Some(1) && ran.err.contains("no system text, please"), "{ran:?}");
}

#[test]
fn a_stop_text_ends_the_answer_and_the_chat_goes_on() {
    let folder = folder();
    model(folder.path());
    let whole = String::from_utf8_lossy(&chat(folder.path(), &["--steps", "40"], "a\n").ok().out).into_owned();
    let stop: String = whole.chars().skip(4).take(2).collect();
    let ran = chat(folder.path(), &["--steps", "40", "--stop", &stop], "a\nb\n").ok();
    assert!(!ran.text().lines().next().unwrap().contains(&stop), "{ran:?}");
    assert_eq!(turns(&ran), "2 turns");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_answer_and_not_the_program() {
    let folder = folder();
    model(folder.path());
    let mut child = dmexp(folder.path())
        .args([
            "generate",
            "--export",
            "m.dmexp",
            "--chat",
            "--chat-template",
            "chat.jinja",
            "--ignore-eos",
            "--seed",
            "1",
            "--steps",
            "1000000000",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a\n").unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // The first byte of the answer says that it has begun.
    std::io::Read::read_exact(&mut stdout, &mut [0]).unwrap();
    let drain = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = stderr.find(|line| line.contains("Ctrl-C")).expect("the answer was stopped");
    assert!(said.starts_with("stopped by Ctrl-C after "), "{said}");
    drop(stdin);
    let rest: Vec<String> = stderr.collect();
    assert!(rest.iter().any(|line| line.starts_with("1 turn;")), "{rest:?}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drain.join().unwrap().unwrap();
}

/// A conversation in a terminal: `script` (of util-linux) has one.
#[cfg(target_os = "linux")]
struct Terminal {
    child: std::process::Child,
    keys: std::process::ChildStdin,
    screen: std::sync::mpsc::Receiver<Vec<u8>>,
    seen: Vec<u8>,
}

#[cfg(target_os = "linux")]
impl Terminal {
    /// `None` where there is no such program.
    fn open(folder: &Path) -> Option<Self> {
        let words = "generate --export m.dmexp --chat --chat-template chat.jinja --ignore-eos --seed 1 --steps 1000000000";
        let line = format!("exec {} {words}", env!("CARGO_BIN_EXE_dmexp"));
        let mut script = std::process::Command::new("script");
        script.current_dir(folder).args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        let Ok(mut child) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            eprintln!("skipped: there is no script");
            return None;
        };
        let (keys, mut out) = (child.stdin.take()?, child.stdout.take()?);
        let (sender, screen) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = std::io::Read::read(&mut out, &mut buffer) {
                if sender.send(buffer[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Some(Self { child, keys, screen, seen: Vec::new() })
    }

    /// Waits until this is shown; forgets what was shown up to there.
    #[track_caller]
    fn shows(&mut self, text: &str) {
        let end = loop {
            let found = self.seen.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                break at + text.len();
            }
            match self.screen.recv_timeout(std::time::Duration::from_secs(30)) {
                Ok(more) => self.seen.extend(more),
                Err(error) => panic!("{text:?} is not shown ({error}): {}", String::from_utf8_lossy(&self.seen)),
            }
        };
        self.seen.drain(..end);
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    fn ends(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

#[cfg(target_os = "linux")]
#[test]
fn in_a_terminal_there_is_a_prompt_and_ctrl_c_and_ctrl_d_do_what_is_said() {
    let folder = folder();
    // Answers that nobody stops take seconds.
    model_of(folder.path(), &Shape { dim: 64, hidden: 128, layers: 4, heads: 4, kv_heads: 4, vocab: 264, seq: 30_000 });
    let Some(mut terminal) = Terminal::open(folder.path()) else { return };
    terminal.shows("Ctrl-C stops an answer, Ctrl-D ends the conversation\r\n> ");
    for said in [&["a\\", "b"][..], &["more"]] {
        for (place, line) in said.iter().enumerate() {
            if place > 0 {
                terminal.shows("... ");
            }
            terminal.press(line.as_bytes());
            terminal.press(b"\n");
            terminal.shows(&format!("{line}\r\n"));
        }
        // Something of the answer.
        while terminal.seen.len() < 50 {
            terminal.seen.extend(terminal.screen.recv().unwrap());
        }
        terminal.press(b"\x03");
        terminal.shows("stopped by Ctrl-C after ");
        terminal.shows("\r\n> ");
    }
    terminal.press(b"\x04");
    terminal.shows("2 turns; prefill: ");
    assert_eq!(terminal.ends(), Some(0));
    // At the prompt it ends the program.
    let mut terminal = Terminal::open(folder.path()).unwrap();
    terminal.shows("> ");
    terminal.press(b"\x03");
    assert_eq!(terminal.ends(), Some(130));
}
