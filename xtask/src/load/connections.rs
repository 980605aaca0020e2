//! Many connections that ask nothing, and a request when they are closed.

use super::Load;
use super::server::Server;
use crate::failure::{Failure, Outcome};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long a connection may take: the system's queue of a server that takes no more is full at some time.
const PATIENCE: Duration = Duration::from_millis(200);

/// Opens them, looks at the server beside them, closes them and asks.
pub(super) fn open(load: &Load, server: &Server) -> Outcome {
    let (mut open, mut refused) = (Vec::new(), 0);
    let begun = Instant::now();
    for _ in 0..load.connections {
        match TcpStream::connect_timeout(&server.client.0, PATIENCE) {
            Ok(stream) => open.push(stream),
            Err(_) => refused += 1,
        }
        // What the system does not take at once it will not take a moment later.
        if refused > 20 {
            break;
        }
    }
    let (opened, seconds) = (open.len(), begun.elapsed().as_secs_f64());
    println!("connections: {opened} of {} opened in {seconds:.1} s, {refused} were not taken", load.connections);
    let before = server.processor_seconds();
    std::thread::sleep(Duration::from_secs(2));
    if let (Some(before), Some(after)) = (before, server.processor_seconds()) {
        println!("connections: {:.2} s of processor time in 2 s beside them", after - before);
    }
    drop(open);
    let closed = Instant::now();
    server.client.get("/health").map_err(|error| Failure::found_wrong(format!("after they are closed: {error}")))?;
    println!("connections: an answer {:.3} s after they are closed", closed.elapsed().as_secs_f64());
    Ok(())
}
