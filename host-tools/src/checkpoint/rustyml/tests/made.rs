//! Hostile files: cut anywhere, any bit flipped, lengths that cannot be, layers in layers. Made by an encoder that shares nothing with the reader.

use super::super::reader::{Model, read};
use crate::error::Class;

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let group = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(group);
            return bytes;
        }
        bytes.push(group | 0x80);
    }
}

fn text(text: &str) -> Vec<u8> {
    [varint(text.len() as u64), text.as_bytes().to_vec()].concat()
}

fn array(name: &str, shape: &[u64], values: &[f32]) -> Vec<u8> {
    let shape = [vec![varint(shape.len() as u64)], shape.iter().map(|size| varint(*size)).collect()].concat().concat();
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [text(name), vec![0], shape, varint(values.len() as u64), data].concat()
}

/// A dense layer of two inputs and three units.
fn dense(version: u8, sublayers: &[Vec<u8>]) -> Vec<u8> {
    let build = [1, 1, 2, 0, 1, 2].to_vec();
    let arrays = [vec![2], array("kernel", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), array("bias", &[1, 3], &[0.5; 3])].concat();
    let inner = if version == 4 { [varint(sublayers.len() as u64), sublayers.concat()].concat() } else { Vec::new() };
    [text("Dense"), build, arrays, inner].concat()
}

fn file(version: u8, layers: &[Vec<u8>]) -> Vec<u8> {
    [[0xcd, 0x98, 0xb5, 0x92, 0x05, version].to_vec(), varint(layers.len() as u64), layers.concat()].concat()
}

fn refused(bytes: &[u8]) -> (Class, String) {
    let error = read(bytes).unwrap_err();
    (error.class(), error.to_string())
}

#[test]
fn a_made_file_is_read() {
    for version in [3, 4] {
        let bytes = file(version, &[dense(version, &[]), dense(version, &[])]);
        let Model { version: found, layers, trailing } = read(&bytes).unwrap();
        assert_eq!((found, layers.len(), trailing), (u32::from(version), 2, 0));
        assert_eq!((layers[1].type_name.as_str(), layers[1].build.clone()), ("Dense", Some(vec![vec![None, Some(2)]])));
        let kernel = &layers[1].arrays[0];
        assert_eq!((kernel.name.as_str(), kernel.shape.as_slice(), kernel.count, kernel.trainable), ("kernel", [2, 3].as_slice(), 6, true));
        assert_eq!(bytes[kernel.offset as usize..][..4], 1.0f32.to_le_bytes());
    }
    let inner = [text("inside"), dense(4, &[])].concat();
    let layers = read(&file(4, &[dense(4, &[inner])])).unwrap().layers;
    assert_eq!(layers[0].sublayers[0].0, "inside");
}

#[test]
fn a_file_cut_anywhere_is_refused_and_bytes_at_its_end_are_counted() {
    for version in [3, 4] {
        let bytes = file(version, &[dense(version, &[]), dense(version, &[])]);
        for len in 0..bytes.len() {
            let (class, text) = refused(&bytes[..len]);
            assert_eq!(class, if len < 6 { Class::NotAModel } else { Class::Damaged }, "{len}: {text}");
        }
        assert_eq!(read(&[bytes.as_slice(), &[1, 2, 3]].concat()).unwrap().trailing, 3);
    }
}

#[test]
fn flipped_bits_never_panic_and_damage_to_the_header_is_named() {
    for version in [3, 4] {
        let bytes = file(version, &[dense(version, &[]), dense(version, &[])]);
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[place] ^= 1 << bit;
                match read(&damaged) {
                    Ok(model) => assert!(place > 5 || model.version != u32::from(version), "byte {place} bit {bit}"),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}

#[test]
fn lengths_that_cannot_be_are_refused_before_anything_is_allocated() {
    let head = |version: u8| [0xcd, 0x98, 0xb5, 0x92, 0x05, version].to_vec();
    let huge = varint(u64::MAX);
    for (bytes, part) in [
        ([head(3), huge.clone()].concat(), "layers"),
        ([head(3), vec![1], huge.clone()].concat(), "type of a layer"),
        ([head(3), vec![1], text("A"), vec![1], huge.clone()].concat(), "shapes of inputs"),
        ([head(3), vec![1], text("A"), vec![1, 1], huge.clone()].concat(), "axes"),
        ([head(3), vec![1], text("A"), vec![1, 1, 9], vec![0; 9], vec![0]].concat(), "9 axes"),
        ([head(3), vec![1], text("A"), vec![0], huge.clone()].concat(), "arrays"),
        ([head(3), vec![1], text("A"), vec![0, 1], text("k"), vec![0, 1, 4], huge.clone(), vec![0; 16]].concat(), "values"),
        ([head(4), vec![1], text("A"), vec![0, 0], huge, vec![0; 16]].concat(), "sublayers"),
        ([head(3), vec![1], vec![2, 0xff, 0xfe, 0, 0]].concat(), "UTF-8"),
        ([head(3), vec![1], text("A"), vec![2, 0]].concat(), "neither 0"),
        ([head(3), vec![1], text("A"), vec![0, 1], text("k"), vec![2, 0, 0, 0]].concat(), "kind 2"),
        ([head(3), vec![0xff; 11]].concat(), "no integer"),
    ] {
        let (class, text) = refused(&bytes);
        assert_eq!(class, Class::Damaged, "{text}");
        assert!(text.contains(part) && text.contains("byte"), "{part}: {text}");
    }
    // Overlong integers are read as postcard reads them.
    assert_eq!(read(&[head(3), vec![0x80, 0x00]].concat()).unwrap().layers.len(), 0);
}

#[test]
fn layers_in_layers_have_an_end() {
    let mut deep = dense(4, &[]);
    for _ in 0..80 {
        deep = [text("A"), vec![0, 0, 1], text("x"), deep].concat();
    }
    let (class, message) = refused(&file(4, &[deep]));
    assert!(class == Class::Damaged && message.contains("64 deep"), "{message}");
    let many = vec![[text(""), vec![0, 0]].concat(); 70_000];
    assert!(refused(&file(3, &many)).1.contains("65536"));
}

#[test]
fn other_versions_are_refused_with_both_numbers() {
    for version in [0, 1, 2, 5, 99] {
        let (class, text) = refused(&file(version, &[]));
        assert_eq!(class, Class::NotAModel);
        assert!(text.contains(&format!("version {version};")) && text.contains("3 and 4"), "{text}");
    }
    let (class, text) = refused(b"{\"layers\": []}");
    assert!(class == Class::NotAModel && text.contains("0x524d4c4d") && text.contains("0x0000007b"), "{text}");
}
