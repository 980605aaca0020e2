//! The weights of a `.dmexp` by their paths, in the shape and the order of their source: what `RustyML` calls `weight_paths()` and `weight(path)`. Called by `dmexp export get`.

use crate::checkpoint::rustyml::source_layout;
use crate::decode::Loaded;
use crate::error::{Class, Error, Result};
use dmexp_format::arch::Architecture;
use dmexp_format::arch::sequential::{Wanted, check_tensors};
use dmexp_format::file::Tensor;
use dmexp_format::{DType, TensorView};

/// What is known of a weight without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightInfo {
    /// `0.kernel`; of other than sequential models the tensor's name.
    pub path: String,
    /// The sizes of its axes as its source has them.
    pub shape: Vec<u64>,
    /// Whether training changes it.
    pub trainable: bool,
    /// How the file stores it.
    pub dtype: DType,
}

/// All weights in the file's order. A layer that several nodes call has one set of them.
///
/// # Errors
/// What a check of the file's tensors refuses.
pub fn weight_paths(loaded: &Loaded) -> Result<Vec<WeightInfo>> {
    Ok(list(loaded)?.into_iter().map(|(info, ..)| info).collect())
}

/// The weight of this path: row-major in the shape of its source, widened to f32 where it is stored in fewer bits. Of a file in f32 these are the source's values, bit for bit.
///
/// # Errors
/// [`Class::Request`] for a path that the file has not, with those that are like it; those of [`weight_paths`].
pub fn weight(loaded: &Loaded, path: &str) -> Result<(WeightInfo, Vec<f32>)> {
    let list = list(loaded)?;
    let Some((info, view, places)) = list.iter().find(|(info, ..)| info.path == path) else {
        let layer = path.split_once('.').map_or(path, |(layer, _)| layer);
        let near: Vec<_> =
            list.iter().map(|(info, ..)| info.path.as_str()).filter(|other| other.split('.').next() == Some(layer)).collect();
        let advice = match near.as_slice() {
            [] => "dmexp export get FILE lists all".to_owned(),
            near => format!("there are {}", near.join(", ")),
        };
        return Err(Error::new(Class::Request, format!("has no weight {path:?}")).advise(advice).in_file(loaded.path()));
    };
    let values = match places {
        Some(places) => places.iter().map(|place| view.get_f32(*place)).collect(),
        None => (0..view.rows() * view.cols()).map(|place| view.get_f32(place)).collect(),
    };
    Ok((info.clone(), values))
}

/// A weight, where it lies, and where the values of its source's order lie in it (`None`: in their order).
type Entry<'a> = (WeightInfo, TensorView<'a>, Option<Vec<usize>>);

fn list(loaded: &Loaded) -> Result<Vec<Entry<'_>>> {
    let file = loaded.file()?;
    let tensors = file.tensors();
    let as_stored = |tensor: Tensor<'_>| WeightInfo {
        path: tensor.name.to_owned(),
        shape: tensor.view.dims().as_slice().iter().map(|size| u64::from(*size)).collect(),
        trainable: tensor.flags & 2 == 0,
        dtype: tensor.view.dtype(),
    };
    if file.architecture() != Architecture::Sequential {
        let weights = tensors.filter(|tensor| tensor.view.dtype().is_weight());
        return Ok(weights.map(|tensor| (as_stored(tensor), tensor.view, None)).collect());
    }
    let model = check_tensors(&file).map_err(|error| loaded.explain(error))?;
    let first_call = |layer: u32| (0u32..).zip(model.nodes()).find(|(_, node)| node.layer() == Some(layer)).map(|(number, _)| number);
    let wanted = (0u32..).zip(model.layers()).flat_map(|(number, layer)| {
        let input = first_call(number).and_then(|node| model.input_shape(node));
        layer.roles().map(move |role| (number, layer, role, input))
    });
    let entries =
        wanted.zip(tensors).filter(|((_, _, role, _), _)| !role.is_computed()).filter_map(|((number, layer, role, input), tensor)| {
            let (shape, places) = source_layout(&layer, role, input?, tensor.view.dims())?;
            let path = Wanted { layer: number, role, dims: tensor.view.dims() }.to_string();
            Some((
                WeightInfo { path, shape, trainable: role.is_trainable(), dtype: tensor.view.dtype() },
                tensor.view,
                Some(places.collect()),
            ))
        });
    Ok(entries.collect())
}
