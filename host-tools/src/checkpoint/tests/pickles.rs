//! Hostile and damaged `PyTorch` files: what names anything beyond tensors is refused by that name, bombs are refused, and nothing panics.

use super::torch::{archive, dict, int, pickled, small, text, tuple, zip};
use crate::checkpoint::from_bytes;
use crate::error::{Class, Error};
use std::path::Path;

/// Names and bytes.
type Members = Vec<(String, Vec<u8>)>;

fn read(bytes: Vec<u8>) -> Result<(), Error> {
    let checkpoint = from_bytes(Path::new("ckpt.pt"), bytes)?;
    checkpoint.arrays().try_for_each(|array| array.to_vec().map(drop))
}

/// The refusal of an archive with this pickle, which begins at byte `start` of the file.
fn refusal(pickle: &[u8]) -> (Error, usize) {
    let bytes = zip(pickle, &[]);
    let start = bytes.windows(pickle.len()).position(|window| window == pickle).unwrap();
    (read(bytes).unwrap_err(), start)
}

#[test]
fn a_pickle_that_names_what_runs_is_refused_by_that_name_and_byte() {
    let call = |global: &[u8]| [global, &tuple(&[text("echo hello")]), b"R"].concat();
    let stack_global = [text("os"), text("system"), b"\x93".to_vec()].concat();
    for (value, name) in [
        (call(b"cos\nsystem\n"), "os.system"),
        (call(b"cposix\nsystem\n"), "posix.system"),
        (call(&stack_global), "os.system"),
        (call(b"cbuiltins\neval\n"), "builtins.eval"),
        (call(b"c__builtin__\nexec\n"), "__builtin__.exec"),
        (call(b"ctorch.storage\n_load_from_bytes\n"), "torch.storage._load_from_bytes"),
        (call(b"ctorch\nload\n"), "torch.load"),
        (b"(X\x04\0\0\0echoios\nsystem\n".to_vec(), "os.system"),
        (dict(&[(text("model"), call(b"csubprocess\nPopen\n")), (text("model_args"), int(1))]), "subprocess.Popen"),
    ] {
        let (error, start) = refusal(&pickled(&value));
        let message = error.to_string();
        assert_eq!(error.class(), Class::NotAModel);
        assert!(message.contains(&format!("names {name} (at byte ")), "{message}");
        let byte: usize = message.split("at byte ").nth(1).unwrap().split(')').next().unwrap().parse().unwrap();
        assert!(byte > start && byte < start + value.len() + 3, "{byte}: {message}");
    }
    // The same in the older container.
    let error = read(pickled(&call(b"cos\nsystem\n"))).unwrap_err();
    assert!(error.to_string().contains("names os.system (at byte 2)"), "{error}");
    let error = read([pickled(b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"), pickled(b"cos\nsystem\n")].concat()).unwrap_err();
    assert!(error.to_string().contains("names os.system"), "{error}");
}

#[test]
fn other_ways_to_run_something_are_refused() {
    // A tensor whose seventh argument says that its numbers count negated.
    let mark = dict(&[(text("neg"), b"\x88".to_vec())]);
    let arguments = tuple(&[int(0), int(0), tuple(&[]), tuple(&[]), b"\x89".to_vec(), b"}".to_vec(), mark]);
    let negated = [b"ctorch._utils\n_rebuild_tensor_v2\n".to_vec(), arguments, b"R".to_vec()].concat();
    for (value, class, part) in [
        (b"ccollections\nOrderedDict\n)\x81".to_vec(), Class::NotAModel, "makes objects"),
        (b"ccollections\nOrderedDict\n)}\x92".to_vec(), Class::NotAModel, "makes objects"),
        (b"(ccollections\nOrderedDict\no".to_vec(), Class::NotAModel, "makes objects"),
        (b"\x82\x01".to_vec(), Class::NotAModel, "objects of its own"),
        (b"Pstorage\n".to_vec(), Class::NotAModel, "objects of its own"),
        (b"I1\n".to_vec(), Class::NotAModel, "protocol 0"),
        (b"K\x01}b".to_vec(), Class::Damaged, "gives state to an integer"),
        (b"K\x01)R".to_vec(), Class::Damaged, "calls an integer"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R".to_vec(), Class::Damaged, "0 arguments"),
        (b"K\x01Q".to_vec(), Class::Damaged, "persistent id"),
        (b"h\x05".to_vec(), Class::Damaged, "memo 5"),
        (b"t".to_vec(), Class::Damaged, "mark"),
        (b"(0K\x01K\x01K\x01t".to_vec(), Class::Damaged, "mark"),
        (b"0".to_vec(), Class::Damaged, "empty stack"),
        (b"K\x01K\x02s".to_vec(), Class::Damaged, "empty stack"),
        (b"]K\x01K\x02s".to_vec(), Class::Damaged, "sets keys of a list"),
        (negated, Class::NotAModel, "negated or conjugated"),
        (b"}K\x01a".to_vec(), Class::Damaged, "adds elements to a dict"),
        (b"}(K\x01u".to_vec(), Class::Damaged, "a key and no value"),
        (b"\xfe".to_vec(), Class::Damaged, "0xfe"),
        (b"X\x02\0\0\0\xff\xff".to_vec(), Class::Damaged, "UTF-8"),
    ] {
        let (error, _) = refusal(&pickled(&value));
        assert_eq!(error.class(), class, "{error}");
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let (error, _) = refusal(b"\x80\x06N.");
    assert!(error.to_string().contains("protocol 6"), "{error}");
}

#[test]
fn bombs_are_refused_before_they_go_off() {
    let huge = |opcode: &[u8]| [opcode, &[0xff; 8]].concat();
    let list = |n: usize| [b"](".as_slice(), &b"K\x01".repeat(n), b"eq\x01"].concat();
    let copies = |n: usize| b"c__builtin__\nlist\nh\x01\x85R".repeat(n);
    let laughs = (0..60u8).flat_map(|n| [vec![b'('], [b'h', n].repeat(40), vec![b't', b'q', n + 1]].concat());
    for (value, part) in [
        (huge(b"X"), "4294967295 bytes"),
        (huge(b"\x8d"), "18446744073709551615 bytes"),
        (huge(b"\x8e"), "18446744073709551615 bytes"),
        (huge(b"\x8b"), "4294967295 bytes"),
        (b"}".repeat((1 << 20) + 1), "more than 1048576 values"),
        (b"(".repeat((1 << 20) + 1), "more than 1048576 values"),
        ([b"K\x01q\0".to_vec(), b"h\0".repeat((1 << 20) + 1)].concat(), "more than 1048576 values"),
        ([list(100_000), copies(1000)].concat(), "copies more than 1048576 values"),
        // Holds itself, and itself as a key of itself: shared, never walked.
        (b"]q\0h\0a".to_vec(), "holds a list"),
        (b"}q\0(h\0h\0u".to_vec(), "without model and model_args"),
        ([b")q\0".to_vec(), laughs.collect()].concat(), "holds a tuple"),
        (b"\x85".repeat(1000), "empty stack"),
        ([b"N".to_vec(), b"\x85".repeat(500_000)].concat(), "holds a tuple"),
    ] {
        let (error, _) = refusal(&pickled(&value));
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn archives_with_other_members_than_they_should_have_are_refused() {
    let members = |change: &dyn Fn(&mut Members)| {
        let torch = small();
        let bytes = torch.zip();
        let start = bytes.windows(2).position(|window| window == b"\x80\x02").unwrap();
        let end = bytes.windows(9).position(|window| window == b"byteorder").unwrap() - 35;
        let mut members = vec![("made/data.pkl".to_owned(), bytes[start..end].to_vec())];
        members.extend(torch.storages.iter().map(|(key, bytes)| (format!("made/data/{key}"), bytes.clone())));
        change(&mut members);
        archive(&members)
    };
    read(members(&|_| ())).unwrap();
    let refused = |change: &dyn Fn(&mut Members), part: &str| {
        let error = read(members(change)).unwrap_err();
        assert!(error.to_string().contains(part), "{part}: {error}");
    };
    refused(&|members| drop(members.remove(3)), "storage \"2\" is not in the file");
    refused(&|members| members[3].1.truncate(8), "storage \"2\" has 8 bytes");
    refused(&|members| members[3].1.push(0), "storage \"2\" has");
    refused(&|members| members.push(("made/byteorder".to_owned(), b"big".to_vec())), "byte order \"big\"");
    refused(&|members| members.push(("other/data.pkl".to_owned(), b"N.".to_vec())), "without a data.pkl in its one folder");
    refused(&|members| members[0].0 = "made/data/data.pkl".to_owned(), "without a data.pkl");
    refused(&|members| members[0].1.push(b'.'), "ends before its member");
    for name in ["made/../../x", "/x", "made//x", "made\\x", "made/x/"] {
        refused(&|members| members.push((name.to_owned(), b"x".to_vec())), "would lie outside");
    }
    // A changed byte in a storage, in the pickle, and members that claim another method, size or place.
    let whole = members(&|_| ());
    let place = |text: &[u8], nth: usize| whole.windows(text.len()).enumerate().filter(|(_, window)| *window == text).nth(nth).unwrap().0;
    let changed = |at: usize, to: &[u8], part: &str| {
        let mut bytes = whole.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        let error = read(bytes).unwrap_err();
        assert!(error.to_string().contains(part), "{part}: {error}");
    };
    changed(place(b"made/data/4", 0) + 14, &[0x55], "CRC-32 of storage \"4\"");
    let central = place(b"made/data/4", 1) - 46;
    assert_eq!(&whole[central..central + 4], b"PK\x01\x02");
    changed(central + 10, &[8, 0], "compressed");
    changed(central + 24, &[1, 0, 0, 0], "are stored");
    changed(central + 20, &[0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f], "and the file ends after");
    let error = read([whole.clone(), vec![0; 5]].concat()).unwrap_err();
    assert!(error.to_string().contains("left over behind the end of the zip archive"), "{error}");
    let first = place(b"made/data.pkl", 0) - 30;
    changed(central + 42, &(first as u32).to_le_bytes(), "");
}

#[test]
fn files_cut_anywhere_are_refused_and_changed_ones_panic_nowhere() {
    for whole in [small().zip(), small().legacy()] {
        read(whole.clone()).unwrap();
        for cut in (0..whole.len()).filter(|cut| cut % 13 == 0 || *cut < 400 || whole.len() - cut < 400) {
            assert!(read(whole[..cut].to_vec()).is_err(), "{cut} of {}", whole.len());
        }
        let mut state = 0x5eed_u64;
        let mut random = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) as usize % limit
        };
        let mut accepted = 0;
        for _ in 0..3000 {
            let mut bytes = whole.clone();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                bytes[at] ^= 1 << random(8);
            }
            accepted += usize::from(read(bytes).is_ok());
        }
        println!("{accepted} of 3000 changed files are still checkpoints");
        // In the archive every byte of a storage is under a checksum: what passes changed names, times and the like.
        assert!(accepted < 3000);
    }
}
