//! The server under load, in a process of its own.

use super::client::Client;
use crate::failure::{Failure, Outcome};
use crate::{models, paths, process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

/// Conversations of models that carry no template.
const TEMPLATE: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}model: ";

/// A running server. It ends with this.
pub(crate) struct Server {
    child: Child,
    pub(crate) client: Client,
}

impl Server {
    /// `dmexp serve` with `model` and these words, at a free port.
    pub(crate) fn start(model: &Path, words: &[String]) -> Outcome<Self> {
        let folder = paths::root().join("target/models");
        let template = folder.join("load.template");
        std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::write(&template, TEMPLATE))
            .map_err(|error| Failure::cannot_run(format!("cannot write {}: {error}", template.display())))?;
        let mut command = models::dmexp()?;
        command.args(["serve", "--port", "0", "--quiet", "--export"]).arg(model).arg("--chat-template").arg(template).args(words);
        command.env_remove("DMEXP_API_KEY").stdout(Stdio::null()).stderr(Stdio::piped());
        let not_started = |what: &str| Failure::cannot_run(format!("`{}` does not start: {what}", process::shown(&command)));
        let shown = not_started("");
        let mut child = command.spawn().map_err(|error| Failure::cannot_run(format!("{shown}{error}")))?;
        let Some(said) = child.stderr.take() else { return Err(shown) };
        let (mut lines, mut all) = (BufReader::new(said), String::new());
        loop {
            let before = all.len();
            let read = lines.read_line(&mut all).unwrap_or(0);
            if let Some(address) = all[before..].trim().strip_prefix("listening at http://").and_then(|address| address.parse().ok()) {
                // What it says later is read, so that it never waits.
                std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
                return Ok(Self { child, client: Client(address) });
            }
            if read == 0 {
                return Err(Failure::cannot_run(format!("{shown}{all}")));
            }
        }
    }

    /// Bytes of memory that it has, where the system says so.
    pub(crate) fn memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(kilobytes.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }

    /// Seconds of processor time that it took, where the system says so: to a hundredth.
    pub(crate) fn processor_seconds(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let ticks = |field: usize| fields.get(field)?.parse::<u32>().ok();
        Some(f64::from(ticks(11)? + ticks(12)?) / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // There is nobody to tell if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
