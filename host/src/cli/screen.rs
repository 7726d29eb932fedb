//! The standard error stream: what nodes log, the host's own log, and a spinner while something takes
//! long. Documents and answers go to standard output, and not through here.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dialoguer::console::style;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinHandle;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use super::spans::Spans;

use crate::engine::{Watched, Watcher};
use crate::sandbox::LogLevel;

/// What is over sooner needs no spinner.
const SPINNER_AFTER: Duration = Duration::from_millis(400);

/// How the host's log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogForm {
    /// For people.
    #[default]
    Text,
    /// An object a line.
    Json,
}

/// Clones share the stream.
#[derive(Clone)]
pub struct Screen {
    spinner: ProgressBar,
    appearing: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Screen {
    pub fn new() -> Self {
        let spinner = ProgressBar::hidden();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            spinner.set_style(style);
        }
        Self { spinner, appearing: Arc::default() }
    }

    /// From here on the host's log is written, as far as `filter` lets it, and spans are taken down if there is
    /// somebody to send them to.
    pub fn log(&self, filter: &str, form: LogForm, spans: Option<&Spans>) -> Result<(), String> {
        let filter = EnvFilter::try_new(filter).map_err(|error| error.to_string())?;
        let spinner = self.spinner.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(form == LogForm::Text && dialoguer::console::colors_enabled_stderr())
            .with_target(false)
            .with_writer(move || Lines { spinner: spinner.clone() });
        let mut layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> = vec![match form {
            LogForm::Text => lines.with_filter(filter).boxed(),
            LogForm::Json => lines.json().with_filter(filter).boxed(),
        }];
        layers.extend(spans.map(Spans::layer));
        tracing_subscriber::registry().with(layers).try_init().map_err(|error| error.to_string())
    }

    /// Shows at a terminal that `what` goes on, once it has taken a while.
    pub fn busy(&self, what: impl Into<Cow<'static, str>>) {
        self.spinner.set_message(what);
        let mut appearing = self.appearing();
        if appearing.is_none() {
            let spinner = self.spinner.clone();
            *appearing = Some(tokio::spawn(async move {
                tokio::time::sleep(SPINNER_AFTER).await;
                spinner.set_draw_target(ProgressDrawTarget::stderr());
                spinner.enable_steady_tick(Duration::from_millis(100));
            }));
        }
    }

    /// Takes the spinner away.
    pub fn rest(&self) {
        if let Some(appearing) = self.appearing().take() {
            appearing.abort();
        }
        self.spinner.finish_and_clear();
        self.spinner.set_draw_target(ProgressDrawTarget::hidden());
    }

    pub fn line(&self, line: &str) {
        self.spinner.suspend(|| {
            // Nobody may be left to read it.
            let _ = writeln!(io::stderr(), "{line}");
        });
    }

    /// Shows what goes on while runs go on.
    pub fn watcher(&self) -> Watcher {
        let screen = self.clone();
        Arc::new(move |watched| screen.show(watched))
    }

    fn show(&self, watched: &Watched<'_>) {
        match watched {
            Watched::Compiling { name, bytes } => {
                self.say(format!("compiling {} ({} kB)", harmless(name), bytes.div_ceil(1000)));
            }
            Watched::Step { step, tasks: 1 } => self.say(format!("step {step}")),
            Watched::Step { step, tasks } => self.say(format!("step {step}, {tasks} tasks")),
            Watched::TaskStarted { node, attempt: 1, .. } => self.say(format!("running {node}")),
            Watched::TaskStarted { node, attempt, .. } => {
                self.say(format!("running {node} (attempt {attempt})"));
            }
            Watched::TaskEnded { node, how, .. } => self.say(format!("{node} {how}")),
            Watched::Log { node, level, message, .. } => {
                if is_shown(*level) {
                    message.lines().for_each(|line| self.line(&node_line(node, *level, line)));
                }
            }
            Watched::Emitted { node, event, .. } => {
                if is_shown(LogLevel::Debug) {
                    self.line(&node_line(node, LogLevel::Debug, event.as_str()));
                }
            }
        }
    }

    fn say(&self, what: String) {
        self.spinner.set_message(what);
    }

    fn appearing(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.appearing.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// What nodes say is under the target `node` of the log's filter.
fn is_shown(level: LogLevel) -> bool {
    use tracing::{Level, enabled};
    match level {
        LogLevel::Trace => enabled!(target: "node", Level::TRACE),
        LogLevel::Debug => enabled!(target: "node", Level::DEBUG),
        LogLevel::Info => enabled!(target: "node", Level::INFO),
        LogLevel::Warn => enabled!(target: "node", Level::WARN),
        LogLevel::Error => enabled!(target: "node", Level::ERROR),
    }
}

fn node_line(node: &str, level: LogLevel, line: &str) -> String {
    let line = harmless(line);
    let line = match level {
        LogLevel::Error => style(line).red().for_stderr(),
        LogLevel::Warn => style(line).yellow().for_stderr(),
        LogLevel::Info => style(line).for_stderr(),
        LogLevel::Debug | LogLevel::Trace => style(line).dim().for_stderr(),
    };
    format!("{} {line}", style(format!("{node} |")).cyan().for_stderr())
}

/// Lines of the host's log, between two pictures of the spinner.
struct Lines {
    spinner: ProgressBar,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.spinner.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Text that somebody else wrote, fit for a terminal: what would steer it, or turn the direction of
/// writing, is shown and not obeyed. Line breaks stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if steers(char) {
            // Writing to a string does not fail.
            let _ = write!(out, "{}", char.escape_unicode());
        } else {
            out.push(char);
        }
    }
    Cow::Owned(out)
}

fn steers(char: char) -> bool {
    (char.is_control() && !matches!(char, '\n' | '\t'))
        || matches!(
            char,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// At most `chars` of it.
pub fn clip(text: &str, chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars) {
        None => Cow::Borrowed(text),
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_and_not_obeyed() {
        assert_eq!(harmless("Größe:\n\t7 ✓"), "Größe:\n\t7 ✓");
        assert_eq!(harmless("\x1b[2J"), "\\u{1b}[2J");
        assert_eq!(harmless("a\u{9b}b\u{202e}c\r"), "a\\u{9b}b\\u{202e}c\\u{d}");
    }

    #[test]
    fn a_clip_counts_characters() {
        assert_eq!(clip("äöü", 3), "äöü");
        assert_eq!(clip("äöü", 2), "äö…");
    }
}
