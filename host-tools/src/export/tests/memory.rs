//! Peak memory of an export, measured in a process of its own.

use super::*;
use crate::export::Progress;
use std::fs;
use std::process::Command;

const VARIABLE: &str = "DMEXP_TEST_EXPORT_MEMORY";

/// About a quarter of a billion parameters: a checkpoint of 1 GB that is one long hole on the disk.
const LARGE: Shape =
    Shape { dim: 4096, hidden_dim: 8192, n_layers: 1, n_heads: 32, n_kv_heads: 8, vocab_size: 28_000, tied: true, max_seq_len: 64 };

/// Bytes of memory of this process's own: what is mapped from files, and given back by the system whenever it is short, does not count.
fn own_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// The most memory that this process ever had, files that it mapped counted.
fn most_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Not a test by itself: what the test below starts.
#[test]
fn child() {
    let Some(folder) = std::env::var_os(VARIABLE) else { return };
    let folder = PathBuf::from(folder);
    let source = checkpoint::open(&folder.join("large.bin")).unwrap();
    let before = own_memory().unwrap();
    let mut most = 0;
    let options = Options { golden: false, ..Options::new(folder.join("large.dmexp")) };
    let report = run(&source, &options, &AtomicBool::new(false), &mut |_: Progress| most = most.max(own_memory().unwrap())).unwrap();
    let whole = most_memory().unwrap();
    println!("\nmeasured {} {} {} {whole}", report.source_bytes, report.file_bytes, most.saturating_sub(before));
}

#[test]
fn exporting_a_gigabyte_takes_less_than_64_megabytes() {
    if own_memory().is_none() {
        println!("left out: this system does not say how much memory a process has");
        return;
    }
    let folder = TempDir::new().unwrap();
    let file = fs::File::create(folder.path().join("large.bin")).unwrap();
    let numbers = [LARGE.dim, LARGE.hidden_dim, LARGE.n_layers, LARGE.n_heads, LARGE.n_kv_heads, LARGE.vocab_size, LARGE.max_seq_len];
    let mut head: Vec<u8> = [0x616b_3432u32, 1].into_iter().chain(numbers.map(|n| n as u32)).flat_map(u32::to_le_bytes).collect();
    head.push(1);
    std::io::Write::write_all(&mut &file, &head).unwrap();
    file.set_len(256 + 4 * LARGE.params() as u64).unwrap();
    let started = std::time::Instant::now();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "export::tests::memory::child", "--nocapture"])
        .env(VARIABLE, folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.strip_prefix("measured ")).unwrap();
    let [source, exported, memory, whole] = line.split(' ').map(|number| number.parse::<u64>().unwrap()).collect::<Vec<_>>()[..] else {
        panic!("{line}");
    };
    println!(
        "{source} bytes to {exported} in {:.1} s with {memory} bytes of memory of its own, {whole} with what was mapped",
        started.elapsed().as_secs_f64()
    );
    assert!(source > 900_000_000, "{source}");
    assert!(memory < 64_000_000, "{memory}");
    let largest = 4 * (LARGE.vocab_size * LARGE.dim) as u64;
    assert!(whole < 64_000_000 + largest, "{whole}");
}
