//! How things read for a person.

use std::fmt::Write as _;

use dialoguer::console::{StyledObject, style};
use serde_json::Value;

use super::Shell;
use super::answer;
use super::choices::choices;
use super::document::{Document, Exit, Said};
use super::failure::Failure;
use super::screen::{clip, harmless};
use crate::engine::{Clock, EngineError, Host, path_of};
use crate::model::{ErrorRecord, Execution, InterruptKind, PendingInterrupt, RunStatus, ThreadId};

/// Of a payload; `--json` has all of it.
const PAYLOAD_CHARS_MAX: usize = 4_000;
const VALUE_CHARS_MAX: usize = 100;
const STDERR_LINES_MAX: usize = 12;
const FRAMES_SHOWN: usize = 8;

/// What came of an invocation on a thread.
pub async fn invocation(
    shell: &Shell,
    host: &Host,
    thread: &ThreadId,
    done: Result<Execution, EngineError>,
) -> Result<Said, Failure> {
    match done {
        Ok(execution) => {
            let document = Document::of(host, thread, execution).await?;
            Ok(Said::new(Exit::of(document.status), &document, execution_text(shell, thread, &document)))
        }
        Err(error) => not_done(shell, host, thread, error).await,
    }
}

/// A refusal, or a stop: the thread as it is, and the reason.
async fn not_done(
    shell: &Shell,
    host: &Host,
    thread: &ThreadId,
    error: EngineError,
) -> Result<Said, Failure> {
    match error {
        EngineError::Refused(_)
        | EngineError::Stopped
        | EngineError::HandlerPanicked { .. }
        | EngineError::Attempt { .. } => {}
        // Of the graph or the host, and not of how the thread stands.
        other => return Err(other.into()),
    }
    // There may be no such thread, which may be the reason.
    let Ok(now) = Document::now(host, thread).await else {
        return Err(error.into());
    };
    let document = match &error {
        EngineError::Refused(refused) => now.refused(refused),
        other => Document { error: Some(other.record()), ..now },
    };
    let failure = Failure::from(error);
    let mut notice = format!("{}\n", harmless(&failure.to_string()));
    notice.push_str(&differences(document.error.as_ref()));
    if document.status == RunStatus::Running {
        let _ = write!(notice, "\ngo on with\n    {}\n", continue_command(shell, thread));
    }
    notice.push_str(&questions(shell, thread, &document.interrupts));
    Ok(Said { notice, ..Said::new(failure.exit(), &document, "") })
}

/// Both sides of each call that a replay makes otherwise, where that is why something was refused.
fn differences(error: Option<&ErrorRecord>) -> String {
    let mut text = String::new();
    let tasks = error.and_then(|error| error.more.get("tasks")).and_then(Value::as_array);
    for task in tasks.into_iter().flatten() {
        let sides = [("on record", &task["error"]["expected"]), ("now", &task["error"]["actual"])];
        if sides.iter().all(|(_, side)| side.is_null()) {
            continue;
        }
        let _ = writeln!(text, "{}:", harmless(task["node"].as_str().unwrap_or_default()));
        for (when, side) in sides {
            let side = if side.is_null() { "(the node finished)".into() } else { short(side) };
            let _ = writeln!(text, "    {when:<9}  {side}");
        }
    }
    text
}

/// A fork that was refused says how the thread stands that it was to be made from; one that is there, and
/// could not go on, how it stands itself.
pub async fn not_forked(
    shell: &Shell,
    host: &Host,
    (from, to): (&ThreadId, &ThreadId),
    error: EngineError,
) -> Result<Said, Failure> {
    let thread = if matches!(error, EngineError::Refused(_)) { from } else { to };
    not_done(shell, host, thread, error).await
}

fn execution_text(shell: &Shell, thread: &ThreadId, document: &Document) -> String {
    let mut text = heading(thread, document);
    if let Some(error) = &document.error {
        text.push_str(&error_text(error));
    }
    text.push_str(&questions(shell, thread, &document.interrupts));
    if matches!(document.status, RunStatus::Failed | RunStatus::Diverged) {
        text.push_str(&retry_text(shell, thread));
    }
    if document.status == RunStatus::Completed {
        text.push_str(&state(&document.state));
        let command = shell.command(["state", "get", "--thread", thread.as_str()]);
        let _ = writeln!(text, "\nall of it with\n    {command}");
    }
    text
}

/// `completed  thread support-123  run 0198…`
pub fn heading(thread: &ThreadId, document: &Document) -> String {
    let thread = harmless(thread.as_str());
    format!("{}  thread {thread}  run {}\n", status(document.status), document.run_id)
}

pub fn status(status: RunStatus) -> StyledObject<&'static str> {
    let word = style(status.as_str()).bold();
    match status {
        RunStatus::Completed => word.green(),
        RunStatus::Interrupted => word.yellow(),
        RunStatus::Running => word.cyan(),
        RunStatus::Failed | RunStatus::Diverged | RunStatus::Cancelled => word.red(),
    }
}

pub fn error_text(error: &ErrorRecord) -> String {
    let node = error.more.get("node").and_then(Value::as_str);
    let kind = match node {
        Some(node) => format!("{} ({}):", error.kind, harmless(node)),
        None => format!("{}:", error.kind),
    };
    let mut text = format!("\n{} {}\n", style(kind).red(), harmless(&error.message));
    // Which task it was, the node says for short.
    let apart = ["node", "task_id", "stderr", "frames"];
    for (key, value) in error.more.iter().filter(|(key, _)| !apart.contains(&key.as_str())) {
        match value.get("stack").and_then(Value::as_str) {
            // Of an error that nobody in the node caught: where it was.
            Some(stack) => text.push_str(&indented(&harmless(&clip(stack, PAYLOAD_CHARS_MAX)))),
            None => drop(writeln!(text, "    {key}: {}", short(value))),
        }
    }
    if let Some(Value::Array(frames)) = error.more.get("frames") {
        text.push_str(&frames_text(frames));
    }
    if let Some(stderr) = error.more.get("stderr").and_then(Value::as_str) {
        // What a panic said there is the message; else the reason stands at the end.
        let before = stderr.rsplit_once("\nthread '").map(|(before, _)| before);
        let rest = before.filter(|_| error.message.starts_with("the node panicked at ")).unwrap_or(stderr);
        let lines: Vec<&str> = rest.trim_end().lines().collect();
        if !lines.is_empty() {
            text.push_str("    stderr:\n");
        }
        for line in &lines[lines.len().saturating_sub(STDERR_LINES_MAX)..] {
            let _ = writeln!(text, "        {}", harmless(line));
        }
    }
    text
}

/// The author's own functions, innermost first: not those that carry a panic out, nor the glue below.
fn frames_text(frames: &[Value]) -> String {
    let frames: Vec<&str> = frames.iter().filter_map(Value::as_str).collect();
    let is_of = |frame: &str, parts: &[&str]| {
        let name = frame.trim_start_matches('<');
        parts.iter().any(|start| name.starts_with(start))
    };
    let carries =
        |frame: &str| frame == "abort" || is_of(frame, &["std::", "core::", "alloc::", "__rust", "rust_"]);
    let first = frames.iter().position(|frame| !carries(frame)).unwrap_or(0);
    let own: Vec<&str> = frames[first..]
        .iter()
        .copied()
        .filter(|frame| !is_of(frame, &["holdpoint_guest::", "holdpoint:"]))
        .collect();
    let shown = if own.is_empty() { &frames[first..] } else { &own[..] };
    let mut text = "    in:\n".to_owned();
    for frame in shown.iter().take(FRAMES_SHOWN) {
        let _ = writeln!(text, "        {}", harmless(&clip(frame, VALUE_CHARS_MAX)));
    }
    text
}

/// Each question with what answers it.
pub fn questions(shell: &Shell, thread: &ThreadId, pending: &[PendingInterrupt]) -> String {
    pending.iter().map(|question| question_text(shell, thread, question)).collect()
}

pub fn question_text(shell: &Shell, thread: &ThreadId, question: &PendingInterrupt) -> String {
    let asked = &question.interrupt;
    let path = path_of(&question.namespace, &asked.node);
    let agent = question.agent.as_ref().map(|agent| format!(", of {agent}")).unwrap_or_default();
    let node = style(harmless(&format!("{path}{agent}")).into_owned()).cyan();
    let mut text = match question.kind {
        InterruptKind::Node => format!("\n{node} asks (order {}):\n", asked.order),
        InterruptKind::Before => format!("\nthe graph stops before {node}:\n"),
        InterruptKind::After => format!("\nthe graph stops after {node}:\n"),
        InterruptKind::Approve => format!("\n{node} wants this done; is it approved?\n"),
        InterruptKind::InDoubt => {
            format!("\n{node} wanted this done, and whether it was is not known; was it?\n")
        }
    };
    text.push_str(&indented(&pretty(&asked.payload)));
    let _ = writeln!(text, "{}", style(place(question)).dim());
    if let Some(at) = question.expires_at.filter(|at| *at <= Clock::System.now()) {
        let command = continue_command(shell, thread);
        let _ = writeln!(
            text,
            "expired at {at}: it takes no answer any more; go on with\n    {}",
            style(harmless(&command)).bold()
        );
        return text;
    }
    if let Some(at) = question.expires_at {
        let _ = writeln!(text, "until {at}");
    }
    let mut before = "answer";
    if question.kind.is_gate() {
        before = "go past it";
    } else {
        let _ = writeln!(text, "takes {}", choices(question.answer_schema.as_ref()));
    }
    for command in answer::commands(shell, thread, question) {
        let _ = writeln!(text, "{before} with\n    {}", style(harmless(&command)).bold());
        before = "or";
    }
    text
}

/// Where a question stands: what a target or a fork would name.
fn place(question: &PendingInterrupt) -> String {
    let runs: Vec<String> = question.run_path.iter().map(ToString::to_string).collect();
    let (task, checkpoint) = (question.interrupt.task_id, question.checkpoint_id);
    format!("run {}\ntask {task}  checkpoint {checkpoint}", runs.join("\n    > "))
}

/// What a run that failed is tried again with.
pub fn retry_text(shell: &Shell, thread: &ThreadId) -> String {
    let command = shell.command(["retry", "--thread", thread.as_str()]);
    format!(
        "\nonce what made it fail is mended (a changed node is taken up by `upgrade`), try it again with\n    {}\n",
        style(command).bold()
    )
}

/// A thread's channels, each on a line.
pub fn state(state: &Value) -> String {
    let mut text = String::new();
    for (channel, value) in state.as_object().into_iter().flatten() {
        let _ = writeln!(text, "    {channel}: {}", short(value));
    }
    if text.is_empty() { text } else { format!("\nstate\n{text}") }
}

pub fn continue_command(shell: &Shell, thread: &ThreadId) -> String {
    shell.command(["continue", "--thread", thread.as_str()])
}

/// A value on a part of a line.
pub fn short(value: &Value) -> String {
    clip(&harmless(&value.to_string()), VALUE_CHARS_MAX).into_owned()
}

pub fn pretty(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        value => serde_json::to_string_pretty(value).unwrap_or_default(),
    };
    match clip(&text, PAYLOAD_CHARS_MAX) {
        std::borrow::Cow::Borrowed(all) => harmless(all).into_owned(),
        std::borrow::Cow::Owned(part) => format!("{}\n(cut here; --json shows all of it)", harmless(&part)),
    }
}

pub fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// `1 step`, `2 steps`
pub fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Lines of columns as wide as what is in them.
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heads[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> =
            cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(&mut heads.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::document::tests::paused;
    use crate::cli::tests::shell;
    use crate::model::Kind;
    use serde_json::json;

    #[test]
    fn a_pause_shows_the_question_and_the_command_that_answers_it() {
        let document = paused();
        let thread = document.thread.clone().unwrap();
        let text = execution_text(&shell(&["holdpoint"]), &thread, &document);
        for part in [
            "interrupted  thread support-123  run 00000000-0000-0000-0000-000000000001\n",
            "approve asks (order 0):\n    {\n      \"amount\": 12.50\n    }\n",
            "answer with\n    holdpoint resume --thread support-123 --interrupt \
             00000000-0000-0000-0000-000000000003 '<JSON>'\n",
            "takes any JSON value\n",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_gate_is_passed_and_not_answered() {
        let mut document = paused();
        document.interrupts[0].kind = InterruptKind::Before;
        let thread = document.thread.clone().unwrap();
        let text = questions(&shell(&["holdpoint"]), &thread, &document.interrupts);
        assert!(text.contains("stops before approve"), "{text}");
        assert!(text.trim_end().ends_with("--proceed"), "{text}");
    }

    #[test]
    fn a_question_shows_what_it_takes_and_a_command_for_each_choice() {
        let mut document = paused();
        document.interrupts[0].answer_schema = Some(json!({ "enum": ["refund", "keep"] }));
        let thread = document.thread.clone().unwrap();
        let text = questions(&shell(&["holdpoint"]), &thread, &document.interrupts);
        for part in ["takes one of \"refund\", \"keep\"\n", "'\"refund\"'\nor with\n", "'\"keep\"'\n"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_question_that_expired_says_what_goes_on_from_there() {
        let mut document = paused();
        document.interrupts[0].expires_at = Some(crate::model::Timestamp(1_000));
        let thread = document.thread.clone().unwrap();
        let text = questions(&shell(&["holdpoint"]), &thread, &document.interrupts);
        assert!(text.contains("expired at 1970-01-01"), "{text}");
        assert!(text.ends_with("go on with\n    holdpoint continue --thread support-123\n"), "{text}");
        assert!(!text.contains("resume"), "{text}");
    }

    #[test]
    fn a_run_that_failed_shows_how_it_is_tried_again() {
        let mut document = paused();
        (document.status, document.interrupts) = (RunStatus::Failed, Vec::new());
        let thread = document.thread.clone().unwrap();
        let text = execution_text(&shell(&["holdpoint"]), &thread, &document);
        assert!(
            text.ends_with("(a changed node is taken up by `upgrade`), try it again with\n    holdpoint retry --thread support-123\n"),
            "{text}"
        );
    }

    #[test]
    fn an_error_shows_its_particulars() {
        let error = ErrorRecord::limit("fuel", 7, "out of fuel").with("node", "draft");
        assert_eq!(error.kind, Kind::Limit);
        assert_eq!(error_text(&error), "\nlimit (draft): out of fuel\n    limit: \"fuel\"\n    value: 7\n");
    }

    #[test]
    fn a_panic_shows_the_authors_functions_and_not_those_that_carry_it_out() {
        let frames = json!([
            "abort",
            "std::process::abort",
            "__rustc::rust_panic",
            "core::panicking::panic_fmt",
            "<desk::Draft>::write",
            "desk::run\u{1b}"
        ]);
        let error = ErrorRecord::new(Kind::Trap, "no").with("frames", frames);
        let text = error_text(&error);
        assert!(
            text.ends_with("    in:\n        <desk::Draft>::write\n        desk::run\\u{1b}\n"),
            "{text}"
        );
        let error = ErrorRecord::new(Kind::Trap, "no").with("frames", json!(["abort"]));
        assert!(error_text(&error).ends_with("    in:\n        abort\n"));
    }

    #[test]
    fn what_a_panic_said_is_not_said_twice() {
        let said = |stderr: &str| {
            let error = ErrorRecord::new(Kind::Trap, "the node panicked at src/lib.rs:1:2: no")
                .with("stderr", stderr);
            error_text(&error)
        };
        let panic = "\nthread '<unnamed>' (1) panicked at src/lib.rs:1:2:\nno";
        assert_eq!(said(panic), "\ntrap: the node panicked at src/lib.rs:1:2: no\n");
        assert!(said(&format!("before{panic}")).ends_with("no\n    stderr:\n        before\n"));
    }

    #[test]
    fn an_error_that_nobody_caught_shows_where_it_was() {
        let detail =
            json!({ "exception": "ValueError", "stack": "Traceback\n  File \"a.py\", line 7\u{1b}" });
        let error = ErrorRecord::new(Kind::NodeFailed, "ValueError: no").with("detail", detail);
        let text = error_text(&error);
        assert!(text.ends_with("    Traceback\n      File \"a.py\", line 7\\u{1b}\n"), "{text}");
    }

    #[test]
    fn a_payload_of_a_node_cannot_steer_the_terminal() {
        assert_eq!(pretty(&json!("a\u{1b}[2Jb")), "a\\u{1b}[2Jb");
        assert!(pretty(&json!({ "k": "\u{9b}2J" })).contains("\\u{9b}"));
        assert!(pretty(&json!("x".repeat(5_000))).ends_with("(cut here; --json shows all of it)"));
    }

    #[test]
    fn columns_are_as_wide_as_their_widest() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["größer".to_owned(), "22".to_owned()]];
        assert_eq!(table(&["THREAD", "N"], &rows), "THREAD  N\na       1\ngrößer  22\n");
    }
}
