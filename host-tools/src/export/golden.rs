//! Golden vectors of a file that was just written: the model continues its own text greedily, and the logits at a few positions are recorded. Called by the exporter.

use super::run::Watch;
use super::{Phase, Progress};
use crate::decode::{Cpu, CpuOptions, Loaded, golden};
use crate::error::{Error, Result};
use dmexp::Sampler;
use dmexp::format::Error as FormatError;
use dmexp_format::KvDType;
use dmexp_format::host::Golden;
use dmexp_format::tokenizer::NO_TOKEN;

/// Tokens of a golden vector, where the context has room for them.
const TOKENS: u32 = 32;

/// One vector with keys and values in f32, and one of the same tokens with f16, which a model of dormouse does not keep them in. The second value is a warning where a model cannot be run with keys and values in f16.
///
/// # Errors
/// [`Class::Damaged`](crate::error::Class::Damaged) where the logits are not finite; [`Class::Cancelled`](crate::error::Class::Cancelled).
pub(super) fn compute(loaded: &Loaded, watch: &mut Watch<'_>) -> Result<(Vec<Golden>, Option<String>)> {
    let model = loaded.model()?;
    let n = model.network().max_seq_len().min(TOKENS);
    let first = match model.tokenizer().facts().bos {
        NO_TOKEN => 0,
        bos => bos,
    };
    let mut cpu = Cpu::new(loaded, &CpuOptions { context: Some(n), kv: KvDType::F32, tokenizer: None })?;
    let greedy = continued(&mut cpu, first, n, watch).map_err(|trouble| trouble.explain(loaded))?;
    if model.network().dormouse().is_some() {
        return Ok((vec![greedy], None));
    }
    let mut cpu = Cpu::new(loaded, &CpuOptions { context: Some(n), kv: KvDType::F16, tokenizer: None })?;
    match recorded(&mut cpu, &greedy, watch) {
        Ok(halves) => Ok((vec![greedy, halves], None)),
        Err(Trouble::Model(FormatError::NonFiniteLogits { position })) => {
            let warning = format!("with keys and values in f16 the logits of position {position} are not finite: run it with --kv f32");
            Ok((vec![greedy], Some(warning)))
        }
        Err(trouble) => Err(trouble.explain(loaded)),
    }
}

enum Trouble {
    Model(FormatError),
    Tools(Error),
}

impl From<FormatError> for Trouble {
    fn from(error: FormatError) -> Self {
        Self::Model(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Tools(error)
    }
}

impl Trouble {
    fn explain(self, loaded: &Loaded) -> Error {
        match self {
            Self::Model(FormatError::NonFiniteLogits { position }) => {
                Error::damaged(format!("the exported model's logits at position {position} are not finite"))
                    .advise("the training went wrong, or the checkpoint is damaged")
            }
            Self::Model(error) => loaded.explain(error),
            Self::Tools(error) => error,
        }
    }
}

/// The positions recorded of `n` tokens.
fn positions(n: u32) -> Vec<u32> {
    let mut positions = vec![0, 1, n / 2, n - 1];
    positions.retain(|position| *position < n);
    positions.sort_unstable();
    positions.dedup();
    positions
}

/// `first` continued greedily to `n` tokens.
fn continued(cpu: &mut Cpu<'_>, first: u32, n: u32, watch: &mut Watch<'_>) -> Result<Golden, Trouble> {
    let kv = cpu.model().kv();
    let wanted = positions(n);
    let mut session = cpu.session(Sampler::greedy())?;
    let mut tokens = vec![first];
    let mut records = Vec::with_capacity(wanted.len());
    while let Some(last) = tokens.last() {
        watch.tick(Progress { phase: Phase::Golden, done: tokens.len() as u64, total: 2 * u64::from(n) })?;
        session.push_tokens(&[*last])?;
        let logits = session.logits()?;
        let position = tokens.len() as u32 - 1;
        if wanted.contains(&position) {
            records.push(golden::record(position, logits));
        }
        if position + 1 == n {
            break;
        }
        let [best, ..] = golden::top5(logits);
        tokens.push(best);
    }
    Ok(Golden { kv, tokens, positions: records })
}

/// The tokens of `other` with this decoder's keys and values.
fn recorded(cpu: &mut Cpu<'_>, other: &Golden, watch: &mut Watch<'_>) -> Result<Golden, Trouble> {
    let kv = cpu.model().kv();
    let n = other.tokens.len();
    let mut session = cpu.session(Sampler::greedy())?;
    let mut records = Vec::with_capacity(other.positions.len());
    let mut fed = 0;
    for wanted in &other.positions {
        watch.tick(Progress { phase: Phase::Golden, done: (n + fed) as u64, total: 2 * n as u64 })?;
        let end = wanted.position as usize + 1;
        session.push_tokens(other.tokens.get(fed..end).unwrap_or_default())?;
        records.push(golden::record(wanted.position, session.logits()?));
        fed = end;
    }
    Ok(Golden { kv, tokens: other.tokens.clone(), positions: records })
}

#[cfg(test)]
mod tests {
    use super::positions;

    #[test]
    fn positions_are_few_rising_and_within() {
        assert_eq!(positions(1), [0]);
        assert_eq!(positions(2), [0, 1]);
        assert_eq!(positions(3), [0, 1, 2]);
        assert_eq!(positions(32), [0, 1, 16, 31]);
    }
}
