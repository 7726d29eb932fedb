//! The one wasmtime engine, set up so that a component does the same on every host and in every attempt.

use std::hash::{Hash as _, Hasher};
use std::thread;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use wasmtime::{Config, Engine, WasmFeatures};

use super::errors::SandboxError;
use super::wasi::LOOK_NS;

/// How often a running guest lets others run, and looks at its deadline.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// Part of what a node does: how deep it can recurse. Python and QuickJS need more than wasmtime's default.
const WASM_STACK_BYTES: usize = 2 << 20;
/// Above that, for the host functions that a guest calls on the same stack: JSON is scanned there.
const HOST_STACK_BYTES: usize = 1 << 20;

/// The crate does not tell its version; a test holds this to the lock file.
const WASMTIME: &str = "48";

/// Frames of a trap's backtrace.
pub(super) const FRAMES_MAX: usize = 32;

/// Wasm as today's toolchains emit it, and nothing whose result depends on the machine: no threads, no
/// shared memory. What is not listed is off, also when a new wasmtime knows it.
pub(super) const FEATURES: WasmFeatures = WasmFeatures::MUTABLE_GLOBAL
    .union(WasmFeatures::SATURATING_FLOAT_TO_INT)
    .union(WasmFeatures::SIGN_EXTENSION)
    .union(WasmFeatures::REFERENCE_TYPES)
    .union(WasmFeatures::CALL_INDIRECT_OVERLONG)
    .union(WasmFeatures::MULTI_VALUE)
    .union(WasmFeatures::BULK_MEMORY)
    .union(WasmFeatures::BULK_MEMORY_OPT)
    .union(WasmFeatures::SIMD)
    .union(WasmFeatures::RELAXED_SIMD)
    .union(WasmFeatures::FLOATS)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::MULTI_MEMORY)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::EXCEPTIONS)
    // Not the proposal: the engine's own means to hold an exception.
    .union(WasmFeatures::GC_TYPES)
    .union(WasmFeatures::COMPONENT_MODEL);

/// One that runs guests.
pub(super) fn engine() -> Result<Engine, SandboxError> {
    let engine = compiling()?;
    start_ticking(&engine).map_err(|error| SandboxError::Engine { what: error.to_string() })?;
    Ok(engine)
}

/// One that only compiles.
pub(super) fn compiling() -> Result<Engine, SandboxError> {
    let mut config = Config::new();
    config
        .wasm_features(WasmFeatures::all().difference(FEATURES), false)
        .wasm_features(FEATURES, true)
        .consume_fuel(true)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        // Twice: a host function's result is put into the node's memory by the node's own allocator, and
        // that call may again go as deep, from where the stack was when the node called. It can call
        // nothing outside, so it ends there; past the end of the stack the whole process would die.
        .async_stack_size(2 * WASM_STACK_BYTES + HOST_STACK_BYTES)
        .wasm_backtrace_max_frames(std::num::NonZeroUsize::new(FRAMES_MAX));
    Engine::new(&config).map_err(|error| SandboxError::Engine { what: error.to_string() })
}

/// A thread of its own: when all workers of the runtime are busy in guests, somebody must interrupt them.
fn start_ticking(engine: &Engine) -> std::io::Result<()> {
    let engine = engine.weak();
    thread::Builder::new().name("holdpoint-ticker".into()).spawn(move || {
        loop {
            thread::sleep(TICK);
            // The last sandbox, component and instance are gone.
            let Some(engine) = engine.upgrade() else { return };
            engine.increment_epoch();
        }
    })?;
    Ok(())
}

/// What must not change under a paused task, then `"; "`, then what may: a replay judges that.
pub(super) fn settings() -> String {
    format!(
        "nan=canonical relaxed-simd=deterministic stack={WASM_STACK_BYTES} look={LOOK_NS}ns random=chacha20 \
         features={:x}; wasmtime {}",
        FEATURES.bits(),
        WASMTIME,
    )
}

/// What a compiled component depends on, beside its bytes: engine version, settings, the machine's features.
pub(super) fn compatibility(engine: &Engine) -> [u8; 32] {
    struct Into(Sha256);
    impl Hasher for Into {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update((bytes.len() as u64).to_le_bytes());
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut hasher = Into(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.0.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_name_the_engine_that_is_built_in() {
        let lock = include_str!("../../../Cargo.lock");
        assert!(lock.contains(&format!("name = \"wasmtime\"\nversion = \"{WASMTIME}.")));
        assert!(settings().ends_with(&format!("; wasmtime {WASMTIME}")));
    }

    #[test]
    fn the_ticker_ends_with_the_engine() {
        let engine = engine().unwrap();
        let weak = engine.weak();
        drop(engine);
        std::thread::sleep(5 * TICK);
        assert!(weak.upgrade().is_none());
    }
}
