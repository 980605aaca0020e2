//! One device: its memory, its kernels, copies and launches. All calls come from the thread that opened it, on one stream.

use super::error::CudaError;
use super::family::Plan;
use super::library::{self, Facts};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaModule, CudaSlice, CudaStream, DeviceRepr, DriverError, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;
use dmexp_kernels::launch::ARG_WORDS;
use dmexp_kernels::plan::SHARED_BY_DEFAULT;
use dmexp_kernels::{Kernel, Launch};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// Bytes that the driver's allocations are rounded up to.
const ALLOCATION: u64 = 512;

/// A device, and what of it is taken.
pub(super) struct Device {
    memory: Vec<CudaSlice<u8>>,
    functions: Vec<(Kernel, CudaFunction)>,
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
    facts: Facts,
}

/// An argument of a kernel, as the driver reads it: as many bytes from the start as the kernel says.
#[repr(C)]
struct Words([u64; ARG_WORDS]);

#[expect(unsafe_code, reason = "cudarc asks for the promise")]
// SAFETY: plain words, which a kernel may read as its argument.
unsafe impl DeviceRepr for Words {}

/// An error of the driver that came of `doing` this. Only its number is read: its text would be another call.
fn failed(doing: &'static str) -> impl Fn(DriverError) -> CudaError {
    move |error| CudaError::Failed { doing, code: error.0 as u32 }
}

impl Device {
    /// Opens device `ordinal` and loads the kernels `ptx`.
    pub(super) fn open(ordinal: u32, ptx: &str) -> Result<Self, CudaError> {
        let (count, driver) = library::start()?;
        if ordinal >= count {
            return Err(CudaError::Index { found: ordinal, devices: count });
        }
        let (context, facts) = library::open(ordinal, driver)?;
        if facts.capability < (7, 5) {
            return Err(CudaError::OldDevice { name: facts.name, capability: facts.capability });
        }
        one_stream(&context);
        let stream = context.new_stream().map_err(failed("making a stream"))?;
        let module = context.load_module(Ptx::from_src(ptx)).map_err(|error| CudaError::PtxRefused {
            code: error.0 as u32,
            driver,
            ptx: ptx_version(ptx).to_owned(),
            log: compiler_log(ptx),
        })?;
        let functions = Kernel::ALL.iter().map(|kernel| Ok((*kernel, function(&module, *kernel, &facts)?))).collect::<Result<_, _>>()?;
        Ok(Self { memory: Vec::new(), functions, stream, context, facts })
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Takes all the memory that `plan` asks for, and returns where each piece is.
    pub(super) fn take(&mut self, plan: &Plan) -> Result<Vec<u64>, CudaError> {
        let (free, total) = self.context.mem_get_info().map_err(failed("asking for the free memory"))?;
        let short = CudaError::OutOfMemory { needed: plan.bytes(ALLOCATION), free: free as u64, total: total as u64 };
        if plan.bytes(ALLOCATION) > free as u64 {
            return Err(short);
        }
        for piece in plan.pieces() {
            let len = usize::try_from(piece.bytes.max(1)).map_err(|_| short.clone())?;
            self.memory.push(self.allocate(len).map_err(|error| match error.0 {
                sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => short.clone(),
                _ => failed("taking memory")(error),
            })?);
        }
        Ok(self.memory.iter().map(|memory| address(memory, &self.stream)).collect())
    }

    #[expect(unsafe_code, reason = "what is taken holds anything until it is filled")]
    fn allocate(&self, len: usize) -> Result<CudaSlice<u8>, DriverError> {
        // SAFETY: every piece is filled by `fill` or `zero` before the first launch.
        unsafe { self.stream.alloc(len) }
    }

    /// Writes `bytes` to the beginning of a piece.
    pub(super) fn fill(&mut self, piece: usize, bytes: &[u8]) -> Result<(), CudaError> {
        self.write(piece, 0, bytes)
    }

    /// Writes zeros to all of a piece.
    pub(super) fn zero(&mut self, piece: usize) -> Result<(), CudaError> {
        let Some(memory) = self.memory.get_mut(piece) else { return Err(out_of_range("clearing memory")) };
        self.stream.memset_zeros(memory).map_err(failed("clearing memory"))
    }

    /// Writes `bytes` into a piece, from this byte on.
    pub(super) fn write(&mut self, piece: usize, at: usize, bytes: &[u8]) -> Result<(), CudaError> {
        let memory = self.memory.get_mut(piece);
        let Some(mut place) = memory.and_then(|memory| memory.try_slice_mut(at..at.checked_add(bytes.len())?)) else {
            return Err(out_of_range("copying to the device"));
        };
        self.stream.memcpy_htod(bytes, &mut place).map_err(failed("copying to the device"))
    }

    /// Reads bytes of a piece, from this one on, when all that was launched is done.
    pub(super) fn read(&self, piece: usize, at: usize, bytes: &mut [u8]) -> Result<(), CudaError> {
        let memory = self.memory.get(piece);
        let Some(place) = memory.and_then(|memory| memory.try_slice(at..at.checked_add(bytes.len())?)) else {
            return Err(out_of_range("copying from the device"));
        };
        self.stream.memcpy_dtoh(&place, bytes).map_err(failed("copying from the device"))?;
        self.wait()
    }

    /// Waits until all that was launched is done.
    pub(super) fn wait(&self) -> Result<(), CudaError> {
        self.stream.synchronize().map_err(failed("a step"))
    }

    /// Launches a kernel.
    #[expect(unsafe_code, reason = "nobody checks what a kernel is given")]
    pub(super) fn launch(&self, launch: &Launch) -> Result<(), CudaError> {
        let found = self.functions.iter().find(|(kernel, _)| *kernel == launch.kernel);
        let Some((_, function)) = found else { return Err(CudaError::Failed { doing: "launching a kernel", code: 500 }) };
        let args: Vec<Words> = launch.args.iter().map(|arg| Words(arg.words())).collect();
        let mut builder = self.stream.launch_builder(function);
        for arg in &args {
            builder.arg(arg);
        }
        let [x, y, z] = launch.grid;
        let config = LaunchConfig { grid_dim: (x, y, z), block_dim: (launch.block, 1, 1), shared_mem_bytes: launch.shared };
        // SAFETY: the list is the one that `Plan` made for these kernels, of the addresses that `take` returned; the tests run the same lists where every address is checked.
        unsafe { builder.launch(config) }.map_err(failed("launching a kernel"))?;
        Ok(())
    }

    /// The launches as one graph, which does them all when it is launched.
    pub(super) fn record<'l>(&self, launches: impl Iterator<Item = &'l Launch>) -> Result<CudaGraph, CudaError> {
        let doing = "recording a graph";
        self.stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(failed(doing))?;
        let launched = launches.map(|launch| self.launch(launch)).collect::<Result<Vec<()>, _>>();
        // A recording that was begun is ended, whatever happened.
        let graph = self.stream.end_capture(sys::CUgraphInstantiate_flags(0)).map_err(failed(doing));
        launched?;
        let graph = graph?.ok_or(CudaError::Failed { doing, code: 901 })?;
        graph.upload().map_err(failed(doing))?;
        Ok(graph)
    }
}

/// Nothing but a mistake here asks for bytes that are not there.
fn out_of_range(doing: &'static str) -> CudaError {
    CudaError::Failed { doing, code: 1 }
}

fn address(memory: &CudaSlice<u8>, stream: &CudaStream) -> u64 {
    use cudarc::driver::DevicePtr;
    memory.device_ptr(stream).0
}

/// Turns off the events by which cudarc orders several streams: there is one, and waiting for events cannot be recorded.
#[expect(unsafe_code, reason = "cudarc asks for the promise")]
fn one_stream(context: &CudaContext) {
    // SAFETY: all copies and launches go to the one stream of `Device`.
    unsafe { context.disable_event_tracking() };
}

/// A kernel, which may have as much shared memory as the device allows.
fn function(module: &Arc<CudaModule>, kernel: Kernel, facts: &Facts) -> Result<CudaFunction, CudaError> {
    let function = module.load_function(kernel.name()).map_err(failed("looking for a kernel"))?;
    if facts.shared > SHARED_BY_DEFAULT {
        let most = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        function
            .set_attribute(most, facts.shared.saturating_sub(STATIC_SHARED).cast_signed())
            .map_err(failed("asking for shared memory"))?;
    }
    Ok(function)
}

/// Shared memory that a kernel may declare itself, at most, in bytes.
pub(super) const STATIC_SHARED: u32 = 1152;

/// The version in `ptx`.
fn ptx_version(ptx: &str) -> &str {
    ptx.lines().find_map(|line| line.trim().strip_prefix(".version ")).unwrap_or("of an unknown version")
}

/// What the driver's compiler says of kernels that it refused, in one line.
#[expect(unsafe_code, reason = "cudarc has no other way to ask")]
fn compiler_log(ptx: &str) -> String {
    let Ok(source) = CString::new(ptx) else { return String::new() };
    let mut log = vec![0u8; 4096];
    let mut options = [sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER, sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(log.len())];
    let mut module = std::ptr::null_mut();
    // SAFETY: the source ends with a zero; there are as many values as options, and the buffer is as long as the second says and outlives the call.
    let result = unsafe { sys::cuModuleLoadDataEx(&raw mut module, source.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()) };
    if result == sys::CUresult::CUDA_SUCCESS {
        // SAFETY: the module was loaded a line above and nobody else has it.
        unsafe { sys::cuModuleUnload(module) };
    }
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
