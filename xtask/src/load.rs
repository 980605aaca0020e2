//! `cargo xtask load`: a server under many clients at once, each of whose texts is compared with what it is alone.

mod client;
mod connections;
mod prompts;
mod rates;
mod requests;
mod server;
mod soak;
mod turns;

use crate::bench::host;
use crate::failure::{Failure, Outcome};
use crate::models;
use server::Server;
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const HELP: &str = "\
Usage: cargo xtask load [OPTIONS] [PART ..]

Starts `dmexp serve` and asks it for much at once. Times and rates depend on the machine and on what else it does: compare those of
one run. Fails where a text is not, byte for byte, what it is alone, or where a request has no answer.

Parts, all of them by default:
  rates        Tokens a second of one client and of several, in turn, greedy and drawn; also of a second of the server's processor
               time, which other programs on the machine change less
  soak         Requests of every kind (streamed and not, conversations, several texts, probabilities, JSON of a schema, stop strings,
               clients that go away), each text compared; times of tokens; memory as requests go by
  turns        The time to the first token of the fifth turn of a conversation, with what was computed before and without; and more
               conversations than there is memory for, each text compared
  prompts      The times of tokens while long prompts of others come in
  connections  Many connections that ask nothing: processor time beside them, and the time of a request when they are closed

Options:
  --model NAME       stories260K, smollm2 (DMEXP_SMOLLM2 names its GGUF file), a .dmexp file, or s15, of made weights [default: s15]
  --dtype TYPE       How matrices of models by name are stored [default: q8]
  --clients N,..     Clients at the same time; soak takes the most [default: 1,8,64]
  --parallel N       Texts that the server computes at the same time [default: 16]
  --threads N        Its threads [default: its own]
  --rounds N         How often rates are measured [default: 5]
  --seconds N        How long soak goes on at least [default: 60]
  --requests N       How many requests it makes at least [default: 10000]
  --connections N    How many connections are opened [default: 10000]
";

/// What is to be done.
#[derive(Debug)]
struct Load {
    model: String,
    dtype: String,
    clients: Vec<usize>,
    parallel: usize,
    threads: Option<usize>,
    rounds: usize,
    seconds: u64,
    requests: usize,
    connections: usize,
}

type Part = (&'static str, fn(&Load, &Server) -> Outcome);

const PARTS: [Part; 5] = [
    ("rates", rates::measure),
    ("soak", soak::run),
    ("turns", turns::measure),
    ("prompts", prompts::measure),
    ("connections", connections::open),
];

pub(crate) fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_args(words);
    let mut load = Load {
        model: "s15".to_owned(),
        dtype: "q8".to_owned(),
        clients: vec![1, 8, 64],
        parallel: 16,
        threads: None,
        rounds: 5,
        seconds: 60,
        requests: 10_000,
        connections: 10_000,
    };
    let mut parts: Vec<Part> = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("model") => load.model = parser.value()?.string()?,
            Long("dtype") => load.dtype = parser.value()?.string()?,
            Long("clients") => load.clients = counts(&parser.value()?.string()?)?,
            Long("parallel") => load.parallel = parser.value()?.parse()?,
            Long("threads") => load.threads = Some(parser.value()?.parse()?),
            Long("rounds") => load.rounds = parser.value()?.parse()?,
            Long("seconds") => load.seconds = parser.value()?.parse()?,
            Long("requests") => load.requests = parser.value()?.parse()?,
            Long("connections") => load.connections = parser.value()?.parse()?,
            Value(name) => match PARTS.into_iter().find(|(part, _)| name == *part) {
                Some(part) => parts.push(part),
                None => return Err(Failure::cannot_run(format!("there is no part {}; --help lists them", name.display()))),
            },
            other => return Err(other.unexpected().into()),
        }
    }
    if parts.is_empty() {
        parts = PARTS.to_vec();
    }
    let model = load.file()?;
    for (_, part) in parts {
        // Each has a server of its own: what one leaves in memory is not the next one's.
        let queue = 3 * load.clients.iter().max().copied().unwrap_or(1);
        let words = [("--parallel", load.parallel), ("--queue", queue.max(1)), ("--context", 256)];
        let words = words.into_iter().chain(load.threads.map(|threads| ("--threads", threads)));
        let words: Vec<String> = words.flat_map(|(word, value)| [word.to_owned(), value.to_string()]).collect();
        part(&load, &Server::start(&model, &words)?)?;
    }
    Ok(())
}

/// Numbers with commas between them, none of them 0.
fn counts(text: &str) -> Outcome<Vec<usize>> {
    let counts: Option<Vec<usize>> = text.split(',').map(|count| count.parse().ok().filter(|count| *count > 0)).collect();
    counts.ok_or_else(|| Failure::cannot_run(format!("--clients {text}: give whole numbers from 1 on, with commas between them")))
}

impl Load {
    /// The model as a file.
    fn file(&self) -> Outcome<PathBuf> {
        match self.model.as_str() {
            "s15" => host::made_model(&self.dtype),
            "smollm2" => match std::env::var_os(host::SMOLLM2) {
                Some(gguf) => host::smollm2(&PathBuf::from(gguf), &self.dtype),
                None => Err(Failure::cannot_run(format!("the variable {} does not name the GGUF file of SmolLM2", host::SMOLLM2))),
            },
            "stories260K" if models::STORIES260K.is_here() => models::STORIES260K.export(&self.dtype),
            file => Ok(PathBuf::from(file)),
        }
    }

    /// What figures are of.
    fn subject(&self) -> String {
        match self.model.rsplit_once('/') {
            Some((_, file)) => file.to_owned(),
            None => format!("{} {}", self.model, self.dtype),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::counts;

    #[test]
    fn clients_are_counted_from_one() {
        assert_eq!(counts("1,8,64").unwrap(), [1, 8, 64]);
        for wrong in ["", "0", "1,", "8;9", "-1"] {
            assert!(counts(wrong).unwrap_err().to_string().contains("--clients"), "{wrong}");
        }
    }
}
