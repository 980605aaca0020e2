//! Small networks as RustyML 0.17 saves them (format 4), with the architecture and samples beside: written by the trainer of tones and by the maker of networks.

use std::fmt::Write as _;
use std::io::Result;
use std::path::Path;

/// The magic number and the version.
const HEAD: [u8; 6] = [0xcd, 0x98, 0xb5, 0x92, 0x05, 0x04];

/// An array of a layer.
#[derive(Debug, Clone)]
pub struct Array {
    /// Its name.
    pub name: &'static str,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its elements, row-major.
    pub data: Vec<f32>,
    /// Whether training changes it.
    pub trained: bool,
}

/// A layer.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Its type in RustyML.
    pub type_name: &'static str,
    /// The lines that the architecture has for it besides its type.
    pub keys: String,
    /// The shape that it was built for, without the batch; `None` is a free axis.
    pub build: Vec<Option<usize>>,
    /// Its arrays in order.
    pub arrays: Vec<Array>,
}

/// A chain of layers.
#[derive(Debug, Clone)]
pub struct Network {
    /// The name that its files begin with.
    pub name: &'static str,
    /// The shape of the input, without the batch.
    pub input: Vec<usize>,
    /// What the elements of the output mean; empty where nothing.
    pub classes: &'static [&'static str],
    /// The layers.
    pub layers: Vec<Layer>,
    /// Inputs, each with the output where it is known.
    pub samples: Vec<(Vec<f32>, Option<Vec<f32>>)>,
}

impl Network {
    /// Writes `NAME.bin`, `NAME.arch.toml` and `NAME.samples.json`.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let write = |ending: &str, bytes: &[u8]| crate::train::write(&folder.join(format!("{}.{ending}", self.name)), bytes);
        write("bin", &self.to_bytes())?;
        write("arch.toml", self.architecture().as_bytes())?;
        write("samples.json", self.sample_text().as_bytes())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = HEAD.to_vec();
        number(&mut bytes, self.layers.len());
        for layer in &self.layers {
            text(&mut bytes, layer.type_name);
            // Built, for one input, whose first axis is the batch and free.
            bytes.extend([1, 1]);
            number(&mut bytes, layer.build.len() + 1);
            bytes.push(0);
            for size in &layer.build {
                bytes.push(u8::from(size.is_some()));
                if let Some(size) = size {
                    number(&mut bytes, *size);
                }
            }
            number(&mut bytes, layer.arrays.len());
            for array in &layer.arrays {
                text(&mut bytes, array.name);
                bytes.push(u8::from(!array.trained));
                number(&mut bytes, array.shape.len());
                array.shape.iter().for_each(|size| number(&mut bytes, *size));
                number(&mut bytes, array.data.len());
                bytes.extend(array.data.iter().flat_map(|value| value.to_le_bytes()));
            }
            // No layers within it.
            bytes.push(0);
        }
        bytes
    }

    fn architecture(&self) -> String {
        let mut toml = format!("[model]\nkind = \"sequential\"\ninput_shape = {:?}\n", self.input);
        if !self.classes.is_empty() {
            let _ = write!(toml, "\n[meta]\nclasses = {:?}\n", self.classes);
        }
        for layer in &self.layers {
            let _ = write!(toml, "\n[[layer]]\ntype = {:?}\n{}", layer.type_name, layer.keys);
        }
        toml
    }

    fn sample_text(&self) -> String {
        let shape: Vec<usize> = std::iter::once(1).chain(self.input.iter().copied()).collect();
        let samples = self.samples.iter().map(|(input, output)| {
            let known =
                output.as_ref().map(|output| format!(",\n  \"outputs\": [{{\"shape\": [1, {}], \"data\": {output:?}}}]", output.len()));
            format!(" {{\"inputs\": [{{\"shape\": {shape:?}, \"data\": {input:?}}}]{}}}", known.unwrap_or_default())
        });
        format!("{{\"samples\": [\n{}\n]}}\n", samples.collect::<Vec<_>>().join(",\n"))
    }
}

/// A number in groups of seven bits.
fn number(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn text(bytes: &mut Vec<u8>, text: &str) {
    number(bytes, text.len());
    bytes.extend(text.bytes());
}
