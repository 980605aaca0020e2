//! A sentencepiece-style BPE vocabulary: llama2.c's encoding rule, its `tokenizer.bin`, and decoding. Called by `corpus.rs` and the binary.

use std::collections::HashMap;

/// Id of the byte 0; the other bytes follow.
const FIRST_BYTE: u16 = 3;

/// A vocabulary.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    /// Text and score by id.
    pieces: Vec<(Vec<u8>, f32)>,
    ids: HashMap<Vec<u8>, u16>,
}

impl Tokenizer {
    /// The vocabulary with the three control pieces, the bytes, and then `learned` in the order of their ranks.
    pub fn new(learned: &[String]) -> Self {
        let mut pieces: Vec<(Vec<u8>, f32)> = ["<unk>", "\n<s>\n", "\n</s>\n"].iter().map(|p| (p.as_bytes().to_vec(), 0.0)).collect();
        pieces.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>").into_bytes(), 0.0)));
        pieces.extend(learned.iter().enumerate().map(|(rank, p)| (p.as_bytes().to_vec(), 0.0 - rank as f32)));
        Self::from_pieces(pieces)
    }

    fn from_pieces(pieces: Vec<(Vec<u8>, f32)>) -> Self {
        let mut ids = HashMap::new();
        for (id, (piece, _)) in pieces.iter().enumerate() {
            // The lowest id wins where a text appears twice.
            ids.entry(piece.clone()).or_insert(id as u16);
        }
        Self { pieces, ids }
    }

    /// Reads a `tokenizer.bin`; `None` when it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.get(4..)?;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let score = f32::from_le_bytes(*rest.first_chunk()?);
            let len = u32::from_le_bytes(*rest.get(4..)?.first_chunk()?) as usize;
            pieces.push((rest.get(8..)?.get(..len)?.to_vec(), score));
            rest = &rest[8 + len..];
        }
        Some(Self::from_pieces(pieces))
    }

    /// The `tokenizer.bin`: the longest length, then score, length and text of each piece.
    pub fn to_bytes(&self) -> Vec<u8> {
        let longest = self.pieces.iter().map(|(p, _)| p.len()).max().unwrap_or(0);
        let mut out = (longest as u32).to_le_bytes().to_vec();
        for (piece, score) in &self.pieces {
            out.extend(score.to_le_bytes());
            out.extend((piece.len() as u32).to_le_bytes());
            out.extend(piece);
        }
        out
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are no ids.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The ids of `text` by llama2.c's rule, without BOS: one space before the text, characters (or their bytes), then the best merge again and again.
    pub fn encode(&self, text: &str) -> Vec<u16> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut ids = Vec::new();
        self.characters(" ", &mut ids);
        self.characters(text, &mut ids);
        self.merge(&mut ids);
        ids
    }

    fn characters(&self, text: &str, ids: &mut Vec<u16>) {
        for c in text.chars() {
            let mut buffer = [0; 4];
            let bytes = c.encode_utf8(&mut buffer).as_bytes();
            match self.ids.get(bytes) {
                Some(&id) => ids.push(id),
                None => ids.extend(bytes.iter().map(|&b| FIRST_BYTE + u16::from(b))),
            }
        }
    }

    fn merge(&self, ids: &mut Vec<u16>) {
        loop {
            let mut best: Option<(f32, usize, u16)> = None;
            for (at, pair) in ids.windows(2).enumerate() {
                let text = [self.pieces[pair[0] as usize].0.as_slice(), &self.pieces[pair[1] as usize].0].concat();
                if let Some(&id) = self.ids.get(&text) {
                    let score = self.pieces[id as usize].1;
                    if best.is_none_or(|(s, _, _)| score > s) {
                        best = Some((score, at, id));
                    }
                }
            }
            let Some((_, at, id)) = best else { return };
            ids[at] = id;
            ids.remove(at + 1);
        }
    }

    /// The text of `ids` (after BOS: one leading space is dropped).
    pub fn decode(&self, ids: &[u16]) -> String {
        let mut out = Vec::new();
        for &id in ids {
            match id.checked_sub(FIRST_BYTE) {
                Some(byte) if byte < 256 => out.push(byte as u8),
                Some(_) => out.extend(&self.pieces[id as usize].0),
                None => {}
            }
        }
        let text = String::from_utf8_lossy(&out);
        text.strip_prefix(' ').unwrap_or(&text).to_owned()
    }
}

/// Encodes much text fast: no piece but the first byte of one is a space or a newline, so that the words between can be encoded once and remembered.
#[derive(Debug)]
pub struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    words: HashMap<String, Vec<u16>>,
}

impl<'a> Encoder<'a> {
    /// An encoder that remembers nothing yet.
    ///
    /// # Panics
    /// When a piece has a space inside: words would not be independent then.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        for (piece, _) in &tokenizer.pieces[259..] {
            assert!(!piece[1..].contains(&b' ') && !piece.contains(&b'\n'), "piece {piece:?} spans words");
        }
        Self { tokenizer, words: HashMap::new() }
    }

    /// Appends the ids of `text`: the same as [`Tokenizer::encode`].
    pub fn encode(&mut self, text: &str, out: &mut Vec<u16>) {
        if text.is_empty() {
            return;
        }
        let text = format!(" {text}");
        let mut rest = text.as_str();
        while !rest.is_empty() {
            // Each word begins with its space or newline, which is one byte.
            let end = rest[1..].find([' ', '\n']).map_or(rest.len(), |at| at + 1);
            let (word, after) = rest.split_at(end);
            rest = after;
            if !self.words.contains_key(word) {
                let mut ids = Vec::new();
                self.tokenizer.characters(word, &mut ids);
                self.tokenizer.merge(&mut ids);
                self.words.insert(word.to_owned(), ids);
            }
            out.extend_from_slice(&self.words[word]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoder, Tokenizer};
    use crate::bpe;
    use crate::grammar::story;

    fn trained() -> Tokenizer {
        let texts: Vec<String> = (0..300).map(|seed| story(seed).text).collect();
        bpe::train(texts.iter().map(String::as_str), 512)
    }

    #[test]
    fn text_survives_and_the_fast_encoder_agrees_with_the_rule() {
        let tokenizer = trained();
        let mut encoder = Encoder::new(&tokenizer);
        let mut texts: Vec<String> = (1000..1060).map(|seed| story(seed).text).collect();
        texts.extend(["", " ", "  two  spaces ", "\n", "a\n\n b", "Grüße, 世界 ☃!", "tab\there", "ends \n"].map(String::from));
        for text in texts {
            let plain = tokenizer.encode(&text);
            let mut fast = Vec::new();
            encoder.encode(&text, &mut fast);
            assert_eq!(plain, fast, "{text:?}");
            assert_eq!(tokenizer.decode(&plain), text);
        }
    }

    #[test]
    fn the_file_has_512_pieces_in_sentencepiece_order() {
        let tokenizer = trained();
        assert_eq!(tokenizer.len(), 512);
        let bytes = tokenizer.to_bytes();
        let again = Tokenizer::from_bytes(&bytes).expect("a tokenizer file");
        assert_eq!(again.to_bytes(), bytes);
        assert_eq!(tokenizer.pieces[0].0, b"<unk>");
        assert_eq!(tokenizer.pieces[1].0, b"\n<s>\n");
        assert_eq!(tokenizer.pieces[13].0, b"<0x0A>");
        assert_eq!(tokenizer.pieces[258].0, b"<0xFF>");
        assert!(tokenizer.ids.contains_key(b" ".as_slice()));
        for (rank, (piece, score)) in tokenizer.pieces[259..].iter().enumerate() {
            assert_eq!(*score, -(rank as f32));
            let text = std::str::from_utf8(piece).expect("text");
            assert!(!text.is_empty() && tokenizer.ids[piece] as usize == rank + 259, "{text:?} appears twice");
        }
        let longest = tokenizer.pieces.iter().map(|p| p.0.len()).max();
        assert_eq!(longest, Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize));
        assert!(Tokenizer::from_bytes(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn the_leftmost_of_equal_merges_and_the_best_of_different_ones_go_first() {
        let learned = ["bc", "ab", "aa", " ", "a", "b", "c"].map(String::from);
        let tokenizer = Tokenizer::new(&learned);
        let texts = |text: &str| -> Vec<String> {
            tokenizer.encode(text).iter().map(|&id| String::from_utf8_lossy(&tokenizer.pieces[id as usize].0).into_owned()).collect()
        };
        assert_eq!(texts("abc"), [" ", "a", "bc"]);
        assert_eq!(texts("aaa"), [" ", "aa", "a"]);
        assert_eq!(texts("aab\n"), [" ", "a", "ab", "<0x0A>"]);
    }
}
