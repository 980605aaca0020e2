//! Meta's folders made in memory: the width of the feed-forward layers by its multiplier, and parts cut in every way that Meta cut them.

use super::llama2c::source;
use super::made::Shape;
use super::torch::{BFLOAT16, Torch};
use crate::checkpoint::{Checkpoint, open};
use crate::error::{Class, Error};
use serde_json::{Value, json};
use tempfile::TempDir;

const SHAPE: Shape = Shape { dim: 16, hidden: 20, layers: 2, heads: 4, kv_heads: 2, vocab: 8, seq_len: 9, tied: false };

/// How the embedding is cut: by columns until Llama 2, by rows since Llama 3.
#[derive(Clone, Copy, Debug)]
enum Embedding {
    Columns,
    Rows,
}

/// The part of a matrix of `rows` that lies in part `number` of `parts`, and its sizes.
fn cut(values: &[f32], rows: usize, by_columns: bool, number: usize, parts: usize) -> (Vec<usize>, Vec<f32>) {
    let cols = values.len() / rows;
    if !by_columns {
        let count = rows / parts;
        return (vec![count, cols], values[number * count * cols..][..count * cols].to_vec());
    }
    let width = cols / parts;
    (vec![rows, width], values.chunks(cols).flat_map(|row| row[number * width..][..width].to_vec()).collect())
}

/// The folder of the made model in `parts` files.
fn folder(params: &Value, parts: usize, embedding: Embedding) -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("params.json"), params.to_string()).unwrap();
    let (d, f) = (SHAPE.dim, SHAPE.hidden);
    let kv = SHAPE.kv_heads * d / SHAPE.heads;
    for number in 0..parts {
        let mut torch = Torch::empty();
        for (name, layers) in SHAPE.weights() {
            let (rows, by_columns) = match name {
                "tok_embeddings.weight" => (SHAPE.vocab, matches!(embedding, Embedding::Columns)),
                "output.weight" => (SHAPE.vocab, false),
                "attention.wq.weight" => (d, false),
                "attention.wo.weight" | "feed_forward.w2.weight" => (d, true),
                "attention.wk.weight" | "attention.wv.weight" => (kv, false),
                "feed_forward.w1.weight" | "feed_forward.w3.weight" => (f, false),
                _ => (1, false),
            };
            for (layer, values) in layers.iter().enumerate() {
                let (sizes, values) = if rows == 1 { (vec![d], values.clone()) } else { cut(values, rows, by_columns, number, parts) };
                let in_layer = name.contains("attention") || name.contains('f');
                let full = if in_layer { format!("layers.{layer}.{name}") } else { name.to_owned() };
                torch.add_as(BFLOAT16, &full, &sizes, &values);
            }
        }
        std::fs::write(folder.path().join(format!("consolidated.{number:02}.pth")), torch.state_zip()).unwrap();
    }
    folder
}

/// Whose feed-forward layers are 20 wide: int(0.45 * int(8 * 16 / 3)) = 18, rounded up to a multiple of 4.
fn params() -> Value {
    json!({"dim": 16, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": -1, "multiple_of": 4, "ffn_dim_multiplier": 0.45,
        "norm_eps": 1e-5, "rope_theta": 500_000.0})
}

fn bits(checkpoint: &Checkpoint) -> Vec<(String, Vec<u32>)> {
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    checkpoint.arrays().map(|array| (array.name().to_owned(), bits(array.to_vec().unwrap()))).collect()
}

#[test]
fn parts_are_put_together_whichever_way_the_embedding_was_cut() {
    let whole = open(folder(&params(), 1, Embedding::Rows).path()).unwrap();
    let round = |value: &f32| half::bf16::from_f32(*value).to_f32().to_bits();
    for (name, layers) in SHAPE.weights() {
        for (layer, values) in layers.iter().enumerate() {
            let in_layer = name.contains("attention") || name.contains('f');
            let full = if in_layer { format!("layers.{layer}.{name}") } else { name.to_owned() };
            let found = whole.array(&full).unwrap().to_vec().unwrap();
            assert!(found.iter().map(|value| value.to_bits()).eq(values.iter().map(round)), "{full}");
        }
    }
    for embedding in [Embedding::Columns, Embedding::Rows] {
        let parts = open(folder(&params(), 2, embedding).path()).unwrap();
        assert!(bits(&parts) == bits(&whole), "{embedding:?}");
        assert_eq!((source(&parts).config, source(&parts).rope_theta), (source(&whole).config, 500_000.0));
    }
    assert_eq!((source(&whole).config.hidden_dim, source(&whole).config.vocab_size), (20, 8));
}

#[test]
fn the_multiplier_is_compared_with_the_tensors() {
    let with = |key: &str, value: Value| {
        let mut params = params();
        params[key] = value;
        open(folder(&params, 2, Embedding::Rows).path())
    };
    // Rounded down to a whole number before it is rounded up: 0.4999 * 42 is 20 and not 24, 0.5 * 42 is 21, which becomes 24.
    assert_eq!(source(&with("ffn_dim_multiplier", json!(0.4999)).unwrap()).config.hidden_dim, 20);
    let refused = |made: Result<Checkpoint, Error>, said: &str| {
        let error = made.unwrap_err();
        assert!(error.class() == Class::Mismatch && error.to_string().contains(said), "{said}: {error}");
    };
    refused(with("ffn_dim_multiplier", json!(0.5)), "hidden_dim is 24 by the arguments, but layers.0.feed_forward.w1.weight has 20 rows");
    refused(with("ffn_dim_multiplier", json!(null)), "hidden_dim is 44");
    refused(with("ffn_dim_multiplier", json!(-1.0)), "ffn_dim_multiplier is -1");
    refused(with("ffn_dim_multiplier", json!("1.3")), "ffn_dim_multiplier is a string");
    refused(with("multiple_of", json!(256)), "hidden_dim is 256");
}

#[test]
fn parts_that_do_not_fit_together_are_named() {
    let refused = |edit: &dyn Fn(&std::path::Path), said: &str| {
        let folder = folder(&params(), 2, Embedding::Rows);
        edit(folder.path());
        let error = open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(said), "{said}: {error}");
    };
    let other = |embedding| folder(&params(), 2, embedding);
    refused(
        &|path| {
            let columns = other(Embedding::Columns);
            std::fs::copy(columns.path().join("consolidated.01.pth"), path.join("consolidated.01.pth")).unwrap();
        },
        "tok_embeddings.weight",
    );
    refused(&|path| std::fs::remove_file(path.join("consolidated.00.pth")).unwrap(), "consolidated.01.pth where part 0 should be");
    // Half of the model: every matrix has half its rows or columns.
    refused(&|path| std::fs::remove_file(path.join("consolidated.01.pth")).unwrap(), "hidden_dim is 20 by the arguments");
}
