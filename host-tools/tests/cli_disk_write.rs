//! Faults of the disk while something is written: a full one, a folder that takes no file, names that are taken, a process that is killed. The old file stays, nothing else is left, and one error says what and
//! where. Run on the real command, for everything that it writes.
#![cfg(unix)]

mod cli_support;

use cli_support::{Ran, dmexp, files, folder, line, ran, run, tiny};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Ways to write a file, `OUT` in it being the file; and the files that it reads.
const WRITERS: [(&str, &[&str]); 9] = [
    ("export run --checkpoint tiny.bin --tokenizer bytes --bos 0 --dtype f32 --out OUT --quiet", &["tiny.bin"]),
    ("export run --checkpoint tiny.bin --tokenizer bytes --quality text --dtype bf16 --out OUT --quiet", &["tiny.bin", "text"]),
    ("export strip tiny.dmexp --out OUT", &["tiny.dmexp"]),
    ("export get tiny.dmexp tok_embeddings.weight --npy OUT", &["tiny.dmexp"]),
    ("export to --format llama2c-v0 tiny.dmexp --out OUT", &["tiny.dmexp"]),
    ("logits --export tiny.dmexp --tokens 0,1,2 --out OUT", &["tiny.dmexp"]),
    ("compare dtypes tiny.bin --tokenizer bytes --text text --dtypes bf16 --quiet --csv OUT", &["tiny.bin", "text"]),
    ("compare dtypes tiny.bin --tokenizer bytes --text text --dtypes bf16 --quiet --svg OUT", &["tiny.bin", "text"]),
    ("compare --export tiny.dmexp --device cpu --tokens 0,1,2 --quiet --record OUT", &["tiny.dmexp"]),
];

/// Every way to make a folder, which is `OUT`.
const FOLDERS: [&str; 2] = ["export to --format safetensors tiny.dmexp --out OUT", "new firmware OUT --board an386 --model tiny.dmexp"];

/// `tiny.bin`, `tiny.dmexp` and `text`, and a folder `place` with `old` in it.
fn prepared() -> tempfile::TempDir {
    let folder = folder();
    tiny(folder.path());
    fs::write(folder.path().join("text"), "a text of some bytes\n".repeat(4)).unwrap();
    fs::create_dir(folder.path().join("place")).unwrap();
    fs::write(folder.path().join("place/old"), "old").unwrap();
    folder
}

fn words(command: &str, out: &str) -> Vec<String> {
    command.split_whitespace().map(|word| if word == "OUT" { out.to_owned() } else { word.to_owned() }).collect()
}

/// The exit code of a command that could not be done: what compares with a device keeps 1 for a difference.
fn undone(command: &str) -> i32 {
    if command.starts_with("compare --") { 2 } else { 1 }
}

/// Runs behind a line of the shell.
fn behind(folder: &Path, script: &str, words: &[String]) -> Ran {
    let mut shell = Command::new("sh");
    shell.current_dir(folder).stdin(Stdio::null());
    ran(shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_dmexp")]).args(words).output().unwrap())
}

/// What `place` holds has not changed.
#[track_caller]
fn only_the_old(folder: &Path, what: &str) {
    assert_eq!(files(&folder.join("place")), ["old"], "{what}");
    assert_eq!(fs::read(folder.join("place/old")).unwrap(), b"old", "{what}");
}

#[test]
fn everything_can_be_written_and_replaces_what_was_there() {
    let folder = prepared();
    for (command, _) in WRITERS {
        fs::write(folder.path().join("place/old"), "old").unwrap();
        run(folder.path(), &words(command, "place/old")).ok();
        assert_eq!(files(&folder.path().join("place")), ["old"], "{command}");
        assert_ne!(fs::read(folder.path().join("place/old")).unwrap(), b"old", "{command}");
    }
}

#[test]
fn a_disk_that_takes_no_more_leaves_the_old_file() {
    let folder = prepared();
    // The largest file that is allowed has no bytes: a full disk for everybody, root too.
    for command in WRITERS.map(|(command, _)| command) {
        let told = behind(folder.path(), "ulimit -f 0; exec \"$@\"", &words(command, "place/old"));
        let told = told.refused(undone(command), &["cannot be written: ", "File too large"]);
        // What compares exports keeps them in the system's folder for such files.
        assert!(command.starts_with("compare dtypes") || told.err.contains("place/old"), "{command}: {}", told.err);
        assert!(!told.err.contains(".tmp/"), "{}", told.err);
        only_the_old(folder.path(), command);
    }
    for command in FOLDERS {
        behind(folder.path(), "ulimit -f 0; exec \"$@\"", &words(command, "place/new"))
            .refused(1, &["place/new: cannot be written: File too large"]);
        only_the_old(folder.path(), command);
    }
    behind(folder.path(), "ulimit -f 0; exec \"$@\"", &words("man --out OUT", "place")).refused(1, &["place/dmexp.1: cannot be written"]);
    only_the_old(folder.path(), "man");
}

/// Whether a user may mount here; says so where not.
fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["-rm", "sh", "-c", "mount -t tmpfs none /mnt"]).output();
    let may = tried.is_ok_and(|output| output.status.success());
    if !may {
        println!("left out: nothing can be mounted here (unshare -rm)");
    }
    may
}

/// Runs with `place` on a disk of its own that holds `old`, mounted by `options` after that; what it holds afterwards is the last line of stdout.
fn on_a_disk(folder: &Path, then: &str, words: &[String]) -> (Ran, String) {
    let script = format!(
        "mount -t tmpfs -o size=8k none place && printf old > place/old && {then} && \"$@\" > out; code=$?; ls -A place | tr '\\n' ' '; cat place/old; exit $code"
    );
    let mut unshare = Command::new("unshare");
    unshare.current_dir(folder).stdin(Stdio::null()).args(["-rm", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_dmexp")]);
    let Output { status, stdout, stderr } = unshare.args(words).output().unwrap();
    let held = String::from_utf8(stdout).unwrap();
    (Ran { code: status.code(), out: Vec::new(), err: String::from_utf8(stderr).unwrap() }, held)
}

#[test]
fn a_full_disk_and_one_that_is_read_only_leave_the_old_file() {
    if !may_mount() {
        return;
    }
    let folder = prepared();
    for (then, why) in [
        ("! head -c 100000 /dev/zero > place/fill 2> /dev/null", "No space left on device"),
        ("mount -o remount,ro place", "Read-only file system"),
    ] {
        let held_before = if why.starts_with('N') { "fill old old" } else { "old old" };
        let all = WRITERS.iter().map(|(command, _)| (*command, "place/old")).chain(FOLDERS.map(|command| (command, "place/new")));
        for (command, out) in all.chain([("man --out OUT", "place")]) {
            let (told, held) = on_a_disk(folder.path(), then, &words(command, out));
            told.refused(undone(command), &[out, "cannot be written", why]);
            assert_eq!(held, held_before, "{command}");
        }
    }
}

#[test]
fn names_that_cannot_be_files_are_refused_before_any_work() {
    let folder = prepared();
    symlink("nothing", folder.path().join("dangling")).unwrap();
    symlink("round", folder.path().join("round")).unwrap();
    let before = files(folder.path());
    for (command, _) in WRITERS {
        for (out, why) in [
            ("place", "is a folder"),
            ("place/", "is a folder"),
            ("place/new/", "is not the name of a file"),
            ("nowhere/new", "its folder does not exist"),
            ("text/new", "cannot be written: "),
            ("dangling", "is a symbolic link that leads nowhere"),
            ("round", "is a symbolic link that leads nowhere"),
            ("/dev/full", "is not a regular file"),
        ] {
            run(folder.path(), &words(command, out)).refused(undone(command), &[out, why]);
        }
        assert_eq!(files(folder.path()), before, "{command}");
        only_the_old(folder.path(), command);
    }
    for command in FOLDERS {
        for (out, why) in
            [("place", "with something in it"), ("text", "is no folder"), ("nowhere/new", "does not exist"), ("dangling", "is no folder")]
        {
            run(folder.path(), &words(command, out)).refused(undone(command), &[out, why]);
        }
        assert_eq!(files(folder.path()), before, "{command}");
        only_the_old(folder.path(), command);
    }
}

#[test]
fn what_is_read_is_never_replaced() {
    let folder = prepared();
    let path = |name: &str| folder.path().join(name);
    let mut links = Vec::new();
    for name in ["tiny.bin", "tiny.dmexp", "text"] {
        symlink(path(name), path(&format!("{name}.link"))).unwrap();
        links.push((name, fs::read(path(name)).unwrap()));
    }
    for (command, sources) in WRITERS {
        for source in sources {
            for out in [(*source).to_owned(), format!("place/../{source}"), format!("{source}.link")] {
                run(folder.path(), &words(command, &out)).refused(undone(command), &[&out, "is what is read", "it would be replaced"]);
            }
            // Another name of the same bytes comes to name other bytes: what is read keeps its own.
            fs::hard_link(path(source), path("hard")).unwrap();
            run(folder.path(), &words(command, "hard")).ok();
            fs::remove_file(path("hard")).unwrap();
        }
        for (name, bytes) in &links {
            assert_eq!(&fs::read(path(name)).unwrap(), bytes, "{command}");
        }
    }
}

#[test]
fn a_link_stays_one_and_what_it_leads_to_is_replaced() {
    let folder = prepared();
    symlink("place/old", folder.path().join("link")).unwrap();
    for (command, _) in WRITERS {
        fs::write(folder.path().join("place/old"), "old").unwrap();
        run(folder.path(), &words(command, "link")).ok();
        assert!(fs::symlink_metadata(folder.path().join("link")).unwrap().is_symlink(), "{command}");
        assert_ne!(fs::read(folder.path().join("place/old")).unwrap(), b"old", "{command}");
        assert_eq!(files(&folder.path().join("place")), ["old"]);
    }
}

/// Starts `dmexp` with its stdin open: it waits for it once all files are opened.
fn waiting(folder: &Path, words: &str) -> std::process::Child {
    let mut command = dmexp(folder);
    command.args(words.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_folder_that_vanishes_is_an_error() {
    // Longer and longer, until the command has begun before the folder is gone.
    for wait in [1, 2, 4, 8, 16] {
        let folder = prepared();
        let mut child = waiting(folder.path(), "logits --export tiny.dmexp --tokens - --out place/new");
        std::thread::sleep(Duration::from_millis(400 * wait));
        fs::remove_dir_all(folder.path().join("place")).unwrap();
        child.stdin.take().unwrap().write_all(b"0 1 2").unwrap();
        let told = ran(child.wait_with_output().unwrap());
        assert!(!folder.path().join("place").exists());
        let begun = !told.err.contains("its folder does not exist");
        told.refused(1, &["place/new", "cannot be written"]);
        if begun {
            return;
        }
    }
    panic!("the command never began before its folder was gone");
}

#[test]
fn a_process_that_is_stopped_leaves_nothing() {
    let folder = prepared();
    let place = folder.path().join("place");
    // More tokens than are done in a second.
    let tokens = vec!["1"; 400].join(",");
    let shape = cli_support::Shape { dim: 256, hidden: 1024, layers: 4, heads: 4, kv_heads: 4, vocab: 256, seq: 512 };
    fs::write(folder.path().join("slow.bin"), cli_support::checkpoint(&shape, cli_support::any)).unwrap();
    line(folder.path(), "export run --checkpoint slow.bin --tokenizer bytes --dtype f32 --no-golden --out slow.dmexp --quiet").ok();
    let mut child = dmexp(folder.path());
    child.args(["logits", "--export", "slow.dmexp", "--out", "place/old", "--threads", "1", "--tokens", &tokens]);
    let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while files(&place).len() == 1 {
        assert!(begun.elapsed() < Duration::from_mins(1), "no file was begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    ran(child.wait_with_output().unwrap()).refused(130, &["stopped: nothing was written"]);
    only_the_old(folder.path(), "logits");
}

#[test]
fn a_process_that_is_killed_leaves_the_old_file_or_the_whole_new_one() {
    let folder = prepared();
    let place = folder.path().join("place");
    let out = place.join("old");
    let command = "export run --checkpoint tiny.bin --tokenizer bytes --bos 0 --dtype f32 --out place/old --quiet";
    run(folder.path(), &words(command, "")).ok();
    let whole = fs::read(&out).unwrap();
    let began = Instant::now();
    run(folder.path(), &words(command, "")).ok();
    let step = began.elapsed() / 20;
    let (mut old, mut new, mut left) = (0, 0, 0);
    // Later and later, until one came too late, however slow the machine has become.
    for moment in 0..600 {
        if moment >= 30 && new > 0 {
            break;
        }
        fs::write(&out, "old").unwrap();
        let mut child = dmexp(folder.path()).args(words(command, "")).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(step * moment);
        child.kill().unwrap();
        child.wait().unwrap();
        let now = fs::read(&out).unwrap();
        if now == b"old" {
            old += 1;
        } else {
            new += 1;
        }
        assert!(now == b"old" || now == whole, "half a file after {moment} steps");
        for name in files(&place).iter().filter(|name| *name != "old") {
            assert!(name.strip_prefix(".dmexp-").and_then(|name| name.strip_suffix(".tmp")).is_some(), "{name}");
            fs::remove_file(place.join(name)).unwrap();
            left += 1;
        }
    }
    println!("killed {} times: the old file {old} times, the new one {new} times, {left} temporary files", old + new);
    assert!(old > 0 && new > 0, "{old} {new}");
}

/// Every way to print something.
const PRINTERS: [&str; 25] = [
    "--help",
    "--version",
    "export --help",
    "completions bash",
    "man",
    "export run --checkpoint tiny.bin --tokenizer bytes --out x.dmexp",
    "export run --checkpoint tiny.bin --tokenizer bytes --out x.dmexp --json",
    "export info tiny.dmexp",
    "export info tiny.dmexp --json",
    "export verify tiny.dmexp",
    "export verify tiny.dmexp --json",
    "export get tiny.dmexp",
    "export get tiny.dmexp tok_embeddings.weight",
    "export strip tiny.dmexp --out x.dmexp",
    "export to --format llama2c-v0 tiny.dmexp --out x.bin",
    "generate --export tiny.dmexp --prompt hi --steps 4",
    "generate --export tiny.dmexp --prompt hi --steps 4 --json",
    "tokenize --export tiny.dmexp --text hi",
    "detokenize --export tiny.dmexp --tokens 1,2",
    "logits --export tiny.dmexp --tokens 1,2",
    "score --export tiny.dmexp --text text --quiet",
    "plan tiny.dmexp --board an386",
    "bench --export tiny.dmexp --pp 2 --tg 2 --repetitions 1 --quiet",
    "compare dtypes tiny.bin --tokenizer bytes --text text --dtypes bf16 --quiet",
    "compare --export tiny.dmexp --device cpu --tokens 0,1 --quiet",
];

#[test]
fn an_output_that_takes_nothing_is_an_error_and_one_that_nobody_reads_is_none() {
    let folder = prepared();
    for command in PRINTERS {
        if Path::new("/dev/full").exists() {
            let full = fs::File::options().write(true).open("/dev/full").unwrap();
            let mut child = dmexp(folder.path()).args(words(command, "")).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
            let mut told = String::new();
            child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(undone(command)), "{command}: {told}");
            let last = told.lines().last().unwrap_or_default();
            assert!(last.starts_with("dmexp: the output cannot be written: No space left"), "{command}: {told}");
        }
        let mut child = dmexp(folder.path());
        let mut child = child.args(words(command, "")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{command}: {told}");
        assert!(!told.contains("dmexp: "), "{command}: {told}");
    }
}
