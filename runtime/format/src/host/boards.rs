//! The boards that `dmexp plan` and `include_model!` know: their memories, their clocks, and how fast they read the flash that a model lies in.
//!
//! Sizes are those that a firmware's linker script has (tests compare them); clocks those that the vendor's start-up code, or the emulated machine's manual, sets.

/// One board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// The name in commands.
    pub name: &'static str,
    /// The board or machine, and its chip.
    pub about: &'static str,
    /// The core, by whose measured costs speed is estimated.
    pub core: Core,
    /// Clock of the core in hertz; 0 where an emulated machine has none.
    pub clock: u64,
    /// Bytes of flash for code.
    pub code: u64,
    /// Bytes of another memory that holds the model; 0 where it lies beside the code.
    pub model: u64,
    /// Pieces of RAM: name and bytes. The first holds stack and statics.
    pub banks: &'static [(&'static str, u64)],
    /// The most bytes a second that the core reads of the memory that holds the model; 0 where nothing is known (emulated machines).
    pub bandwidth: u64,
    /// Where that figure comes from; empty where there is none.
    pub bandwidth_from: &'static str,
    /// Bytes of flash that are kept for what is not the runtime's: drivers, the text of errors.
    pub drivers: u64,
    /// Bytes of the first bank that are kept for the stack and for statics besides arenas.
    pub kept: u64,
}

/// A core with what its compiler target gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// Cortex-M0 and M0+.
    CortexM0,
    /// Cortex-M3.
    CortexM3,
    /// Cortex-M4 with a floating-point unit.
    CortexM4F,
    /// Cortex-M7 with a floating-point unit.
    CortexM7F,
    /// Cortex-M33 with a floating-point unit.
    CortexM33F,
    /// Cortex-M55: it runs the code of a Cortex-M33, without its vectors.
    CortexM55,
    /// RISC-V, 32 bits, without a floating-point unit.
    Rv32imac,
    /// RISC-V, 32 bits, with a floating-point unit.
    Rv32imafc,
}

impl Core {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CortexM0 => "Cortex-M0",
            Self::CortexM3 => "Cortex-M3",
            Self::CortexM4F => "Cortex-M4F",
            Self::CortexM7F => "Cortex-M7F",
            Self::CortexM33F => "Cortex-M33F",
            Self::CortexM55 => "Cortex-M55",
            Self::Rv32imac => "RV32IMAC",
            Self::Rv32imafc => "RV32IMAFC",
        }
    }

    /// The Rust target of its firmware.
    pub const fn target(self) -> &'static str {
        match self {
            Self::CortexM0 => "thumbv6m-none-eabi",
            Self::CortexM3 => "thumbv7m-none-eabi",
            Self::CortexM4F | Self::CortexM7F => "thumbv7em-none-eabihf",
            Self::CortexM33F | Self::CortexM55 => "thumbv8m.main-none-eabihf",
            Self::Rv32imac => "riscv32imac-unknown-none-elf",
            Self::Rv32imafc => "riscv32imafc-unknown-none-elf",
        }
    }

    /// The emulated board on which costs and code of this core are measured.
    pub const fn measured_on(self) -> &'static str {
        match self {
            Self::CortexM0 => "an385-v6m",
            Self::CortexM3 => "an385",
            Self::CortexM4F => "an386",
            Self::CortexM7F => "an500",
            Self::CortexM33F | Self::CortexM55 => "an505",
            Self::Rv32imac => "virt-imac",
            Self::Rv32imafc => "virt-imafc",
        }
    }
}

/// Stack that is kept free in the first bank: the guard that `cargo xtask bench` holds every board's deepest stack under.
pub const STACK_BYTES: u64 = 2_048;

/// What a project of `dmexp new firmware` for an emulated board adds to the code of the runtime, at most: its serial port, and the words for every error.
const DRIVERS: u64 = 34_000;

/// What one for a real board adds at most: the hardware crates, and the words for every error.
const REAL_DRIVERS: u64 = 70_000;

/// What is kept of RAM on a real board: the stack, more for interrupts, and the statics of the hardware crates.
const REAL_KEPT: u64 = 5_000;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MHZ: u64 = 1_000_000;

/// Every board, the real ones first.
pub const BOARDS: &[Board] = &[
    Board {
        name: "rp2040",
        about: "Raspberry Pi Pico (RP2040)",
        core: Core::CortexM0,
        clock: 125 * MHZ,
        // The first 256 bytes are the second boot stage.
        code: 2 * MIB - 256,
        model: 0,
        // SRAM0 to 5 follow one another (RP2040 datasheet, 2.2.3).
        banks: &[("SRAM", 264 * KIB)],
        bandwidth: 62_500_000 * 8 / 28,
        bandwidth_from: "execute-in-place at half the core's clock, 4 bits each; a miss of the cache reads 8 bytes in 28 clocks: 8 for address and mode, 4 of wait, 16 of data (RP2040 datasheet, 2.6.3 and 4.10)",
        drivers: REAL_DRIVERS,
        kept: REAL_KEPT,
    },
    Board {
        name: "rp2350",
        about: "Raspberry Pi Pico 2 (RP2350)",
        core: Core::CortexM33F,
        clock: 150 * MHZ,
        code: 4 * MIB,
        model: 0,
        // SRAM0 to 9 follow one another (RP2350 datasheet, 2.2.3).
        banks: &[("SRAM", 520 * KIB)],
        bandwidth: 50_000_000 / 2,
        bandwidth_from: "as the boot ROM leaves it, a third of the core's clock, 4 bits each; reads in sequence need no new address (RP2350 datasheet, 12.14)",
        drivers: REAL_DRIVERS,
        kept: REAL_KEPT,
    },
    Board {
        name: "nrf52840",
        about: "nRF52840-DK (nRF52840)",
        core: Core::CortexM4F,
        clock: 64 * MHZ,
        code: MIB,
        model: 0,
        banks: &[("RAM", 256 * KIB)],
        bandwidth: 64 * MHZ * 16 / 3,
        bandwidth_from: "two wait states a read (product specification, CPU); that a read gives 16 bytes is assumed, not stated",
        drivers: REAL_DRIVERS,
        kept: REAL_KEPT,
    },
    Board {
        name: "stm32h743",
        about: "Nucleo-H743ZI (STM32H743)",
        core: Core::CortexM7F,
        // As embassy's example and our firmware set it; the newest chips could do 480.
        clock: 400 * MHZ,
        code: 2 * MIB,
        model: 0,
        // RM0433, 2.3.2: the AXI SRAM, SRAM1 to 3 in one piece, the tightly coupled memory, SRAM4.
        banks: &[("AXI SRAM", 512 * KIB), ("SRAM1-3", 288 * KIB), ("DTCM", 128 * KIB), ("SRAM4", 64 * KIB)],
        bandwidth: 200 * MHZ * 32 / 3,
        bandwidth_from: "32 bytes a read at 200 MHz of the bus, two wait states (RM0433, 4.3.8)",
        drivers: REAL_DRIVERS,
        kept: REAL_KEPT,
    },
    Board {
        name: "stm32f405",
        about: "STM32F405 (Feather, Netduino Plus 2)",
        core: Core::CortexM4F,
        clock: 168 * MHZ,
        code: MIB,
        model: 0,
        // RM0090, 2.3.1: SRAM1 and 2 in one piece; the core coupled memory on a bus of its own.
        banks: &[("SRAM", 128 * KIB), ("CCM", 64 * KIB)],
        bandwidth: 168 * MHZ * 16 / 6,
        bandwidth_from: "16 bytes a read, five wait states (RM0090, 3.5.1)",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "esp32c6",
        about: "ESP32-C6-DevKitC-1 (ESP32-C6)",
        core: Core::Rv32imac,
        clock: 160 * MHZ,
        // 4 MB without the boot loader and the table of partitions, as espflash lays them out.
        code: 4 * MIB - 64 * KIB,
        model: 0,
        // Of 512 KB, the ROM and the second stage of its boot loader keep the end (ESP-IDF's memory map).
        banks: &[("HP SRAM", 0x6_E610)],
        bandwidth: 80 * MHZ * 32 / 152,
        bandwidth_from: "assumed, not stated: 80 MHz, 2 bits each, and a cache that reads 32 bytes in 152 clocks, 24 for command, address and mode and 128 of data",
        // Its code begins at a page of 64 KB of its own.
        drivers: 170_000,
        // What serves interrupts lies in RAM too.
        kept: 18_000,
    },
    Board {
        name: "an386",
        about: "QEMU mps2-an386",
        core: Core::CortexM4F,
        clock: 25 * MHZ,
        code: 4 * MIB,
        model: 0,
        banks: &[("RAM", 4 * MIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "an500",
        about: "QEMU mps2-an500",
        core: Core::CortexM7F,
        clock: 25 * MHZ,
        code: 4 * MIB,
        model: 0,
        banks: &[("RAM", 4 * MIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "an505",
        about: "QEMU mps2-an505",
        core: Core::CortexM33F,
        clock: 20 * MHZ,
        code: 4 * MIB,
        model: 0,
        banks: &[("RAM", 2 * MIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "an547",
        about: "QEMU mps3-an547",
        core: Core::CortexM55,
        clock: 32 * MHZ,
        code: 512 * KIB,
        model: 4 * MIB,
        banks: &[("RAM", 512 * KIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "an385",
        about: "QEMU mps2-an385",
        core: Core::CortexM3,
        clock: 25 * MHZ,
        code: 4 * MIB,
        model: 0,
        banks: &[("RAM", 4 * MIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "an385-v6m",
        about: "QEMU mps2-an385 with the code of a Cortex-M0",
        core: Core::CortexM0,
        clock: 25 * MHZ,
        code: 4 * MIB,
        model: 0,
        banks: &[("RAM", 4 * MIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "lm3s6965evb",
        about: "QEMU lm3s6965evb (LM3S6965)",
        core: Core::CortexM3,
        clock: 50 * MHZ,
        code: 256 * KIB,
        model: 0,
        banks: &[("RAM", 64 * KIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "microbit",
        about: "BBC micro:bit (nRF51822), as QEMU emulates it",
        core: Core::CortexM0,
        clock: 16 * MHZ,
        code: 256 * KIB,
        model: 0,
        banks: &[("RAM", 16 * KIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "netduinoplus2",
        about: "Netduino Plus 2 (STM32F405), as QEMU emulates it",
        core: Core::CortexM4F,
        clock: 168 * MHZ,
        code: MIB,
        model: 0,
        banks: &[("SRAM", 128 * KIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "sifive_e",
        about: "HiFive1 (FE310), as QEMU emulates it",
        core: Core::Rv32imac,
        clock: 16 * MHZ,
        code: 12 * MIB,
        model: 0,
        banks: &[("RAM", 16 * KIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "virt-imac",
        about: "QEMU virt, RV32IMAC",
        core: Core::Rv32imac,
        clock: 0,
        code: 4 * MIB,
        model: 0,
        banks: &[("RAM", 4 * MIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
    Board {
        name: "virt-imafc",
        about: "QEMU virt, RV32IMAFC",
        core: Core::Rv32imafc,
        clock: 0,
        code: 4 * MIB,
        model: 0,
        banks: &[("RAM", 4 * MIB)],
        bandwidth: 0,
        bandwidth_from: "",
        drivers: DRIVERS,
        kept: STACK_BYTES,
    },
];

/// Boards that are called by their chip here, and the names of the kits that carry it, which are understood too.
pub const KITS: &[(&str, &str)] =
    &[("rp2040", "pico"), ("rp2350", "pico2"), ("nrf52840", "nrf52840-dk"), ("stm32h743", "nucleo-h743zi"), ("esp32c6", "esp32-c6")];

impl Board {
    /// The board of this name, or of the kit of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        let chip = KITS.iter().find(|(_, kit)| *kit == name).map_or(name, |(chip, _)| chip);
        BOARDS.iter().find(|board| board.name == chip)
    }

    /// Every name, with commas between them, and those of kits in parentheses.
    pub fn names() -> String {
        let named = |board: &Self| match KITS.iter().find(|(chip, _)| *chip == board.name) {
            Some((chip, kit)) => format!("{chip} ({kit})"),
            None => board.name.to_owned(),
        };
        BOARDS.iter().map(named).collect::<Vec<_>>().join(", ")
    }

    /// Bytes of each bank that arenas can have: the first without what is kept.
    pub fn free(&self) -> Vec<u64> {
        let first = self.banks.first().map(|(_, bytes)| bytes.saturating_sub(STACK_BYTES));
        first.into_iter().chain(self.banks.iter().skip(1).map(|(_, bytes)| *bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for board in BOARDS {
            assert_eq!(Board::find(board.name), Some(board));
            assert_eq!(BOARDS.iter().filter(|other| other.name == board.name).count(), 1);
            assert!(Board::find(board.core.measured_on()).is_some_and(|other| other.core.measured_on() == other.name));
            assert!(!board.banks.is_empty() && board.banks.iter().all(|(_, bytes)| *bytes > board.kept));
        }
        assert_eq!(Board::find("rp"), None);
        for (chip, kit) in KITS {
            assert!(Board::find(chip).is_some() && Board::find(kit) == Board::find(chip), "{kit}");
        }
        assert!(BOARDS.iter().all(|board| board.bandwidth_from.is_empty() == (board.bandwidth == 0)));
    }
}
