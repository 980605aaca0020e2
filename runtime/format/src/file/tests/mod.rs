//! Tests of the reader: files that are right, damage of every kind, and files that are wrong in one thing alone (checksums made right again after the edit).

#[cfg(feature = "std")]
mod against_toml;
mod damage;
mod make;
mod malformed;
mod quantised;
#[cfg(feature = "toml")]
mod v1;

use super::ModelFile;
use crate::arch::Architecture;
use crate::{DType, Dims, KvDType};
use make::{CONFIG, INV_FREQ};

#[test]
fn a_right_file_opens_and_says_what_is_in_it() {
    let bytes = make::file().build();
    let file = ModelFile::open(&bytes).unwrap();
    assert_eq!(file.version(), 2);
    assert_eq!(file.architecture(), Architecture::Llama);
    assert_eq!(file.num_tensors(), 16);
    assert_eq!(file.num_params(), CONFIG.num_params());
    assert_eq!(file.alignment(), 16);
    assert_eq!(file.header_text(), Some("arch = \"llama\"\n"));
    assert_eq!(file.single_dtype(), None);
    assert_eq!(file.llama_config(), Ok(CONFIG));
    assert_eq!(file.tensor_name(0), Some("tok_embeddings.weight"));
    assert_eq!(file.tensor_name(16), None);
    assert!(file.tensor(16).is_none());
    let embedding = file.tensor(0).unwrap();
    assert_eq!((embedding.dtype(), embedding.dims()), (DType::Bf16, Dims::matrix(6, 4)));
    assert_eq!(file.tensor_crc(0), Some(crate::crc32::checksum(&[embedding.bytes()])));
    assert_eq!(file.tensors().count(), 16);
    let mut frequencies = [0.0; 2];
    file.rope_inv_freq(&mut frequencies).unwrap();
    assert_eq!(frequencies, INV_FREQ);
    assert!(file.rope_inv_freq(&mut [0.0; 3]).is_err());
    assert_eq!(file.tokenizer_facts(), Ok(make::file().facts));
    let golden: Vec<_> = file.golden().collect();
    assert_eq!(golden.len(), 1);
    assert_eq!(golden[0].kv(), KvDType::F32);
    assert_eq!(golden[0].tokens().collect::<Vec<_>>(), [1, 3, 4]);
    let positions: Vec<_> = golden[0].positions().collect();
    assert_eq!((positions[1].position, positions[1].crc32, positions[1].top), (2, 0x5678, [0, 1, 2, 3, 4]));
    file.verify_payload().unwrap();
}

#[test]
fn a_stripped_file_has_the_same_fingerprint_and_content() {
    let (full, mut stripped) = (make::file(), make::file());
    stripped.header.clear();
    let (full, stripped) = (full.build(), stripped.build());
    let (full, stripped) = (ModelFile::open(&full).unwrap(), ModelFile::open(&stripped).unwrap());
    assert_eq!(stripped.header_text(), None);
    assert_eq!(full.fingerprint(), stripped.fingerprint());
    assert_eq!(full.payload(), stripped.payload());
    stripped.verify_payload().unwrap();
}

#[test]
fn any_address_of_the_bytes_gives_the_same() {
    let bytes = make::file().build();
    let file = ModelFile::open(&bytes).unwrap();
    for shift in 1..8 {
        let mut moved = vec![0xa5; shift];
        moved.extend(&bytes);
        let moved = ModelFile::open(&moved[shift..]).unwrap();
        moved.verify_payload().unwrap();
        assert_eq!(moved.fingerprint(), file.fingerprint());
        for (a, b) in file.tensors().zip(moved.tensors()) {
            assert_eq!((a.number, a.name, a.crc32, a.offset), (b.number, b.name, b.crc32, b.offset));
            for element in 0..a.view.dims().count() as usize {
                assert_eq!(a.view.get_f32(element), b.view.get_f32(element));
            }
        }
    }
}

#[test]
fn the_index_is_read_in_constants() {
    use super::index::{HEAD_LEN, Index};
    const BYTES: [u8; HEAD_LEN] = [0; HEAD_LEN];
    const REFUSED: bool = Index::parse(&BYTES, 16, 0).is_err();
    const { assert!(REFUSED) };
}

#[test]
fn opening_reads_nothing_of_the_payload() {
    // Every byte of the payload may be anything: the file opens with the same content of the index.
    let mut bytes = make::file().build();
    let start = make::payload_start(&bytes);
    let fingerprint = ModelFile::open(&bytes).unwrap().fingerprint();
    bytes[start..].fill(0xff);
    let file = ModelFile::open(&bytes).unwrap();
    assert_eq!(file.fingerprint(), fingerprint);
    assert!(file.verify_payload().is_err());
}

#[test]
#[cfg(not(feature = "toml"))]
fn a_format_1_file_says_which_feature_reads_it() {
    let mut bytes = b"DMEXPRT\x01".to_vec();
    bytes.extend([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'\n']);
    let error = ModelFile::open(&bytes).unwrap_err();
    assert_eq!(error, crate::Error::TomlNotBuilt);
    assert!(error.to_string().contains("`toml`"));
}
