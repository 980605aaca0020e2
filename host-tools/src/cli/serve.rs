//! `dmexp serve`: models behind an HTTP server that speaks OpenAI's API.

use super::args;
use super::chat::own_template;
use super::dormouse_run::DormouseRunArgs;
use super::failure::{Outcome, request};
use super::generate::note;
use super::model::{ModelArgs, Opened};
use super::run_on::{Processor, RunOn, gpu_line};
use clap::Args;
use dmexp::simd::Level;
use dmexp_format::KvDType;
use dmexp_tools::decode::Load;
use dmexp_tools::serve::{Options, Served, run as serve};
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Serve models over HTTP, as OpenAI's API does
///
/// Listens on this machine alone unless --host says otherwise. Routes: / (a page), /v1/chat/completions, /v1/completions, /v1/models, /v1/logits, /tokenize, /detokenize, /health, /metrics, /openapi.json (docs/serve.md). Requests are computed together, one pass over the weights for all of them, and each gets the text that it would get alone. Ctrl-C or SIGTERM ends the server when requests under way are done, half a minute later at most. JSON lines about requests go to stderr, without anything of their texts.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dmexp serve --export smollm2.dmexp
  dmexp serve --export a.dmexp --export b.dmexp --port 9000 --parallel 8 --context 1024
  dmexp serve --export smollm2.dmexp --device cuda
  dmexp serve --export smollm2.dmexp --host 0.0.0.0 --api-key \"$(cat key)\"
  curl http://127.0.0.1:8000/v1/completions \\
    -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 32, \"seed\": 1}'
  curl -N http://127.0.0.1:8000/v1/chat/completions \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"stream\": true}'")]
pub(crate) struct Serve {
    /// A .dmexp file to serve, by its name without the extension; may be given more than once
    #[arg(long, value_name = "FILE", required = true)]
    export: Vec<PathBuf>,
    /// A tokenizer for a file that carries none (format 1): tokenizer.json, tokenizer.model, llama2.c's tokenizer.bin, or the word bytes
    #[arg(long, value_name = "FILE|bytes")]
    tokenizer: Option<OsString>,
    /// A Jinja template for conversations with models that carry none
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// How many positions each text has room for [default: what the model was trained for]
    #[arg(long, value_name = "N", value_parser = args::from_one, allow_negative_numbers = true)]
    context: Option<u32>,
    /// How keys and values are kept: f32, f16 in half the memory, or q8 in a little more than a quarter
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = args::kv)]
    kv: KvDType,
    #[command(flatten)]
    on: RunOn,
    /// How many texts of a model are computed at the same time: memory for them is taken at the start
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=64))]
    parallel: u32,
    /// How many texts of a model may wait for memory; more are refused with 503
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    queue: u32,
    /// How many threads share the work [default: one a core; the results do not depend on it]
    #[arg(long, value_name = "N", value_parser = args::threads, allow_negative_numbers = true)]
    threads: Option<u32>,
    /// The vector instructions to use: baseline, avx2, avx512 or vnni [default: the best that the machine has; the results do not depend on it]
    #[arg(long, value_name = "LEVEL", value_parser = args::level)]
    simd: Option<Level>,
    /// How files come to memory: copy as a whole, so that what later happens to them changes nothing; map reads them when they are used, and they must not be written to while the server runs; auto copies large files
    #[arg(long, value_name = "HOW", default_value = "copy", value_parser = args::load)]
    load: Load,
    /// The address to listen at; 0.0.0.0 lets other machines in
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port to listen at; 0 takes any that is free
    #[arg(long, value_name = "N", default_value = "8000")]
    port: u16,
    /// A key that requests have to send as Authorization: Bearer KEY [default: the variable `DMEXP_API_KEY` of the environment, if there is one]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Lets pages of this origin ask, or those of any with * [default: none]
    #[arg(long, value_name = "ORIGIN")]
    cors: Option<String>,
    /// The largest body of a request in bytes
    #[arg(long, value_name = "BYTES", default_value = "4000000", value_parser = clap::value_parser!(u32).range(1..))]
    body_limit: u32,
    /// How many seconds a request may take
    #[arg(long, value_name = "SECONDS", default_value = "600", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    time_limit: u32,
    /// How many seconds a client may take to send the head of a request, and as many for its body; how many it may not read
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u32).range(1..=3600))]
    patience: u32,
    /// How many connections there are at the same time
    #[arg(long, value_name = "N", default_value = "512", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Writes no line a request
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn run(command: &Serve) -> Outcome {
    let mut models = Vec::new();
    for export in &command.export {
        models.push(command.model(export)?);
    }
    let api_key = command.key()?;
    if let Some(origin) = command.cors.as_deref().filter(|origin| origin.is_empty() || !origin.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err(request(format!("--cors {origin:?} is no origin"), "give one like https://example.org, or *"));
    }
    let options = Options {
        address: SocketAddr::new(command.host, command.port),
        api_key,
        cors: command.cors.clone(),
        queue: command.queue as usize,
        connections: command.connections as usize,
        body_limit: command.body_limit as usize,
        time_limit: Duration::from_secs(u64::from(command.time_limit)),
        patience: Duration::from_secs(u64::from(command.patience)),
        quiet: command.quiet,
    };
    let open = options.api_key.is_none() && !command.host.is_loopback();
    serve(models, options, |address, facts| {
        for line in facts {
            note(format_args!("{line}"));
        }
        if open {
            note(format_args!("anyone who reaches {address} may ask: --api-key asks for a key"));
        }
        note(format_args!("listening at http://{address}"));
    })?;
    Ok(())
}

impl Serve {
    /// The key that requests have to send, if any.
    fn key(&self) -> Outcome<Option<String>> {
        let variable = || std::env::var_os("DMEXP_API_KEY").filter(|key| !key.is_empty());
        let Some(key) = self.api_key.clone().map(OsString::from).or_else(variable) else { return Ok(None) };
        match key.into_string() {
            Ok(key) if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(key)),
            _ => Err(request("the key is empty, or has characters that a header cannot carry", "give one of letters, digits and signs")),
        }
    }

    /// The model of a file, which stays for as long as the process lives.
    fn model(&self, export: &Path) -> Outcome<Served> {
        let arguments = ModelArgs {
            export: export.to_path_buf(),
            tokenizer: self.tokenizer.clone(),
            context: self.context,
            kv: self.kv,
            threads: self.threads,
            simd: self.simd,
            load: self.load,
            dormouse: DormouseRunArgs::default(),
        };
        let opened: &'static Opened = Box::leak(Box::new(arguments.open()?));
        let on = RunOn { texts: self.parallel, ..self.on };
        let model = if on.device == Processor::Cpu { arguments.model(opened)? } else { *arguments.cpu(opened, on)?.model() };
        if let Some(line) = gpu_line(opened) {
            note(format_args!("{line}"));
        }
        let model = Box::leak(Box::new(model));
        let id = export.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let template = own_template(opened, self.chat_template.as_deref())?;
        Ok(Served { id, loaded: &opened.loaded, model, template, parallel: self.parallel })
    }
}
