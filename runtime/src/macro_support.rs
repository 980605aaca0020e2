//! What the code of `include_model!` calls while the program compiles. Not part of the public interface.

#[cfg(any(feature = "llama", feature = "dormouse"))]
use crate::format::KvDType;
#[cfg(feature = "dormouse")]
use crate::format::arch::dormouse::DormouseConfig;
#[cfg(feature = "llama")]
use crate::format::arch::llama::LlamaConfig;
#[cfg(feature = "llama")]
use crate::format::layout::LlamaLayout;
#[cfg(feature = "dormouse")]
use crate::format::layout::{Decoding, DormouseLayout};
use crate::format::{DType, Dims, Planes, TensorView};
#[cfg(any(feature = "llama", feature = "dormouse"))]
use crate::ops::kv::is_built;

/// Puts bytes at an address that suits every element type and the widest loads.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Aligned<T>(pub T);

/// `LEN` bytes of a file of `file_len` bytes, from `start` on.
///
/// # Panics
/// While compiling, if the file is not the one that was checked.
pub const fn piece<const LEN: usize>(file: &[u8], file_len: usize, start: usize) -> [u8; LEN] {
    assert!(file.len() == file_len, "the model file changed while the program was compiled: compile again");
    match file.split_at(start).1.first_chunk::<LEN>() {
        Some(found) => *found,
        None => panic!("the model file changed while the program was compiled: compile again"),
    }
}

/// The view of a tensor within the payload.
///
/// # Panics
/// While compiling, if it does not lie within the payload.
pub const fn tensor(payload: &'static [u8], offset: usize, dtype: u8, group: u32, rank: u32, sizes: [u32; 4]) -> TensorView<'static> {
    let Some(dtype) = DType::from_code(dtype) else { panic!("unknown element type") };
    let Ok(dims) = Dims::new(0, rank, sizes) else { panic!("impossible dims") };
    let Ok(planes) = Planes::new(0, dtype, dims, group) else { panic!("impossible group") };
    let bytes = payload.split_at(offset).1.split_at(planes.bytes as usize).0;
    match TensorView::grouped(0, dtype, dims, group, bytes) {
        Ok(view) => view,
        Err(_) => panic!("the tensor does not lie within the payload"),
    }
}

/// The parts of the arena of a session of a dormouse model.
///
/// # Panics
/// While compiling, if the target cannot address them.
#[cfg(feature = "dormouse")]
pub const fn dormouse_layout(config: &DormouseConfig, context: u32, decoding: Decoding) -> DormouseLayout {
    match DormouseLayout::new(config, context, decoding) {
        Ok(layout) => layout,
        Err(_) => panic!("this model with this context needs more memory than the target can address: ask for a smaller `context`"),
    }
}

/// The parts of the arena of a session.
///
/// # Panics
/// While compiling, if the target cannot address them.
#[cfg(feature = "llama")]
pub const fn layout(config: &LlamaConfig, context: u32, kv: KvDType) -> LlamaLayout {
    match LlamaLayout::new(config, context, kv) {
        Ok(layout) => layout,
        Err(_) => panic!("this model with this context needs more memory than the target can address: ask for a smaller `context`"),
    }
}

/// Stops the build where the kernels for an element type were left out.
///
/// # Panics
/// While compiling, if the feature is off.
pub const fn require_dtype(code: u8) {
    assert!(code != 0 || cfg!(feature = "f32"), "this model has weights in f32: build `dmexp` with the feature `f32`");
    assert!(code != 1 || cfg!(feature = "f16"), "this model has weights in f16: build `dmexp` with the feature `f16`");
    assert!(code != 2 || cfg!(feature = "bf16"), "this model has weights in bf16: build `dmexp` with the feature `bf16`");
    assert!(code != 3 || cfg!(feature = "q8"), "this model has weights in q8: build `dmexp` with the feature `q8`");
    assert!(code != 4 || cfg!(feature = "q4"), "this model has weights in q4: build `dmexp` with the feature `q4`");
    assert!(code != 5 || cfg!(feature = "t2"), "this model has weights in t2: build `dmexp` with the feature `t2`");
}

/// Stops the build where what keeps keys and values as this type was left out.
///
/// # Panics
/// While compiling, if the feature is off.
#[cfg(any(feature = "llama", feature = "dormouse"))]
pub const fn require_kv(kv: KvDType) {
    if is_built(kv) {
        return;
    }
    match kv {
        KvDType::F32 => panic!("`kv = f32`: build `dmexp` with the feature `kv-f32`"),
        KvDType::F16 => panic!("`kv = f16`, which is what it is where nothing is said: build `dmexp` with the feature `kv-f16`"),
        _ => panic!("`kv = q8`: build `dmexp` with the feature `kv-q8`"),
    }
}

/// Stops the build where the tokenizer of this kind was left out.
///
/// # Panics
/// While compiling, if the feature is off.
#[cfg(feature = "llama")]
pub const fn require_tokenizer(kind: u32) {
    assert!(kind != 3 || cfg!(feature = "bpe"), "this model's tokenizer is byte_level_bpe: build `dmexp` with the feature `bpe`");
}
