//! A device that is a process: `cpu/main.cpp`, compiled for the test.

use dmexp_kernels::Launch;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// How the kernels are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    Plain,
    /// With the address and the undefined behaviour sanitizer.
    Address,
    /// With the thread sanitizer.
    Thread,
}

impl Build {
    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }

    const fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["-O2"],
            Self::Address => &["-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
            Self::Thread => &["-O2", "-g1", "-fsanitize=thread"],
        }
    }

    /// The program of the kernels as they are.
    pub(crate) fn program(self) -> &'static Path {
        static PROGRAMS: [OnceLock<PathBuf>; 3] = [const { OnceLock::new() }; 3];
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        PROGRAMS[self as usize].get_or_init(|| self.compile(folder, self.name()).expect("the kernels compile for the CPU"))
    }

    /// Compiles `cpu/main.cpp` of `folder`; the program is named after `name`.
    pub(crate) fn compile(self, folder: &Path, name: &str) -> Result<PathBuf, String> {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{name}-{}", std::process::id()));
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
        let mut command = Command::new(&compiler);
        command.args(["-std=c++17", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]).args(self.flags());
        command.arg("-o").arg(&program).arg(folder.join("cpu/main.cpp"));
        let output = command.output().map_err(|error| format!("cannot run the C++ compiler `{compiler}`: {error}"))?;
        if output.status.success() { Ok(program) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }
}

/// A running process with memory and kernels.
pub(crate) struct Device {
    process: Child,
    to: BufWriter<ChildStdin>,
    from: BufReader<ChildStdout>,
    said: PathBuf,
}

/// What a device says when it ends before its time.
pub(crate) type Outcome<T> = Result<T, String>;

impl Device {
    pub(crate) fn start(program: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let said = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("said-{}-{number}", std::process::id()));
        let stderr = File::create(&said).expect("a file for what the device says");
        let mut process =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn().expect("the device starts");
        let (to, from) = (process.stdin.take().expect("a pipe"), process.stdout.take().expect("a pipe"));
        Self { process, to: BufWriter::new(to), from: BufReader::new(from), said }
    }

    fn ended(&mut self) -> String {
        let status = self.process.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("{status}\n{}", fs::read_to_string(&self.said).unwrap_or_default())
    }

    /// Ends it, and refuses what went wrong without ending it before: the thread sanitizer's reports.
    pub(crate) fn end(mut self) -> Outcome<()> {
        self.tell(&[b"q"])?;
        self.to.flush().map_err(|_| self.ended())?;
        let status = self.process.wait().map_err(|error| error.to_string())?;
        let said = fs::read_to_string(&self.said).unwrap_or_default();
        if status.success() && said.is_empty() { Ok(()) } else { Err(format!("{status}\n{said}")) }
    }

    fn tell(&mut self, parts: &[&[u8]]) -> Outcome<()> {
        let told = parts.iter().try_for_each(|part| self.to.write_all(part));
        told.map_err(|_| self.ended())
    }

    fn hear(&mut self, bytes: &mut [u8]) -> Outcome<()> {
        let heard = self.to.flush().and_then(|()| self.from.read_exact(bytes));
        heard.map_err(|_| self.ended())
    }

    /// The address of so many bytes, which hold no numbers yet.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Outcome<u64> {
        self.tell(&[b"a", &bytes.to_le_bytes()])?;
        let mut address = [0; 8];
        self.hear(&mut address)?;
        Ok(u64::from_le_bytes(address))
    }

    pub(crate) fn write(&mut self, address: u64, bytes: &[u8]) -> Outcome<()> {
        self.tell(&[b"w", &address.to_le_bytes(), &(bytes.len() as u64).to_le_bytes(), bytes])
    }

    pub(crate) fn read(&mut self, address: u64, bytes: &mut [u8]) -> Outcome<()> {
        self.tell(&[b"r", &address.to_le_bytes(), &(bytes.len() as u64).to_le_bytes()])?;
        self.hear(bytes)
    }

    pub(crate) fn write_words(&mut self, address: u64, words: &[u32]) -> Outcome<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(address, &bytes)
    }

    pub(crate) fn words(&mut self, address: u64, count: usize) -> Outcome<Vec<u32>> {
        let mut bytes = vec![0; 4 * count];
        self.read(address, &mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// The order of threads in launches from now on: 0 forwards, 1 backwards, else one made of this seed.
    pub(crate) fn order(&mut self, order: u32) -> Outcome<()> {
        self.tell(&[b"o", &order.to_le_bytes()])
    }

    /// The fault that launches have from now on, of those seeded into the kernels.
    pub(crate) fn fault(&mut self, fault: u32) -> Outcome<()> {
        self.tell(&[b"f", &fault.to_le_bytes()])
    }

    pub(crate) fn launch(&mut self, launch: &Launch) -> Outcome<()> {
        let name = launch.kernel.name();
        let [x, y, z] = launch.grid;
        let numbers = [x, y, z, launch.block, launch.shared, launch.args.len() as u32];
        let mut told = vec![b'k', name.len() as u8];
        told.extend(name.bytes());
        told.extend(numbers.into_iter().flat_map(u32::to_le_bytes));
        for arg in &launch.args {
            told.extend((arg.len() as u32).to_le_bytes());
            let words: Vec<u8> = arg.words().into_iter().flat_map(u64::to_le_bytes).collect();
            told.extend(&words[..arg.len()]);
        }
        self.tell(&[&told])?;
        self.hear(&mut [0])
    }

    /// The kernels that the device has, and the bytes of their parameters.
    pub(crate) fn kernels(&mut self) -> Outcome<Vec<(String, Vec<u32>)>> {
        self.tell(&[b"m", &[0; 4]])?;
        let number = |device: &mut Self| {
            let mut word = [0; 4];
            device.hear(&mut word).map(|()| u32::from_le_bytes(word))
        };
        let mut kernels = Vec::new();
        for _ in 0..number(self)? {
            let mut length = [0];
            self.hear(&mut length)?;
            let mut name = vec![0; usize::from(length[0])];
            self.hear(&mut name)?;
            let count = number(self)?;
            let sizes = (0..count).map(|_| number(self)).collect::<Outcome<_>>()?;
            kernels.push((String::from_utf8_lossy(&name).into_owned(), sizes));
        }
        Ok(kernels)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Its input ends, and so does it; the file of what it said is not needed any more.
        drop(self.process.kill());
        drop(self.process.wait());
        drop(fs::remove_file(&self.said));
    }
}
