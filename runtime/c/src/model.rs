//! Opening a file, and what a session of it needs.

use crate::{DmexpCode, DmexpError, Held, aligned, give, slice, told};
use core::ffi::c_void;
use dmexp::Model;
use dmexp::format::KvDType;
use dmexp::format::file::ModelFile;

/// An opened model: memory that the caller gives, which [`dmexp_open`] fills. It must stay where it is while sessions of it are used.
#[repr(C)]
pub struct DmexpModel {
    /// Nothing to look at: it gives the memory its alignment.
    aligned: u64,
    opaque: [usize; 126],
}

pub(crate) const MODEL_MARK: u32 = 0x444d_7831;

/// How keys and values are kept.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmexpKv {
    /// Single precision.
    F32 = 0,
    /// Half precision.
    F16 = 1,
    /// Eight bits and a scale a head.
    Q8 = 2,
}

/// # Safety
/// That of [`Held::at`].
pub(crate) unsafe fn model<'a>(model: *const DmexpModel) -> Result<&'a Model<'static>, DmexpError> {
    // SAFETY: the caller's word.
    unsafe { Held::at(model, MODEL_MARK) }
}

/// Opens the .dmexp file at `bytes`, `len` bytes that may lie at any address (flash, say) and must stay there: nothing is copied. The model has the context that it was trained for, and
/// keeps keys and values in f16.
///
/// # Safety
/// `model` points to memory of its type; `bytes` to `len` bytes that nobody changes while the model is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_open(model: *mut DmexpModel, bytes: *const c_void, len: usize) -> DmexpError {
    let open = || {
        // SAFETY: by the caller's word.
        let bytes: &'static [u8] = unsafe { slice(bytes.cast(), len) }?;
        let opened = Model::bind(&ModelFile::open(bytes)?)?;
        // SAFETY: by the caller's word.
        unsafe { Held::put(model, MODEL_MARK, opened) }
    };
    told(open())
}

/// Gives the model room for `context` positions. Call it before sessions are made.
///
/// # Safety
/// `model` points to memory of its type, and no session of it is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_set_context(model: *mut DmexpModel, context: u32) -> DmexpError {
    let set = || {
        // SAFETY: by the caller's word.
        let model: &mut Model<'static> = unsafe { Held::at_mut(model, MODEL_MARK) }?;
        let changed = model.with_context(context);
        changed.arena_len()?;
        *model = changed;
        Ok(())
    };
    told(set())
}

/// Has the model keep keys and values as `kv`. Call it before sessions are made.
///
/// # Safety
/// `model` points to memory of its type, and no session of it is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_set_kv(model: *mut DmexpModel, kv: u32) -> DmexpError {
    let set = || {
        let kv = match kv {
            0 => KvDType::F32,
            1 => KvDType::F16,
            2 => KvDType::Q8,
            _ => return Err(DmexpError::numbers(DmexpCode::NotBuilt, u64::from(kv), 2)),
        };
        // SAFETY: by the caller's word.
        let model: &mut Model<'static> = unsafe { Held::at_mut(model, MODEL_MARK) }?;
        model.set_kv(kv);
        Ok(())
    };
    told(set())
}

/// Bytes of arena that a session of the model needs.
///
/// # Safety
/// `model` points to memory of its type; `len` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_arena_len(model: *const DmexpModel, len: *mut usize) -> DmexpError {
    let give_len = || {
        aligned(len)?;
        // SAFETY: by the caller's word.
        let needed = unsafe { self::model(model) }?.arena_len()?;
        // SAFETY: by the caller's word.
        unsafe { give(len, needed) }
    };
    told(give_len())
}

/// Bytes that a session of the model needs where its memory is given in two banks: for keys and values, and for everything else.
///
/// # Safety
/// `model` points to memory of its type; `kv` and `work` to numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_bank_lens(model: *const DmexpModel, kv: *mut usize, work: *mut usize) -> DmexpError {
    let lens = || {
        aligned(kv)?;
        aligned(work)?;
        // SAFETY: by the caller's word.
        let (kv_len, work_len) = unsafe { self::model(model) }?.bank_lens()?;
        // SAFETY: by the caller's word.
        unsafe { give(kv, kv_len) }?;
        // SAFETY: by the caller's word.
        unsafe { give(work, work_len) }
    };
    told(lens())
}

/// How many tokens the vocabulary has, which is how many logits there are; 0 where no model is there.
///
/// # Safety
/// `model` is null or points to memory of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dmexp_vocab_size(model: *const DmexpModel) -> u32 {
    // SAFETY: by the caller's word.
    unsafe { self::model(model) }.map_or(0, |model| model.network().vocab_size())
}
