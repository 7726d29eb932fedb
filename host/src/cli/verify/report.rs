//! What `holdpoint verify` says to a person.

use std::fmt::Write as _;

use dialoguer::console::style;
use serde_json::Value;

use super::super::screen::{clip, harmless};
use super::inputs::{Answer, From};
use super::roads::Road;
use super::{Node, Verified};
use crate::engine::verify::{At, Difference};
use crate::model::Timestamp;
use crate::model::sample::MadeFrom;

/// Of a call, a value, a line.
const SHOWN_CHARS: usize = 160;
/// Of either side of a difference: before the first character that differs, and from there on.
const BEFORE_CHARS: usize = 40;
const FROM_CHARS: usize = 160;
/// Calls of one node; the document has them all.
const CALLS_SHOWN: usize = 20;
/// Lines from the end of what a node printed.
const TAIL_LINES: usize = 5;
/// From the end of a stack.
const STACK_LINES: usize = 12;

pub fn text(verified: &Verified) -> String {
    let mut text = String::new();
    for (i, node) in verified.nodes.iter().enumerate() {
        if i > 0 {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let _ = one(&mut text, node, verified.nodes.len());
    }
    if verified.nodes.is_empty() {
        text.push_str("the graph has no node that is a component\n");
    }
    text
}

pub fn clipped(text: &str) -> String {
    harmless(&clip(text, SHOWN_CHARS)).into_owned()
}

fn one(text: &mut String, node: &Node, of: usize) -> std::fmt::Result {
    let word = match node.replays {
        true if node.failed_at_once() => style("nothing verified").yellow().bold(),
        true if node.failed() => style("replays, and fails").yellow().bold(),
        true => style("replays").green().bold(),
        false => style("differs").red().bold(),
    };
    let first = &node.first;
    writeln!(text, "{}  {word}", node.node)?;
    writeln!(
        text,
        "    {}, {} replayed twice each, {} attempts",
        counted(first.calls.len(), "host call"),
        counted(first.prefixes, "prefix"),
        first.attempts
    )?;
    calls(text, node)?;
    if let Some(difference) = &first.difference {
        different(text, difference)?;
    }
    writeln!(text, "    {}", clipped(&outcome(&first.outcome)))?;
    stack(text, &first.outcome)?;
    others(text, node)?;
    // Of several nodes each is given all of them.
    if node.answers_unused > 0 && of == 1 {
        writeln!(text, "    not asked for: {} of --answers", node.answers_unused)?;
    }
    if node.failed_at_once() {
        writeln!(
            text,
            "    that was before its first call, and so nothing of it was verified{}",
            blame(node)
        )?;
    } else if node.failed() {
        let ways = if node.other_ways.is_empty() { "" } else { " on every way" };
        writeln!(
            text,
            "    it failed{ways}, each time again in the same way; what it does when it succeeds was not verified"
        )?;
    }
    for index in &node.keys_by_chance {
        writeln!(
            text,
            "    {} the key of call {index} comes from the clock or a random number: activated again, the node has \
             it done again",
            style("note:").yellow().bold()
        )?;
    }
    writeln!(
        text,
        "    fuel {} of {}, memory {} KiB, {}.{:01} s",
        grouped(first.fuel),
        grouped(node.fuel_max),
        grouped(first.memory_bytes.div_ceil(1024)),
        node.took_ms / 1000,
        node.took_ms % 1000 / 100
    )?;
    let output = &first.output;
    tail(text, "stdout", &output.stdout, &output.stdout_tail)?;
    tail(text, "stderr", &output.stderr, &output.stderr_tail)
}

fn calls(text: &mut String, node: &Node) -> std::fmt::Result {
    let mut answers = node.first.answers.iter().enumerate();
    for (index, call) in node.first.calls.iter().take(CALLS_SHOWN).enumerate() {
        let (what, asked): (&str, Vec<&Value>) = match call["call"].as_str() {
            Some("interrupt") => ("asks", vec![&call["question"]["payload"]]),
            Some("interrupt-all") => {
                let questions = call["questions"].as_array();
                ("asks", questions.into_iter().flatten().map(|question| &question["payload"]).collect())
            }
            Some("effect") => {
                let name = call["name"].as_str().unwrap_or_default();
                let line = format!("{index:>3}  effect {name} under {}, {}", call["key"], call["input"]);
                writeln!(text, "    {}", clipped(&line))?;
                continue;
            }
            _ => {
                writeln!(text, "    {index:>3}  steering")?;
                continue;
            }
        };
        for payload in asked {
            let answered = answers.next();
            let order = answered.map(|(order, _)| format!(" (order {order})")).unwrap_or_default();
            writeln!(text, "    {}", clipped(&format!("{index:>3}  {what}{order} {payload}")))?;
            if let Some((_, answer)) = answered {
                writeln!(text, "         {} {}", source(answer), clipped(answer.answer.as_str()))?;
            }
        }
    }
    if node.first.calls.len() > CALLS_SHOWN {
        writeln!(text, "         … and {} more", node.first.calls.len() - CALLS_SHOWN)?;
    }
    Ok(())
}

/// Where a person may look for the reason, as far as there is one to look there.
fn blame(node: &Node) -> String {
    match &node.not_given[..] {
        [] if outcome(&node.first.outcome).contains("the input of node") => {
            "; --input is what it reads".into()
        }
        [] => String::new(),
        names => clipped(&format!("; --input is what it reads, and has no {}", names.join(", "))),
    }
}

/// What the other ways came to.
fn others(text: &mut String, node: &Node) -> std::fmt::Result {
    for road in &node.other_ways {
        let Road { answers, prefixes, attempts, .. } = road;
        let told: Vec<&str> = answers.iter().map(|answer| answer.answer.as_str()).collect();
        let took = format!("{}, {attempts} attempts", counted(*prefixes, "prefix"));
        writeln!(text, "    with {}  ({took})", clipped(&told.join(", ")))?;
        if let Some(difference) = &road.difference {
            different(text, difference)?;
        }
        writeln!(text, "        {}", clipped(&outcome(&road.outcome)))?;
    }
    match node.ways_left {
        0 => Ok(()),
        left => writeln!(text, "    not gone: at least {}; --answers goes one", counted(left, "other way")),
    }
}

/// Where an error came from that nobody in the node caught.
fn stack(text: &mut String, outcome: &Value) -> std::fmt::Result {
    let Some(stack) = outcome["failed"]["detail"]["stack"].as_str() else { return Ok(()) };
    let lines: Vec<&str> = stack.lines().collect();
    let skipped = lines.len().saturating_sub(STACK_LINES);
    lines[skipped..].iter().try_for_each(|line| writeln!(text, "        {}", clipped(line)))
}

fn source(answer: &Answer) -> &'static str {
    match answer.from {
        From::Given(_) => "answered",
        From::Made(MadeFrom::Schema) => "answered, made from its schema:",
        From::Made(MadeFrom::DefaultAnswer) => "answered by its default:",
        From::Made(MadeFrom::Nothing) => "answered, for want of anything better:",
    }
}

fn different(text: &mut String, difference: &Difference) -> std::fmt::Result {
    let Difference { prefix, replay, at, first, replayed } = difference;
    let what = match at {
        At::Call { index } => format!("host call {index}"),
        At::Clock { index } => format!("the node's clock at host call {index}"),
        At::Outcome => "the outcome".into(),
        At::Output => "what it printed".into(),
        At::Fuel => "the fuel that it used".into(),
        At::Memory => "the memory that it took".into(),
    };
    let known = counted(*prefix, "call");
    let line = format!("    replay {replay} with {known} on record differs first in {what}:");
    writeln!(text, "{}", style(line).red())?;
    let shown = |value: &Value| match (at, value) {
        (At::Clock { .. }, Value::Number(ms)) => {
            ms.as_i64().map_or_else(|| ms.to_string(), |ms| format!("{} ({ms} ms)", Timestamp(ms)))
        }
        (_, Value::Object(end)) if end.contains_key("ended") => format!("none: {}", outcome(&end["ended"])),
        (_, value) => value.to_string(),
    };
    let (first, replayed) = around(&shown(first), &shown(replayed));
    writeln!(text, "        first     {first}")?;
    writeln!(text, "        replayed  {replayed}")
}

/// Both sides from a little before they part.
fn around(first: &str, replayed: &str) -> (String, String) {
    let same = first.chars().zip(replayed.chars()).take_while(|(a, b)| a == b).count();
    let skipped = same.saturating_sub(BEFORE_CHARS);
    let shown = |text: &str| {
        let part: String = text.chars().skip(skipped).collect();
        let part = clip(&part, BEFORE_CHARS + FROM_CHARS).into_owned();
        harmless(&if skipped > 0 { format!("…{part}") } else { part }).into_owned()
    };
    (shown(first), shown(replayed))
}

fn outcome(outcome: &Value) -> String {
    if let Some(error) = outcome.get("failed") {
        let word = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        return format!("failed: {}: {}", word("kind"), word("message"));
    }
    match outcome.get("finished") {
        Some(update) => match outcome["routes"].as_array().filter(|routes| !routes.is_empty()) {
            Some(_) => format!("finished: {update}, routes {}", outcome["routes"]),
            None => format!("finished: {update}"),
        },
        None => "paused".into(),
    }
}

/// The end of what was printed.
fn tail(text: &mut String, what: &str, kept: &str, tail: &str) -> std::fmt::Result {
    let is_whole = kept.trim_end().ends_with(tail);
    let lines: Vec<&str> = if is_whole { kept } else { tail }.lines().collect();
    if lines.is_empty() {
        return Ok(());
    }
    let skipped = lines.len().saturating_sub(TAIL_LINES);
    let before = match (is_whole, skipped) {
        (false, _) => ", after more than is kept".into(),
        (true, 0) => String::new(),
        (true, skipped) => format!(", after {}", counted(skipped, "line")),
    };
    writeln!(text, "    {what}{before}")?;
    lines[skipped..].iter().try_for_each(|line| writeln!(text, "        {}", clipped(line)))
}

fn counted(count: usize, what: &str) -> String {
    let plural = if what.ends_with('x') { "es" } else { "s" };
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}{plural}") }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Digest, NodeId};
    use crate::sandbox::Output;
    use serde_json::json;

    #[test]
    fn two_long_sides_are_shown_from_where_they_part() {
        let (first, replayed) =
            around(&format!("{}1tail", "x".repeat(500)), &format!("{}2", "x".repeat(500)));
        assert_eq!(first, format!("…{}1tail", "x".repeat(BEFORE_CHARS)));
        assert_eq!(replayed, format!("…{}2", "x".repeat(BEFORE_CHARS)));
        assert_eq!(around("7", "8"), ("7".into(), "8".into()));
    }

    fn node(difference: Option<Difference>) -> Node {
        let (calls, output) = (
            vec![
                json!({ "call": "interrupt-all", "questions": [{ "payload": 1 }, { "payload": "\u{1b}[2J" }] }),
                json!({ "call": "effect", "name": "refund", "key": "k", "input": { "amount": 7 } }),
            ],
            Output { stdout: "a\nb\nc\nd\ne\nf\n".into(), stdout_tail: "e\nf".into(), ..Output::default() },
        );
        Node {
            node: NodeId::parse("pay").unwrap(),
            component: Digest::of(b""),
            replays: difference.is_none(),
            first: Road::of(calls, json!({ "finished": { "c": 1 }, "routes": [] }), output, difference),
            other_ways: vec![Road::of(
                Vec::new(),
                json!({ "failed": { "kind": "trap", "message": "no" } }),
                Output::default(),
                None,
            )],
            ways_left: 2,
            keys_by_chance: vec![1],
            not_given: Vec::new(),
            answers_unused: 1,
            fuel_max: 2_000_000_000,
            took_ms: 1_250,
        }
    }

    fn said(difference: Option<Difference>) -> String {
        let replays = difference.is_none();
        text(&Verified {
            target: "x".into(),
            replays,
            unverified: Vec::new(),
            failing: Vec::new(),
            nodes: vec![node(difference)],
        })
    }

    #[test]
    fn a_person_reads_what_was_called_and_what_it_took() {
        let said = said(None);
        for line in [
            "pay  replays",
            "    2 host calls, 3 prefixes replayed twice each, 8 attempts",
            "      0  asks 1",
            r#"      0  asks "\u001b[2J""#,
            r#"      1  effect refund under "k", {"amount":7}"#,
            r#"    finished: {"c":1}"#,
            "        failed: trap: no",
            "    not gone: at least 2 other ways; --answers goes one",
            "    not asked for: 1 of --answers",
            "    note: the key of call 1 comes from the clock or a random number: activated again, the node has it done again",
            "    fuel 1,234 of 2,000,000,000, memory 65 KiB, 1.2 s",
            "    stdout, after 1 line",
            "        f",
        ] {
            assert!(said.lines().any(|shown| shown == line), "{line}:\n{said}");
        }
    }

    #[test]
    fn a_difference_is_shown_with_both_sides() {
        let ended = json!({ "ended": { "failed": { "kind": "trap", "message": "it trapped" } } });
        for (at, first, replayed, lines) in [
            (
                At::Call { index: 1 },
                json!({ "call": "steering" }),
                ended,
                [
                    "    replay 2 with 1 call on record differs first in host call 1:",
                    r#"        first     {"call":"steering"}"#,
                    "        replayed  none: failed: trap: it trapped",
                ],
            ),
            (
                At::Clock { index: 0 },
                json!(1_767_225_600_000_i64),
                json!(1_767_225_600_007_i64),
                [
                    "    replay 2 with 1 call on record differs first in the node's clock at host call 0:",
                    "        first     2026-01-01T00:00:00Z (1767225600000 ms)",
                    "        replayed  2026-01-01T00:00:00Z (1767225600007 ms)",
                ],
            ),
            (
                At::Fuel,
                json!(10),
                json!(11),
                [
                    "    replay 2 with 1 call on record differs first in the fuel that it used:",
                    "        first     10",
                    "        replayed  11",
                ],
            ),
        ] {
            let said = said(Some(Difference { prefix: 1, replay: 2, at, first, replayed }));
            assert!(said.starts_with("pay  differs\n"), "{said}");
            for line in lines {
                assert!(said.lines().any(|shown| shown == line), "{line}:\n{said}");
            }
        }
    }

    #[test]
    fn numbers_are_read_in_groups_of_three() {
        assert_eq!(
            (grouped(7), grouped(1_000), grouped(12_345_678)),
            ("7".into(), "1,000".into(), "12,345,678".into())
        );
    }
}
