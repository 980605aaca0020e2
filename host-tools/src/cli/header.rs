//! A header in words: every key of it, those that this version does not know too. For `dmexp export info`.

use super::output::shown;
use dmexp_format::arch::llama::LlamaConfig;
use dmexp_format::tokenizer::{NO_TOKEN, TokenizerFacts};
use std::io::{self, Write};
use toml::{Table, Value};

/// Prints all keys but the lists of tables (`tensors`, `golden`), which have their own place: dotted names, one a line; long texts line by line.
pub(crate) fn print(out: &mut impl Write, table: &Table) -> io::Result<()> {
    print_table(out, "", table)
}

fn print_table(out: &mut impl Write, prefix: &str, table: &Table) -> io::Result<()> {
    for (key, value) in table {
        let key = format!("{prefix}{}", shown(key));
        match value {
            Value::Table(inner) => print_table(out, &format!("{key}."), inner)?,
            Value::Array(items) if is_list_of_tables(items) => writeln!(out, "  {key} = {} entries", items.len())?,
            Value::String(text) if text.trim_end().contains('\n') => {
                writeln!(out, "  {key} =")?;
                text.lines().try_for_each(|line| writeln!(out, "    {}", shown(line)))?;
            }
            Value::String(text) => writeln!(out, "  {key} = {text:?}")?,
            other => writeln!(out, "  {key} = {}", shown(&other.to_string()))?,
        }
    }
    Ok(())
}

fn is_list_of_tables(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(Value::is_table)
}

/// What the index says, for a file without a header: the configuration and the tokenizer in the header's words.
pub(crate) fn of_index(config: Option<&LlamaConfig>, facts: &TokenizerFacts) -> Table {
    let mut table = Table::new();
    if let Some(config) = config {
        table.insert("config".to_owned(), Value::Table(of_config(config)));
    }
    table.insert("tokenizer".to_owned(), Value::Table(of_tokenizer(facts)));
    table
}

fn of_config(config: &LlamaConfig) -> Table {
    let LlamaConfig {
        dim,
        hidden_dim,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim,
        vocab_size,
        max_seq_len,
        norm_eps,
        rope_layout,
        attention_factor,
        tied_embeddings,
        qkv_bias,
        sliding_window,
    } = *config;
    let whole = |number: u32| Value::Integer(i64::from(number));
    let float = |number: f32| Value::Float(f64::from(number));
    let rows = [
        ("arch", Value::String("llama".to_owned())),
        ("dim", whole(dim)),
        ("hidden_dim", whole(hidden_dim)),
        ("n_layers", whole(n_layers)),
        ("n_heads", whole(n_heads)),
        ("n_kv_heads", whole(n_kv_heads)),
        ("head_dim", whole(head_dim)),
        ("vocab_size", whole(vocab_size)),
        ("max_seq_len", whole(max_seq_len)),
        ("norm_eps", float(norm_eps)),
        ("rope_layout", Value::String(rope_layout.name().to_owned())),
        ("attention_factor", float(attention_factor)),
        ("tied_embeddings", Value::Boolean(tied_embeddings)),
        ("qkv_bias", Value::Boolean(qkv_bias)),
        ("sliding_window", whole(sliding_window)),
    ];
    rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn of_tokenizer(facts: &TokenizerFacts) -> Table {
    let mut table = Table::new();
    let mut put = |key: &str, value: Value| table.insert(key.to_owned(), value);
    put("kind", Value::String(facts.kind.name().to_owned()));
    put("n_pieces", Value::Integer(i64::from(facts.n_pieces)));
    put("add_bos", Value::Boolean(facts.add_bos));
    put("dummy_prefix", Value::Boolean(facts.dummy_prefix));
    for (key, token) in [("bos", facts.bos), ("pad", facts.pad), ("unk", facts.unk), ("byte_base", facts.byte_base)] {
        if token != NO_TOKEN {
            put(key, Value::Integer(i64::from(token)));
        }
    }
    let ends = facts.eos.iter().filter(|token| **token != NO_TOKEN);
    put("eos", Value::Array(ends.map(|token| Value::Integer(i64::from(*token))).collect()));
    put("max_piece_len", Value::Integer(i64::from(facts.max_piece_len)));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_printed_and_nothing_drives_the_terminal() {
        let table: Table =
            "a = 1\nb = \"x\\u001b\"\n[c]\nd = [1.5, 2]\n[c.e]\nf = true\n[[g]]\nh = 1\n[[g]]\nh = 2\n[i]\nj = '''\nk\nl = 3\n'''"
                .parse()
                .unwrap();
        let mut out = Vec::new();
        print(&mut out, &table).unwrap();
        let expected = "  a = 1\n  b = \"x\\u{1b}\"\n  c.d = [1.5, 2]\n  c.e.f = true\n  g = 2 entries\n  i.j =\n    k\n    l = 3\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
