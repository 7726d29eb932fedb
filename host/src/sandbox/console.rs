//! What a node prints and logs: a prefix is kept, lines go to the operator's log, and both end at
//! `log_bytes`. The node is never told, so what it does cannot depend on it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::attempt::{LogLevel, Output};
use super::guest::Task;
use super::stop::clip;

/// Of one line. Longer ones are cut.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// Of the end of stdout and of stderr, where the reason for a trap stands.
const TAIL_BYTES_MAX: usize = 2 * 1024;

pub(super) struct Console {
    /// `None`: nobody listens.
    task: Option<Task>,
    bytes_max: usize,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Default)]
struct State {
    stdout: Printed,
    stderr: Printed,
    kept_bytes: usize,
    logged_bytes: usize,
    truncated: bool,
}

#[derive(Default)]
struct Printed {
    kept: Vec<u8>,
    /// What follows the last line break.
    line: Vec<u8>,
    /// The end of it, whatever was kept.
    tail: Vec<u8>,
}

impl Console {
    pub fn new(task: Option<Task>, bytes_max: u64) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        Self { task, bytes_max, state: Mutex::default() }
    }

    pub fn print(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.state();
        self.keep(&mut state, stream, bytes);
        // What was printed in an earlier attempt was logged then. And once the log is cut off nothing is
        // looked for any more: no fuel pays for the host's own work.
        if state.logged_bytes <= self.bytes_max && !self.task.as_ref().is_some_and(Task::is_replaying) {
            self.lines(&mut state, stream, bytes);
        }
    }

    pub fn log(&self, level: LogLevel, message: &str) {
        if !self.task.as_ref().is_some_and(Task::is_replaying) {
            self.line(&mut self.state(), level, message);
        }
    }

    /// The end of stderr.
    pub fn stderr_tail(&self) -> String {
        self.state().stderr.tail()
    }

    /// Ends unfinished lines, and hands out what was kept.
    pub fn finish(&self) -> Output {
        let mut state = self.state();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(&mut state.printed(stream).line);
            if !rest.is_empty() {
                self.line(&mut state, stream.level(), &String::from_utf8_lossy(&rest));
            }
        }
        let text =
            |printed: &mut Printed| String::from_utf8_lossy(&std::mem::take(&mut printed.kept)).into_owned();
        Output {
            stdout: text(&mut state.stdout),
            stderr: text(&mut state.stderr),
            stdout_tail: state.stdout.tail(),
            stderr_tail: state.stderr.tail(),
            truncated: state.truncated,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of whoever reads the log leaves at worst half a line behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, state: &mut State, stream: Stream, bytes: &[u8]) {
        let room = self.bytes_max - state.kept_bytes;
        let kept = &bytes[..bytes.len().min(room)];
        state.kept_bytes += kept.len();
        state.truncated |= kept.len() < bytes.len();
        let printed = state.printed(stream);
        printed.kept.extend_from_slice(kept);
        printed.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES_MAX)..]);
        printed.tail.drain(..printed.tail.len().saturating_sub(TAIL_BYTES_MAX));
    }

    fn lines(&self, state: &mut State, stream: Stream, bytes: &[u8]) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (part, is_end) = match part {
                [part @ .., b'\n'] => (part, true),
                part => (part, false),
            };
            let line = &mut state.printed(stream).line;
            let room = LINE_BYTES_MAX.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            let cut = part.len() > room;
            state.truncated |= cut;
            if is_end {
                let line = std::mem::take(&mut state.printed(stream).line);
                self.line(state, stream.level(), &String::from_utf8_lossy(&line));
            }
        }
    }

    fn line(&self, state: &mut State, level: LogLevel, message: &str) {
        let Some(task) = &self.task else { return };
        if state.logged_bytes > self.bytes_max {
            return;
        }
        let line = clip(message, LINE_BYTES_MAX);
        state.truncated |= line.len() < message.len();
        // An empty line costs something as well.
        state.logged_bytes += line.len() + 1;
        if state.logged_bytes > self.bytes_max {
            state.truncated = true;
            let limit = self.bytes_max;
            let message = format!("the log is cut off: one attempt logs at most {limit} bytes (log_bytes)");
            task.outside.log(LogLevel::Warn, &message);
        } else {
            task.outside.log(level, line);
        }
    }
}

impl State {
    fn printed(&mut self, stream: Stream) -> &mut Printed {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl Printed {
    fn tail(&self) -> String {
        String::from_utf8_lossy(&self.tail).trim_end().to_owned()
    }
}

impl Stream {
    fn level(self) -> LogLevel {
        match self {
            Self::Stdout => LogLevel::Info,
            Self::Stderr => LogLevel::Warn,
        }
    }
}
