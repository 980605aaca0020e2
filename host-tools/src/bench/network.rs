//! Samples through small networks.

use super::machine::Start;
use super::{Job, Rates, Request, Row, Setting, Test};
use crate::decode::Loaded;
use crate::error::Result;
use crate::predict;
use dmexp::Prediction;
use dmexp::format::arch::sequential::Op;
use std::time::Duration;

/// How long samples are run for at least, each time.
const LEAST: Duration = Duration::from_millis(50);

/// Adds what is to be measured of a small network, which runs on one thread.
pub(super) fn jobs<'a>(request: &Request<'a>, export: usize, loaded: &'a Loaded, jobs: &mut Vec<Job<'a>>) -> Result<()> {
    predict::predictor(loaded)?;
    for level in request.levels {
        let setting = Setting { kv: None, threads: 1, level: *level };
        let row = Row {
            export,
            setting,
            test: Test::Predict,
            no_room: None,
            rates: Vec::new(),
            cpu_rates: Vec::new(),
            session_bytes: 0,
            read_bytes: None,
            bandwidths: Vec::new(),
        };
        jobs.push(Job {
            loaded,
            dormouse: request.dormouse,
            setting,
            context: 0,
            weight_bytes: None,
            bandwidths: Vec::new(),
            session_bytes: 0,
            rows: vec![row],
        });
    }
    Ok(())
}

/// Samples a second, of one sample again and again.
pub(super) fn rates(job: &mut Job<'_>) -> Result<Vec<Rates>> {
    let predictor = predict::predictor(job.loaded)?;
    // Row 0 is there in every embedding; other layers get numbers that are not all the same.
    let is_rows = predict::has(job.loaded, |op| op == Op::Embedding)?;
    let mut memory = predict::memory(&predictor)?;
    job.session_bytes = size_of_val(memory.as_slice());
    let inputs = predictor.num_inputs();
    let mut prediction = Prediction::new(predictor, memory.as_mut_slice()).map_err(|error| job.loaded.explain(error))?;
    let (start, mut samples) = (Start::now(), 0u32);
    while start.elapsed() < LEAST || samples == 0 {
        for input in 0..inputs {
            let values = (0u32..).map(|place| if is_rows { 0.0 } else { (place * 37 % 64) as f32 / 32.0 - 1.0 });
            prediction.input_mut(input).iter_mut().zip(values).for_each(|(to, value)| *to = value);
        }
        prediction.run().map_err(|error| job.loaded.explain(error))?;
        samples += 1;
    }
    Ok(vec![start.rates(f64::from(samples))])
}
