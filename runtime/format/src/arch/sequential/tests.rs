//! Records to layers and back, shapes, and what is refused of both.

use super::*;
use crate::Dims;

fn conv(kernel: u32, stride: u32, dilation: u32, padding: Padding) -> Layer {
    let sizes = [kernel, 0, 0, stride, 0, 0, dilation, 0, 0];
    Layer { spatial: 1, padding, units: 16, sizes, flags: Flags::BIAS, ..Layer::new(Op::Conv) }
}

fn dims(sizes: &[u32]) -> Dims {
    shape(sizes.iter().copied()).unwrap()
}

fn axes(list: &[u8]) -> [u8; 4] {
    let mut axes = [NO_AXIS; 4];
    axes.iter_mut().zip(list).for_each(|(place, axis)| *place = *axis);
    axes
}

#[test]
fn windows_are_as_long_as_the_rules_say() {
    // n, kernel, stride, dilation, padding: outputs, elements before.
    for (n, k, s, d, padding, out, before) in [
        (49, 5, 2, 1, Padding::Same, 25, 2),
        (25, 4, 2, 1, Padding::Same, 13, 1),
        (10, 3, 1, 1, Padding::Valid, 8, 0),
        (10, 3, 3, 1, Padding::Valid, 3, 0),
        (10, 3, 1, 4, Padding::Valid, 2, 0),
        (10, 3, 1, 4, Padding::Causal, 10, 8),
        (10, 3, 2, 1, Padding::Causal, 5, 2),
        (7, 2, 2, 1, Padding::Same, 4, 0),
    ] {
        assert_eq!(window_len(n, k, s, d, padding), Some(out), "{n} {k} {s} {d} {padding:?}");
        assert_eq!(pad_before(n, out, k, s, d, padding), before, "{n} {k} {s} {d} {padding:?}");
    }
    assert_eq!(window_len(4, 5, 1, 1, Padding::Valid), None);
    assert_eq!(window_len(4, 0, 1, 1, Padding::Same), None);
    assert_eq!(window_len(4, 1, 0, 1, Padding::Valid), None);
    assert_eq!(window_len(u32::MAX, u32::MAX, 1, u32::MAX, Padding::Valid), None);
}

#[test]
fn results_have_the_shapes_that_rustyml_gives_them() {
    let two = |op, sizes: [u32; 9], padding| Layer { spatial: 2, padding, sizes, units: 3, ..Layer::new(op) };
    let table: [(Layer, &[u32], &[u32]); 14] = [
        (conv(5, 2, 1, Padding::Same), &[49, 10], &[25, 16]),
        (two(Op::ConvTranspose, [3, 3, 0, 2, 2, 0, 1, 1, 0], Padding::Same), &[3, 3, 4], &[6, 6, 3]),
        (two(Op::ConvTranspose, [4, 3, 0, 2, 1, 0, 1, 1, 0], Padding::Valid), &[6, 6, 6], &[14, 8, 3]),
        (Layer { units: 0, depth: 2, ..two(Op::DepthwiseConv, [3, 3, 0, 1, 1, 0, 1, 1, 0], Padding::Same) }, &[13, 5, 8], &[13, 5, 16]),
        (Layer { units: 0, ..two(Op::MaxPooling, [2, 3, 0, 2, 1, 0, 0, 0, 0], Padding::Valid) }, &[5, 3, 7], &[2, 1, 7]),
        (Layer { units: 0, ..two(Op::ZeroPadding, [1, 0, 0, 2, 1, 0, 0, 0, 0], Padding::Valid) }, &[5, 4, 2], &[8, 5, 2]),
        (Layer { units: 0, ..two(Op::Cropping, [1, 0, 0, 1, 2, 0, 0, 0, 0], Padding::Valid) }, &[14, 16, 3], &[12, 14, 3]),
        (Layer { units: 0, ..two(Op::UpSampling, [2, 3, 0, 0, 0, 0, 0, 0, 0], Padding::Valid) }, &[8, 5, 2], &[16, 15, 2]),
        (Layer { units: 9, ..Layer::new(Op::Lstm) }, &[7, 3], &[9]),
        (Layer { units: 9, flags: Flags::SEQUENCES, ..Layer::new(Op::Gru) }, &[7, 3], &[7, 9]),
        (Layer { units: 8, depth: 20, ..Layer::new(Op::Embedding) }, &[12], &[12, 8]),
        (Layer { axes: axes(&[1, 0]), ..Layer::new(Op::Permute) }, &[2, 5], &[5, 2]),
        (Layer { sizes: [2, 6, 0, 0, 0, 0, 0, 0, 0], ..Layer::new(Op::Reshape) }, &[3, 4], &[2, 6]),
        (Layer { units: 5, ..Layer::new(Op::RepeatVector) }, &[4], &[5, 4]),
    ];
    for (layer, input, expected) in table {
        layer.check().unwrap();
        assert_eq!(layer.output([dims(input)]).unwrap().as_slice(), expected, "{layer:?}");
        assert_eq!(Layer::from_record(&layer.to_record()), Ok(layer));
    }
    let add = Layer::new(Op::Add);
    assert_eq!(add.output([dims(&[8, 4]), dims(&[4]), dims(&[8, 1])]).unwrap(), dims(&[8, 4]));
    let concatenate = Layer { axes: axes(&[0]), ..Layer::new(Op::Concatenate) };
    assert_eq!(concatenate.output([dims(&[8, 4]), dims(&[2, 4])]).unwrap(), dims(&[10, 4]));
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let refused = |layer: Layer, inputs: &[&[u32]], key| {
        let fault = layer.output(inputs.iter().map(|sizes| dims(sizes))).unwrap_err();
        assert_eq!(fault.key, key, "{layer:?} of {inputs:?}: {fault:?}");
    };
    refused(conv(5, 1, 1, Padding::Valid), &[&[4, 3]], LayerKey::Window);
    refused(conv(5, 1, 1, Padding::Valid), &[&[4]], LayerKey::Rank);
    refused(
        Layer { units: 0, flags: Flags(0), ..Layer { op: Op::MaxPooling, ..conv(5, 1, 0, Padding::Same) } },
        &[&[4, 3]],
        LayerKey::Window,
    );
    refused(Layer { units: 3, a: 1.0, ..Layer::new(Op::GroupNormalization) }, &[&[4, 8]], LayerKey::Units);
    refused(Layer::new(Op::Flatten), &[&[4]], LayerKey::Rank);
    refused(Layer::new(Op::Add), &[&[4]], LayerKey::Inputs);
    refused(Layer::new(Op::Subtract), &[&[4], &[4], &[4]], LayerKey::Inputs);
    refused(Layer::new(Op::Add), &[&[4], &[3]], LayerKey::Input);
    refused(Layer { axes: axes(&[1]), ..Layer::new(Op::Concatenate) }, &[&[4], &[4]], LayerKey::Axis);
    refused(Layer { units: SIZE_LIMIT, depth: 1, ..Layer::new(Op::Embedding) }, &[&[2, 2, 2, 2]], LayerKey::Shape);
    refused(Layer { sizes: [5, 0, 0, 0, 0, 0, 0, 0, 0], ..Layer::new(Op::Reshape) }, &[&[4]], LayerKey::Shape);
    refused(Layer::new(Op::Flatten), &[&[SIZE_LIMIT, SIZE_LIMIT]], LayerKey::Shape);
}

#[test]
fn every_field_of_a_record_is_checked() {
    type Edit = fn(&mut Layer);
    let right = conv(5, 2, 1, Padding::Same);
    let edits: [(Edit, LayerKey); 16] = [
        (|layer| layer.spatial = 4, LayerKey::Type),
        (|layer| layer.spatial = 0, LayerKey::Type),
        (|layer| layer.flags = Flags::SCALE, LayerKey::Flags),
        (|layer| layer.interpolation = Interpolation::Bicubic, LayerKey::Interpolation),
        (|layer| layer.units = 0, LayerKey::Units),
        (|layer| layer.units = SIZE_LIMIT + 1, LayerKey::Units),
        (|layer| layer.depth = 1, LayerKey::Depth),
        (|layer| layer.sizes[0] = 0, LayerKey::Window),
        (|layer| layer.sizes[1] = 1, LayerKey::Window),
        (|layer| layer.sizes[3] = 0, LayerKey::Strides),
        (|layer| layer.sizes[6] = 2, LayerKey::Dilation),
        (|layer| layer.a = 0.5, LayerKey::Alpha),
        (|layer| layer.a = f32::NAN, LayerKey::Alpha),
        (|layer| layer.b = 1.0, LayerKey::Offset),
        (|layer| layer.axes[0] = 0, LayerKey::Axis),
        (|layer| layer.axes[1] = 0, LayerKey::Axis),
    ];
    for (place, (edit, key)) in edits.into_iter().enumerate() {
        let mut layer = right;
        edit(&mut layer);
        assert_eq!(Layer::from_record(&layer.to_record()).unwrap_err().key, key, "edit {place}");
    }
    let mut reserved = right.to_record();
    reserved[6] = 1;
    assert_eq!(Layer::from_record(&reserved).unwrap_err().key, LayerKey::Reserved);
    let norm = Layer { a: 0.0, ..Layer::new(Op::BatchNormalization) };
    assert_eq!(norm.check().unwrap_err().key, LayerKey::Epsilon);
    let twice = Layer { axes: axes(&[1, 1]), ..Layer::new(Op::UnitNormalization) };
    assert_eq!(twice.check().unwrap_err().rule, crate::Rule::Duplicate);
    let hole = Layer { axes: axes(&[0, 2]), ..Layer::new(Op::Permute) };
    assert_eq!(hole.check().unwrap_err().rule, crate::Rule::Missing);
    assert_eq!(Layer { padding: Padding::Causal, spatial: 2, ..right }.check().unwrap_err().key, LayerKey::Padding);
}

#[test]
fn tensors_have_the_summed_axis_last() {
    let layer = Layer { spatial: 2, sizes: [5, 4, 0, 1, 1, 0, 1, 1, 0], ..conv(1, 1, 1, Padding::Same) };
    let input = dims(&[25, 10, 3]);
    assert_eq!(layer.tensor_dims(Role::Kernel, input), Ok(Dims::matrix(16, 60)));
    assert_eq!(layer.tensor_dims(Role::Bias, input), Ok(Dims::vector(16)));
    let lstm = Layer { units: 4, ..Layer::new(Op::Lstm) };
    assert_eq!(lstm.tensor_dims(Role::RecurrentKernel, dims(&[7, 3])), Ok(Dims::matrix(16, 4)));
    let prelu = Layer { axes: axes(&[0]), ..Layer::new(Op::PRelu) };
    assert_eq!(prelu.tensor_dims(Role::Alpha, dims(&[6, 5])), Ok(dims(&[1, 5])));
    let wanted = Wanted { layer: 10, role: Role::Kernel, dims: input };
    for (name, same) in
        [("10.kernel", true), ("010.kernel", false), ("+10.kernel", false), ("10.bias", false), ("1.kernel", false), ("10kernel", false)]
    {
        assert_eq!(wanted.is_named(name), same, "{name}");
    }
}
