//! Two attempts side by side. Pure.

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::error::ErrorRecord;
use crate::model::ids::Timestamp;
use crate::model::journal::{Divergence, Entry};
use crate::model::json::Json;
use crate::sandbox::{Output, Route};

/// How one attempt ended, as far as another must end like it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    pub outcome: Outcome,
    /// The guest's clock at the last call on record.
    pub clock: Timestamp,
    pub fuel: u64,
    pub memory_bytes: u64,
    pub output: Output,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Finished {
        update: Vec<(String, Json)>,
        routes: Vec<Route>,
    },
    /// At the last call.
    Paused,
    /// The error is without its backtrace.
    Failed {
        error: ErrorRecord,
        retryable: bool,
    },
}

/// Two attempts that should have been the same, and were not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// So many calls were on record when the replay began.
    pub prefix: usize,
    /// Which of the replays of that prefix, from 1.
    pub replay: usize,
    #[serde(flatten)]
    pub at: At,
    /// The call, value or number when the node first ran; `{"ended": …}` if it ended there.
    pub first: Value,
    /// The same, when it was replayed.
    pub replayed: Value,
}

/// Where they part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum At {
    Call {
        index: usize,
    },
    /// The same call, at another time of the node's clock.
    Clock {
        index: usize,
    },
    Outcome,
    Output,
    Fuel,
    Memory,
}

/// The first thing in which two attempts differ, with both sides of it.
pub fn compare(first: (&[Entry], &Ended), replayed: (&[Entry], &Ended)) -> Option<(At, Value, Value)> {
    let ((first, end), (other, other_end)) = (first, replayed);
    let side = |entries: &[Entry], index: usize, ended: &Ended| match entries.get(index) {
        Some(entry) => call(entry),
        None => json!({ "ended": ended.outcome.to_value() }),
    };
    for index in 0..first.len().max(other.len()) {
        let (a, b) = match (first.get(index), other.get(index)) {
            (Some(a), Some(b)) if a.call == b.call => (a, b),
            _ => {
                return Some((At::Call { index }, side(first, index, end), side(other, index, other_end)));
            }
        };
        // The one that an attempt paused at was answered since, in the first run.
        let is_paused = index + 1 == first.len() && end.outcome == Outcome::Paused;
        let (then, now) = if is_paused { (end.clock, other_end.clock) } else { (a.at, b.at) };
        if then != now {
            return Some((At::Clock { index }, json!(then.0), json!(now.0)));
        }
    }
    if end.outcome != other_end.outcome {
        return Some((At::Outcome, end.outcome.to_value(), other_end.outcome.to_value()));
    }
    if is_printed(&end.output) != is_printed(&other_end.output) {
        return Some((At::Output, printed(&end.output), printed(&other_end.output)));
    }
    // How deep the stack was when it overflowed is the machine's, and nothing else of that attempt counts.
    if end.outcome.is_stack_overflow() {
        return None;
    }
    if end.fuel != other_end.fuel {
        return Some((At::Fuel, json!(end.fuel), json!(other_end.fuel)));
    }
    if end.memory_bytes != other_end.memory_bytes {
        return Some((At::Memory, json!(end.memory_bytes), json!(other_end.memory_bytes)));
    }
    None
}

/// A replay that the journal itself refused, or that left part of it unread.
pub(super) fn diverged(divergence: Divergence, ended: &Ended, prefix: usize, replay: usize) -> Difference {
    let shown = |call| serde_json::to_value(call).unwrap_or(Value::Null);
    let Divergence { index, expected, actual, .. } = divergence;
    let replayed = match &actual {
        Some(actual) => shown(actual),
        None => json!({ "ended": ended.outcome.to_value() }),
    };
    Difference { prefix, replay, at: At::Call { index }, first: shown(&expected), replayed }
}

/// Not whether it was cut off: that depends on the log as well, of which a replay writes only what is new.
fn is_printed(output: &Output) -> [&str; 4] {
    let Output { stdout, stderr, stdout_tail, stderr_tail, truncated: _ } = output;
    [stdout, stderr, stdout_tail, stderr_tail].map(String::as_str)
}

fn printed(output: &Output) -> Value {
    serde_json::to_value(output).unwrap_or(Value::Null)
}

fn call(entry: &Entry) -> Value {
    serde_json::to_value(&entry.call).unwrap_or(Value::Null)
}

impl Outcome {
    pub fn to_value(&self) -> Value {
        match self {
            Self::Paused => json!("paused"),
            Self::Failed { error, retryable } => json!({ "failed": error, "retryable": retryable }),
            Self::Finished { update, routes } => {
                let update = Json::object(update.iter().map(|(name, value)| (name.as_str(), value)));
                let route = |route: &Route| match route {
                    Route::End => json!("end"),
                    Route::Go(label) => json!({ "go": label }),
                    Route::Send { label, arg } => json!({ "send": label, "arg": arg.value() }),
                };
                let routes: Vec<Value> = routes.iter().map(route).collect();
                json!({ "finished": update.value(), "routes": routes })
            }
        }
    }

    fn is_stack_overflow(&self) -> bool {
        matches!(self, Self::Failed { error, .. } if error.more.get("trap") == Some(&json!("stack-overflow")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Kind;
    use crate::model::journal::{Call, EffectOutcome, EffectReply, Reply};

    fn effect(key: &str, at: i64) -> Entry {
        let call = Call::Effect { name: "e".into(), key: key.into(), input: Json::null() };
        let done = EffectReply::Known(EffectOutcome::Done(Json::null()));
        Entry { call, reply: Reply::Effect(done), at: Timestamp(at) }
    }

    fn ended(outcome: Outcome) -> Ended {
        Ended { outcome, clock: Timestamp(9), fuel: 5, memory_bytes: 6, output: Output::default() }
    }

    fn finished(value: &str) -> Outcome {
        Outcome::Finished { update: vec![("a".into(), Json::string(value))], routes: vec![Route::End] }
    }

    fn trapped(trap: &str) -> Outcome {
        let error = ErrorRecord::new(Kind::Trap, "it trapped").with("trap", trap);
        Outcome::Failed { error, retryable: false }
    }

    /// What of the two differs first.
    fn check(first: (&[Entry], &Ended), replayed: (&[Entry], &Ended)) -> Option<At> {
        let found = compare(first, replayed);
        if let Some((_, a, b)) = &found {
            assert_ne!(a, b, "both sides are shown");
        }
        assert_eq!(compare(first, first), None);
        found.map(|(at, ..)| at)
    }

    #[test]
    fn calls_come_first_then_their_times() {
        let (calls, end) = ([effect("k", 1), effect("l", 2)], ended(finished("x")));
        for (replayed, at) in [
            (vec![effect("k", 1), effect("l", 2)], None),
            (vec![effect("m", 1), effect("l", 2)], Some(At::Call { index: 0 })),
            (vec![effect("l", 2), effect("k", 1)], Some(At::Call { index: 0 })),
            (vec![effect("k", 1)], Some(At::Call { index: 1 })),
            (vec![effect("k", 1), effect("l", 2), effect("m", 3)], Some(At::Call { index: 2 })),
            (vec![effect("k", 1), effect("l", 3)], Some(At::Clock { index: 1 })),
            (vec![effect("k", 2), effect("m", 2)], Some(At::Clock { index: 0 })),
        ] {
            assert_eq!(check((&calls, &end), (&replayed, &end)), at, "{replayed:?}");
        }
        // What an attempt paused at was answered later: its own clock counts.
        let (asked, later) = ([effect("k", 1)], [effect("k", 700)]);
        let paused = ended(Outcome::Paused);
        assert_eq!(check((&later, &paused), (&asked, &paused)), None);
        let late = Ended { clock: Timestamp(10), ..paused.clone() };
        assert_eq!(check((&later, &paused), (&asked, &late)), Some(At::Clock { index: 0 }));
    }

    #[test]
    fn then_comes_the_end_and_what_it_took() {
        let end = ended(finished("x"));
        let printed = Output { stderr_tail: "y".into(), ..Output::default() };
        let cut = Output { truncated: true, ..Output::default() };
        for (replayed, at) in [
            (ended(finished("y")), Some(At::Outcome)),
            (ended(trapped("unreachable")), Some(At::Outcome)),
            (Ended { output: printed, fuel: 0, ..end.clone() }, Some(At::Output)),
            (Ended { fuel: 6, memory_bytes: 0, ..end.clone() }, Some(At::Fuel)),
            (Ended { memory_bytes: 7, ..end.clone() }, Some(At::Memory)),
            (Ended { output: cut, ..end.clone() }, None),
        ] {
            assert_eq!(check((&[], &end), (&[], &replayed)), at, "{replayed:?}");
        }
    }

    #[test]
    fn a_trap_counts_by_its_kind_and_a_stack_not_by_its_depth() {
        for (first, replayed, more_fuel, at) in [
            ("stack-overflow", "stack-overflow", 1, None),
            ("unreachable", "unreachable", 0, None),
            ("unreachable", "unreachable", 1, Some(At::Fuel)),
            ("stack-overflow", "memory-out-of-bounds", 0, Some(At::Outcome)),
        ] {
            let first = ended(trapped(first));
            let replayed = Ended { fuel: first.fuel + more_fuel, ..ended(trapped(replayed)) };
            assert_eq!(check((&[], &first), (&[], &replayed)), at, "{replayed:?}");
        }
    }
}
