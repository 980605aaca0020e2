//! The boards that `dmexp new firmware` knows, with what their projects are made of. Where it can, that is what the repository's own boards are built from.

use dmexp_format::host::boards::KITS;

/// A board for which a project can be written.
#[derive(Debug)]
pub struct Board {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// The Rust target of its firmware.
    pub target: &'static str,
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

    /// Bytes of the memory that code lies in, and the model too unless there is [`Self::model_room`].
    pub fn flash(&self) -> u64 {
        self.length("FLASH")
    }

    /// Bytes of the memory that holds nothing but the model; `None` where it shares the flash.
    pub fn model_room(&self) -> Option<u64> {
        Some(self.length("MODEL")).filter(|room| *room > 0)
    }

    /// Bytes of RAM in one piece.
    pub fn ram(&self) -> u64 {
        self.length("RAM")
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
        self.target.starts_with("riscv")
    }

    /// Whether its core has the DSP instructions though its target does not promise them: so have all the Armv8-M ones here.
    pub(super) fn has_optional_dsp(&self) -> bool {
        self.target.starts_with("thumbv8m.main")
    }

    /// Whether its core computes floats by subroutines.
    pub(super) fn has_soft_floats(&self) -> bool {
        !self.target.ends_with("hf") && !self.target.contains("imafc")
    }

    /// The length of one memory of the linker script; 0 where it has no such memory.
    fn length(&self, region: &str) -> u64 {
        let named = self.memory.lines().find_map(|line| line.trim().strip_prefix(region)?.trim_start().strip_prefix(':'));
        let length = named.and_then(|line| line.rsplit_once("LENGTH =")).map_or("", |(_, length)| length.trim());
        let (digits, unit) = match length.strip_suffix(['K', 'M']) {
            Some(digits) if length.ends_with('K') => (digits, 1 << 10),
            Some(digits) => (digits, 1 << 20),
            None => (length, 1),
        };
        digits.parse().unwrap_or(0) * unit
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
pub(super) const LINK: &str = include_str!("../../../boards/app/link.rs");

/// What the ESP32-C6 leaves to a program: of 4 MB of flash what the partition for it has, and RAM without what its boot loader and its operating system keep.
const ESP32_C6: &str = "FLASH : ORIGIN = 0x42000000, LENGTH = 3M\nRAM : ORIGIN = 0x40800000, LENGTH = 384K";

/// A board that is not emulated, of the files in its folder: the folder, the build script, and whether its crates bring the linker script.
macro_rules! real {
    ($folder:literal, $build:expr, $brings_memory:literal) => {
        Kind::Real {
            manifest: include_str!(concat!("../../../boards/real/", $folder, "/Cargo.toml")),
            main: include_str!(concat!("../../../boards/real/", $folder, "/src/main.rs")),
            build: $build,
            config: include_str!(concat!("../../../boards/real/", $folder, "/.cargo/config.toml")),
            readme: include_str!(concat!("../../../boards/real/", $folder, "/README.md")),
            brings_memory: $brings_memory,
        }
    };
}

/// Every board.
pub const ALL: &[Board] = &[
    Board {
        name: "an386",
        title: "QEMU's mps2-an386 (Cortex-M4F, 4 MB of code memory, 4 MB of RAM)",
        target: "thumbv7em-none-eabihf",
        memory: include_str!("../../../boards/qemu-an386/memory.x"),
        kind: Kind::Emulated { machine: "mps2-an386", base: "0x4000_4000", port: CMSDK },
    },
    Board {
        name: "an500",
        title: "QEMU's mps2-an500 (Cortex-M7F, 4 MB of code memory, 4 MB of RAM)",
        target: "thumbv7em-none-eabihf",
        memory: include_str!("../../../boards/qemu-an500/memory.x"),
        kind: Kind::Emulated { machine: "mps2-an500", base: "0x4000_4000", port: CMSDK },
    },
    Board {
        name: "an505",
        title: "QEMU's mps2-an505 (Cortex-M33F, 4 MB of code memory, 2 MB of RAM)",
        target: "thumbv8m.main-none-eabihf",
        memory: include_str!("../../../boards/qemu-an505/memory.x"),
        kind: Kind::Emulated { machine: "mps2-an505", base: "0x5020_0000", port: CMSDK },
    },
    Board {
        name: "an547",
        title: "QEMU's mps3-an547 (Cortex-M55, 512 KB of code memory, 512 KB of RAM, 4 MB besides for the model)",
        target: "thumbv8m.main-none-eabihf",
        memory: include_str!("../../../boards/qemu-an547/memory.x"),
        kind: Kind::Emulated { machine: "mps3-an547", base: "0x4930_3000", port: CMSDK },
    },
    Board {
        name: "netduinoplus2",
        title: "QEMU's netduinoplus2 (STM32F405: Cortex-M4F, 1 MB of flash, 128 KB of RAM in one piece)",
        target: "thumbv7em-none-eabihf",
        memory: include_str!("../../../boards/qemu-netduinoplus2/memory.x"),
        kind: Kind::Emulated { machine: "netduinoplus2", base: "0x4001_1000", port: STM32 },
    },
    Board {
        name: "an385",
        title: "QEMU's mps2-an385 (Cortex-M3, 4 MB of code memory, 4 MB of RAM)",
        target: "thumbv7m-none-eabi",
        memory: include_str!("../../../boards/qemu-an385/memory.x"),
        kind: Kind::Emulated { machine: "mps2-an385", base: "0x4000_4000", port: CMSDK },
    },
    Board {
        name: "lm3s6965evb",
        title: "QEMU's lm3s6965evb (Cortex-M3, 256 KB of flash, 64 KB of RAM)",
        target: "thumbv7m-none-eabi",
        memory: include_str!("../../../boards/qemu-lm3s6965evb/memory.x"),
        kind: Kind::Emulated { machine: "lm3s6965evb", base: "0x4000_C000", port: PL011 },
    },
    Board {
        name: "microbit",
        title: "QEMU's microbit (nRF51: Cortex-M0, 256 KB of flash, 16 KB of RAM)",
        target: "thumbv6m-none-eabi",
        memory: include_str!("../../../boards/qemu-microbit/memory.x"),
        kind: Kind::Emulated { machine: "microbit", base: "0x4000_2000", port: NRF51 },
    },
    Board {
        name: "virt-imac",
        title: "QEMU's virt (RV32IMAC, 4 MB for code, 4 MB of RAM)",
        target: "riscv32imac-unknown-none-elf",
        memory: include_str!("../../../boards/qemu-virt/memory.x"),
        kind: Kind::Emulated { machine: "virt", base: "0x1000_0000", port: NS16550 },
    },
    Board {
        name: "virt-imafc",
        title: "QEMU's virt (RV32IMAFC, 4 MB for code, 4 MB of RAM)",
        target: "riscv32imafc-unknown-none-elf",
        memory: include_str!("../../../boards/qemu-virt/memory.x"),
        kind: Kind::Emulated { machine: "virt", base: "0x1000_0000", port: NS16550 },
    },
    Board {
        name: "sifive_e",
        title: "QEMU's sifive_e (FE310: RV32IMAC, 12 MB of flash, 16 KB of RAM)",
        target: "riscv32imac-unknown-none-elf",
        memory: include_str!("../../../boards/qemu-sifive-e/memory.x"),
        kind: Kind::Emulated { machine: "sifive_e", base: "0x1001_3000", port: SIFIVE },
    },
    Board {
        name: "pico",
        title: "Raspberry Pi Pico (RP2040: Cortex-M0+, 2 MB of external flash, 256 KB of RAM)",
        target: "thumbv6m-none-eabi",
        memory: include_str!("../../../boards/real/pico/memory.x"),
        kind: real!("pico", include_str!("../../../boards/real/pico/build.rs"), false),
    },
    Board {
        name: "pico2",
        title: "Raspberry Pi Pico 2 (RP2350: Cortex-M33F, 4 MB of external flash, 512 KB of RAM)",
        target: "thumbv8m.main-none-eabihf",
        memory: include_str!("../../../boards/real/pico2/memory.x"),
        kind: real!("pico2", LINK, false),
    },
    Board {
        name: "nrf52840-dk",
        title: "nRF52840-DK (Cortex-M4F, 1 MB of flash, 256 KB of RAM)",
        target: "thumbv7em-none-eabihf",
        memory: include_str!("../../../boards/real/nrf52840-dk/memory.x"),
        kind: real!("nrf52840-dk", LINK, false),
    },
    Board {
        name: "nucleo-h743zi",
        title: "STM32 Nucleo-H743ZI2 (Cortex-M7F, 2 MB of flash, 512 KB of RAM in one piece)",
        target: "thumbv7em-none-eabihf",
        memory: include_str!("../../../boards/real/nucleo-h743zi/memory.x"),
        kind: real!("nucleo-h743zi", LINK, false),
    },
    Board {
        name: "esp32-c6",
        title: "ESP32-C6-DevKitC-1 (RV32IMAC, 4 MB of external flash, 384 KB of RAM for the program)",
        target: "riscv32imac-unknown-none-elf",
        memory: ESP32_C6,
        kind: real!("esp32-c6", include_str!("../../../boards/real/esp32-c6/build.rs"), true),
    },
];
