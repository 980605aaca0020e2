//! Batch normalisations folded into the layer before them, which then does both: its kernel's rows scaled, its bias scaled and moved. Asked for by the exporter.

use super::super::array::Array;
use super::super::{Checkpoint, Config, Encoding, Mapping};
use super::{SequentialSource, wanted};
use crate::error::{Error, Result};
use dmexp_format::arch::sequential::{Activation, Flags, Layer, Op, Role};
use dmexp_format::host::SequentialSettings;
use dmexp_format::host::sequential::NamedLayer;
use std::collections::HashMap;

/// The arrays of a model by their names.
type Values = HashMap<String, Vec<f32>>;

impl Checkpoint {
    /// The same model with every batch normalisation that can be folded into the dense or convolutional layer before it, and `Identity` in its place, so that no layer gets another number. `None` for
    /// other architectures. A note says what was folded, what was not, and why.
    ///
    /// Computed in f64 and rounded once; the model's results differ from the unfolded model's by rounding.
    ///
    /// # Errors
    /// [`Class::Damaged`](crate::error::Class::Damaged) for a moving variance that with epsilon is not above 0, and those of reading arrays.
    pub(crate) fn folded(&self) -> Result<Option<Self>> {
        let Config::Sequential(source) = &self.config else { return Ok(None) };
        let mut settings = source.settings.clone();
        let mut values: Values = self.arrays().map(|array| Ok((array.name().to_owned(), array.to_vec()?))).collect::<Result<_>>()?;
        let (mut folded, mut kept) = (Vec::new(), Vec::new());
        let order: Vec<u32> = settings.nodes.iter().filter_map(|node| node.layer).collect();
        for norm in order {
            if layer(&settings, norm).op != Op::BatchNormalization || kept.iter().any(|(other, _)| *other == norm) {
                continue;
            }
            match target(&settings, norm) {
                Ok(into) => {
                    fold(&mut settings, &mut values, norm, into)?;
                    folded.push((norm, into));
                }
                Err(why) => kept.push((norm, why)),
            }
        }
        number_tensors(&mut settings);
        let (mut files, mut arrays) = (Vec::new(), Vec::new());
        for wanted in wanted(&settings)? {
            let name = wanted.to_string();
            let bytes = values.get(&name).into_iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
            arrays.push(Array::whole(name, wanted.dims, files.len(), Encoding::F32 { offset: 0 }));
            files.push(Mapping::from_bytes(self.path(), bytes));
        }
        let config = Config::Sequential(SequentialSource { settings });
        let mut checkpoint = Self::new(files, arrays, config, None, self.provenance.clone())?;
        checkpoint.notes.clone_from(&self.notes);
        checkpoint.notes.push(told(&folded, &kept));
        Ok(Some(checkpoint))
    }
}

fn told(folded: &[(u32, u32)], kept: &[(u32, String)]) -> String {
    let all = folded.len() + kept.len();
    if all == 0 {
        return "there is no batch normalisation to fold".to_owned();
    }
    let done: Vec<_> = folded.iter().map(|(norm, into)| format!("layer {norm} into layer {into}")).collect();
    let left: Vec<_> = kept.iter().map(|(norm, why)| format!("not layer {norm}: {why}")).collect();
    let words: Vec<_> = done.into_iter().chain(left).collect();
    format!("folded {} of {all} batch normalisations: {}", folded.len(), words.join("; "))
}

fn layer(settings: &SequentialSettings, number: u32) -> Layer {
    settings.layers.get(number as usize).map_or_else(|| Layer::new(Op::Identity), |named| named.layer)
}

/// The layer that can do what the normalisation `norm` does, or why there is none.
fn target(settings: &SequentialSettings, norm: u32) -> Result<u32, String> {
    let calls = |number: u32| settings.nodes.iter().filter(|node| node.layer == Some(number)).count();
    let readers = |node: u32| {
        let inputs = settings.nodes.iter().flat_map(|other| &other.inputs).filter(|from| **from == node).count();
        inputs + settings.outputs.iter().filter(|output| **output == node).count()
    };
    if calls(norm) > 1 {
        return Err("several nodes call it".to_owned());
    }
    let mut node = settings.nodes.iter().find(|node| node.layer == Some(norm));
    loop {
        let Some(from) = node.and_then(|node| node.inputs.first()).copied() else { return Err("nothing comes before it".to_owned()) };
        node = settings.nodes.get(from as usize);
        let Some(number) = node.and_then(|node| node.layer) else { return Err("its input is the model's".to_owned()) };
        if readers(from) > 1 {
            return Err(format!("the result of layer {number} is read by others too"));
        }
        let before = layer(settings, number);
        match before.op {
            // What does nothing when the model runs is looked through.
            Op::Identity => {}
            Op::Dense | Op::Conv | Op::ConvTranspose | Op::DepthwiseConv | Op::SeparableConv => {
                if before.activation != Activation::Linear {
                    return Err(format!("layer {number} before it has the activation {}", before.activation.name()));
                }
                if calls(number) > 1 {
                    return Err(format!("several nodes call layer {number} before it"));
                }
                return Ok(number);
            }
            _ => {
                let name = settings.layers.get(number as usize).map_or("", |named| named.type_name.as_str());
                return Err(format!("layer {number} before it is a `{name}`"));
            }
        }
    }
}

/// Gives layer `into` what `norm` does, and makes `norm` the identity.
fn fold(settings: &mut SequentialSettings, values: &mut Values, norm: u32, into: u32) -> Result<()> {
    let epsilon = f64::from(layer(settings, norm).a);
    let mut take = |role: Role| values.remove(&format!("{norm}.{}", role.name()));
    let (gamma, beta) = (take(Role::Gamma), take(Role::Beta));
    let (means, variances) = (take(Role::MovingMean).unwrap_or_default(), take(Role::MovingVariance).unwrap_or_default());
    let factor_of = |place: usize, variance: f32| {
        let gamma = gamma.as_ref().and_then(|gamma| gamma.get(place)).map_or(1.0, |gamma| f64::from(*gamma));
        let spread = f64::from(variance) + epsilon;
        if spread > 0.0 {
            Ok(gamma / spread.sqrt())
        } else {
            Err(Error::damaged(format!("{norm}.moving_variance: element {place} is {variance}, which with epsilon is not above 0")))
        }
    };
    let factors = variances.iter().enumerate().map(|(place, variance)| factor_of(place, *variance)).collect::<Result<Vec<f64>>>()?;
    let has_two = layer(settings, into).op == Op::SeparableConv;
    let kernel = if has_two { Role::PointwiseKernel } else { Role::Kernel };
    if let Some(rows) = values.get_mut(&format!("{into}.{}", kernel.name())) {
        let len = (rows.len() / factors.len().max(1)).max(1);
        for (row, factor) in rows.chunks_mut(len).zip(&factors) {
            for weight in row {
                *weight = (f64::from(*weight) * factor) as f32;
            }
        }
    }
    let bias = values.entry(format!("{into}.{}", Role::Bias.name())).or_insert_with(|| vec![0.0; factors.len()]);
    for (place, (bias, factor)) in bias.iter_mut().zip(&factors).enumerate() {
        let mean = means.get(place).map_or(0.0, |mean| f64::from(*mean));
        let beta = beta.as_ref().and_then(|beta| beta.get(place)).map_or(0.0, |beta| f64::from(*beta));
        *bias = ((f64::from(*bias) - mean) * factor + beta) as f32;
    }
    if let Some(named) = settings.layers.get_mut(into as usize) {
        named.layer.flags = named.layer.flags.with(Flags::BIAS, true);
    }
    if let Some(named) = settings.layers.get_mut(norm as usize) {
        *named = NamedLayer { type_name: "Identity".to_owned(), layer: Layer::new(Op::Identity) };
    }
    Ok(())
}

/// The number of each layer's first tensor, after some have more and others fewer.
fn number_tensors(settings: &mut SequentialSettings) {
    let mut next = 0;
    for named in &mut settings.layers {
        let count = named.layer.roles().count() as u32;
        named.layer.first_tensor = if count == 0 { 0 } else { next };
        next += count;
    }
}
