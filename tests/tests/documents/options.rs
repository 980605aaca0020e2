//! Commands and options that the text names between backticks, or that stand in blocks which are not run here, are there.

use crate::{blocks, steps};
use dmexp_tests::{folder, line, root};
use std::collections::BTreeMap;
use std::fs;

/// Options of cargo that the text names by themselves.
const OF_CARGO: &[&str] = &["--locked", "--no-default-features", "--features", "--release"];

/// The help of every command, by the words that call it.
fn dmexp() -> BTreeMap<String, String> {
    let folder = folder();
    let mut all = BTreeMap::new();
    let mut next = vec!["dmexp".to_owned()];
    while let Some(command) = next.pop() {
        let words = command.strip_prefix("dmexp").unwrap_or_default();
        let help = line(folder.path(), &format!("{words} --help")).succeeded().text().to_owned();
        let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        let names =
            list.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        next.extend(names.filter(|name| *name != "help").map(|name| format!("{command} {name}")));
        all.insert(command, help);
    }
    // Clap's own command, and a name that a command has besides.
    let score = all["dmexp score"].clone();
    all.insert("dmexp perplexity".to_owned(), score);
    all.insert("dmexp help".to_owned(), String::new());
    all
}

/// The same of the tasks.
fn tasks() -> BTreeMap<String, String> {
    let list = steps::xtask_prints(&["help"]);
    let names = list.lines().skip_while(|line| *line != "Tasks:").skip(1).take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.split_whitespace().next());
    let mut all: BTreeMap<String, String> =
        names.map(|name| (format!("cargo xtask {name}"), steps::xtask_prints(&["help", name]))).collect();
    all.insert("cargo xtask".to_owned(), list.clone());
    all
}

/// Whether a help has this option.
fn has(help: &str, option: &str) -> bool {
    help.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '-')).any(|word| word == option)
}

/// The options among these words.
fn options<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let long = words.iter().take_while(|word| **word != "--").filter(|word| word.starts_with("--") && word.len() > 2);
    long.map(|word| word.split(|sign: char| !(sign.is_ascii_alphanumeric() || sign == '-')).next().unwrap_or_default()).collect()
}

/// What is wrong with a text between backticks.
fn complaint(text: &str, helps: &BTreeMap<String, String>) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let first = words.first()?;
    if first.starts_with("--") {
        let known = |option: &&str| OF_CARGO.contains(option) || helps.values().any(|help| has(help, option));
        return options(&words).into_iter().find(|option| !known(option)).map(|option| format!("no command has the option {option}"));
    }
    let of_task = words.starts_with(&["cargo", "xtask"]);
    if *first != "dmexp" && !of_task || words.len() == 1 {
        return None;
    }
    let longest = (1..=words.len()).rev().find_map(|count| helps.get_key_value(&words[..count].join(" ")))?;
    let after = words[longest.0.split(' ').count()..].first().filter(|word| word.starts_with(|sign: char| sign.is_ascii_lowercase()));
    let has_commands = longest.1.contains("\nCommands:\n") || longest.0 == "cargo xtask";
    if let (true, Some(word)) = (has_commands, after) {
        return Some(format!("there is no command `{} {word}`", longest.0));
    }
    let missing = options(&words).into_iter().find(|option| !has(longest.1, option));
    missing.map(|option| format!("`{}` has no option {option}", longest.0))
}

/// The texts between backticks outside of blocks, with their lines.
fn quoted(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            found.extend(line.split('`').skip(1).step_by(2).map(|text| (number + 1, text.to_owned())));
        }
    }
    found
}

#[test]
fn commands_and_options_that_texts_name_exist() {
    let mut helps = dmexp();
    helps.extend(tasks());
    assert!(helps.len() > 40, "{:?}", helps.keys());
    let (mut wrong, mut looked) = (Vec::new(), 0);
    // What was once is told of what changed.
    for document in blocks::documents().into_iter().filter(|document| document != "CHANGELOG.md") {
        for (number, text) in quoted(&fs::read_to_string(root().join(&document)).unwrap()) {
            looked += 1;
            wrong.extend(complaint(&text, &helps).map(|why| format!("{document}:{number}: `{text}`: {why}")));
        }
        // Those that are not run here, too.
        for block in blocks::of_document(&document).unwrap().iter().filter(|block| block.has_commands()) {
            for command in block.commands() {
                let command = command.split(['#', '|']).next().unwrap_or_default();
                wrong.extend(complaint(command, &helps).map(|why| format!("{}: `{command}`: {why}", block.place())));
            }
        }
    }
    assert!(looked > 500, "{looked}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_not_there_is_found() {
    let helps = [("dmexp", "\nCommands:\n  go\n"), ("dmexp go", "  --fast  N"), ("cargo xtask", "Tasks:"), ("cargo xtask run", "--all")];
    let helps = helps.into_iter().map(|(command, help)| (command.to_owned(), help.to_owned())).collect();
    for text in
        ["dmexp", "dmexp go --fast 3", "--fast N", "--all", "cargo xtask run --all", "cargo xtask run -- --x", "ls --x", "--release"]
    {
        assert_eq!(complaint(text, &helps), None, "{text}");
    }
    for (text, part) in [
        ("dmexp went", "no command `dmexp went`"),
        ("dmexp go --slow", "no option --slow"),
        ("--fas", "--fas"),
        ("cargo xtask walk", "no command `cargo xtask walk`"),
        ("cargo xtask run --none", "no option --none"),
    ] {
        assert!(complaint(text, &helps).is_some_and(|why| why.contains(part)), "{text}");
    }
}
