//! The golden vectors of a file, computed on this machine.

use crate::{DmexpCode, DmexpError, slice, told, words};
use core::ffi::c_void;
use dmexp::format::file::ModelFile;
use dmexp::format::{Error, crc32};
use dmexp::{Model, Sampler, Session};

/// Computes every golden vector of the .dmexp file at `bytes` in `arena` and compares the logits, bit for bit, with what the machine that exported the file computed. An arena that suffices
/// for a session suffices here, unless its context or its keys and values are smaller than a vector's: then the error says how many bytes are needed.
///
/// # Safety
/// `bytes` points to `len` bytes that nobody changes meanwhile; `arena` to `arena_len` bytes at a multiple of 4, used by no session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_self_test(bytes: *const c_void, len: usize, arena: *mut c_void, arena_len: usize) -> DmexpError {
    let test = || {
        // SAFETY: by the caller's word.
        let (bytes, arena): (&[u8], _) = unsafe { (slice(bytes.cast(), len)?, words(arena, arena_len)?) };
        let file = ModelFile::open(bytes)?;
        let mut model = Model::bind(&file)?;
        let mut any = false;
        for golden in file.golden() {
            model = model.with_context(golden.len()).with_kv(golden.kv());
            let mut session = Session::new(&model, &mut *arena, Sampler::greedy())?;
            let mut known = golden.positions();
            let mut next = known.next();
            for (position, token) in (0..).zip(golden.tokens()) {
                session.push_tokens(&[token])?;
                let Some(expected) = next.filter(|expected| expected.position == position) else { continue };
                let computed = crc32::checksum(&[bytemuck::cast_slice(session.logits()?)]);
                if computed != expected.crc32 {
                    return Err(Error::Golden { position, stored: expected.crc32, computed }.into());
                }
                (any, next) = (true, known.next());
            }
        }
        if any { Ok(()) } else { Err(DmexpError::of(DmexpCode::NoGolden)) }
    };
    told(test())
}

#[cfg(target_endian = "big")]
compile_error!("golden vectors are checksums of little-endian numbers");
