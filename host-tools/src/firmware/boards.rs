//! The boards that `dmexp new firmware` knows, with what their projects are made of. What they are and how large is in the table of `dmexp plan`; the files are copies of those that the
//! repository's own boards are built from, which a test compares.

use dmexp_format::host::boards::{Board as Planned, KITS};

/// A board for which a project can be written.
#[derive(Debug)]
pub struct Board {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Its linker script, which says where and how large its memories are.
    pub(super) memory: &'static str,
    /// What its project is made of.
    pub(super) kind: Kind,
}

impl Board {
    /// The board of this name, or with the chip of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        let kit = KITS.iter().find(|(chip, _)| *chip == name).map_or(name, |(_, kit)| kit);
        ALL.iter().find(|board| board.name == kit)
    }

    /// What `dmexp plan` knows of it.
    ///
    /// # Panics
    /// Never: a test looks for every board of [`ALL`].
    pub fn plan(&self) -> &'static Planned {
        Planned::find(self.name).expect("every board has a plan")
    }

    /// What it is, and its memory.
    pub fn title(&self) -> String {
        let board = self.plan();
        let model = if board.model > 0 { format!(", {} besides for the model", size(board.model)) } else { String::new() };
        let ram = board.banks.first().map_or(0, |(_, bytes)| *bytes);
        // Into the chip's parentheses, where there are some.
        let (about, open) = board.about.strip_suffix(')').map_or((board.about, " ("), |about| (about, ", "));
        format!("{about}{open}{}, {} of flash, {} of RAM{model})", board.core.name(), size(board.code), size(ram))
    }

    /// The Rust target of its firmware.
    pub fn target(&self) -> &'static str {
        self.plan().core.target()
    }

    /// QEMU's name of the machine, of a board that is emulated.
    pub fn machine(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Emulated { machine, .. } => Some(machine),
            Kind::Real { .. } => None,
        }
    }

    /// The command that builds a project and runs it, in the project's folder.
    pub fn next(&self) -> &'static str {
        match self.kind {
            Kind::Emulated { .. } => "cargo run --release",
            Kind::Real { .. } => "cargo build --release, then as its README.md says",
        }
    }

    /// Whether its core is a RISC-V; else it is an Arm.
    pub(super) fn is_riscv(&self) -> bool {
        self.target().starts_with("riscv")
    }

    /// Whether its core has the DSP instructions though its target does not promise them: so have all the Armv8-M ones here.
    pub(super) fn has_optional_dsp(&self) -> bool {
        self.target().starts_with("thumbv8m.main")
    }

    /// Whether its core computes floats by subroutines.
    pub(super) fn has_soft_floats(&self) -> bool {
        !self.target().ends_with("hf") && !self.target().contains("imafc")
    }
}

/// Bytes of a memory, which come in powers of two.
fn size(bytes: u64) -> String {
    match (bytes.div_ceil(1 << 10), bytes.div_ceil(1 << 20)) {
        (_, mib) if bytes > 1 << 20 && mib * (1 << 20) - bytes < 1 << 10 => format!("{mib} MiB"),
        (kib, _) if kib.is_multiple_of(1 << 10) => format!("{} MiB", kib >> 10),
        (kib, _) => format!("{kib} KiB"),
    }
}

/// What a project is made of.
#[derive(Debug)]
pub(super) enum Kind {
    /// A machine of QEMU.
    Emulated {
        /// QEMU's name of it.
        machine: &'static str,
        /// The registers of its first serial port.
        base: &'static str,
        port: Port,
    },
    /// A board that is to be had: the files of its crate under `boards/real`.
    Real {
        manifest: &'static str,
        main: &'static str,
        build: &'static str,
        config: &'static str,
        readme: &'static str,
        /// Whether its hardware crate brings the linker script.
        brings_memory: bool,
    },
}

/// How a serial port sends a byte.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) code: &'static str,
    /// Whether its registers are words.
    pub(super) words: bool,
}

const CMSDK: Port = Port { code: include_str!("templates/serial/cmsdk.rs"), words: true };
const NS16550: Port = Port { code: include_str!("templates/serial/ns16550.rs"), words: false };
const NRF51: Port = Port { code: include_str!("templates/serial/nrf51.rs"), words: true };
const PL011: Port = Port { code: include_str!("templates/serial/pl011.rs"), words: true };
const SIFIVE: Port = Port { code: include_str!("templates/serial/sifive.rs"), words: true };
const STM32: Port = Port { code: include_str!("templates/serial/stm32.rs"), words: true };

/// The build script of boards whose linker script lies in their folder.
pub(super) const LINK: &str = include_str!("templates/link.rs");

/// A board that is not emulated, of the files in its folder: its folder, that of its program, the build script, and whether its crates bring the linker script.
macro_rules! real {
    ($folder:literal, $program:literal, $build:expr, $brings_memory:literal) => {
        Kind::Real {
            manifest: include_str!(concat!("templates/real/", $folder, "/manifest.toml")),
            main: include_str!(concat!("templates/real/", $program, "/main.rs")),
            build: $build,
            config: include_str!(concat!("templates/real/", $folder, "/config.toml")),
            readme: include_str!(concat!("templates/real/", $folder, "/README.md")),
            brings_memory: $brings_memory,
        }
    };
}

/// Every board.
pub const ALL: &[Board] = &[
    Board {
        name: "an386",
        memory: include_str!("templates/memory/an386.x"),
        kind: Kind::Emulated { machine: "mps2-an386", base: "0x4000_4000", port: CMSDK },
    },
    Board {
        name: "an500",
        memory: include_str!("templates/memory/an500.x"),
        kind: Kind::Emulated { machine: "mps2-an500", base: "0x4000_4000", port: CMSDK },
    },
    Board {
        name: "an505",
        memory: include_str!("templates/memory/an505.x"),
        kind: Kind::Emulated { machine: "mps2-an505", base: "0x5020_0000", port: CMSDK },
    },
    Board {
        name: "an547",
        memory: include_str!("templates/memory/an547.x"),
        kind: Kind::Emulated { machine: "mps3-an547", base: "0x4930_3000", port: CMSDK },
    },
    Board {
        name: "netduinoplus2",
        memory: include_str!("templates/memory/netduinoplus2.x"),
        kind: Kind::Emulated { machine: "netduinoplus2", base: "0x4001_1000", port: STM32 },
    },
    Board {
        name: "an385",
        memory: include_str!("templates/memory/an385.x"),
        kind: Kind::Emulated { machine: "mps2-an385", base: "0x4000_4000", port: CMSDK },
    },
    Board {
        name: "lm3s6965evb",
        memory: include_str!("templates/memory/lm3s6965evb.x"),
        kind: Kind::Emulated { machine: "lm3s6965evb", base: "0x4000_C000", port: PL011 },
    },
    Board {
        name: "microbit",
        memory: include_str!("templates/memory/microbit.x"),
        kind: Kind::Emulated { machine: "microbit", base: "0x4000_2000", port: NRF51 },
    },
    Board {
        name: "virt-imac",
        memory: include_str!("templates/memory/virt.x"),
        kind: Kind::Emulated { machine: "virt", base: "0x1000_0000", port: NS16550 },
    },
    Board {
        name: "virt-imafc",
        memory: include_str!("templates/memory/virt.x"),
        kind: Kind::Emulated { machine: "virt", base: "0x1000_0000", port: NS16550 },
    },
    Board {
        name: "sifive_e",
        memory: include_str!("templates/memory/sifive-e.x"),
        kind: Kind::Emulated { machine: "sifive_e", base: "0x1001_3000", port: SIFIVE },
    },
    Board {
        name: "pico",
        memory: include_str!("templates/memory/pico.x"),
        kind: real!("pico", "pico", include_str!("templates/real/pico/build.rs"), false),
    },
    Board { name: "pico2", memory: include_str!("templates/memory/pico2.x"), kind: real!("pico2", "pico", LINK, false) },
    Board {
        name: "nrf52840-dk",
        memory: include_str!("templates/memory/nrf52840-dk.x"),
        kind: real!("nrf52840-dk", "nrf52840-dk", LINK, false),
    },
    Board {
        name: "nucleo-h743zi",
        memory: include_str!("templates/memory/nucleo-h743zi.x"),
        kind: real!("nucleo-h743zi", "nucleo-h743zi", LINK, false),
    },
    Board { name: "esp32-c6", memory: "", kind: real!("esp32-c6", "esp32-c6", include_str!("templates/real/esp32-c6/build.rs"), true) },
];
