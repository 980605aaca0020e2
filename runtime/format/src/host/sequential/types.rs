//! `RustyML`'s names of layer types.

use crate::arch::sequential::{Activation, Op};

/// The types that came with format 4.
pub(super) const SINCE_FORMAT_4: [&str; 3] = ["GELU", "SiLU", "Mish"];

/// Types over space, without the number of axes that ends their names.
const SPATIAL: [(&str, Op); 12] = [
    ("Conv", Op::Conv),
    ("DepthwiseConv", Op::DepthwiseConv),
    ("SeparableConv", Op::SeparableConv),
    ("MaxPooling", Op::MaxPooling),
    ("AveragePooling", Op::AveragePooling),
    ("GlobalMaxPooling", Op::GlobalMaxPooling),
    ("GlobalAveragePooling", Op::GlobalAveragePooling),
    ("ZeroPadding", Op::ZeroPadding),
    ("Cropping", Op::Cropping),
    ("UpSampling", Op::UpSampling),
    ("SpatialDropout", Op::Identity),
    ("ConvTranspose", Op::ConvTranspose),
];

const PLAIN: [(&str, Op); 27] = [
    ("Dense", Op::Dense),
    ("BatchNormalization", Op::BatchNormalization),
    ("LayerNormalization", Op::LayerNormalization),
    ("GroupNormalization", Op::GroupNormalization),
    ("InstanceNormalization", Op::InstanceNormalization),
    ("UnitNormalization", Op::UnitNormalization),
    ("SimpleRNN", Op::SimpleRnn),
    ("LSTM", Op::Lstm),
    ("GRU", Op::Gru),
    ("Embedding", Op::Embedding),
    ("PReLU", Op::PRelu),
    ("Identity", Op::Identity),
    ("Dropout", Op::Identity),
    ("GaussianDropout", Op::Identity),
    ("GaussianNoise", Op::Identity),
    ("Flatten", Op::Flatten),
    ("Reshape", Op::Reshape),
    ("Permute", Op::Permute),
    ("RepeatVector", Op::RepeatVector),
    ("Reverse", Op::Reverse),
    ("Rescaling", Op::Rescaling),
    ("Add", Op::Add),
    ("Subtract", Op::Subtract),
    ("Multiply", Op::Multiply),
    ("Average", Op::Average),
    ("Maximum", Op::Maximum),
    ("Minimum", Op::Minimum),
];

const ACTIVATIONS: [(&str, Activation); 15] = [
    ("ReLU", Activation::Relu),
    ("Sigmoid", Activation::Sigmoid),
    ("Tanh", Activation::Tanh),
    ("Linear", Activation::Linear),
    ("Softmax", Activation::Softmax),
    ("LeakyReLU", Activation::LeakyRelu),
    ("ELU", Activation::Elu),
    ("SELU", Activation::Selu),
    ("Softplus", Activation::Softplus),
    ("Softsign", Activation::Softsign),
    ("HardSigmoid", Activation::HardSigmoid),
    ("Exponential", Activation::Exponential),
    ("GELU", Activation::Gelu),
    ("SiLU", Activation::Silu),
    ("Mish", Activation::Mish),
];

/// Operation, number of spatial axes, and the activation of a type that is one.
pub(super) fn of(type_name: &str) -> Option<(Op, u8, Activation)> {
    if type_name == "Concatenate" {
        return Some((Op::Concatenate, 0, Activation::Linear));
    }
    if let Some((_, op)) = PLAIN.iter().find(|(name, _)| *name == type_name) {
        return Some((*op, 0, Activation::Linear));
    }
    if let Some((_, activation)) = ACTIVATIONS.iter().find(|(name, _)| *name == type_name) {
        return Some((Op::Activation, 0, *activation));
    }
    // `Conv2DTranspose` has its number in the middle.
    let (stem, transposed) = match type_name.strip_suffix("Transpose") {
        Some(stem) => (stem, true),
        None => (type_name, false),
    };
    let (name, axes) = [("1D", 1), ("2D", 2), ("3D", 3)].into_iter().find_map(|(end, axes)| Some((stem.strip_suffix(end)?, axes)))?;
    let name = if transposed { format!("{name}Transpose") } else { name.to_owned() };
    let (_, op) = SPATIAL.iter().find(|(known, op)| *known == name && (*op == Op::ConvTranspose) == transposed)?;
    let most = if *op == Op::Identity { 3 } else { op.spatial_limit() };
    (axes <= most).then_some((*op, if *op == Op::Identity { 0 } else { axes }, Activation::Linear))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_rustyml_is_known_and_no_other() {
        let mut names: Vec<String> = PLAIN.iter().map(|(name, _)| (*name).to_owned()).collect();
        names.extend(ACTIVATIONS.iter().map(|(name, _)| (*name).to_owned()));
        names.push("Concatenate".to_owned());
        for (name, op) in SPATIAL {
            let most = if op == Op::Identity { 3 } else { op.spatial_limit() };
            names.extend((1..=most).map(|axes| match name.strip_suffix("Transpose") {
                Some(stem) => format!("{stem}{axes}DTranspose"),
                None => format!("{name}{axes}D"),
            }));
        }
        assert_eq!(names.len(), 77);
        for name in &names {
            assert!(of(name).is_some(), "{name}");
        }
        for name in [
            "Conv",
            "Conv4D",
            "Conv0D",
            "ConvTranspose1D",
            "DepthwiseConv3D",
            "SeparableConv3D",
            "Dense1D",
            "dense",
            "",
            "1D",
            "Reverse(1)",
            "Transpose",
        ] {
            assert!(of(name).is_none(), "{name}");
        }
    }
}
