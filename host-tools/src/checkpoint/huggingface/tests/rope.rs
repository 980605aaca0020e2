//! Rotation frequencies against the library's formulas written out elsewhere (Python, f64), and what is refused.

use super::super::rope::{Rope, read};
use crate::error::Result;
use serde_json::{Value, json};

fn rope(theta: f64, head_dim: u32, positions: u32, scaling: impl Into<Value>) -> Result<Rope> {
    let config = json!({"rope_theta": theta, "rope_scaling": scaling.into()});
    read(config.as_object().unwrap(), head_dim, positions)
}

#[test]
fn llama3_of_llama_3_1() {
    let scaling = json!({"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"});
    let found = rope(500_000.0, 64, 131_072, scaling).unwrap();
    let wanted = [
        (0, 1.0),
        (1, 0.663_601_237_696_088_5),
        (13, 0.004_839_421_345_719_893),
        (15, 0.001_371_893_567_761_138_1),
        (16, 0.000_524_846_160_992_954_7),
        (17, 0.000_178_507_812_767_996_38),
        (18, 7.784_655_273_932_45e-5),
        (31, 3.767_322_690_173_963_5e-7),
    ];
    for (pair, frequency) in wanted {
        assert_eq!(found.inv_freq[pair].to_bits(), (frequency as f32).to_bits(), "pair {pair}");
    }
    assert_eq!((found.inv_freq.len(), found.attention_factor, found.scaling.len()), (32, 1.0, 5));
}

#[test]
fn yarn_of_qwen_2_5() {
    let scaling = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768});
    let found = rope(1e6, 128, 131_072, scaling).unwrap();
    let wanted = [
        (0, 1.0),
        (20, 0.013_335_214_321_633_24),
        (23, 0.006_978_305_848_598_663),
        (24, 0.005_375_321_490_790_102),
        (29, 0.001_405_112_481_595_912_3),
        (39, 6.490_394_320_837_028e-5),
        (40, 4.445_698_525_097_307e-5),
        (63, 3.102_344_401_879_299e-7),
    ];
    for (pair, frequency) in wanted {
        let (a, b) = (found.inv_freq[pair], frequency as f32);
        assert!(a.to_bits().abs_diff(b.to_bits()) <= 1, "pair {pair}: {a} and {b}");
    }
    assert_eq!(found.attention_factor, 1.138_629_4);
}

#[test]
fn linear_dynamic_and_default() {
    let plain = rope(10_000.0, 16, 64, Value::Null).unwrap();
    for (scaling, by) in [
        (json!({}), 1.0),
        (json!({"rope_type": "default"}), 1.0),
        (json!({"type": "linear", "factor": 4}), 4.0),
        (json!({"type": "linear", "rope_type": "linear", "factor": 2.0}), 2.0),
        // Up to the positions of training the frequencies stay.
        (json!({"type": "dynamic", "factor": 2.0}), 1.0),
    ] {
        let found = rope(10_000.0, 16, 64, scaling.clone()).unwrap();
        let wanted: Vec<f32> = plain.inv_freq.iter().map(|frequency| frequency / by).collect();
        assert_eq!(found.inv_freq, wanted, "{scaling}");
    }
    let config = json!({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}});
    let found = read(config.as_object().unwrap(), 16, 64).unwrap();
    assert_eq!(
        (found.inv_freq, found.theta_stated),
        (rope(10_000.0, 16, 64, json!({"type": "linear", "factor": 4})).unwrap().inv_freq, true)
    );
}

#[test]
fn scaling_that_is_not_known_or_cannot_be_is_refused() {
    for (scaling, said) in [
        (json!({"type": "longrope", "short_factor": [1]}), "\"longrope\""),
        (json!({"type": "mrope", "mrope_section": [1]}), "\"mrope\""),
        (json!({"type": "linear"}), "has no rope_scaling.factor"),
        (json!({"type": "linear", "factor": 0.5}), "factor of the scaling of the rotation is 0.5"),
        (json!({"type": "linear", "factor": "2"}), "rope_scaling.factor is \"2\""),
        (json!({"type": "linear", "factor": 2, "beta": 3}), "beta is 3"),
        (json!({"type": "linear", "rope_type": "yarn", "factor": 2}), "the types \"yarn\" and \"linear\""),
        (json!({"factor": 2}), "has no rope_type"),
        (json!({"type": "dynamic", "factor": 2, "original_max_position_embeddings": 32}), "dynamic scaling from 32 positions to 64"),
        (json!({"rope_type": "llama3", "factor": 8}), "has no rope_scaling.low_freq_factor"),
        (
            json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4, "original_max_position_embeddings": 32}),
            "high_freq_factor is 4",
        ),
        (
            json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}),
            "has no rope_scaling.original_max_position_embeddings",
        ),
        (json!({"type": "yarn", "factor": 4, "original_max_position_embeddings": 64}), "gives 256, but max_position_embeddings is 64"),
        (json!({"type": "yarn", "factor": 2, "beta_fast": 1, "beta_slow": 2}), "beta_fast is 1"),
        (json!([1]), "rope_scaling is [1]"),
    ] {
        let error = rope(10_000.0, 16, 64, scaling.clone()).unwrap_err().to_string();
        assert!(error.contains(said), "{scaling}: {error}");
    }
    let both = json!({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "default"}});
    assert!(read(both.as_object().unwrap(), 16, 64).unwrap_err().to_string().contains("both rope_scaling and rope_parameters"));
    let two = json!({"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 2e4}});
    assert!(
        read(two.as_object().unwrap(), 16, 64)
            .unwrap_err()
            .to_string()
            .contains("rope_theta is 10000, but rope_parameters.rope_theta is 20000")
    );
}
