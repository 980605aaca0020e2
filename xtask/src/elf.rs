//! What `size` and `bench` want to know of a linked firmware: sections, symbols, panic paths.

use crate::failure::{Failure, Outcome};
use object::elf::FileHeader32;
use object::read::elf::ElfFile;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SectionFlags, elf};
use std::path::Path;

/// The section, and the prefix of symbols, that hold a model.
const MODEL_SECTION: &str = ".dmexp_model";
const MODEL_SYMBOLS: [&str; 2] = ["DMEXP_MODEL", "DMEXP_TENSOR_"];

/// The end of the readable name of a model's table of tensors.
const TABLE_SYMBOL: &str = "::bind::TENSORS";

/// The end of the readable name of the arena's static.
const ARENA_SYMBOL: &str = "::ARENA";

/// What a board's panic handler prints. Every handler under `boards/` writes it, so that a linked handler shows in the bytes
/// of the image whatever became of its symbol.
const PANIC_TEXT: &[u8] = b"the firmware panicked";

/// Sizes in bytes, and every panic path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Firmware {
    /// Machine code.
    pub(crate) text: u64,
    /// The exception and interrupt vectors.
    pub(crate) vectors: u64,
    /// Constants, the model left out.
    pub(crate) rodata: u64,
    /// Initialised statics: in flash and in RAM. (Where all of them are constant, as tensors in RAM are, the section is not marked as writable.)
    pub(crate) data: u64,
    /// Zeroed and uninitialised statics: in RAM alone.
    pub(crate) bss: u64,
    /// The model, but for what is copied to RAM.
    pub(crate) model: u64,
    /// The static that sessions live in, its cell included.
    pub(crate) arena: u64,
    /// Tensors of the model among the initialised statics.
    pub(crate) hot_weights: u64,
    /// Whether floats are added by a routine that lies outside of the firmware: in the chip's ROM.
    pub(crate) adds_in_rom: bool,
    /// Readable names of what can only be there because something can panic.
    pub(crate) panic_paths: Vec<String>,
    /// Source files in which something that is linked can panic: all that ends in `.rs` in the image, each with what stands before it without a gap. Where no handler reads the place of a panic, the
    /// linker's optimiser leaves none.
    pub(crate) panic_places: Vec<String>,
}

impl Firmware {
    /// Code and constants without the model.
    pub(crate) fn code(&self) -> u64 {
        self.text + self.rodata
    }

    /// Flash that the firmware takes without its model.
    pub(crate) fn code_without_model(&self) -> u64 {
        self.vectors + self.code() + self.data
    }

    /// Reads a linked firmware from its file.
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let bytes = std::fs::read(path).map_err(|error| Failure::cannot_run(format!("cannot read {}: {error}", path.display())))?;
        Self::parse(&bytes).map_err(|why| Failure::cannot_run(format!("cannot weigh {}: {why}", path.display())))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file = ElfFile::<FileHeader32<Endianness>>::parse(bytes).map_err(|error| error.to_string())?;
        let mut firmware = Self::default();
        let mut handler_text = false;
        for section in file.sections() {
            let SectionFlags::Elf { sh_type, sh_flags } = section.flags() else {
                continue;
            };
            if !sh_flags.contains(elf::SHF_ALLOC) {
                continue;
            }
            let name = section.name().map_err(|error| error.to_string())?;
            // riscv-rt makes a section of all the RAM that is left.
            if name == ".stack" || name == ".heap" {
                continue;
            }
            let counter = if name == MODEL_SECTION {
                &mut firmware.model
            } else if name == ".vector_table" {
                &mut firmware.vectors
            } else if sh_flags.contains(elf::SHF_EXECINSTR) {
                &mut firmware.text
            } else if !sh_flags.contains(elf::SHF_WRITE) && name != ".data" {
                &mut firmware.rodata
            } else if sh_type == elf::SHT_NOBITS {
                &mut firmware.bss
            } else {
                &mut firmware.data
            };
            *counter += section.size();
            let image = section.data().unwrap_or(&[]);
            firmware.panic_places.extend(source_files(image));
            handler_text |= image.windows(PANIC_TEXT.len()).any(|window| window == PANIC_TEXT);
        }
        firmware.panic_places.sort();
        firmware.panic_places.dedup();
        firmware.read_symbols(&file)?;
        if handler_text {
            firmware.panic_paths.push("the text of the panic handler".to_owned());
        }
        Ok(firmware)
    }

    fn read_symbols(&mut self, file: &ElfFile<'_, FileHeader32<Endianness>>) -> Result<(), String> {
        let mut seen = 0;
        for symbol in file.symbols() {
            let Ok(mangled) = symbol.name() else {
                continue;
            };
            if !symbol.is_definition() {
                continue;
            }
            seen += 1;
            self.adds_in_rom |= mangled == "__addsf3" && symbol.section_index().is_none();
            let name = format!("{:#}", rustc_demangle::demangle(mangled));
            if MODEL_SYMBOLS.iter().any(|part| mangled.contains(part)) || name.ends_with(TABLE_SYMBOL) {
                let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
                match section.as_ref().and_then(|section| section.name().ok()) {
                    Some(".rodata") => {
                        self.model += symbol.size();
                        self.rodata = self.rodata.saturating_sub(symbol.size());
                    }
                    Some(".data") => self.hot_weights += symbol.size(),
                    _ => {}
                }
            }
            if name.ends_with(ARENA_SYMBOL) {
                self.arena += symbol.size();
            }
            if is_panic_path(&name) {
                self.panic_paths.push(name);
            }
        }
        if seen == 0 {
            return Err("it has no symbols, so nothing can be said of panic paths; build it without `strip`".to_owned());
        }
        self.panic_paths.sort();
        self.panic_paths.dedup();
        Ok(())
    }
}

/// What ends in `.rs` among constants, from the end of what ends so before it or the last byte that is no printable character: names of files lie side by side with nothing between them.
fn source_files(image: &[u8]) -> Vec<String> {
    const END: &[u8] = b".rs";
    let (mut files, mut start) = (Vec::new(), 0);
    for at in 0..image.len() {
        if !matches!(image[at], b' '..=b'~') {
            start = at + 1;
        } else if image[start..=at].ends_with(END) {
            files.push(String::from_utf8_lossy(&image[start..=at]).into_owned());
            start = at + 1;
        }
    }
    files
}

/// Whether a readable symbol name belongs to the machinery of panics. Names of core change between releases of Rust; the
/// entry points below have not, and the text of the handler is looked for as well.
fn is_panic_path(name: &str) -> bool {
    const ANYWHERE: &[&str] = &[
        "core::panicking::",
        "core::panic::",
        "rust_begin_unwind",
        "panic_bounds_check",
        "panic_fmt",
        "panic_nounwind",
        "unwrap_failed",
        "expect_failed",
        "slice_error_fail",
        "slice_index_fail",
        "slice_start_index_len_fail",
        "slice_end_index_len_fail",
        "slice_index_order_fail",
        "copy_from_slice_impl::len_mismatch_fail",
        "len_mismatch_fail",
        "panic_already_borrowed",
        "panic_already_mutably_borrowed",
        "panic_const_",
        "panic_in_cleanup",
        "panic_cannot_unwind",
        "handle_alloc_error",
    ];
    ANYWHERE.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::{is_panic_path, source_files};

    fn readable(mangled: &str) -> String {
        format!("{:#}", rustc_demangle::demangle(mangled))
    }

    #[test]
    fn both_manglings_are_recognised() {
        let legacy = "_ZN4core9panicking18panic_bounds_check17h0123456789abcdefE";
        let v0 = "_RNvNtCs1234_4core9panicking9panic_fmt";
        let handler = "_RNvCs5678_7___rustc17rust_begin_unwind";
        for mangled in [legacy, v0, handler] {
            assert!(is_panic_path(&readable(mangled)), "{mangled}");
        }
    }

    #[test]
    fn names_of_files_are_found_side_by_side() {
        assert_eq!(source_files(b"\x00\x10/a/b.rssrc/main.rsno\x00.r\x01s a.rs"), ["/a/b.rs", "src/main.rs", "s a.rs"]);
        assert!(source_files(b"").is_empty());
    }

    #[test]
    fn ordinary_names_pass() {
        for name in ["dmexp::session::Session::step", "core::slice::sort::merge", "HardFault_", "compiler_builtins::mem::memcpy"] {
            assert!(!is_panic_path(name), "{name}");
        }
    }
}
