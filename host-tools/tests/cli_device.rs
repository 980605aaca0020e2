//! `dmexp device`, and `dmexp compare` with a serial port, by running the real binary: at the other end of a pair of terminals the runtime's own probe answers, as it does on a chip.
#![cfg(unix)]

mod cli_support;

use cli_support::{Shape, any, checkpoint, folder, line};
use dmexp::probe::{About, Probe};
use dmexp::{Model, Sampler, Session};
use dmexp_format::file::ModelFile;
use embedded_io::{ErrorKind, ErrorType, Read, Write};
use serde_json::{Value, json};
use serial2::SerialPort;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;

const MADE: Shape = Shape { dim: 16, hidden: 24, layers: 3, heads: 2, kv_heads: 1, vocab: 256, seq: 32 };

/// A folder with `a.dmexp` and `b.dmexp`, all weights of which are others.
fn prepared() -> tempfile::TempDir {
    let folder = folder();
    for (name, scale) in [("a", 0.5), ("b", 0.25)] {
        fs::write(folder.path().join(format!("{name}.bin")), checkpoint(&MADE, |place| scale * any(place))).unwrap();
        line(folder.path(), &format!("export run --checkpoint {name}.bin --tokenizer bytes --dtype q8 --out {name}.dmexp --quiet")).ok();
    }
    folder
}

/// The chip's end of the line, which is pulled out after so many bytes.
struct Port {
    port: SerialPort,
    bytes_left: usize,
}

impl ErrorType for Port {
    type Error = ErrorKind;
}

impl Read for Port {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, ErrorKind> {
        loop {
            match self.port.read(bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {}
                Ok(count) if count < self.bytes_left => {
                    self.bytes_left -= count;
                    return Ok(count);
                }
                _ => return Err(ErrorKind::Other),
            }
        }
    }
}

impl Write for Port {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, ErrorKind> {
        self.port.write(bytes).map_err(|_| ErrorKind::Other)
    }

    fn flush(&mut self) -> Result<(), ErrorKind> {
        Ok(())
    }
}

/// Starts a chip with the model of a file, and returns the name of the serial port to it.
fn chip(file: &Path, bytes_left: usize) -> String {
    let bytes = fs::read(file).unwrap();
    let (port, host) = SerialPort::pair().unwrap();
    let name = fs::read_link(format!("/proc/self/fd/{}", host.as_raw_fd())).unwrap();
    thread::spawn(move || {
        // As long as this end is open too, it stays what it is between two programs that open it.
        let _open = host;
        let file = ModelFile::open(&bytes).unwrap();
        let model = Model::bind(&file).unwrap();
        let mut arena = vec![0; model.arena_len().unwrap().div_ceil(4)];
        let mut session = Session::new(&model, arena.as_mut_slice(), Sampler::greedy()).unwrap();
        let about = About {
            firmware: "weather 1.2",
            board: "made",
            fingerprint: file.fingerprint(),
            goldens: Some(file.golden()),
            ticks: None,
            stack: Some(|| 1234),
        };
        Probe::new(about).serve(&mut session, &mut Port { port, bytes_left });
    });
    name.into_os_string().into_string().unwrap()
}

#[test]
fn a_chip_at_a_serial_port_says_what_it_is_and_tests_itself() {
    let folder = prepared();
    let at = folder.path();
    let port = chip(&at.join("a.dmexp"), usize::MAX);
    let info = line(at, &format!("device info {port} --export a.dmexp --json")).json();
    let (firmware, board, shape) = (&info["firmware"], &info["board"], json!([info["dim"], info["n_layers"], info["vocab_size"]]));
    assert_eq!((firmware, board, shape), (&json!("weather 1.2"), &json!("made"), json!([16, 3, 256])));
    assert_eq!((&info["context"], &info["kv"]), (&json!(32), &json!("f16")));
    assert!(info["goldens"].as_u64() > Some(0), "{info}");
    assert!(line(at, &format!("device info {port}")).ok().text().contains("weather 1.2"));

    let tested = line(at, &format!("device self-test {port} --json")).json();
    assert_eq!(tested["passed"], true, "{tested}");
    let replayed = tested["vectors"].as_array().unwrap().iter().filter(|vector| vector["result"] == "same");
    assert!(replayed.map(|vector| vector["positions"].as_u64().unwrap()).sum::<u64>() > 0, "{tested}");
    assert!(line(at, &format!("device self-test {port}")).ok().text().contains("passed"));

    let stats = line(at, &format!("device stats {port} --json")).json();
    assert_eq!(stats["stats"]["stack_bytes"], 1234, "{stats}");
}

#[test]
fn a_chip_at_a_serial_port_writes_the_hosts_text() {
    let folder = prepared();
    let at = folder.path();
    let port = chip(&at.join("a.dmexp"), usize::MAX);
    for settings in ["--temp 0", "--temp 1.3 --top-p 0.8 --seed 5"] {
        let settings = format!("--prompt abcdefgh --steps 12 {settings}");
        let host = line(at, &format!("generate --export a.dmexp --kv f16 {settings}")).ok();
        let chip = line(at, &format!("device generate {port} {settings}")).ok();
        assert!(host.out == chip.out && host.out.len() > 8, "{host:?} {chip:?}");
    }
}

#[test]
fn a_chip_at_a_serial_port_is_compared() {
    let folder = prepared();
    let at = folder.path();
    let port = chip(&at.join("a.dmexp"), usize::MAX);
    let found = line(at, &format!("compare --export a.dmexp --device {port} --tokens 1,2,3,4,5 --greedy 4 --trace --json")).json();
    assert_eq!((&found["equal"], &found["first_difference"]), (&json!(true), &Value::Null));
    // Another model than the one that is asked for, and one that is pulled out.
    line(at, &format!("device info {port} --export b.dmexp")).refused(1, &["fingerprint", "b.dmexp", "flash it"]);
    line(at, &format!("compare --export b.dmexp --device {port} --tokens 1,2")).refused(2, &["fingerprint"]);
    let short = chip(&at.join("a.dmexp"), 200);
    let ran = line(at, &format!("compare --export a.dmexp --device {short} --tokens 1,2,3,4,5,6,7,8,9 --record t.jsonl --patience 1"));
    ran.refused(2, &["the line to the device is gone"]);
    assert!(!at.join("t.jsonl").exists());
}

#[test]
fn what_is_no_device_is_refused() {
    let folder = folder();
    let at = folder.path();
    line(at, "device info qemu:nothing").refused(1, &["nothing", "an386"]);
    line(at, "device stats qemu:an386").refused(1, &["cargo xtask probe an386"]);
    line(at, "device self-test none/tty").refused(1, &["none/tty", "serial port"]);
    line(at, "device info qemu:an386 --export none.dmexp").refused(1, &["none.dmexp"]);
    line(at, "device info qemu:").refused(2, &["qemu:BOARD"]);
    line(at, "device generate qemu:an386 --seed 0").refused(2, &["--seed"]);
    line(at, "device info").refused(2, &["DEVICE"]);
}
