//! Patterns of tensor names: how exporter and `include_model!` are told which tensors.

/// Whether a tensor's name is the pattern, where each `*` stands for any characters, also none.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let Some(last) = parts.pop() else { return true };
    for part in parts {
        // The earliest place leaves the most for what follows.
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("output.weight", "output.weight", true),
            ("output", "output.weight", false),
            ("output.*", "output.weight", true),
            ("*", "norm.weight", true),
            ("*.w1.*", "layers.3.feed_forward.w1.weight", true),
            ("layers.*.attention.*", "layers.11.attention.wq.weight", true),
            ("layers.*.attention.*", "layers.11.attention_norm.weight", false),
            ("layers.1.*", "layers.11.attention.wq.weight", false),
            ("a*ab", "aab", true),
            ("a*ab", "ab", false),
            ("*aXa*", "aXa", true),
            ("a**b", "ab", true),
        ] {
            assert_eq!(name_matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
