//! For those who watch a run live.

use super::attempt::LogLevel;
use super::bindings::holdpoint::node::events::Host;
use super::guest::Guest;
use super::stop::{Stop, take_json};

impl Host for Guest {
    fn emit(&mut self, event: String) -> wasmtime::Result<()> {
        let task = self.task()?.clone();
        let bound = ("payload_bytes", self.limits.payload_bytes);
        let event = take_json(&event, "an event", bound, &self.limits).map_err(Stop::failed)?;
        if task.is_replaying() {
            return Ok(());
        }
        // An event is no state: one too many is lost, and the node goes on.
        let bytes = event.as_str().len() as u64;
        match self.emit_bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.emit_bytes_left = left;
                task.outside.emit(event);
            }
            None if self.emit_bytes_left > 0 => {
                self.emit_bytes_left = 0;
                let limit = self.limits.host_call_bytes;
                let message = format!("events are cut off: one attempt emits at most {limit} bytes");
                self.console.log(LogLevel::Warn, &message);
            }
            None => {}
        }
        Ok(())
    }
}
