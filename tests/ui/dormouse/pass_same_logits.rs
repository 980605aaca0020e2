//! A dormouse model in the program gives the logits of the same bytes opened at run time, however it is decoded and wherever its tensors lie.

use dmexp::format::KvDType;
use dmexp::format::file::ModelFile;
use dmexp::format::layout::Decoding;
use dmexp::{Arena, Model, Sampler, Session};

dmexp::include_model!(
    /// All defaults.
    pub Default = "../generated/dormouse.dmexp"
);
dmexp::include_model!(Codes = "../generated/dormouse_t2.dmexp", context = 24, kv = f32, section = ".dmexp_model");
dmexp::include_model!(Full = "../generated/dormouse.dmexp", context = 24, decoding = full, ram_limit = 64_000);
dmexp::include_model!(Fast = "../generated/dormouse.dmexp", context = 24, decoding = fast, board = "rp2040");
dmexp::include_model!(Hot = "../generated/dormouse.dmexp", context = 24, ram = ["loop_block.shared_attn.*", "norm.weight"]);
dmexp::include_model!(Plain = "../generated/dormouse_plain.dmexp", context = 24);
dmexp::include_model!(Gated = "../generated/dormouse_gr.dmexp", context = 24);

const TEXT: &[u8; 24] = b"the quick brown fox jump";

fn logits<const LEN: usize>(model: &Model<'_>) -> Vec<u32> {
    assert_eq!(model.arena_len(), Ok(LEN));
    let mut arena = Box::new(Arena::<LEN>::new());
    let mut session = Session::new(model, &mut *arena, Sampler::greedy()).unwrap();
    let step = |byte: &u8| {
        session.push_tokens(&[u32::from(*byte)]).unwrap();
        session.logits().unwrap().iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()
    };
    TEXT.iter().flat_map(step).collect()
}

fn opened<const LEN: usize>(bytes: &[u8], context: u32, decoding: Decoding) -> Vec<u32> {
    let model = Model::bind(&ModelFile::open(bytes).unwrap()).unwrap().with_context(context).with_decoding(decoding);
    logits::<LEN>(&model)
}

fn main() {
    let bytes = include_bytes!("../generated/dormouse.dmexp");
    let exact = logits::<{ Default::ARENA_LEN }>(Default::bind());
    assert_eq!(exact, opened::<{ Default::ARENA_LEN }>(bytes, 64, Decoding::Exact));
    assert_eq!((Default::CONTEXT, Default::KV, Default::DECODING), (64, KvDType::F32, Decoding::Exact));
    assert_eq!(Default::CONFIG.d_model, 32);
    assert_eq!((Default::KV_LEN, Default::WORK_LEN), Default::bind().bank_lens().unwrap());
    assert_eq!(exact, logits::<{ Full::ARENA_LEN }>(Full::bind()), "everything again for every byte");
    assert_eq!(exact, logits::<{ Hot::ARENA_LEN }>(Hot::bind()), "tensors in RAM");
    assert!(Hot::RAM_LEN > 0 && Default::RAM_LEN == 0 && Hot::FINGERPRINT == Default::FINGERPRINT);
    let fast = logits::<{ Fast::ARENA_LEN }>(Fast::bind());
    assert_eq!(fast, opened::<{ Fast::ARENA_LEN }>(bytes, 24, Decoding::Fast));
    assert!(fast != exact && Fast::ARENA_LEN < Default::ARENA_LEN);

    let codes = logits::<{ Codes::ARENA_LEN }>(Codes::bind());
    assert_eq!(codes, opened::<{ Codes::ARENA_LEN }>(include_bytes!("../generated/dormouse_t2.dmexp"), 24, Decoding::Exact));
    assert_ne!(codes, exact);
    let plain = logits::<{ Plain::ARENA_LEN }>(Plain::bind());
    assert_eq!(plain, opened::<{ Plain::ARENA_LEN }>(include_bytes!("../generated/dormouse_plain.dmexp"), 24, Decoding::Exact));
    let gated = logits::<{ Gated::ARENA_LEN }>(Gated::bind());
    assert_eq!(gated, opened::<{ Gated::ARENA_LEN }>(include_bytes!("../generated/dormouse_gr.dmexp"), 24, Decoding::Exact));
}
