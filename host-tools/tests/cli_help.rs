//! What the help shows, as people use it: its examples in a shell, completions in the shells they are for, manual pages in `man`.
#![cfg(unix)]

mod cli_support;

use cli_support::{files, folder, line};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// What examples name that a test has not, and why they are read here and not run. That they are understood at all is a test of the command line's definition.
const ELSEWHERE: [(&str, &str); 16] = [
    ("bench --", "minutes"),
    ("curl ", "a server"),
    ("8.bias", "a network of more layers"),
    ("checkpoints", "a model of dormouse"),
    ("yes,no,up", "a network of three words"),
    ("predict --", "inputs of one's own"),
    ("/_dmexp", "zsh"),
    ("cuda", "a GPU"),
    ("/dev/tty", "a board"),
    ("qemu:", "an emulator and firmware for it"),
    ("smollm2", "a model of others"),
    ("SmolLM2", "a model of others"),
    ("serve --", "a server, which does not end"),
    ("sensor |", "a sensor"),
    ("powershell", "another system's shell"),
    ("jq ", "jq"),
];

/// The commands below `command`, as its help lists them.
fn below(folder: &Path, command: &str) -> Vec<String> {
    let help = line(folder, &format!("{command} -h")).ok();
    let list = help.text().lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = list.filter_map(|line| line.strip_prefix("  ")?.split_once(' ').map(|(name, _)| name.to_owned()));
    names.filter(|name| !name.is_empty() && name != "help").map(|name| format!("{command} {name}").trim().to_owned()).collect()
}

/// Every command and command below one, the program itself first.
fn commands(folder: &Path) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut next = 0;
    while let Some(command) = all.get(next).cloned() {
        all.extend(below(folder, &command));
        next += 1;
    }
    all
}

/// The lines of examples in a command's help.
fn examples(folder: &Path, command: &str) -> Vec<String> {
    let help = line(folder, &format!("{command} --help")).ok();
    let text = help.text().replace("\\\n", " ");
    let lines = text.lines().skip_while(|line| !line.starts_with("Example")).skip(1).take_while(|line| !line.is_empty());
    lines.map(|line| line.trim().to_owned()).collect()
}

/// Runs a line in a shell that finds this program.
fn shell(folder: &Path, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_dmexp"));
    let mut path = OsString::from(program.parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.current_dir(folder).env("PATH", path).env("HOME", folder).args(["-c", line]).stdin(std::process::Stdio::null());
    command.output().expect("there is a shell")
}

#[test]
fn examples_run_as_they_stand() {
    let folder = folder();
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    for (name, from) in [
        ("stories260K.bin", "story.bin"),
        ("stories15M.bin", "story.bin"),
        ("tok512.bin", "story.tokenizer.bin"),
        ("tokenizer.bin", "story.tokenizer.bin"),
        ("tuned.bin", "story.bin"),
        ("tiny.bin", "tiny.bin"),
    ] {
        fs::copy(models.join(from), folder.path().join(name)).unwrap();
    }
    let text = "Once upon a time there was a little lamb. ".repeat(8);
    for name in ["story.txt", "held-out.txt", "start.txt"] {
        fs::write(folder.path().join(name), if name == "start.txt" { "Once" } else { &text }).unwrap();
    }
    let story = "export run --checkpoint stories260K.bin --tokenizer tok512.bin --quiet --no-golden --out";
    for name in ["stories", "mine", "yours", "latest.bf16"] {
        line(folder.path(), &format!("{story} {name}.dmexp")).ok();
    }
    line(folder.path(), "export run --checkpoint tiny.bin --tokenizer bytes --bos 0 --dtype f32 --quiet --out tiny.dmexp").ok();
    let network = format!("export run --checkpoint {0}/tones.bin --arch {0}/tones.arch.toml --quiet --out", models.display());
    line(folder.path(), &format!("{network} kws.dmexp")).ok();
    let (mut ran, mut names) = (0, Vec::new());
    for command in commands(folder.path()) {
        let examples = examples(folder.path(), &command);
        assert!(!examples.is_empty(), "dmexp {command} has none");
        for example in examples {
            if ELSEWHERE.iter().any(|(name, _)| example.contains(name)) {
                continue;
            }
            let place = cli_support::folder();
            for name in files(folder.path()) {
                fs::hard_link(folder.path().join(&name), place.path().join(name)).unwrap();
            }
            for name in [".local/share/bash-completion/completions", ".local/share/man/man1", ".config/fish/completions"] {
                fs::create_dir_all(place.path().join(name)).unwrap();
            }
            let output = shell(place.path(), &example);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{example}\n{said}");
            ran += 1;
        }
        names.push(command);
    }
    assert!(ran > 30 && names.iter().any(|name| name == "export run"), "{ran} of {names:?}");
}

#[test]
fn shells_load_their_completions() {
    let folder = folder();
    let script = |shell: &str, name: &str| {
        fs::write(folder.path().join(name), line(folder.path(), &format!("completions {shell}")).ok().out).unwrap();
    };
    script("bash", "dmexp.bash");
    script("zsh", "_dmexp");
    script("fish", "dmexp.fish");
    // What each says of `dmexp gen`, and of the options of a command.
    let bash = "source ./dmexp.bash && complete -p dmexp >/dev/null && \
        COMP_WORDS=(dmexp gen) COMP_CWORD=1 && _dmexp dmexp gen dmexp && echo \"${COMPREPLY[@]}\" && \
        COMP_WORDS=(dmexp generate --logp) COMP_CWORD=2 && _dmexp dmexp --logp generate && echo \"${COMPREPLY[@]}\"";
    let zsh = "fpath=(. $fpath); autoload -Uz compinit && compinit -u -d ./dump && [[ ${_comps[dmexp]} == _dmexp ]] && \
        autoload +X _dmexp && for word in generate --logprobs; do [[ ${functions[_dmexp]} == *$word* ]] && echo $word; done";
    let fish =
        "source dmexp.fish; complete -C 'dmexp gen' | string split -f1 \\t; complete -C 'dmexp generate --logp' | string split -f1 \\t";
    for (shell, options, code) in [("bash", &["--norc", "--noprofile"][..], bash), ("zsh", &["-f"], zsh), ("fish", &["--no-config"], fish)]
    {
        let Ok(output) = Command::new(shell).current_dir(folder.path()).args(options).args(["-c", code]).output() else {
            eprintln!("skipped: there is no {shell}");
            continue;
        };
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && err.is_empty(), "{shell}: {out}{err}");
        assert_eq!(out.split_whitespace().collect::<Vec<_>>(), ["generate", "--logprobs"], "{shell}");
    }
}

#[test]
fn man_shows_every_page_without_a_warning() {
    let folder = folder();
    fs::create_dir(folder.path().join("pages")).unwrap();
    line(folder.path(), "man --out pages").ok();
    let pages = files(&folder.path().join("pages"));
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages {
        let mut man = Command::new("man");
        man.current_dir(folder.path().join("pages")).env("MANWIDTH", "100").env("LC_ALL", "C.UTF-8");
        let Ok(output) = man.args(["--warnings", "--local-file", &format!("./{page}")]).output() else {
            eprintln!("skipped: there is no man");
            return;
        };
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && err.is_empty(), "{page}: {err}");
        assert!(out.contains("SYNOPSIS") && out.contains(page.trim_end_matches(".1")), "{page}: {out}");
    }
}
