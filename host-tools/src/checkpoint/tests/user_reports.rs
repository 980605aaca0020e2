//! Faults that users of other runners met when they loaded a model, each tried here: one test a report, by its number in the project's list.

use super::data;
use super::made::{SHAPE, Shape};
use crate::checkpoint::{Config, from_bytes, not_a_dmexp, open};
use crate::error::{Class, Error};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

fn refusal(bytes: Vec<u8>) -> Error {
    from_bytes(Path::new("made.bin"), bytes).unwrap_err()
}

fn with(mut bytes: Vec<u8>, place: usize, number: i32) -> Vec<u8> {
    bytes[place..place + 4].copy_from_slice(&number.to_le_bytes());
    bytes
}

#[test]
fn report_1_each_version_is_told_by_its_bytes() {
    for (bytes, importer) in [(SHAPE.v0(Some(1e4)), "llama2.c v0"), (SHAPE.v1(), "llama2.c v1"), (SHAPE.v2(4).0, "llama2.c v2 (q80)")] {
        // The name says nothing: every one is called .bin.
        assert_eq!(from_bytes(Path::new("m.bin"), bytes).unwrap().provenance.importer, importer);
    }
}

#[test]
fn report_2_a_cut_file_is_refused_with_both_byte_counts() {
    let whole = SHAPE.v0(Some(1e4));
    let bare = whole.len() - SHAPE.tables(1e4).len();
    for cut in [28, whole.len() / 2, bare - 100, bare - 4, bare + 4, whole.len() - 4, whole.len() - 1] {
        let error = refusal(whole[..cut].to_vec());
        assert_eq!(error.class(), Class::Damaged);
        let text = error.to_string();
        assert!(
            text.contains(&format!("calls for {} bytes, or {bare} without", whole.len())) && text.contains(&format!("the file has {cut}")),
            "{text}"
        );
    }
    let whole = SHAPE.v2(4).0;
    for cut in [256, whole.len() / 2, whole.len() - 1] {
        let text = refusal(whole[..cut].to_vec()).to_string();
        assert!(text.contains(&format!("calls for {} bytes, and the file has {cut}", whole.len())), "{text}");
        assert!(text.contains(&format!("{} bytes are missing", whole.len() - cut)), "{text}");
    }
    let Some(path) = data("stories260K/stories260K.bin") else { return };
    let whole = std::fs::read(path).unwrap();
    for cut in [28, whole.len() / 2, 900_000, whole.len() - 4] {
        let text = refusal(whole[..cut].to_vec()).to_string();
        assert!(text.contains("1056540 bytes, or 1040156 without") && text.contains(&cut.to_string()), "{text}");
    }
}

#[test]
fn report_2_weights_under_another_header_are_refused() {
    // One layer more than there is, and a wider feed-forward network.
    for (place, number) in [(8, 3), (4, 24), (0, 24), (20, 8)] {
        let error = refusal(with(SHAPE.v0(Some(1e4)), place, number));
        assert_eq!(error.class(), Class::Damaged, "{error}");
    }
}

#[test]
fn report_3_products_past_32_bits_are_refused_before_anything_is_allocated() {
    let fields = [("dim", 0), ("hidden_dim", 4), ("n_layers", 8), ("n_heads", 12), ("n_kv_heads", 16), ("vocab_size", 20), ("seq_len", 24)];
    for (name, place) in fields {
        for bomb in [1 << 30, 2_000_000_000, i32::MAX, 1 << 25] {
            let text = refusal(with(SHAPE.v0(Some(1e4)), place, bomb)).to_string();
            assert!(text.contains(&format!("{name} is {bomb}")), "{text}");
            let text = refusal(with(SHAPE.v1(), place + 8, bomb)).to_string();
            assert!(text.contains(&format!("{name} is {bomb}")), "{text}");
        }
    }
    // Every size at its limit: 2^61 and more bytes, counted and not allocated.
    let big = 1 << 24;
    let all = [big, big, 4096, 1 << 4, 1 << 4, big, big].iter().flat_map(|n: &i32| n.to_le_bytes()).collect::<Vec<_>>();
    let error = refusal([all.clone(), vec![0; 100]].concat());
    assert_eq!(error.class(), Class::Damaged);
    assert!(error.to_string().contains("the file has 128") || error.to_string().contains("2^64"), "{error}");
    // vocab * dim past 2^31, everything else small.
    let error = refusal(with(with(SHAPE.v0(Some(1e4)), 20, big), 0, 12 * 1024)).to_string();
    let (d, v) = (12 * 1024u64, 1 << 24);
    let whole = 28 + 4 * (v * d + 2 * (2 * d + 2 * d * d + 2 * d * d / 3 + 3 * d * 20) + d + 9 * d / 3);
    assert!(error.contains(&format!("calls for {whole} bytes")), "{error}");
}

#[test]
fn report_5_a_negative_vocabulary_means_a_classifier_of_its_own() {
    let checkpoint = from_bytes(Path::new("made.bin"), SHAPE.untied().v0(Some(1e4))).unwrap();
    let Config::Llama(source) = &checkpoint.config else { panic!("it is a Llama") };
    assert!(!source.config.tied_embeddings);
    assert_eq!(source.config.vocab_size, 7);
    let output = checkpoint.array("output.weight").unwrap().to_vec().unwrap();
    assert_eq!(output, SHAPE.untied().weights().last().unwrap().1[0]);

    // A sign without the data, and data without the sign, with and without tables.
    for tables in [Some(1e4), None] {
        let tied = SHAPE.v0(tables);
        let length = tied.len();
        let error = refusal(with(tied, 20, -7));
        assert_eq!(error.class(), Class::Mismatch);
        let text = error.to_string();
        assert!(text.contains("the sign of vocab_size") && text.contains(&format!("the file has {length}")), "{text}");
        assert_eq!(refusal(with(SHAPE.untied().v0(tables), 20, 7)).class(), Class::Mismatch);
    }
    for nonsense in [0, i32::MIN] {
        let error = refusal(with(SHAPE.v0(Some(1e4)), 20, nonsense));
        assert!(error.to_string().contains(&format!("vocab_size is {nonsense}")), "{error}");
    }

    let Some(path) = data("stories260K/stories260K.bin") else { return };
    let text = refusal(with(std::fs::read(path).unwrap(), 20, -512)).to_string();
    assert!(text.contains("1187612 bytes") && text.contains("1056540"), "{text}");
}

/// A file of the length that `shape` calls for, all holes but for what is written.
fn sparse(folder: &Path, name: &str, head: &[u8], length: u64) -> std::path::PathBuf {
    let path = folder.join(name);
    let mut file = File::create(&path).unwrap();
    file.write_all(head).unwrap();
    file.set_len(length).unwrap();
    file.seek(SeekFrom::End(-4)).unwrap();
    file.write_all(&1.5f32.to_le_bytes()).unwrap();
    path
}

#[test]
#[cfg(target_pointer_width = "64")]
fn report_6_files_of_several_gigabytes_open_at_once_and_read_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape { dim: 4096, hidden: 11_008, layers: 6, heads: 32, kv_heads: 32, vocab: 32_000, seq_len: 2048, tied: true };
    let (d, f, l, v) = (4096u64, 11_008, 6, 32_000);
    let bare = 28 + 4 * (v * d + l * (2 * d + 4 * d * d + 3 * d * f) + d);
    assert!(bare > 5 << 30);
    let begun = Instant::now();

    let path = sparse(folder.path(), "v0.bin", &shape.seven(true), bare);
    let checkpoint = open(&path).unwrap();
    let norm = checkpoint.array("norm.weight").unwrap().to_vec().unwrap();
    assert_eq!((norm.len(), norm[4095], norm[4094]), (4096, 1.5, 0.0));

    let mut v1 = SHAPE.v1()[..256].to_vec();
    v1[8..36].copy_from_slice(&shape.seven(false));
    let path = sparse(folder.path(), "v1.bin", &v1, 256 + bare - 28);
    let checkpoint = open(&path).unwrap();
    let mut last = [0.0; 2];
    let array = checkpoint.array("layers.5.feed_forward.w3.weight").unwrap();
    assert_eq!(array.read(array.count() - 2, &mut last).unwrap(), 2);
    assert_eq!(last, [0.0, 1.5]);

    // Past 2^32 by a few bytes, and a hole where the tables should be.
    let text = open(&sparse(folder.path(), "long.bin", &shape.seven(true), bare + 4)).unwrap_err().to_string();
    assert!(text.contains(&format!("the file has {}", bare + 4)), "{text}");
    let text = open(&sparse(folder.path(), "hole.bin", &shape.seven(true), bare + 4 * 2048 * 128)).unwrap_err().to_string();
    assert!(text.contains("cosines and sines"), "{text}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn report_7_bytes_in_memory_do_as_well_as_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made.bin");
    std::fs::write(&path, SHAPE.v0(Some(1e4))).unwrap();
    let (file, memory) = (open(&path).unwrap(), from_bytes(&path, SHAPE.v0(Some(1e4))).unwrap());
    assert_eq!(file.provenance, memory.provenance);
    for (a, b) in file.arrays().zip(memory.arrays()) {
        assert_eq!(a.to_vec().unwrap(), b.to_vec().unwrap());
    }
}

#[test]
fn report_8_what_is_no_model_is_named_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.bin");
    let big_endian: Vec<u8> = SHAPE.v0(Some(1e4)).chunks(4).flat_map(|word| word.iter().rev().copied()).collect();
    let big_endian_v1 = [b"ak42".to_vec(), SHAPE.v1()[4..].to_vec()].concat();
    let cases = [
        (Vec::new(), "is an empty file"),
        (SHAPE.seven(true)[..27].to_vec(), "no known format"),
        (SHAPE.v1()[..100].to_vec(), "the header of a llama2.c checkpoint has 256 bytes, the file ends after 100"),
        (b"Once upon a time\n".to_vec(), "is a text file"),
        (big_endian, "big-endian"),
        (big_endian_v1, "big-endian"),
    ];
    for (bytes, says) in cases {
        std::fs::write(&path, bytes).unwrap();
        let text = open(&path).unwrap_err().to_string();
        assert!(text.contains(says), "{text}");
        assert!(text.starts_with(&path.display().to_string()) && !text.contains('\n'), "{text}");
        assert!(!not_a_dmexp(&path).to_string().contains('\n'));
    }
    let text = open(folder.path()).unwrap_err().to_string();
    assert!(text.contains("is a folder"), "{text}");
    let error = open(&folder.path().join("missing.bin")).unwrap_err();
    assert_eq!(error.class(), Class::Unreadable);
    assert_eq!(not_a_dmexp(&folder.path().join("missing.bin")).class(), Class::Unreadable);
}

#[test]
#[cfg(unix)]
fn report_8_devices_and_pipes_are_refused_without_waiting() {
    let error = open(Path::new("/dev/null")).unwrap_err();
    assert_eq!(error.class(), Class::Unreadable);
    assert!(error.to_string().contains("not a regular file"));
}

#[test]
fn report_9_bytes_left_over_are_refused_and_tables_are_told_by_size() {
    for (shape, tables) in [(SHAPE, Some(1e4)), (SHAPE, None), (SHAPE.untied(), Some(1e4)), (SHAPE.untied(), None)] {
        let mut bytes = shape.v0(tables);
        from_bytes(Path::new("made.bin"), bytes.clone()).unwrap();
        let length = bytes.len();
        bytes.extend(b"junk");
        let text = refusal(bytes).to_string();
        assert!(
            text.contains(&format!("calls for {}", shape.v0(Some(1e4)).len())) && text.contains(&format!("the file has {}", length + 4)),
            "{text}"
        );
    }
    let text = refusal([SHAPE.v1(), vec![0; 3]].concat()).to_string();
    assert!(text.contains("3 bytes are left over"), "{text}");
}

#[test]
fn report_10_a_vocabulary_that_is_not_the_tokenizers_is_refused_with_both_numbers() {
    let Some(path) = data("stories260K/tok512.bin") else { return };
    for vocab_size in [511, 513, 100, 32_000, 32_016] {
        let error = crate::checkpoint::tokenizer_bin::read(&path, vocab_size).unwrap_err();
        assert_eq!(error.class(), Class::Mismatch);
        let text = error.to_string();
        assert!(text.contains(&format!("has 512 pieces, the model has {vocab_size} tokens")), "{text}");
    }
}

#[test]
fn report_44_groups_that_straddle_rows_are_read_element_by_element() {
    // Rows of 20 in groups of 12, rows of 12 in groups of 40.
    for (shape, group) in [(SHAPE, 12), (Shape { kv_heads: 3, vocab: 10, dim: 24, ..SHAPE }, 16)] {
        let (bytes, values) = shape.v2(group);
        let checkpoint = from_bytes(Path::new("made.bin"), bytes).unwrap();
        let (_, w2) = values.iter().find(|(name, _)| *name == "feed_forward.w2.weight").unwrap();
        for (layer, values) in w2.iter().enumerate() {
            let array = checkpoint.array(&format!("layers.{layer}.feed_forward.w2.weight")).unwrap();
            assert_ne!(array.dims().cols() as usize % group, 0);
            assert_eq!(&array.to_vec().unwrap(), values);
            // Row by row, as an exporter may read.
            let cols = array.dims().cols() as usize;
            let mut row = vec![0.0; cols];
            for (number, expected) in values.chunks(cols).enumerate() {
                array.read((number * cols) as u64, &mut row).unwrap();
                assert_eq!(row, expected);
            }
        }
    }
}
