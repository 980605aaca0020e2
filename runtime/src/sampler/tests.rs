use proptest::prelude::*;

use super::rank::Ranking;
use super::{Rng, Sampler, Settings, softmax};
use crate::format::{Error, Rule, SamplingKey};

const PLAIN: Settings = Settings { temperature: 1.0, ..Settings::GREEDY };

fn sampler(settings: Settings) -> Sampler {
    Sampler::new(settings).unwrap()
}

/// Chooses once with text `[]` and room for any order.
fn choose(sampler: &mut Sampler, logits: &[f32]) -> Result<u32, Error> {
    sampler.sample(&mut logits.to_vec(), &mut vec![0; logits.len()], &[])
}

/// How often each token comes out of `draws` draws.
fn counts(settings: Settings, logits: &[f32], draws: u32) -> Vec<u32> {
    let mut sampler = sampler(settings);
    let mut counts = vec![0; logits.len()];
    for _ in 0..draws {
        counts[choose(&mut sampler, logits).unwrap() as usize] += 1;
    }
    counts
}

/// llama2.c's sampler with a stable sort and the likeliest token kept: what section 8 of the reference page says.
fn llama2c(logits: &[f32], temperature: f32, top_p: f32, rng: &mut Rng) -> u32 {
    let mut p = logits.to_vec();
    let highest = p.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    softmax(&mut p, temperature, highest);
    let coin = rng.next_f32();
    if top_p >= 1.0 {
        let mut cdf = 0.0;
        return p
            .iter()
            .position(|p| {
                cdf += p;
                coin < cdf
            })
            .unwrap_or(p.len() - 1) as u32;
    }
    let cutoff = (1.0 - top_p) / (p.len() - 1) as f32;
    let mut kept: Vec<usize> = (0..p.len()).filter(|token| p[*token] >= cutoff).collect();
    kept.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
    if kept.is_empty() {
        kept.push((0..p.len()).rev().max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap());
    }
    let mut sum = 0.0;
    if let Some(last) = kept.iter().position(|token| {
        sum += p[*token];
        sum > top_p
    }) {
        kept.truncate(last + 1);
    }
    let drawn = coin * sum;
    let mut cdf = 0.0;
    *kept
        .iter()
        .find(|token| {
            cdf += p[**token];
            drawn < cdf
        })
        .unwrap_or(kept.last().unwrap()) as u32
}

#[test]
fn random_numbers_are_those_of_the_reference() {
    let path = format!("{}/../../shared/data/ref/rng_vectors.json", env!("CARGO_MANIFEST_DIR"));
    let Ok(bytes) = std::fs::read(&path) else { return println!("skipped: {path} is not there") };
    let vectors: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let vectors = vectors.as_object().unwrap();
    assert_eq!(vectors.len(), 8);
    for (seed, vector) in vectors {
        let (mut words, mut floats) = (Rng::new(seed.parse().unwrap()), Rng::new(seed.parse().unwrap()));
        for word in vector["u32"].as_array().unwrap() {
            assert_eq!(u64::from(words.next_u32()), word.as_u64().unwrap(), "seed {seed}");
        }
        for float in vector["f32"].as_array().unwrap() {
            assert_eq!(floats.next_f32(), float.as_f64().unwrap() as f32, "seed {seed}");
        }
    }
}

#[test]
fn settings_out_of_range_are_refused_in_words() {
    let refused = [
        (Settings { temperature: f32::NAN, ..PLAIN }, SamplingKey::Temperature, Rule::Finite),
        (Settings { temperature: f32::INFINITY, ..PLAIN }, SamplingKey::Temperature, Rule::Finite),
        (Settings { temperature: -0.5, ..PLAIN }, SamplingKey::Temperature, Rule::TooSmall),
        (Settings { top_p: 0.0, ..PLAIN }, SamplingKey::TopP, Rule::Positive),
        (Settings { top_p: -0.1, ..PLAIN }, SamplingKey::TopP, Rule::Positive),
        (Settings { top_p: 1.1, ..PLAIN }, SamplingKey::TopP, Rule::TooLarge),
        (Settings { top_p: f32::NAN, ..PLAIN }, SamplingKey::TopP, Rule::Finite),
        (Settings { min_p: 1.0, ..PLAIN }, SamplingKey::MinP, Rule::TooLarge),
        (Settings { min_p: -0.1, ..PLAIN }, SamplingKey::MinP, Rule::TooSmall),
        (Settings { min_p: f32::NAN, ..PLAIN }, SamplingKey::MinP, Rule::Finite),
        (Settings { repeat_penalty: 0.0, ..PLAIN }, SamplingKey::RepeatPenalty, Rule::Positive),
        (Settings { repeat_penalty: f32::INFINITY, ..PLAIN }, SamplingKey::RepeatPenalty, Rule::Finite),
        (Settings { seed: 0, ..PLAIN }, SamplingKey::Seed, Rule::NotZero),
    ];
    for (settings, key, rule) in refused {
        match Sampler::new(settings) {
            Err(Error::Sampling { key: found, rule: broken, .. }) => assert_eq!((found, broken), (key, rule), "{settings:?}"),
            other => panic!("{settings:?}: {other:?}"),
        }
    }
    let error = Sampler::new(Settings { top_p: 0.0, ..PLAIN }).unwrap_err();
    assert_eq!(error.to_string(), "top-p = 0 must be more than 0 (more than 0, at most 1; 1 turns it off)");
    assert_eq!(*sampler(Settings { temperature: -0.0, ..PLAIN }).settings(), PLAIN_ZERO);
}

const PLAIN_ZERO: Settings = Settings { temperature: 0.0, ..PLAIN };

#[test]
fn greedy_takes_the_first_of_the_largest_and_draws_nothing() {
    let mut greedy = Sampler::greedy();
    let before = greedy.rng;
    assert_eq!(choose(&mut greedy, &[1.0, 3.0, 3.0, 2.0]), Ok(1));
    assert_eq!(choose(&mut greedy, &[-1.0]), Ok(0));
    assert_eq!(greedy.sample(&mut [0.0, 1.0], &mut [], &[]), Ok(1));
    assert_eq!(greedy.rng, before);
    assert_eq!(greedy.order_words(1000), 0);
}

#[test]
fn logits_that_are_not_finite_are_an_error() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for settings in [Settings::GREEDY, PLAIN, Settings { top_p: 0.9, ..PLAIN }] {
            for place in 0..3 {
                let mut logits = [0.0; 3];
                logits[place] = bad;
                let found = sampler(settings).sample(&mut logits, &mut [0; 3], &[5, 6, 7]);
                assert_eq!(found, Err(Error::NonFiniteLogits { position: 2 }));
            }
        }
    }
    assert_eq!(choose(&mut Sampler::greedy(), &[]), Err(Error::Token { found: 0, vocab_size: 0 }));
}

#[test]
fn one_random_number_a_token_whatever_the_settings() {
    let logits = [0.5, 0.25, 0.0];
    for settings in [
        PLAIN,
        Settings { top_p: 0.5, ..PLAIN },
        Settings { top_k: 1, ..PLAIN },
        Settings { min_p: 0.5, ..PLAIN },
        Settings { temperature: 1e-45, ..PLAIN },
    ] {
        for logits in [&logits[..], &logits[..1]] {
            let mut sampler = sampler(settings);
            let mut expected = sampler.rng;
            expected.next_u32();
            choose(&mut sampler, logits).unwrap();
            assert_eq!(sampler.rng, expected, "{settings:?}");
        }
    }
}

#[test]
fn tiny_temperatures_take_the_likeliest() {
    for temperature in [1e-45, 1e-40, 1e-38, 1e-10, 0.001] {
        for top_p in [1.0, 0.9] {
            for (logits, expected) in [(&[1.0, 22.0, -19.0, 22.0 - 1.0][..], 1), (&[-5.0, -9.0, -4.0][..], 2), (&[3.4e38, -3.4e38][..], 0)]
            {
                for seed in 1..50 {
                    assert_eq!(choose(&mut sampler(Settings { temperature, top_p, seed, ..PLAIN }), logits), Ok(expected));
                }
            }
        }
    }
}

#[test]
fn top_p_always_keeps_the_likeliest() {
    let mut near_uniform = vec![0.0; 100];
    near_uniform[42] = 1e-6;
    for top_p in [1e-45, 1e-9, 1e-3] {
        for seed in 1..50 {
            assert_eq!(choose(&mut sampler(Settings { top_p, seed, ..PLAIN }), &near_uniform), Ok(42), "{top_p}");
            assert_eq!(choose(&mut sampler(Settings { top_p, seed, ..PLAIN }), &[0.0; 100]), Ok(0), "{top_p}");
            assert_eq!(choose(&mut sampler(Settings { top_p, seed, ..PLAIN }), &[7.0]), Ok(0));
        }
    }
}

#[test]
fn draws_follow_the_probabilities() {
    let probabilities = [0.5f32, 0.25, 0.125, 0.125];
    let logits = probabilities.map(f32::ln);
    let draws = if cfg!(miri) { 100 } else { 100_000 };
    let check = |settings: Settings, expected: [f32; 4]| {
        for (count, expected) in counts(settings, &logits, draws).into_iter().zip(expected) {
            let expected = expected * draws as f32;
            // Five standard deviations of the least favourable case.
            assert!(
                (count as f32 - expected).abs() <= 5.0 * (draws as f32 / 4.0).sqrt() * f32::from(u8::from(expected > 0.0)),
                "{settings:?}: {count}, not {expected}"
            );
        }
    };
    check(PLAIN, probabilities);
    // Ties go to the lower token: of the two of an eighth, the first is kept.
    check(Settings { top_p: 0.8, ..PLAIN }, [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0]);
    check(Settings { top_p: 0.7, ..PLAIN }, [2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0]);
    check(Settings { top_k: 3, ..PLAIN }, [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0]);
    check(Settings { top_k: 1, ..PLAIN }, [1.0, 0.0, 0.0, 0.0]);
    check(Settings { top_k: 100, ..PLAIN }, probabilities);
    check(Settings { min_p: 0.4, ..PLAIN }, [2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0]);
    check(Settings { min_p: 0.99, ..PLAIN }, [1.0, 0.0, 0.0, 0.0]);
    // Of what top-k leaves (4/7, 2/7, 1/7), 0.8 is passed by the first two; of the whole, it would need all three.
    check(Settings { top_k: 3, top_p: 0.8, ..PLAIN }, [2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0]);
    // min-p comes last and does not change what top-p measures.
    check(Settings { top_k: 3, top_p: 0.8, min_p: 0.9, ..PLAIN }, [1.0, 0.0, 0.0, 0.0]);
    let squared = [64.0, 16.0, 4.0, 4.0].map(|p| p / 88.0);
    check(Settings { temperature: 0.5, ..PLAIN }, squared);
}

#[test]
fn the_penalty_counts_each_token_once() {
    let settings = Settings { repeat_penalty: 2.0, ..Settings::GREEDY };
    let mut greedy = sampler(settings);
    let mut logits = [4.0, 3.0, -1.0, -3.0];
    assert_eq!(greedy.sample(&mut logits, &mut [9; 4], &[0, 2, 0, 0, 2]), Ok(1));
    assert_eq!(logits, [2.0, 3.0, -2.0, -3.0]);
    // Only the newest are looked at.
    let mut logits = [4.0, 3.0];
    assert_eq!(sampler(Settings { repeat_last_n: 2, ..settings }).sample(&mut logits, &mut [0; 2], &[0, 1, 1]), Ok(0));
    assert_eq!(logits, [4.0, 1.5]);
    let mut logits = [4.0, 3.0];
    assert_eq!(sampler(Settings { repeat_last_n: 0, ..settings }).sample(&mut logits, &mut [0; 2], &[0, 1, 1]), Ok(0));
    assert_eq!(logits, [4.0, 3.0]);
    assert_eq!(greedy.sample(&mut [0.0; 2], &mut [0; 2], &[2]), Err(Error::Token { found: 2, vocab_size: 2 }));
    // What overflows stays a number.
    let mut logits = [1.0, -1e30, 0.0];
    let tiny = Settings { repeat_penalty: 1e-40, temperature: 1.0, ..settings };
    assert_eq!(sampler(tiny).sample(&mut logits, &mut [0; 3], &[0]), Ok(0));
}

#[test]
fn too_little_room_is_refused() {
    let short = Err(Error::ScratchTooSmall { needed: 3, found: 2 });
    for settings in [Settings { top_p: 0.9, ..PLAIN }, Settings { top_k: 2, ..PLAIN }, Settings { repeat_penalty: 1.1, ..Settings::GREEDY }]
    {
        assert_eq!(sampler(settings).sample(&mut [0.0; 3], &mut [0; 2], &[]), short);
        assert_eq!(sampler(settings).order_words(3), 3);
    }
    assert!(sampler(PLAIN).sample(&mut [0.0; 3], &mut [], &[]).is_ok());
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    let tied = prop::sample::select(vec![0.0f32, 1.0, 2.0, -3.0, 5.0]);
    prop_oneof![
        prop::collection::vec(tied, 1..60),
        prop::collection::vec(-20.0f32..20.0, 1..60),
        prop::collection::vec(-1e-3f32..1e-3, 1..60)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2000 }))]

    #[test]
    fn chooses_as_llama2c(logits in logits(), temperature in 0.05f32..3.0, top_p in prop_oneof![Just(1.0f32), Just(0.9), Just(0.95), 1e-6f32..1.0], seed in 1u64..) {
        let mut sampler = sampler(Settings { temperature, top_p, seed, ..PLAIN });
        let mut rng = Rng::new(seed);
        for _ in 0..8 {
            prop_assert_eq!(choose(&mut sampler, &logits).unwrap(), llama2c(&logits, temperature, top_p, &mut rng));
        }
    }

    /// Any valid settings give a token that all filters allow.
    #[test]
    fn stays_within_the_filters(logits in logits(), temperature in prop_oneof![1e-45f32..1e-37, 0.1f32..5.0, Just(f32::MAX)], top_p in 1e-9f32..=1.0, top_k in 0u32..5, min_p in 0.0f32..0.999, seed in 1u64..) {
        let token = choose(&mut sampler(Settings { temperature, top_p, top_k, min_p, seed, ..PLAIN }), &logits).unwrap() as usize;
        prop_assert!(token < logits.len());
        if top_k > 0 {
            prop_assert!(logits.iter().filter(|logit| **logit / temperature > logits[token] / temperature + 1e-5).count() < top_k as usize);
        }
    }

    #[test]
    fn ranks_as_a_stable_sort(probabilities in prop::collection::vec(prop_oneof![Just(0.25f32), 0.0f32..1.0], 0..80), cutoff in 0.0f32..0.6) {
        let mut expected: Vec<u32> = (0..probabilities.len() as u32).filter(|token| probabilities[*token as usize] >= cutoff).collect();
        expected.sort_by(|a, b| probabilities[*b as usize].total_cmp(&probabilities[*a as usize]));
        let mut order = vec![0; probabilities.len()];
        let mut ranking = Ranking::new(&probabilities, &mut order, cutoff);
        prop_assert_eq!(ranking.len(), expected.len());
        for _ in 0..2 {
            for (nth, token) in expected.iter().enumerate() {
                prop_assert_eq!(ranking.nth(nth), Some((*token, probabilities[*token as usize])));
            }
        }
        prop_assert_eq!(ranking.nth(expected.len()), None);
    }
}
