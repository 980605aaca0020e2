//! Faults of the disk while something is read: empty files, files past 4 GiB, what is no file at all, names that are no text, files that change while they are mapped. Run on the real command, for everything
//! that it reads.
#![cfg(unix)]

mod cli_support;

use cli_support::{Ran, dmexp, folder, line, ran, run, tiny};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ways to read a file, `IN` in it being the file.
const READERS: [&str; 25] = [
    "export run --checkpoint IN --tokenizer bytes --out x.dmexp --quiet",
    "export run --checkpoint tiny.bin --tokenizer IN --out x.dmexp --quiet",
    "export run --checkpoint tiny.bin --tokenizer bytes --quality IN --out x.dmexp --quiet",
    "export run --checkpoint tiny.bin --onto IN --out x.dmexp --quiet",
    "export info IN",
    "export verify IN",
    "export get IN",
    "export strip IN --out x.dmexp",
    "export to --format safetensors IN --out x",
    "generate --export IN",
    "generate --export tiny.dmexp --prompt-file IN",
    "generate --export tiny.dmexp --chat --prompt a --chat-template IN",
    "predict --export IN --input tiny.bin",
    "tokenize --export IN --text a",
    "tokenize --tokenizer IN --text a",
    "detokenize --export IN --tokens 1",
    "logits --export IN --tokens 1",
    "score --export IN --text text --quiet",
    "score --export tiny.dmexp --text IN --quiet",
    "bench --export IN --quiet",
    "plan IN --board an386",
    "new firmware x --board an386 --model IN",
    "compare dtypes IN --tokenizer bytes --text text --quiet",
    "compare dtypes tiny.bin --tokenizer bytes --text IN --quiet",
    "compare --export tiny.dmexp --device cpu --replay IN --quiet",
];

fn prepared() -> tempfile::TempDir {
    let folder = folder();
    tiny(folder.path());
    fs::write(folder.path().join("text"), "a text of some bytes\n".repeat(4)).unwrap();
    folder
}

/// The words of a command on the file `name`.
fn words(command: &str, name: &OsStr) -> Vec<OsString> {
    command.split_whitespace().map(|word| if word == "IN" { name.to_owned() } else { word.into() }).collect()
}

/// Refused by one line that names the file, before long and with nothing written.
#[track_caller]
fn refused(folder: &Path, command: &str, name: &str) -> Ran {
    let begun = Instant::now();
    // A command that takes memory for all of a large file is refused by the system. What is mapped does not count.
    let mut shell = Command::new("sh");
    shell.current_dir(folder).stdin(Stdio::null()).args(["-c", "ulimit -d 400000 2> /dev/null; exec \"$@\"", "sh"]);
    let told = ran(shell.arg(env!("CARGO_BIN_EXE_dmexp")).args(words(command, name.as_ref())).output().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(20), "{command} took {:?}", begun.elapsed());
    assert!(!folder.join("x").exists() && !folder.join("x.dmexp").exists(), "{command}");
    // What compares with a device has another exit code for a comparison that could not be made than for a difference.
    let code = if command.starts_with("compare --") { 2 } else { 1 };
    if command.starts_with("export verify") && told.err.is_empty() {
        // The list of checks says it.
        assert!(told.code == Some(1) && told.text().contains(name), "{told:?}");
        return told;
    }
    assert_eq!(told.err.lines().count(), 1, "{command}: {told:?}");
    told.refused(code, &[name])
}

#[test]
fn empty_files_are_refused_by_name() {
    let folder = prepared();
    fs::write(folder.path().join("empty"), "").unwrap();
    for command in READERS {
        // A prompt may have no bytes, where the model has a token that begins a text.
        if command.contains("--prompt-file") {
            run(folder.path(), &words(command, "empty".as_ref())).ok();
        } else {
            refused(folder.path(), command, "empty");
        }
    }
}

#[test]
fn what_is_no_regular_file_is_refused_and_nothing_waits_for_it() {
    let folder = prepared();
    fs::create_dir(folder.path().join("directory")).unwrap();
    symlink("round", folder.path().join("round")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    for command in READERS {
        for name in ["directory", "round", "missing", "text/missing", "/dev/zero"] {
            refused(folder.path(), command, name);
        }
        // Nobody writes to it. Texts may come from pipes; models are mapped.
        if !command.contains("--text IN")
            && !command.contains("--quality")
            && !command.contains("-file")
            && !command.contains("-template")
            && !command.contains("--replay")
        {
            refused(folder.path(), command, "pipe");
        }
    }
}

#[test]
fn files_past_4_gib_are_refused_at_once() {
    let folder = prepared();
    let starts: [(&str, &[u8]); 11] = [
        ("zeros", b""),
        ("dmexp", b"DMEXPRT\x02"),
        ("llama2c", b"24ka\x01\0\0\0\x08\0\0\0\x0c\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0\0\x01\0\0\x20\0\0\0\x01"),
        ("gguf", b"GGUF\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        ("safetensors", b"\xff\xff\xff\x01\0\0\0\0{\"a\":"),
        ("zip", b"PK\x03\x04"),
        ("pickle", b"\x80\x02}"),
        ("json", b"{\"model\": "),
        ("text", b"Once upon a time"),
        ("pieces", b"\x0f\0\0\0\0\0\0\0\x01\0\0\0a"),
        ("sentencepiece", b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02"),
    ];
    for (name, start) in starts {
        let name = format!("large.{name}");
        let mut file = fs::File::create(folder.path().join(&name)).unwrap();
        file.write_all(start).unwrap();
        if file.set_len(5 << 30).is_err() {
            println!("left out: this disk has no files of 5 GiB");
            return;
        }
        for command in READERS {
            refused(folder.path(), command, &name);
        }
    }
}

/// A file that the system opens and then does not let be read.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fails_in_the_middle_is_an_error() {
    let folder = prepared();
    for command in
        READERS.iter().filter(|command| command.contains("--text IN") || command.contains("--quality") || command.contains("-file"))
    {
        refused(folder.path(), command, "/proc/self/mem");
    }
}

#[test]
fn any_name_that_the_system_allows_can_be_used() {
    let folder = prepared();
    // macOS has names of UTF-8 alone.
    let names: &[&[u8]] =
        if cfg!(target_os = "macos") { &[b"a b\nc", b"-x"] } else { &[b"a b\nc", b"caf\xe9 \xff", b"--out", b"\x1b[31m"] };
    for name in names {
        let name = OsStr::from_bytes(name);
        let here = Path::new(".").join(name);
        let named = |ending: &str| {
            let mut named = here.clone().into_os_string();
            named.push(ending);
            named
        };
        let place = folder.path().join(name);
        fs::create_dir(&place).unwrap();
        let in_it = |file: &str| here.join(file).into_os_string();
        fs::copy(folder.path().join("tiny.bin"), place.join("m.bin")).unwrap();
        fs::write(place.join("text"), "a short text").unwrap();
        let step = |command: &str, names: &[(&str, OsString)]| {
            let words = command
                .split_whitespace()
                .map(|word| names.iter().find(|(short, _)| *short == word).map_or_else(|| word.into(), |(_, name)| name.clone()));
            let told = run(folder.path(), &words.collect::<Vec<OsString>>()).ok();
            assert!(told.out.iter().chain(told.err.as_bytes()).all(|byte| *byte != 0x1b), "{told:?}");
            told
        };
        let (model, export) = (in_it("m.bin"), named(".dmexp"));
        let told =
            step("export run --checkpoint M --tokenizer bytes --bos 0 --dtype f32 --out E", &[("M", model.clone()), ("E", export.clone())]);
        assert!(told.text().lines().next().unwrap().contains(" is now a .dmexp of "), "{told:?}");
        for command in [
            "export info E",
            "export info E --json",
            "export verify E",
            "export get E tok_embeddings.weight --npy P",
            "export strip E --out S",
            "export to --format safetensors E --out H",
            "generate --export E --prompt-file T --steps 3",
            "logits --export E --tokens 1,2 --out L",
            "score --export E --text T --quiet",
            "plan E --board an386",
            "compare dtypes M --tokenizer bytes --text T --dtypes bf16 --quiet --csv C",
            "compare --export E --device cpu --tokens 0,1 --record R --quiet",
            "compare --export E --device cpu --replay R --quiet",
            "man --out D",
            "new firmware F --board an386 --model E",
        ] {
            let names = [
                ("M", model.clone()),
                ("E", export.clone()),
                ("T", in_it("text")),
                ("P", in_it("p.npy")),
                ("S", in_it("s.dmexp")),
                ("H", in_it("hf")),
                ("L", in_it("l")),
                ("C", in_it("c.csv")),
                ("R", in_it("r")),
                ("D", here.clone().into_os_string()),
                ("F", in_it("fw")),
            ];
            step(command, &names);
        }
        step("export run --checkpoint H --tokenizer none --out X --quiet", &[("H", in_it("hf")), ("X", in_it("x.dmexp"))]);
        // What is said of such a file is one line of text.
        let told = run(folder.path(), &[OsString::from("export"), "info".into(), in_it("missing")]).refused(1, &["cannot be read"]);
        assert!(!told.err.contains('\u{fffd}') && !told.err.trim_end().contains(['\n', '\u{1b}']), "{told:?}");
    }
}

/// A command that has opened the model and waits for its stdin.
fn waiting(folder: &Path, load: &str) -> Child {
    let mut command = dmexp(folder);
    command.args(["logits", "--export", "tiny.dmexp", "--threads", "1", "--load", load, "--out", "out", "--tokens", "-"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Asleep for half a second: it has done all that there was to do. Where the system does not say, a second is enough.
    let status = format!("/proc/{}/status", child.id());
    let mut asleep = 0;
    for _ in 0..if Path::new(&status).exists() { 3000 } else { 50 } {
        std::thread::sleep(Duration::from_millis(20));
        asleep = if fs::read_to_string(&status).is_ok_and(|status| status.contains("State:\tS")) { asleep + 1 } else { 0 };
        if asleep == 25 {
            break;
        }
    }
    child
}

fn told(mut child: Child) -> Ran {
    child.stdin.take().unwrap().write_all(b"0 1 2").unwrap();
    ran(child.wait_with_output().unwrap())
}

#[test]
fn a_file_that_changes_while_it_is_mapped_gives_no_result() {
    let folder = prepared();
    let path = folder.path().join("tiny.dmexp");
    let whole = fs::read(&path).unwrap();
    let expected = || fs::read(folder.path().join("out")).unwrap();
    told(waiting(folder.path(), "map")).ok();
    let right = expected();

    let write = |bytes: &[u8]| {
        // The bytes of the file itself, as `cp` would write them.
        let mut file = fs::File::options().write(true).truncate(true).open(&path).unwrap();
        file.write_all(bytes).unwrap();
    };
    let mut other = whole.clone();
    let last = other.len() - 100;
    other[last] ^= 1;

    fs::write(folder.path().join("out"), "old").unwrap();
    let child = waiting(folder.path(), "map");
    write(&other);
    told(child).refused(1, &["tiny.dmexp: was written to while it was read", "run it again"]);
    assert_eq!(expected(), b"old");

    // Nothing that a file comes to hold later reaches a copy.
    write(&whole);
    let child = waiting(folder.path(), "copy");
    write(b"");
    told(child).ok();
    assert_eq!(expected(), right);

    // Another file of this name is another file.
    write(&whole);
    let child = waiting(folder.path(), "map");
    fs::write(folder.path().join("new"), &other).unwrap();
    fs::rename(folder.path().join("new"), &path).unwrap();
    told(child).ok();
    assert_eq!(expected(), right);
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_cut_while_it_is_mapped_is_an_error() {
    let folder = prepared();
    let child = waiting(folder.path(), "map");
    fs::File::options().write(true).open(folder.path().join("tiny.dmexp")).unwrap().set_len(0).unwrap();
    told(child).refused(1, &["was cut while it was in use", "--load copy"]);
    assert!(!folder.path().join("out").exists());
}

#[test]
fn an_input_that_is_closed_is_empty() {
    let folder = prepared();
    for command in ["generate --export tiny.dmexp --prompt-file - --steps 2", "predict --export tiny.dmexp --input -"] {
        let mut shell = Command::new("sh");
        shell.current_dir(folder.path()).args(["-c", "exec \"$@\" <&-", "sh", env!("CARGO_BIN_EXE_dmexp")]);
        let told = ran(shell.args(command.split_whitespace()).output().unwrap());
        assert!(!told.err.contains("panicked") && told.code.is_some_and(|code| code < 2), "{command}: {told:?}");
    }
    line(folder.path(), "export info tiny.dmexp").ok();
}
