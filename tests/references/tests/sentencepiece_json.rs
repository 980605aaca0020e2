//! A tokenizer.json in sentencepiece's style, read by dmexp and by the `tokenizers` crate: the same tokens for the same text.

use dmexp::tokenizer::Tokenizer;
use dmexp_tools::checkpoint::{tokenizer_bin, tokenizer_file};
use dmexp_tools::decode::TokenizerArrays;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const SPACE: &str = "\u{2581}";

/// The vocabulary of stories260K; `None`, said in one line, where the data is not there.
fn tok512() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/stories260K/tok512.bin");
    if !path.exists() {
        println!("left out: {} is not here", path.display());
        return None;
    }
    Some(path)
}

/// tokenizer.json of a sentencepiece vocabulary, its merges made as the transformers library makes them: every way to cut a piece in two pieces, by the piece's score, the longest left part first.
fn converted(texts: &[String], scores: &[f32]) -> Value {
    let ids: HashMap<&str, usize> = texts.iter().enumerate().map(|(id, text)| (text.as_str(), id)).collect();
    let mut merges: Vec<(f32, usize, usize, String, String)> = Vec::new();
    for (text, score) in texts.iter().zip(scores).skip(259) {
        for (cut, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(cut);
            if ids.contains_key(left) && ids.contains_key(right) {
                merges.push((*score, left.chars().count(), right.chars().count(), left.to_owned(), right.to_owned()));
            }
        }
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)));
    let merges: Vec<Value> = merges.into_iter().map(|(.., left, right)| json!(format!("{left} {right}"))).collect();
    let vocab: Map<String, Value> = texts.iter().enumerate().map(|(id, text)| (text.clone(), json!(id))).collect();
    let added = |id: u32, text: &str| json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": SPACE},
            {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
        ]},
        "pre_tokenizer": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        ]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": merges}
    })
}

/// Numbers below a limit that look random and are the same every time (xorshift64).
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    }
}

/// Texts of letters, pieces, runs of spaces and characters of all planes.
fn texts(pieces: &[String]) -> Vec<String> {
    let mut random = random(0x2545_f491_4f6c_dd1d);
    let odd = ["\u{e9}", "\u{4e2d}", "\u{1f600}", "\u{10fffd}", "\0", "\n", "\t", "\u{301}", "\u{a0}", "<", ">", "0x41", "aaaa", "    "];
    let mut all: Vec<String> = ["", " ", "  ", "a", " a", "Once upon a time", "trailing  ", "\n\n", "<0x41>"].map(str::to_owned).into();
    for number in 0..10_000 {
        let mut text = String::new();
        for _ in 0..random(12) {
            match random(8) {
                0 => text.push_str(odd[random(odd.len())]),
                1 => text.push_str(&" ".repeat(random(5))),
                2 => text.push(char::from(b'a' + random(26) as u8)),
                3 => text.push(char::from(b' ' + random(95) as u8)),
                _ => text.push_str(&pieces[259 + random(pieces.len() - 259)].replace(SPACE, " ")),
            }
        }
        if number % 100 == 0 {
            text = text.repeat(20);
        }
        all.push(text);
    }
    // A special token that is typed is text here and a token there, on purpose.
    all.retain(|text| !["<s>", "</s>", "<unk>"].iter().any(|special| text.contains(special)));
    all
}

/// Reads the same file with both and compares the tokens of all texts.
fn compare(pieces: &[String], scores: &[f32], texts: &[String]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    std::fs::write(&file, converted(pieces, scores).to_string()).unwrap();
    let theirs = tokenizers::Tokenizer::from_file(&file).unwrap();
    let ours = TokenizerArrays::new(&tokenizer_file::read(&file, Some(pieces.len() as u32)).unwrap());
    let ours = ours.tokenizer().unwrap();
    for text in texts {
        let wanted = theirs.encode(text.as_str(), true).unwrap();
        let mut found = vec![0; Tokenizer::scratch_words(text.len())];
        let count = ours.encode(text.as_bytes(), true, &mut found).unwrap();
        assert_eq!(&found[..count], wanted.get_ids(), "{text:?} with {:?}", pieces.get(259..));
    }
}

#[test]
fn sentencepiece_style_files_give_the_tokens_of_the_tokenizers_crate() {
    let Some(path) = tok512() else { return };
    let source = tokenizer_bin::read(&path, 512).unwrap();
    let mut pieces: Vec<String> = source.pieces.iter().map(|piece| String::from_utf8(piece.clone()).unwrap().replace(' ', SPACE)).collect();
    pieces[1] = "<s>".to_owned();
    pieces[2] = "</s>".to_owned();
    let texts = texts(&pieces);
    assert!(texts.len() > 9_000);
    compare(&pieces, &source.scores, &texts);
    println!("{} texts have the same tokens", texts.len());
}

/// Made vocabularies of two letters, whose pieces overlap in every way and whose scores are in no order: a list of merges ranks the ways to make one piece, and our scores do not.
#[test]
fn pieces_that_can_be_made_in_several_ways_are_made_as_the_list_says() {
    let mut random = random(0x9e37_79b9_7f4a_7c15);
    let head = ["<unk>", "<s>", "</s>"].map(str::to_owned).into_iter().chain((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    let head: Vec<String> = head.collect();
    let (mut vocabularies, mut several) = (0, 0);
    while vocabularies < 400 {
        let mut made: Vec<String> = [SPACE, "a", "b"].map(str::to_owned).into();
        while made.len() < 24 {
            let piece = format!("{}{}", made[random(made.len())], made[random(made.len())]);
            if piece.chars().count() <= 9 && !made.contains(&piece) {
                made.push(piece);
            }
        }
        let cuts = |piece: &String| {
            let cuts = piece.char_indices().skip(1).map(|(cut, _)| piece.split_at(cut));
            cuts.filter(|(left, right)| [left, right].iter().all(|part| made.iter().any(|other| other == *part))).count()
        };
        several += made.iter().filter(|piece| cuts(piece) > 1).count();
        let mut scores: Vec<f32> = (0..made.len()).map(|place| -(place as f32)).collect();
        // In order as training gives them, a little out of it, or in none.
        for _ in 0..[0, 6, 60][vocabularies % 3] {
            let (a, b) = (random(scores.len()), random(scores.len()));
            scores.swap(a, b);
        }
        let texts: Vec<String> = (0..60).map(|_| (0..random(40)).map(|_| ["a", "b", "a", " "][random(4)]).collect()).collect();
        let pieces: Vec<String> = head.iter().chain(&made).cloned().collect();
        let scores: Vec<f32> = vec![0.0; head.len()].into_iter().chain(scores).collect();
        compare(&pieces, &scores, &texts);
        vocabularies += 1;
    }
    println!("{vocabularies} vocabularies, {several} pieces that can be made in several ways");
    assert!(several > 1_000, "{several}");
}
