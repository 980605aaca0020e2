//! A model in the program gives the logits of the same bytes opened at run time, wherever these lie: of both formats, with every option, and by a path that has an environment variable in it.

use dmexp::format::KvDType;
use dmexp::format::file::ModelFile;
use dmexp::format::file::golden::{Golden, GoldenPosition, Goldens};
use dmexp::{Arena, Model, Sampler, Session};

dmexp::include_model!(
    /// The format of today, all options.
    pub Two = "generated/tiny.dmexp", context = 24, kv = f32, section = ".dmexp_model"
);
dmexp::include_model!(Narrow = "generated/tiny_bf16.dmexp");
dmexp::include_model!(Stripped = "generated/tiny_stripped.dmexp", context = 24, kv = f32, board = "microbit");
dmexp::include_model!(One = "generated/tiny_v1.dmexp", context = 24, kv = f32,);
dmexp::include_model!(Hot = "generated/tiny.dmexp", context = 24, kv = f32, ram = ["layers.*.attention.w*", "norm.weight"], ram_limit = 64_000);
dmexp::include_model!(HotOne = "generated/tiny_v1.dmexp", context = 24, kv = f32, ram = ["*"], section = ".dmexp_model");
dmexp::include_model!(Eight = "generated/tiny_q8.dmexp", context = 24, kv = q8, ram = ["layers.0.*"]);
dmexp::include_model!(Four = "generated/tiny_q4.dmexp", context = 24, kv = f16);
dmexp::include_model!(ByVariable = "$DMEXP_FIXTURES/tiny.dmexp", context = 24, kv = f32);

const TOKENS: [u32; 24] = [0, 84, 104, 101, 32, 99, 97, 116, 32, 115, 97, 116, 46, 32, 73, 116, 32, 105, 115, 32, 114, 101, 100, 46];

fn logits<const LEN: usize>(model: &Model<'_>) -> Vec<u32> {
    assert_eq!(model.arena_len(), Ok(LEN));
    let mut arena = Box::new(Arena::<LEN>::new());
    let mut session = Session::new(model, &mut *arena, Sampler::greedy()).unwrap();
    let step = |token: &u32| {
        session.push_tokens(&[*token]).unwrap();
        session.logits().unwrap().iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()
    };
    TOKENS.iter().flat_map(step).collect()
}

/// The same bytes opened at run time, at every distance from an address that suits.
fn opened<const LEN: usize>(bytes: &[u8], context: u32, kv: KvDType, tokenizer: dmexp::tokenizer::Tokenizer<'_>) -> Vec<u32> {
    let all = [0, 1, 2, 3].map(|shift| {
        let mut room = vec![0u8; bytes.len() + 8];
        let start = (4 - room.as_ptr().addr() % 4) % 4 + shift;
        let place = &mut room[start..start + bytes.len()];
        place.copy_from_slice(bytes);
        assert_eq!(place.as_ptr().addr() % 4, shift);
        let file = ModelFile::open(place).unwrap();
        let model = Model::bind(&file).unwrap().with_context(context).with_kv(kv).with_tokenizer(tokenizer).unwrap();
        logits::<LEN>(&model)
    });
    assert!(all.iter().all(|logits| *logits == all[0]), "the place of the bytes changes nothing");
    all[0].clone()
}

fn vectors(goldens: Goldens<'_>) -> Vec<(KvDType, Vec<u32>, Vec<GoldenPosition>)> {
    let parts = |golden: Golden<'_>| (golden.kv(), golden.tokens().collect(), golden.positions().collect());
    goldens.map(parts).collect()
}

fn main() {
    let file = ModelFile::open(include_bytes!("generated/tiny.dmexp")).unwrap();
    assert_eq!(vectors(Two::goldens()), vectors(file.golden()));
    assert!(Two::goldens().count() > 0 && One::goldens().count() == 0);
    let tokenizer = *Two::bind().tokenizer();
    let two = logits::<{ Two::ARENA_LEN }>(Two::bind());
    assert_eq!(two, opened::<{ Two::ARENA_LEN }>(include_bytes!("generated/tiny.dmexp"), 24, KvDType::F32, tokenizer));
    assert_eq!(two, logits::<{ Stripped::ARENA_LEN }>(Stripped::bind()));
    assert_eq!(two, logits::<{ ByVariable::ARENA_LEN }>(ByVariable::bind()));
    assert_eq!(two, logits::<{ Hot::ARENA_LEN }>(Hot::bind()), "tensors in RAM");
    assert_eq!(two, logits::<{ HotOne::ARENA_LEN }>(HotOne::bind()), "all of them");
    assert!(Hot::RAM_LEN > 0 && Hot::RAM_LEN < HotOne::RAM_LEN && Two::RAM_LEN == 0);
    assert_eq!(HotOne::RAM_LEN as u64, 4 * HotOne::CONFIG.num_params());
    assert_eq!((Two::FINGERPRINT, Two::CONTEXT, Two::KV), (Stripped::FINGERPRINT, 24, KvDType::F32));
    assert_eq!(Two::CONFIG.num_params(), 11_448);
    assert_eq!((Two::KV_LEN + Two::WORK_LEN, Ok((Two::KV_LEN, Two::WORK_LEN))), (Two::ARENA_LEN, Two::bind().bank_lens()));

    let one = logits::<{ One::ARENA_LEN }>(One::bind());
    assert_eq!(one, opened::<{ One::ARENA_LEN }>(include_bytes!("generated/tiny_v1.dmexp"), 24, KvDType::F32, *One::bind().tokenizer()));
    assert_eq!(one, two, "formats 1 and 2 of one model");

    // The defaults: all positions, keys and values in f16.
    assert_eq!((Narrow::CONTEXT, Narrow::KV), (64, KvDType::F16));
    let narrow = logits::<{ Narrow::ARENA_LEN }>(Narrow::bind());
    let bytes = include_bytes!("generated/tiny_bf16.dmexp");
    assert_eq!(narrow, opened::<{ Narrow::ARENA_LEN }>(bytes, 64, KvDType::F16, *Narrow::bind().tokenizer()));
    assert_ne!(narrow[..128], two[..128]);

    let eight = logits::<{ Eight::ARENA_LEN }>(Eight::bind());
    assert_eq!(eight, opened::<{ Eight::ARENA_LEN }>(include_bytes!("generated/tiny_q8.dmexp"), 24, KvDType::Q8, *Eight::bind().tokenizer()));
    let four = logits::<{ Four::ARENA_LEN }>(Four::bind());
    assert_eq!(four, opened::<{ Four::ARENA_LEN }>(include_bytes!("generated/tiny_q4.dmexp"), 24, KvDType::F16, *Four::bind().tokenizer()));
    assert!(eight != two && four != two && four != eight);
}
