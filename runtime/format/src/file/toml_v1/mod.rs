//! The TOML header of format 1, read without a heap. Used by [`super::ModelFile`].
//!
//! `Header::parse` walks through it once and checks everything; what is asked for later is found by walking again.

mod dormouse;
mod llama;
mod scan;

use super::index::{NAME_LIMIT, TENSOR_LIMIT, check_name};
use crate::arch::Architecture;
use crate::arch::dormouse::{DormouseConfig, Residual};
use crate::arch::llama::LlamaConfig;
use crate::tokenizer::TokenizerFacts;
use crate::{ConfigKey, DType, Dims, Error, Part, Rule};
use scan::{Expression, Key, Keys, Scanner, Text, Value};

/// A header that was checked: its facts, and where its texts lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header<'a> {
    pub(super) dtype: DType,
    pub(super) num_params: u64,
    pub(super) num_tensors: u32,
    pub(super) architecture: Architecture,
    config: Text<'a>,
    tables: Text<'a>,
}

/// One `[[tensors]]` table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    pub(super) name: &'a str,
    pub(super) dims: Dims,
}

/// An error about a key's value, `at` this place in the file.
fn place(key: ConfigKey, rule: Rule, at: u64) -> Error {
    Error::Config { key, rule, found: at, allowed: u64::MAX }
}

/// An error about a value within a tensor's table, `at` this place in the file.
fn in_table(tensor: u32, rule: Rule, at: u64) -> Error {
    Error::Tensor { tensor, rule, found: at, allowed: u64::MAX }
}

impl<'a> Header<'a> {
    /// Checks a header that starts at byte `at` of a file with `payload_len` bytes of tensors.
    ///
    /// # Errors
    /// [`Error::Toml`], [`Error::Config`], [`Error::Tensor`], [`Error::UnknownArchitecture`], [`Error::Tokenizer`], [`Error::Layout`].
    pub(super) fn parse(text: &'a str, at: u64, payload_len: u64) -> Result<Self, Error> {
        let mut keys = Keys::<32>::new();
        let (top, tables) = Top::parse(Text { text, at }, &mut keys)?;
        let missing = |key| place(key, Rule::Missing, at);
        let (format, format_at) = top.format.ok_or(missing(ConfigKey::Format))?;
        if format != 1 {
            return Err(place(ConfigKey::Format, Rule::Equal, format_at));
        }
        let dtype = top.dtype.ok_or(missing(ConfigKey::DType))?;
        let num_params = top.num_params.ok_or(missing(ConfigKey::NumParams))?;
        let num_tensors = top.num_tensors.ok_or(missing(ConfigKey::NumTensors))?;
        let config = top.config.ok_or(missing(ConfigKey::Config))?;
        let architecture = architecture(config)?;
        let listed = check_tables(tables, &mut keys, dtype, num_params, payload_len)?;
        if u64::from(listed) != num_tensors {
            return Err(Error::Config { key: ConfigKey::NumTensors, rule: Rule::Equal, found: num_tensors, allowed: u64::from(listed) });
        }
        let header = Self { dtype, num_params, num_tensors: listed, architecture, config, tables };
        match architecture {
            Architecture::Llama => llama::parse(config).map(|_| header),
            Architecture::Dormouse => check_text(config).map(|()| header),
            // Format 1 has no such models: `architecture` does not give it.
            Architecture::Sequential => Err(Error::UnknownArchitecture { code: architecture.code() }),
        }
    }

    /// The tensors, in order.
    pub(super) const fn tables(&self) -> Tables<'a> {
        Tables { scanner: Scanner::new(self.tables), number: 0 }
    }

    /// The configuration of a Llama and the special tokens that it names.
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`]; no other after `parse`.
    pub(super) fn llama(&self) -> Result<(LlamaConfig, TokenizerFacts), Error> {
        match self.architecture {
            Architecture::Llama => llama::parse(self.config),
            other => Err(Error::OtherArchitecture { found: other.code(), expected: Architecture::Llama.code() }),
        }
    }

    /// The configuration of a dormouse model. Whether its queries over results have gains is in the list of tensors alone.
    ///
    /// # Errors
    /// [`Error::OtherArchitecture`]; [`Error::Config`] and [`Error::Toml`]: `parse` looks at the form alone, so that firmware for other architectures has no code for the values.
    pub(super) fn dormouse(&self) -> Result<DormouseConfig, Error> {
        if self.architecture != Architecture::Dormouse {
            let (found, expected) = (self.architecture.code(), Architecture::Dormouse.code());
            return Err(Error::OtherArchitecture { found, expected });
        }
        let config = dormouse::parse(self.config)?;
        let gain = |table: Table<'_>| table.name == "loop_block.attnres.0.gain";
        Ok(DormouseConfig { attnres_gain: config.residual != Residual::AttnRes || self.tables().any(gain), ..config })
    }

    /// Writes a Llama's rotation frequencies into `out`.
    ///
    /// # Errors
    /// None after `parse`.
    pub(super) fn frequencies(&self, out: &mut [f32]) -> Result<(), Error> {
        llama::frequencies(self.config, out)
    }

    /// The text of the configuration.
    pub(super) const fn config_text(&self) -> &'a str {
        self.config.text
    }
}

/// The keys before the first table.
#[derive(Default)]
struct Top<'a> {
    format: Option<(u64, u64)>,
    dtype: Option<DType>,
    num_params: Option<u64>,
    num_tensors: Option<u64>,
    config: Option<Text<'a>>,
}

impl<'a> Top<'a> {
    /// Reads up to the first table, where the second value starts.
    fn parse(text: Text<'a>, keys: &mut Keys<'a, 32>) -> Result<(Self, Text<'a>), Error> {
        let mut top = Self::default();
        let mut scanner = Scanner::new(text);
        loop {
            let before = scanner.rest();
            match scanner.next()? {
                Some(Expression::Pair { key, value }) => {
                    keys.add(&key)?;
                    top.take(&key, &value)?;
                }
                Some(Expression::Table { .. }) => return Ok((top, before)),
                None => return Err(place(ConfigKey::Tensors, Rule::Missing, text.at)),
            }
        }
    }

    fn take(&mut self, key: &Key<'a>, value: &Value<'a>) -> Result<(), Error> {
        let Some(name) = known(key.first) else { return Ok(()) };
        let fault = |rule| place(name, rule, value.at);
        if key.dotted {
            return Err(fault(Rule::Type));
        }
        match (name, key.first) {
            (ConfigKey::Format, _) => self.format = Some((value.integer().map_err(fault)?, value.at)),
            (ConfigKey::DType, _) => {
                let dtype = DType::from_name(value.string().map_err(fault)?.text.as_bytes()).filter(|dtype| dtype.is_float());
                self.dtype = Some(dtype.ok_or(fault(Rule::Unknown))?);
            }
            (ConfigKey::NumParams, _) => self.num_params = Some(value.integer().map_err(fault)?),
            (ConfigKey::NumTensors, _) => self.num_tensors = Some(value.integer().map_err(fault)?),
            (ConfigKey::Config, _) => self.config = Some(value.string().map_err(fault)?),
            // For people, but what is there must be what it says.
            (_, "source") => match value.string() {
                Ok(_) | Err(Rule::Escape) => (),
                Err(rule) => return Err(fault(rule)),
            },
            (_, "step" | "flushed") => _ = value.integer().map_err(fault)?,
            (_, "max_abs" | "min_nonzero_abs") => _ = value.float().map_err(fault)?,
            _ => return Err(fault(Rule::Type)),
        }
        Ok(())
    }
}

/// The keys that a header has before its tables, and `tensors`.
fn known(key: &str) -> Option<ConfigKey> {
    Some(match key {
        "format" => ConfigKey::Format,
        "dtype" => ConfigKey::DType,
        "num_params" => ConfigKey::NumParams,
        "num_tensors" => ConfigKey::NumTensors,
        "config" => ConfigKey::Config,
        "tensors" => ConfigKey::Tensors,
        "source" | "step" | "flushed" | "max_abs" | "min_nonzero_abs" => ConfigKey::Provenance,
        _ => return None,
    })
}

/// A walk through the `[[tensors]]` tables.
#[derive(Clone, Debug)]
pub(super) struct Tables<'a> {
    scanner: Scanner<'a>,
    number: u32,
}

impl<'a> Tables<'a> {
    /// The next tensor's table; tables of other names are passed over. `keys` has the names of the top level where they are to be checked.
    fn next_table(&mut self, mut keys: Option<&mut Keys<'a, 32>>) -> Result<Option<Table<'a>>, Error> {
        while let Some(expression) = self.scanner.next()? {
            let Expression::Table { key, array } = expression else { continue };
            if array && key.whole == ConfigKey::Tensors.name() {
                let table = self.read(keys.is_some())?;
                self.number = self.number.saturating_add(1);
                return Ok(Some(table));
            }
            if let Some(name) = known(key.first) {
                return Err(place(name, Rule::Type, key.at));
            }
            if let Some(keys) = keys.as_deref_mut()
                && !array
            {
                keys.add(&key)?;
            }
            self.pass_over(keys.is_some())?;
        }
        Ok(None)
    }

    /// The pairs of the table whose header was just read.
    fn read(&mut self, check: bool) -> Result<Table<'a>, Error> {
        let (number, at) = (self.number, self.scanner.rest().at);
        let (mut name, mut dims, mut overflowed) = (None, None, None);
        let mut keys = Keys::<16>::new();
        while let Some((key, value)) = self.next_pair()? {
            if check {
                keys.add(&key)?;
            }
            let fault = |rule| in_table(number, rule, value.at);
            match key.first {
                "name" | "dims" | "overflowed" if key.dotted => return Err(fault(Rule::Type)),
                "name" => name = Some(value.string().map_err(fault)?),
                "dims" => dims = Some(read_dims(&value, number)?),
                "overflowed" => overflowed = Some((value.integer().map_err(fault)?, value.at)),
                _ => (),
            }
        }
        let missing = in_table(number, Rule::Missing, at);
        let (name, dims) = (name.ok_or(missing)?, dims.ok_or(missing)?);
        match overflowed {
            Some((0, _)) => (),
            Some((_, at)) => return Err(in_table(number, Rule::Zero, at)),
            None => return Err(missing),
        }
        if name.text.is_empty() || name.text.len() > NAME_LIMIT as usize {
            let rule = if name.text.is_empty() { Rule::NotZero } else { Rule::TooLarge };
            return Err(Error::Tensor { tensor: number, rule, found: name.text.len() as u64, allowed: u64::from(NAME_LIMIT) });
        }
        check_name(name.text.as_bytes(), number)?;
        Ok(Table { name: name.text, dims })
    }

    /// The pairs of a table that is not ours.
    fn pass_over(&mut self, check: bool) -> Result<(), Error> {
        let mut keys = Keys::<32>::new();
        while let Some((key, _)) = self.next_pair()? {
            if check {
                keys.add(&key)?;
            }
        }
        Ok(())
    }

    /// The next pair of this table; `None` before the next table.
    fn next_pair(&mut self) -> Result<Option<(Key<'a>, Value<'a>)>, Error> {
        let before = self.scanner;
        match self.scanner.next()? {
            Some(Expression::Pair { key, value }) => Ok(Some((key, value))),
            Some(Expression::Table { .. }) => {
                self.scanner = before;
                Ok(None)
            }
            None => Ok(None),
        }
    }
}

impl<'a> Iterator for Tables<'a> {
    type Item = Table<'a>;

    fn next(&mut self) -> Option<Table<'a>> {
        self.next_table(None).ok()?
    }
}

fn read_dims(value: &Value<'_>, tensor: u32) -> Result<Dims, Error> {
    let mut sizes = [1u32; 4];
    let mut rank = 0u32;
    for item in value.items().map_err(|rule| in_table(tensor, rule, value.at))? {
        let size = item.integer().map_err(|rule| in_table(tensor, rule, item.at))?;
        let slot = sizes.get_mut(rank as usize).ok_or(Error::Tensor { tensor, rule: Rule::Rank, found: 5, allowed: 4 })?;
        *slot =
            u32::try_from(size).map_err(|_| Error::Tensor { tensor, rule: Rule::TooLarge, found: size, allowed: u64::from(u32::MAX) })?;
        rank += 1;
    }
    Dims::new(tensor, rank, sizes)
}

/// Walks through all tables; gives their number.
fn check_tables<'a>(tables: Text<'a>, keys: &mut Keys<'a, 32>, dtype: DType, num_params: u64, payload_len: u64) -> Result<u32, Error> {
    let mut walk = Tables { scanner: Scanner::new(tables), number: 0 };
    let mut params = 0u64;
    while let Some(table) = walk.next_table(Some(keys))? {
        let tensor = walk.number - 1;
        if tensor >= TENSOR_LIMIT {
            let (found, allowed) = (u64::from(walk.number), u64::from(TENSOR_LIMIT));
            return Err(Error::Config { key: ConfigKey::NumTensors, rule: Rule::TooLarge, found, allowed });
        }
        // 65,536 times 2^48 elements at most.
        let end = params.saturating_add(table.dims.count());
        if end.saturating_mul(dtype.size()) > payload_len {
            return Err(Error::Tensor { tensor, rule: Rule::Range, found: end.saturating_mul(dtype.size()), allowed: payload_len });
        }
        params = end;
    }
    if walk.number == 0 {
        return Err(place(ConfigKey::Tensors, Rule::Missing, tables.at));
    }
    if params != num_params {
        return Err(Error::Config { key: ConfigKey::NumParams, rule: Rule::Equal, found: num_params, allowed: params });
    }
    let end = params.saturating_mul(dtype.size());
    if end != payload_len {
        return Err(Error::Layout { part: Part::Payload, rule: Rule::Length, offset: 12, found: payload_len, allowed: end });
    }
    Ok(walk.number)
}

/// What the configuration is of: it starts with `arch`, or has no such key and is dormouse's.
fn architecture(config: Text<'_>) -> Result<Architecture, Error> {
    match Scanner::new(config).next()? {
        Some(Expression::Pair { key, value }) if key.whole == ConfigKey::Arch.name() => {
            let name = value.string().map_err(|rule| place(ConfigKey::Arch, rule, value.at))?.text;
            if name == Architecture::Llama.name() { Ok(Architecture::Llama) } else { Err(Error::UnknownArchitecture { code: u32::MAX }) }
        }
        _ => Ok(Architecture::Dormouse),
    }
}

/// Checks that a configuration is TOML with no key twice, and no `arch` further down.
fn check_text(config: Text<'_>) -> Result<(), Error> {
    let mut keys = Keys::<96>::new();
    let mut scanner = Scanner::new(config);
    while let Some(expression) = scanner.next()? {
        match expression {
            Expression::Pair { key, .. } | Expression::Table { key, .. } if key.first == ConfigKey::Arch.name() => {
                return Err(place(ConfigKey::Arch, Rule::Order, key.at));
            }
            Expression::Pair { key, .. } => keys.add(&key)?,
            // Dormouse's configuration is flat.
            Expression::Table { key, .. } => return Err(place(ConfigKey::Config, Rule::Type, key.at)),
        }
    }
    Ok(())
}
