//! From the error that a call into a guest ends with to what is recorded. Only what the guest did is
//! told, in the host's own words: no text of the engine, no address.

use wasmtime::component::ResourceTableError;
use wasmtime::{GcHeapOutOfMemory, ThrownException, Trap, WasmBacktrace};

use super::attempt::End;
use super::engine::FRAMES_MAX;
use super::guest::Guest;
use super::meter::{host_is_short, over_memory};
use super::stop::{Stop, clip};
use crate::model::error::{ErrorRecord, Kind};
use crate::model::limits::Limits;

const FRAME_BYTES_MAX: usize = 200;
const PANIC_BYTES_MAX: usize = 500;

pub(super) fn end(error: wasmtime::Error, guest: &Guest) -> End {
    // A pause is the common end, and nobody looks at where in the node it was.
    let frames = match error.downcast_ref::<Stop>() {
        Some(Stop::Paused) => Vec::new(),
        _ => frames(&error),
    };
    let stop = match error.downcast::<Stop>() {
        Ok(stop) => stop,
        Err(error) => stop_of(&error, &guest.limits),
    };
    match stop {
        Stop::Paused => End::Paused,
        Stop::Diverged(divergence) => End::Diverged(divergence),
        Stop::Fault => End::Fault,
        Stop::Failed { mut error, retryable } => {
            // Where it was also says what used the fuel or the memory up.
            if matches!(error.kind, Kind::Trap | Kind::Limit) && !frames.is_empty() {
                error = error.with("frames", frames);
            }
            // Some languages say only there why they gave up, or what they were at.
            if matches!(error.kind, Kind::Trap | Kind::Limit) {
                let stderr = guest.console.stderr_tail();
                if let Some(panic) = panic_in(&stderr).filter(|_| error.kind == Kind::Trap) {
                    error.message = panic;
                }
                if !stderr.is_empty() {
                    error = error.with("stderr", stderr);
                }
            }
            End::Failed { error, retryable }
        }
    }
}

pub(super) fn over_deadline(limits: &Limits) -> Stop {
    let ms = limits.deadline_ms;
    let message = format!("the attempt took longer than {ms} ms (deadline_ms)");
    // How fast the machine was is not the node's doing.
    Stop::Failed { error: ErrorRecord::limit("deadline_ms", ms, message), retryable: true }
}

fn stop_of(error: &wasmtime::Error, limits: &Limits) -> Stop {
    if let Some(trap) = error.downcast_ref::<Trap>() {
        return stop_of_trap(*trap, limits);
    }
    if error.is::<GcHeapOutOfMemory<()>>() {
        return over_memory(limits.memory_bytes);
    }
    if error.is::<ThrownException>() {
        return trapped("exception", "the node threw an exception that nothing in it catches");
    }
    // What the system refused the engine, such as a place in memory for an instance or its stack. Nothing
    // that a guest does wrong has such a cause.
    if error.root_cause().to_string().contains("(os error ") {
        tracing::warn!(error = format!("{error:#}"), "an attempt could not be carried out");
        return host_is_short();
    }
    // The engine has no types for these.
    let text = format!("{error:#}");
    let handles = matches!(error.downcast_ref(), Some(ResourceTableError::Full));
    if handles || text.contains("cannot allocate another handle") {
        let limit = u64::from(limits.handles);
        let message = format!("the node holds more than {limit} handles at once (handles)");
        return Stop::limit("handles", limit, message);
    }
    if text.contains("fuel allocated for hostcalls") {
        let limit = limits.host_call_bytes;
        let message = format!("the node hands over more than {limit} bytes in one call (host_call_bytes)");
        return Stop::limit("host_call_bytes", limit, message);
    }
    if text.contains("resource limit exceeded") {
        let limit = u64::from(limits.instances);
        let message = format!("the component makes more than {limit} instances (instances)");
        return Stop::limit("instances", limit, message);
    }
    tracing::debug!(error = text, "a guest broke the calling convention");
    trapped(
        "abi",
        "the node handed over what is no value of the agreed type: a bad pointer, length, case or text",
    )
}

fn stop_of_trap(trap: Trap, limits: &Limits) -> Stop {
    let (code, message) = match trap {
        Trap::OutOfFuel => {
            let limit = limits.fuel;
            return Stop::limit("fuel", limit, format!("the attempt used up its fuel of {limit} (fuel)"));
        }
        Trap::Interrupt => return over_deadline(limits),
        Trap::AllocationTooLarge => return over_memory(limits.memory_bytes),
        Trap::StackOverflow => ("stack-overflow", "stack overflow"),
        Trap::UnreachableCodeReached => (
            "unreachable",
            "the node gave up: it reached an unreachable instruction, as a panic or an abort does",
        ),
        Trap::MemoryOutOfBounds => ("memory-out-of-bounds", "the node read or wrote outside of its memory"),
        Trap::TableOutOfBounds => {
            ("table-out-of-bounds", "the node used a table element that does not exist")
        }
        Trap::IndirectCallToNull => ("null-function", "the node called a null function pointer"),
        Trap::BadSignature => ("bad-signature", "the node called a function pointer of another type"),
        Trap::NullReference => ("null-reference", "the node used a null reference"),
        Trap::IntegerOverflow => ("integer-overflow", "an integer operation overflowed"),
        Trap::IntegerDivisionByZero => ("division-by-zero", "the node divided an integer by zero"),
        Trap::BadConversionToInteger => ("bad-conversion", "a float has no integer value"),
        Trap::StringOutOfBounds
        | Trap::ListOutOfBounds
        | Trap::UnalignedPointer
        | Trap::InvalidChar
        | Trap::InvalidDiscriminant => (
            "abi",
            "the node handed over what is no value of the agreed type: a bad pointer, length, case or text",
        ),
        Trap::CannotEnterComponent | Trap::CannotLeaveComponent => {
            ("reentrance", "the node called the host where it may not")
        }
        _ => ("other", "the node trapped"),
    };
    trapped(code, message)
}

fn trapped(code: &str, message: &str) -> Stop {
    Stop::failed(ErrorRecord::new(Kind::Trap, message).with("trap", code))
}

/// What a Rust guest's panic said, found on its stderr: where, and why.
fn panic_in(stderr: &str) -> Option<String> {
    let (_, said) = stderr.rsplit_once(" panicked at ")?;
    let (place, message) = said.split_once(":\n")?;
    let message = message.split("\nnote: ").next().unwrap_or(message).trim_end();
    let panic = format!("the node panicked at {place}: {message}");
    Some(clip(&panic, PANIC_BYTES_MAX).replace(char::is_control, " "))
}

/// The guest's own function names, innermost first. They come from outside: short, and in one line.
fn frames(error: &wasmtime::Error) -> Vec<String> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else {
        return Vec::new();
    };
    let name = |frame: &wasmtime::FrameInfo| match frame.func_name() {
        Some(name) => clip(&format!("{:#}", rustc_demangle::demangle(name)), FRAME_BYTES_MAX)
            .replace(char::is_control, "\u{fffd}"),
        None => format!("function {}", frame.func_index()),
    };
    backtrace.frames().iter().take(FRAMES_MAX).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::panic_in;

    #[test]
    fn a_panic_is_found_by_what_it_prints() {
        let said = "before\n\nthread '<unnamed>' panicked at src/lib.rs:11:20:\nout of range,\nsort of\n\
                    note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        assert_eq!(panic_in(said).unwrap(), "the node panicked at src/lib.rs:11:20: out of range, sort of");
        assert_eq!(panic_in("it gave up\n"), None);
    }
}
