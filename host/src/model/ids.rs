//! Names and ids. Each is a type of its own: a run's id does not fit where a task's is wanted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::{Uuid, Version};

/// The text is no id or name of the kind that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {kind}: {rule}")]
pub struct InvalidName {
    pub kind: &'static str,
    pub text: String,
    pub rule: &'static str,
}

impl InvalidName {
    fn new(kind: &'static str, text: &str, rule: &'static str) -> Self {
        // What is refused may be huge; the error is not.
        let text = text.chars().take(80).collect();
        Self { kind, text, rule }
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|_| InvalidName::new($kind, text, "it is written as a UUID"))
            }
        }
    };
}

uuid_id!(
    /// From new input until it completes, fails or is cancelled, across all its resumes.
    RunId, "run id"
);
uuid_id!(
    /// One activation of one node in one step; the same in every attempt.
    TaskId, "task id"
);
uuid_id!(
    /// One state of a thread.
    CheckpointId, "checkpoint id"
);
uuid_id!(
    /// One question that a task asked.
    InterruptId, "interrupt id"
);

uuid_id!(
    /// What a person added beside an answer.
    InstructionId, "instruction id"
);

// Every id begins with a time: its own, or that of the boundary it hangs on (`derived`). An index of ids so grows
// at its end whoever writes, and a commit touches few pages of it.

impl RunId {
    /// A root run's.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }
}

impl InstructionId {
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }
}

impl CheckpointId {
    /// In time order. As a version 7, and marked as one whose tasks' ids begin as it does.
    pub fn fresh() -> Self {
        Self(Uuid::new_v8(Uuid::now_v7().into_bytes()))
    }
}

/// The namespace of all ids that are derived from others.
const DERIVED: Uuid = Uuid::from_u128(0x3b1f_5c62_7a04_4c59_9d1e_08f2_6c7a_90d5);

/// The milliseconds that an id of version 7 or 8 begins with.
const TIME_BYTES: usize = 6;

/// A hash of the name, the same whenever it is derived, behind the time that `from` begins with. An id of another
/// version is one of an earlier build, which named what hangs on it by the hash alone; its rows are still there.
fn derived(from: Uuid, name: &str) -> Uuid {
    let hash = Uuid::new_v5(&DERIVED, name.as_bytes());
    if from.get_version() != Some(Version::Custom) {
        return hash;
    }
    let mut bytes = hash.into_bytes();
    bytes[..TIME_BYTES].copy_from_slice(&from.as_bytes()[..TIME_BYTES]);
    Uuid::new_v8(bytes)
}

impl TaskId {
    /// The same for every attempt, whatever pauses come between: it hangs on the boundary alone.
    pub fn derive(boundary: CheckpointId, index: usize, node: &NodeId) -> Self {
        Self(derived(boundary.0, &format!("task/{boundary}/{index}/{node}")))
    }
}

impl RunId {
    /// A child run's, by the task that starts it and how often the task was begun anew: started again after
    /// a crash, it is the same run.
    pub fn derive(task: TaskId, generation: u32) -> Self {
        Self(derived(task.0, &format!("run/{task}/{generation}")))
    }
}

impl InterruptId {
    /// `order` is the node's own count for its own questions, and the journal's index for the host's;
    /// `time` counts those from 0 that the host asks about one entry.
    pub fn derive(task: TaskId, kind: &str, (order, time): (usize, usize), generation: u32) -> Self {
        Self(derived(task.0, &format!("interrupt/{task}/{kind}/{order}/{time}/{generation}")))
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn parse(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                let valid: fn(&str) -> bool = $valid;
                if valid(&text) { Ok(Self(text)) } else { Err(InvalidName::new($kind, &text, $rule)) }
            }
            pub fn as_str(&self) -> &str { &self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { write!(f, "{:?}", self.0) }
        }
        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> { Self::parse(text) }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                Self::parse(String::deserialize(d)?).map_err(serde::de::Error::custom)
            }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str { &self.0 }
        }
    };
}

/// What a caller may name something by, and is shown in a line.
pub fn is_line(text: &str) -> bool {
    (1..=255).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn is_word(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

name!(
    /// A node's name in its graph.
    NodeId, "node name", "1 to 64 letters, digits, '_', '-' or '.'; not \"end\"", |t| is_word(t) && t != "end"
);
name!(
    /// A channel's name in its graph.
    ChannelName, "channel name", "1 to 64 letters, digits, '_', '-' or '.'", is_word
);
name!(
    /// An effect's name in its graph.
    EffectName, "effect name", "1 to 64 letters, digits, '_', '-' or '.'", is_word
);
name!(
    /// One durable line of state, named by the caller.
    ThreadId, "thread id", "1 to 255 bytes without control characters",
    is_line
);
name!(
    /// Whose component, graph, thread, quota it is.
    TenantId, "tenant", "1 to 64 letters, digits, '_', '-' or '.'", is_word
);

impl Default for TenantId {
    fn default() -> Self {
        Self("default".into())
    }
}

/// SHA-256 of content: a component's bytes, a graph's canonical form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Of several parts, told apart by their lengths: no two lists of parts run together.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = InvalidName;
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let mut bytes = [0; 32];
        text.strip_prefix("sha256:")
            .and_then(|hex| hex::decode_to_slice(hex, &mut bytes).ok())
            .map(|()| Self(bytes))
            .ok_or_else(|| InvalidName::new("digest", text, "\"sha256:\" and 64 hex digits"))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX)).min(LAST_DATE_MS))
    }
}

/// The end of the year 9999.
const LAST_DATE_MS: i64 = 253_402_300_799_999;

/// As a date, UTC, to the second.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What a date cannot say is shown as the nearest that it can.
        let ms = self.0.clamp(0, LAST_DATE_MS).unsigned_abs();
        let since = std::time::Duration::from_millis(ms);
        humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + since).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_where_they_enter() {
        for bad in ["", "end", "a b", "a/b", &"x".repeat(65)] {
            assert!(NodeId::parse(bad).is_err(), "{bad:?}");
        }
        assert!(ThreadId::parse("line\nbreak").is_err());
        assert!(ThreadId::parse("Größe 7/…").is_ok());
    }

    #[test]
    fn a_digest_survives_its_text() {
        let digest = Digest::of(b"holdpoint");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert!("sha256:12".parse::<Digest>().is_err());
    }

    #[test]
    fn what_hangs_on_a_boundary_lies_where_it_does() {
        let node = NodeId::parse("n").unwrap();
        let boundary = CheckpointId::fresh();
        let [task, other] = [0, 1].map(|index| TaskId::derive(boundary, index, &node));
        let run = RunId::derive(task, 0);
        let question = InterruptId::derive(task, "node", (0, 0), 0);
        for id in [task.0, other.0, run.0, question.0] {
            assert_eq!(id.as_bytes()[..TIME_BYTES], boundary.0.as_bytes()[..TIME_BYTES]);
            assert_eq!(id.get_version(), Some(Version::Custom));
        }
        assert_ne!(task, other);
        assert_eq!(task, TaskId::derive(boundary, 0, &node));
        assert!(boundary < CheckpointId::fresh());
    }

    /// A database of an earlier build has these ids in its rows.
    #[test]
    fn what_hangs_on_an_earlier_builds_boundary_keeps_its_id() {
        let boundary: CheckpointId = "0198f0c0-0000-7000-8000-000000000000".parse().unwrap();
        let task = TaskId::derive(boundary, 0, &NodeId::parse("n").unwrap());
        assert_eq!(task.to_string(), "06bf5ce1-7624-5207-8533-6e8b22749f8f");
        assert_eq!(RunId::derive(task, 0).to_string(), "5e90fbc4-8c89-5b24-b9f8-f63fc93fe7f0");
        assert_eq!(
            InterruptId::derive(task, "node", (0, 0), 0).to_string(),
            "d3aba3d7-027f-5803-81f4-8e07cf8f8451"
        );
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(Digest::of_parts([b"ab".as_slice(), b"c"]), Digest::of_parts([b"a".as_slice(), b"bc"]));
    }
}
