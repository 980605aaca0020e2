//! As much of an HTTP client as a load needs: one connection a request.

use serde_json::Value;
use std::fmt;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where requests go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was refused, with this status.
    Refused(u16),
    /// The connection or what came over it broke off, or is no HTTP or JSON.
    Lost(String),
    /// Nothing came.
    Stuck,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "it was refused with status {status}"),
            Self::Lost(what) => f.write_str(what),
            Self::Stuck => write!(f, "nothing came for {} s", PATIENCE.as_secs()),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Stuck,
            _ => Self::Lost(error.to_string()),
        }
    }
}

/// The body of an answer, as it comes.
struct Body {
    from: BufReader<TcpStream>,
    chunked: bool,
}

impl Client {
    /// Posts `body` and gives the answer to it.
    pub(crate) fn ask(self, path: &str, body: &Value) -> Result<Value, Failed> {
        let mut answer = self.open("POST", path, &body.to_string())?;
        let mut all = Vec::new();
        while answer.piece(&mut all)? {}
        serde_json::from_slice(&all).map_err(|error| Failed::Lost(format!("{error}: {}", String::from_utf8_lossy(&all))))
    }

    /// Gets `path`, and gives nothing of it.
    pub(crate) fn get(self, path: &str) -> Result<(), Failed> {
        let mut answer = self.open("GET", path, "")?;
        while answer.piece(&mut Vec::new())? {}
        Ok(())
    }

    /// Posts `body` and gives the events of the answer to `each`, up to `[DONE]` or until it says false: then the connection is closed, whatever comes.
    pub(crate) fn stream(self, path: &str, body: &Value, each: &mut dyn FnMut(&Value) -> bool) -> Result<(), Failed> {
        let mut answer = self.open("POST", path, &body.to_string())?;
        let mut new = Vec::new();
        loop {
            while let Some(end) = new.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = new.drain(..end + 2).collect();
                let data = event.strip_prefix(b"data: ").unwrap_or(&event).trim_ascii();
                if data == b"[DONE]" {
                    return Ok(());
                }
                let value = serde_json::from_slice(data).map_err(|error| Failed::Lost(error.to_string()))?;
                if !each(&value) {
                    return Ok(());
                }
            }
            if !answer.piece(&mut new)? {
                return Err(Failed::Lost("the stream ends before its end".to_owned()));
            }
        }
    }

    fn open(self, method: &str, path: &str, body: &str) -> Result<Body, Failed> {
        let mut stream = TcpStream::connect(self.0)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (host, length) = (self.0, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes())?;
        let mut from = BufReader::new(stream);
        let mut head = String::new();
        while from.read_line(&mut head)? > 2 {}
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        match status {
            Some(200) => Ok(Body { from, chunked: head.to_ascii_lowercase().contains("transfer-encoding: chunked") }),
            Some(status) => Err(Failed::Refused(status)),
            None => Err(Failed::Lost(format!("no answer: {head:?}"))),
        }
    }
}

impl Body {
    /// Puts what comes next behind `all`; false where nothing comes any more.
    fn piece(&mut self, all: &mut Vec<u8>) -> Result<bool, Failed> {
        if !self.chunked {
            return Ok(self.from.read_to_end(all)? > 0);
        }
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let length = usize::from_str_radix(line.trim(), 16).map_err(|_| Failed::Lost(format!("{line:?} is no length of a piece")))?;
        let before = all.len();
        all.resize(before + length + 2, 0);
        self.from.read_exact(&mut all[before..])?;
        all.truncate(before + length);
        Ok(length > 0)
    }
}
