//! What an error is about: keys of the configuration, facts of the tokenizer, settings of the sampler.

/// A key of the header or of an architecture's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the keys")]
pub enum ConfigKey {
    Format,
    DType,
    Arch,
    Arithmetic,
    NumParams,
    NumTensors,
    Config,
    Tensors,
    Name,
    Dims,
    Offset,
    Bytes,
    Dim,
    HiddenDim,
    NLayers,
    NHeads,
    NKvHeads,
    HeadDim,
    VocabSize,
    MaxSeqLen,
    NormEps,
    RopeLayout,
    RopeTheta,
    RopeInvFreq,
    AttentionFactor,
    TiedEmbeddings,
    QkvBias,
    SlidingWindow,
    /// `source`, `step`, `flushed`, `max_abs` or `min_nonzero_abs`: for people, yet they must have their types.
    Provenance,
    /// A key that is not known where an unknown key would change the function.
    Other,
    DModel,
    DFfn,
    Vocab,
    MaxIter,
    Rank,
    UseKda,
    /// `use_gr`, `use_attnres` and `use_mhc`: one at most.
    ResidualArm,
    MhcStreams,
    NExperts,
    MoeTopk,
    EngramRows,
    EngramOrders,
    EngramDim,
    EngramLamMax,
    MorK,
    ActQuant,
    ActGroup,
    KdaScale,
    /// A key of dormouse's that turns an arm on or off.
    Flag,
    Bf16,
    UseMsa,
    UseByteflow,
    /// A key of dormouse's that only its training reads.
    Training,
    /// How ternary factors are to be taken: asked for, not read from a file.
    Factors,
    /// How old positions are to be treated: asked for, not read from a file.
    Decoding,
}

/// A fact of the tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the facts")]
pub enum TokenizerKey {
    Kind,
    VocabSize,
    Offsets,
    Pieces,
    Scores,
    Sorted,
    Bos,
    Eos,
    Pad,
    Unk,
    ByteBase,
    MaxPieceLen,
    DummyPrefix,
    Merges,
    PreTokenizer,
    Special,
}

/// A setting of the sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are the settings")]
pub enum SamplingKey {
    Temperature,
    TopP,
    MinP,
    RepeatPenalty,
    Seed,
}

impl SamplingKey {
    /// The setting as people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::TopP => "top-p",
            Self::MinP => "min-p",
            Self::RepeatPenalty => "repeat penalty",
            Self::Seed => "seed",
        }
    }

    /// What is allowed, in words.
    pub const fn allowed(self) -> &'static str {
        match self {
            Self::Temperature => "0 or more; 0 always takes the likeliest token",
            Self::TopP => "more than 0, at most 1; 1 turns it off",
            Self::MinP => "0 or more, less than 1; 0 turns it off",
            Self::RepeatPenalty => "more than 0; 1 turns it off",
            Self::Seed => "1 or more: the generator cannot start from 0",
        }
    }
}

impl ConfigKey {
    /// The key as it is written in headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::DType => "dtype",
            Self::Arch => "arch",
            Self::Arithmetic => "arithmetic",
            Self::NumParams => "num_params",
            Self::NumTensors => "num_tensors",
            Self::Config => "config",
            Self::Tensors => "tensors",
            Self::Name => "name",
            Self::Dims => "dims",
            Self::Offset => "offset",
            Self::Bytes => "bytes",
            Self::Dim => "dim",
            Self::HiddenDim => "hidden_dim",
            Self::NLayers => "n_layers",
            Self::NHeads => "n_heads",
            Self::NKvHeads => "n_kv_heads",
            Self::HeadDim => "head_dim",
            Self::VocabSize => "vocab_size",
            Self::MaxSeqLen => "max_seq_len",
            Self::NormEps => "norm_eps",
            Self::RopeLayout => "rope_layout",
            Self::RopeTheta => "rope_theta",
            Self::RopeInvFreq => "rope_inv_freq",
            Self::AttentionFactor => "attention_factor",
            Self::TiedEmbeddings => "tied_embeddings",
            Self::QkvBias => "qkv_bias",
            Self::SlidingWindow => "sliding_window",
            Self::Provenance => "source, step, flushed, max_abs or min_nonzero_abs",
            Self::Other => "(unknown key)",
            Self::DModel => "d_model",
            Self::DFfn => "d_ffn",
            Self::Vocab => "vocab",
            Self::MaxIter => "max_iter",
            Self::Rank => "rank",
            Self::UseKda => "use_kda together with use_plain_attn",
            Self::ResidualArm => "use_gr, use_attnres or use_mhc, more than one",
            Self::MhcStreams => "mhc_streams",
            Self::NExperts => "n_experts",
            Self::MoeTopk => "moe_topk",
            Self::EngramRows => "engram_rows",
            Self::EngramOrders => "engram_orders",
            Self::EngramDim => "engram_dim",
            Self::EngramLamMax => "engram_lam_max",
            Self::MorK => "mor_k",
            Self::ActQuant => "act_quant",
            Self::ActGroup => "act_group",
            Self::KdaScale => "kda_scale",
            Self::Flag => "a key that turns an arm on or off",
            Self::Bf16 => "bf16 = true",
            Self::UseMsa => "use_msa = true",
            Self::UseByteflow => "use_byteflow = true",
            Self::Training => "a key of the training",
            Self::Decoding => "logits of other positions than the last, with another decoding than full,",
            Self::Factors => "factors other than ternary, of a file that holds their codes alone,",
        }
    }

    /// Whether the value found stands for the bits of an `f32`.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::NormEps | Self::RopeTheta | Self::RopeInvFreq | Self::AttentionFactor | Self::EngramLamMax | Self::KdaScale)
    }
}
