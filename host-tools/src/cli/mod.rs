//! The command line, one file a subcommand; `main.rs` calls [`main`]. The work is done by the library: here are arguments in, words and exit codes out.

mod args;
mod bench;
#[cfg(feature = "cuda")]
mod bench_cuda;
mod bench_report;
mod chat;
mod compare;
mod compare_machines;
mod compare_report;
mod completions;
mod detokenize;
mod device;
mod dormouse;
mod dormouse_run;
mod dormouse_words;
mod export_onto;
mod export_run;
mod export_to;
mod failure;
mod figures;
mod generate;
mod get;
mod header;
mod info;
mod json_lines;
mod layers;
mod logits;
mod man;
mod model;
mod new;
mod output;
mod plan;
mod predict;
mod run_on;
mod score;
mod serve;
mod signals;
mod strip;
mod tokenize;
mod verify;

use clap::{CommandFactory, Parser, Subcommand};
use failure::Outcome;
use std::io::Write;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  dmexp export run --checkpoint stories260K.bin --tokenizer tok512.bin --out stories.dmexp
  dmexp export info stories.dmexp
  dmexp generate --export stories.dmexp --prompt \"Once upon a time\"

Exit codes: 0 done; 1 a file was refused or found wrong, or the work failed; 2 the command line is wrong; 130 stopped by Ctrl-C or SIGTERM.
A reader that closes its end of the pipe early (`| head`) is no failure.
KB, MB and GB are 1000, 1000000 and 1000000000 bytes. NO_COLOR=1 turns colour off.";

/// Makes, runs and checks .dmexp files: language models for microcontrollers and hosts.
#[derive(Debug, Parser)]
#[command(name = "dmexp", version, max_term_width = 110, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(subcommand)]
    Export(Export),
    #[command(subcommand)]
    New(New),
    Compare(compare::Compare),
    #[command(subcommand)]
    Device(device::Ask),
    Generate(generate::Generate),
    Serve(serve::Serve),
    Predict(predict::Predict),
    Tokenize(tokenize::Tokenize),
    Detokenize(detokenize::Detokenize),
    Logits(logits::Logits),
    #[command(visible_alias = "perplexity")]
    Score(score::Score),
    Bench(bench::Bench),
    Plan(plan::PlanArgs),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Make a .dmexp of a checkpoint; show, check, take apart and strip .dmexp files
#[derive(Debug, Subcommand)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  dmexp export run --checkpoint stories260K.bin --tokenizer tok512.bin --out stories.dmexp
  dmexp export info stories.dmexp
  dmexp export verify stories.dmexp
  dmexp export strip stories.dmexp --out firmware.dmexp
  dmexp export to --format safetensors stories.dmexp --out stories"
)]
#[expect(clippy::large_enum_variant, reason = "one of it, for the whole run of the program")]
enum Export {
    Run(export_run::Run),
    Info(info::Info),
    Verify(verify::Verify),
    Get(get::Get),
    Strip(strip::Strip),
    To(export_to::To),
}

/// Begin a project that runs a model on a microcontroller
#[derive(Debug, Subcommand)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Example:
  dmexp new firmware --board an386 --model stories.dmexp"
)]
enum New {
    Firmware(new::Firmware),
}

/// Runs the command line that this process was started with.
pub(crate) fn main() -> ExitCode {
    signals::prepare();
    match Cli::try_parse() {
        Ok(cli) => failure::exit(run(cli.command)),
        Err(error) => usage(&error),
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Export(Export::Run(command)) => export_run::run(&command),
        Command::Export(Export::Info(command)) => info::run(&command),
        Command::Export(Export::Verify(command)) => verify::run(&command),
        Command::Export(Export::Get(command)) => get::run(&command),
        Command::Export(Export::Strip(command)) => strip::run(&command),
        Command::Export(Export::To(command)) => export_to::run(&command),
        Command::New(New::Firmware(command)) => new::run(&command),
        Command::Compare(command) => compare::run(&command),
        Command::Device(command) => device::run(&command),
        Command::Generate(command) => generate::run(&command),
        Command::Serve(command) => serve::run(&command),
        Command::Predict(command) => predict::run(&command),
        Command::Tokenize(command) => tokenize::run(&command),
        Command::Detokenize(command) => detokenize::run(&command),
        Command::Logits(command) => logits::run(&command),
        Command::Score(command) => score::run(&command),
        Command::Bench(command) => bench::run(&command),
        Command::Plan(command) => plan::run(&command),
        Command::Completions(command) => completions::run(&command, &mut Cli::command()),
        Command::Man(command) => man::run(&command, Cli::command()),
    }
}

/// Help and version go to stdout and are no error; anything else is what clap has to say of the command line, under this program's name.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render().ansi().to_string();
    if error.use_stderr() {
        // Nobody is left to tell if this fails.
        let _ = anstream::stderr().write_all(text.replacen("error:", "dmexp:", 1).as_bytes());
        return ExitCode::from(2);
    }
    let mut out = anstream::stdout();
    failure::exit(out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_a_description_and_examples() {
        fn look(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path} has no description");
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains("Example"), "{path} has no examples");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path}: {} is not described", argument.get_id());
            }
            command.get_subcommands().for_each(|sub| look(sub, &path));
        }
        look(&Cli::command(), "");
    }

    /// What a shell would make of each example of the help.
    #[cfg(unix)]
    #[test]
    fn every_example_is_understood() {
        fn collect(command: &clap::Command, all: &mut Vec<String>) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            // What is longer than a line is broken by the help, and no shell takes it then.
            assert_eq!(help.lines().find(|line| line.len() > 98 && line.starts_with("  ")), None, "too long");
            all.extend(help.replace("\\\n", " ").lines().flat_map(|line| line.split('|')).map(|part| part.trim().to_owned()));
            for sub in command.get_subcommands() {
                collect(sub, all);
            }
        }
        let mut examples = Vec::new();
        collect(&Cli::command(), &mut examples);
        examples.retain(|example| example.starts_with("dmexp "));
        assert!(examples.len() > 60, "{examples:?}");
        for example in examples {
            let line = example.split(" > ").next().unwrap_or_default();
            let script = format!("dmexp() {{ for word; do printf '%s\\0' \"$word\"; done; }}; {line}");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("there is a shell");
            let words = String::from_utf8(output.stdout).expect("text");
            let words = words.strip_suffix('\0').unwrap_or_default().split('\0');
            if let Err(error) = Cli::try_parse_from(std::iter::once("dmexp").chain(words)) {
                panic!("{example}\n{error}");
            }
        }
    }
}
