//! Channels: named pieces of state, and how concurrent updates to one fold together.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::ids::{ChannelName, NodeId};
use super::json::{Json, JsonKind};

/// How the updates of one step to a channel fold into its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reducer {
    /// The new value stands for the old; two writers in one step are an error.
    Replace,
    /// An array's elements are added at the end.
    Append,
    /// An object's members are set, one by one; not deeper.
    Merge,
    /// Numbers are added.
    Sum,
    /// The larger number stays.
    Max,
    /// The smaller number stays.
    Min,
}

impl Reducer {
    pub const ALL: [&'static str; 6] = ["replace", "append", "merge", "sum", "max", "min"];

    /// What an update must be.
    pub fn takes(self) -> Option<JsonKind> {
        match self {
            Self::Replace => None,
            Self::Append => Some(JsonKind::Array),
            Self::Merge => Some(JsonKind::Object),
            Self::Sum | Self::Max | Self::Min => Some(JsonKind::Number),
        }
    }

    /// Whether the channel's present value is needed to fold an update into it.
    pub fn reads_present(self) -> bool {
        matches!(self, Self::Merge | Self::Sum | Self::Max | Self::Min)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Merge => "merge",
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
        }
    }
}

/// What one step does to one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The channel's whole new value.
    Set(Json),
    /// The text between the brackets of an array that is added at the end.
    Append(String),
}

/// Updates that do not fold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    #[error(
        "channel {channel} ({reducer}) takes {wants}{}; {} gave {got}",
        if *reducer == "append" { " of what is added" } else { "" },
        by(node)
    )]
    Type { channel: ChannelName, reducer: &'static str, wants: JsonKind, got: JsonKind, node: String },
    #[error(
        "channel {channel} has the reducer replace, and two tasks of one step wrote it: {first} and {second}; \
         give it another reducer, or let one of them write"
    )]
    TwoWriters { channel: ChannelName, first: String, second: String },
    #[error("channel {channel}: a sum that no number holds")]
    Overflow { channel: ChannelName },
}

/// Who wrote it: a node, or somebody else, whose name has a space as no node's has.
fn by(writer: &str) -> std::borrow::Cow<'_, str> {
    if writer.contains(' ') { writer.into() } else { format!("node {writer}").into() }
}

/// One task's update of one channel. The writer is only named in errors.
pub struct Update<'a> {
    pub writer: &'a str,
    pub value: &'a Json,
}

/// Folds the updates of one step, in task order, into a channel. `present` is needed only where
/// [`Reducer::reads_present`] says so. `None`: nothing changes.
pub fn fold(
    channel: &ChannelName,
    reducer: Reducer,
    present: Option<&Json>,
    updates: &[Update<'_>],
) -> Result<Option<Change>, FoldError> {
    for update in updates {
        check_type(channel, reducer, update.writer, update.value)?;
    }
    let Some(first) = updates.first() else {
        return Ok(None);
    };
    match reducer {
        Reducer::Replace => match updates {
            [only] => Ok(Some(Change::Set(only.value.clone()))),
            [first, second, ..] => Err(FoldError::TwoWriters {
                channel: channel.clone(),
                first: first.writer.to_owned(),
                second: second.writer.to_owned(),
            }),
            [] => Ok(None),
        },
        Reducer::Append => {
            let mut text = String::new();
            for update in updates {
                let elements = update.value.elements_text().unwrap_or_default();
                if !text.is_empty() && !elements.is_empty() {
                    text.push(',');
                }
                text.push_str(elements);
            }
            Ok(Some(Change::Append(text)))
        }
        Reducer::Merge => {
            let mut members = std::collections::BTreeMap::new();
            for object in present.into_iter().chain(updates.iter().map(|u| u.value)) {
                members.extend(object.members().unwrap_or_default());
            }
            let merged = Json::object(members.iter().map(|(key, value)| (key.as_str(), value)));
            Ok(Some(Change::Set(merged)))
        }
        Reducer::Sum => {
            let mut values = present.into_iter().chain(updates.iter().map(|u| u.value));
            let mut sum = values.next().unwrap_or(first.value).clone();
            for value in values {
                sum = add(&sum, value).ok_or_else(|| FoldError::Overflow { channel: channel.clone() })?;
            }
            Ok(Some(Change::Set(sum)))
        }
        Reducer::Max | Reducer::Min => {
            let mut best = present.unwrap_or(first.value);
            for update in updates {
                let wins = match reducer {
                    Reducer::Max => std::cmp::Ordering::Greater,
                    _ => std::cmp::Ordering::Less,
                };
                if compare(update.value, best) == wins {
                    best = update.value;
                }
            }
            Ok(Some(Change::Set(best.clone())))
        }
    }
}

/// Whether one update is what the reducer takes; asked as soon as a task ends, so that the error
/// falls on the node that is at fault and not on the step.
pub fn check_type(
    channel: &ChannelName,
    reducer: Reducer,
    writer: &str,
    value: &Json,
) -> Result<(), FoldError> {
    match reducer.takes() {
        Some(wants) if value.kind() != wants => Err(FoldError::Type {
            channel: channel.clone(),
            reducer: reducer.name(),
            wants,
            got: value.kind(),
            node: writer.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Puts a change onto a value.
pub fn apply(present: Option<&Json>, change: &Change) -> Json {
    match change {
        Change::Set(value) => value.clone(),
        Change::Append(text) => {
            let before = present.and_then(Json::elements_text).unwrap_or_default();
            let comma = if before.is_empty() || text.is_empty() { "" } else { "," };
            Json::from_canonical(format!("[{before}{comma}{text}]"))
        }
    }
}

/// What was added to a channel since it had the value `before`: the elements behind those, or the
/// difference.
pub fn added(reducer: Reducer, before: &Json, now: &Json) -> Json {
    match reducer {
        Reducer::Append => {
            let (before, all) =
                (before.elements_text().unwrap_or_default(), now.elements_text().unwrap_or_default());
            let behind = all.strip_prefix(before).unwrap_or(all);
            Json::from_canonical(format!("[{}]", behind.strip_prefix(',').unwrap_or(behind)))
        }
        Reducer::Sum => match (before.as_str().parse::<i128>(), now.as_str().parse::<i128>()) {
            (Ok(before), Ok(now)) => match now.checked_sub(before) {
                Some(difference) => Json::from_canonical(difference.to_string()),
                None => number(now as f64 - before as f64),
            },
            _ => number(float(now) - float(before)),
        },
        _ => now.clone(),
    }
}

fn number(value: f64) -> Json {
    Number::from_f64(value).map_or_else(Json::null, |n| Json::from_canonical(Value::Number(n).to_string()))
}

/// Whole numbers exactly; others as binary floating point, in task order.
fn add(a: &Json, b: &Json) -> Option<Json> {
    if let (Ok(a), Ok(b)) = (a.as_str().parse::<i128>(), b.as_str().parse::<i128>()) {
        return Some(Json::from_canonical(a.checked_add(b)?.to_string()));
    }
    let sum = float(a) + float(b);
    Number::from_f64(sum).map(|n| Json::from_canonical(Value::Number(n).to_string()))
}

fn compare(a: &Json, b: &Json) -> std::cmp::Ordering {
    match (a.as_str().parse::<i128>(), b.as_str().parse::<i128>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        _ => float(a).total_cmp(&float(b)),
    }
}

fn float(number: &Json) -> f64 {
    number.as_str().parse().unwrap_or(f64::NAN)
}

/// The writer's name in errors for the input of a run.
pub const INPUT: &str = "the input";

impl Update<'_> {
    pub fn of<'a>(node: &'a NodeId, value: &'a Json) -> Update<'a> {
        Update { writer: node.as_str(), value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text, super::super::json::JsonBounds::TRUSTED).unwrap()
    }

    fn folded(reducer: Reducer, present: Option<&str>, updates: &[&str]) -> Result<String, FoldError> {
        let channel = ChannelName::parse("c").unwrap();
        let present = present.map(json);
        let values: Vec<Json> = updates.iter().map(|u| json(u)).collect();
        let updates: Vec<Update<'_>> = values.iter().map(|value| Update { writer: "n", value }).collect();
        let change = fold(&channel, reducer, present.as_ref(), &updates)?;
        Ok(change.map_or("unchanged".into(), |c| apply(present.as_ref(), &c).to_string()))
    }

    #[test]
    fn each_reducer_folds_as_named() {
        use Reducer::*;
        for (reducer, present, updates, right) in [
            (Replace, Some("1"), &["2"][..], "2"),
            (Append, None, &["[1]", "[]", "[2,3]"], "[1,2,3]"),
            (Append, Some("[0]"), &["[]"], "[0]"),
            (Append, Some("[0]"), &["[1]"], "[0,1]"),
            (Merge, Some(r#"{"a":1,"b":2}"#), &[r#"{"b":3}"#, r#"{"c":4}"#], r#"{"a":1,"b":3,"c":4}"#),
            (Sum, None, &["1", "2"], "3"),
            (Sum, Some("12345678901234567890123"), &["1"], "12345678901234567890124"),
            (Sum, Some("0.5"), &["1"], "1.5"),
            (Max, Some("2"), &["1", "10"], "10"),
            (Min, Some("2"), &["1.5", "10"], "1.5"),
            (Sum, Some("1"), &[], "unchanged"),
        ] {
            assert_eq!(folded(reducer, present, updates).unwrap(), right, "{reducer:?}");
        }
    }

    #[test]
    fn what_does_not_fold_is_an_error() {
        assert!(matches!(folded(Reducer::Replace, None, &["1", "1"]), Err(FoldError::TwoWriters { .. })));
        assert!(matches!(folded(Reducer::Append, None, &["1"]), Err(FoldError::Type { .. })));
        assert!(matches!(folded(Reducer::Sum, None, &["\"1\""]), Err(FoldError::Type { .. })));
        let most = i128::MAX.to_string();
        assert!(matches!(folded(Reducer::Sum, Some(&most), &["1"]), Err(FoldError::Overflow { .. })));
    }
}
