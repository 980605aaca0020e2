//! A server in a process of its own, and as much of an HTTP client as it takes.
#![allow(dead_code, reason = "every test program uses a part of it")]

use super::cli_support::dmexp;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running server. It ends with this.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// What it wrote to stderr before it listened.
    pub(crate) said: String,
    /// What it wrote there since.
    pub(crate) log: Arc<Mutex<String>>,
}

impl Server {
    /// `dmexp serve` at a free port.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, &[])
    }

    /// The same, with these variables in its environment.
    pub(crate) fn start_with(folder: &Path, arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = dmexp(folder);
        command.envs(settings.iter().copied());
        Self::start_by(command, arguments)
    }

    /// The same by a command that becomes `dmexp`.
    pub(crate) fn start_by(mut command: Command, arguments: &[&str]) -> Self {
        command.arg("serve").args(["--port", "0"]).args(arguments).env_remove("DMEXP_API_KEY");
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let mut said = String::new();
        let address = loop {
            let before = said.len();
            assert!(lines.read_line(&mut said).unwrap() > 0, "the server did not start: {said}");
            if let Some(address) = said[before..].trim().strip_prefix("listening at http://") {
                break address.parse().expect("an address");
            }
        };
        let log = Arc::<Mutex<String>>::default();
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
                kept.lock().unwrap().push_str(&std::mem::take(&mut line));
            }
        });
        Self { child, address, said, log }
    }

    /// A line of /metrics.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = get(self.address, "/metrics").text(200);
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Tells it to end.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.expect("there is a kill").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    #[track_caller]
    pub(crate) fn text(self, status: u16) -> String {
        let text = String::from_utf8(self.body).expect("the body is UTF-8");
        assert_eq!(self.status, status, "{text}");
        text
    }

    #[track_caller]
    pub(crate) fn json(self, status: u16) -> Value {
        assert!(self.head.contains("content-type: application/json"), "{}", self.head);
        let text = self.text(status);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Opens a connection and sends a request.
pub(crate) fn open(address: SocketAddr, method: &str, path: &str, body: &str, headers: &[&str]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let headers = headers.iter().fold(String::new(), |all, header| all + header + "\r\n");
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses a body need not read it.
    let _ = stream.write_all(body.as_bytes());
    stream
}

/// Sends a request and reads all of the response.
pub(crate) fn send(address: SocketAddr, method: &str, path: &str, body: &str, headers: &[&str]) -> Response {
    read(open(address, method, path, body, headers))
}

/// Reads all of a response.
pub(crate) fn read(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes);
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or_else(|| panic!("no response: {ended:?}"));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let mut body = bytes[end + 4..].to_vec();
    if head.contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Response { status, head, body }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(line) = rest.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if length == 0 {
            break;
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + length]);
        rest = &rest[line + 2 + length + 2..];
    }
    body
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Response {
    send(address, "GET", path, "", &[])
}

/// Posts JSON.
pub(crate) fn ask(address: SocketAddr, path: &str, body: &Value) -> Response {
    send(address, "POST", path, &body.to_string(), &["Content-Type: application/json"])
}

/// The events of a stream that ends as it should.
#[track_caller]
pub(crate) fn json_events(stream: &str) -> Vec<Value> {
    let mut events: Vec<&str> = stream.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").expect("data")).collect();
    assert_eq!(events.pop(), Some("[DONE]"), "{stream}");
    events.into_iter().map(|event| serde_json::from_str(event).expect("an event is JSON")).collect()
}
