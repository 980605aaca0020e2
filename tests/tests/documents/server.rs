//! The server that a page starts.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// What it may take until it listens, and until it ends.
const LIMIT: Duration = Duration::from_mins(1);

/// What stands before its address.
const LISTENS: &str = "listening at http://";

/// A server that listens.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    printed: String,
    address: String,
}

impl Server {
    /// Starts it, with its output piped, and waits until it says where it listens.
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        let mut child = command.spawn().map_err(|error| format!("the server does not start: {error}"))?;
        let (send, lines) = mpsc::channel();
        let out = child.stdout.take().expect("a pipe");
        let err = child.stderr.take().expect("a pipe");
        // Both are read to their ends, or it would wait for a reader.
        let other = send.clone();
        thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).for_each(|line| drop(send.send(line))));
        thread::spawn(move || BufReader::new(err).lines().map_while(Result::ok).for_each(|line| drop(other.send(line))));
        let mut printed = String::new();
        let address = loop {
            let Ok(line) = lines.recv_timeout(LIMIT) else {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the server does not listen; it said:\n{printed}"));
            };
            printed.push_str(&line);
            printed.push('\n');
            if let Some(address) = line.split(LISTENS).nth(1) {
                break address.trim_end_matches('/').to_owned();
            }
        };
        Ok(Self { child, printed, address })
    }

    /// What it said until it listened.
    pub(crate) fn printed(&self) -> &str {
        &self.printed
    }

    /// Its address and port.
    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    /// Ends it as Ctrl-C does, which is no failure.
    pub(crate) fn end(mut self) -> Result<(), String> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        asked.map_err(|error| error.to_string())?;
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) };
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err("the server does not end".to_owned())
    }
}

impl Drop for Server {
    /// Whatever became of the page, no server is left.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
