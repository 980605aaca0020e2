//! What computes: this machine's processor, or a GPU.

use super::failure::{Outcome, request};
use super::model::{ModelArgs, Opened};
use clap::Args;
use dmexp_tools::decode::{Cpu, CpuOptions, DormouseOptions};
#[cfg(feature = "cuda")]
use dmexp_tools::{
    cuda::{Cuda, CudaError, Options},
    error::Error,
};
use std::fmt;

/// What computes a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Processor {
    /// This machine's processor.
    #[default]
    Cpu,
    /// The GPU of this number.
    Cuda(u32),
}

impl Processor {
    /// Reads `cpu`, `cuda` or `cuda:N`; `None` for another name.
    pub(crate) fn named(text: &str) -> Option<Result<Self, String>> {
        match text.strip_prefix("cuda") {
            None if text == "cpu" => Some(Ok(Self::Cpu)),
            Some("") => Some(Ok(Self::Cuda(0))),
            Some(rest) => {
                let number = rest.strip_prefix(':')?;
                let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
                let number = if digits { number.parse().ok() } else { None };
                Some(number.map(Self::Cuda).ok_or_else(|| "a GPU is named cuda:NUMBER, the first one cuda:0".to_owned()))
            }
            None => None,
        }
    }

    /// Reads what runs a model in this process.
    fn parse(text: &str) -> Result<Self, String> {
        Self::named(text).unwrap_or_else(|| Err("cpu, cuda or cuda:NUMBER; boards are asked by dmexp device and dmexp compare".to_owned()))
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// Which of them, and how.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct RunOn {
    /// What computes: cpu, or a GPU by NVIDIA's driver: cuda or cuda:NUMBER. The results do not depend on it
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = Processor::parse)]
    pub(crate) device: Processor,
    /// With a GPU: launches every kernel by itself, not a whole step as one graph. The results do not depend on it
    #[arg(long)]
    pub(crate) no_graph: bool,
    /// With a GPU: how many texts it has memory for; 0 is one.
    #[arg(skip)]
    pub(crate) texts: u32,
}

impl RunOn {
    /// This GPU, as ever.
    pub(crate) const fn cuda(number: u32) -> Self {
        Self { device: Processor::Cuda(number), no_graph: false, texts: 1 }
    }

    /// The model on the GPU of this number, whose memory for it is kept in `opened`.
    #[cfg(feature = "cuda")]
    pub(crate) fn gpu<'o>(
        self,
        number: u32,
        args: &ModelArgs,
        opened: &'o Opened,
        options: &CpuOptions<'o>,
        dormouse: &DormouseOptions,
    ) -> Outcome<Cpu<'o>> {
        refuse_what_is_for_the_processor(args)?;
        let path = opened.loaded.path();
        let refused = |error: CudaError| match error {
            CudaError::Model(error) => opened.loaded.explain(error),
            error => Error::from(error).in_file(path),
        };
        Ok(Cpu::elsewhere(&opened.loaded, options, dormouse, |model| {
            if opened.gpu.get().is_none() {
                let options = Options { ordinal: number, graphs: !self.no_graph, texts: self.texts.max(1), ..Options::default() };
                let _ = opened.gpu.set(Cuda::new(model, &options).map_err(refused)?);
            }
            opened.gpu.get().map(|gpu| gpu as _).ok_or_else(|| refused(CudaError::Thread))
        })?)
    }

    /// The model on a GPU, of which this build knows nothing.
    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unused_self, reason = "another build has a use for it")]
    pub(crate) fn gpu<'o>(
        self,
        _number: u32,
        args: &ModelArgs,
        _opened: &'o Opened,
        _options: &CpuOptions<'o>,
        _dormouse: &DormouseOptions,
    ) -> Outcome<Cpu<'o>> {
        refuse_what_is_for_the_processor(args)?;
        Err(request("this dmexp was built without the feature cuda", "use a build that has it, or leave --device out"))
    }
}

/// Refuses options that say how the processor works.
fn refuse_what_is_for_the_processor(args: &ModelArgs) -> Outcome {
    for (given, option) in [(args.threads.is_some(), "--threads"), (args.simd.is_some(), "--simd")] {
        if given {
            return Err(request(format!("{option} is for models on this machine's processor"), "leave it or --device cuda out"));
        }
    }
    Ok(())
}

/// The GPU's name.
#[cfg(feature = "cuda")]
pub(crate) fn gpu_name(opened: &Opened) -> Option<&str> {
    Some(&opened.gpu.get()?.facts().name)
}

/// There is none.
#[cfg(not(feature = "cuda"))]
pub(crate) fn gpu_name(_opened: &Opened) -> Option<&str> {
    None
}

/// The GPU in a line: what it is, and how much of its memory is taken.
#[cfg(feature = "cuda")]
pub(crate) fn gpu_line(opened: &Opened) -> Option<String> {
    let gpu = opened.gpu.get()?;
    Some(format!("{}: {} of its memory", gpu.facts(), super::output::bytes(gpu.bytes())))
}

/// There is none.
#[cfg(not(feature = "cuda"))]
pub(crate) fn gpu_line(_opened: &Opened) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processors_are_read_strictly() {
        assert_eq!(Processor::parse("cpu"), Ok(Processor::Cpu));
        assert_eq!(Processor::parse("cuda"), Ok(Processor::Cuda(0)));
        assert_eq!(Processor::parse("cuda:12"), Ok(Processor::Cuda(12)));
        for wrong in ["cuda:", "cuda:-1", "cuda:+1", "cuda:a", "cuda:4294967296", "cuda: 1", "cuda:0:0"] {
            assert!(Processor::parse(wrong).unwrap_err().contains("cuda:0"), "{wrong}");
        }
        for other in ["", "CPU", "gpu", "cudaa", "qemu:an386", "/dev/ttyACM0"] {
            assert!(Processor::parse(other).unwrap_err().contains("dmexp device"), "{other}");
        }
        assert_eq!(Processor::Cuda(3).to_string(), "cuda:3");
    }
}
