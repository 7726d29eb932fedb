//! A line for the operator's log.

use super::attempt::LogLevel;
use super::bindings::holdpoint::node::log::{Host, Level};
use super::guest::Guest;

impl Host for Guest {
    fn write(&mut self, level: Level, message: String) -> wasmtime::Result<()> {
        self.task()?;
        let level = match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        self.console.log(level, &message);
        Ok(())
    }
}
