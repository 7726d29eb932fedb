//! The channels of one boundary, loaded only where somebody reads them.

use std::collections::BTreeMap;

use super::ledger::{Ledger, Lost};
use crate::model::channel::{self, Change};
use crate::model::checkpoint::{ChannelRow, ChannelValue, Version};
use crate::model::ids::ChannelName;
use crate::model::json::Json;

#[derive(Default)]
pub struct Channels {
    /// For each channel that was ever written, the boundary that holds its value.
    versions: BTreeMap<ChannelName, Version>,
    held: BTreeMap<ChannelName, Held>,
}

enum Held {
    Whole(Json),
    /// What this invocation appended to a value that nobody has read yet.
    Tail {
        base: Option<Version>,
        text: String,
    },
}

impl Channels {
    pub fn at(versions: BTreeMap<ChannelName, Version>) -> Self {
        Self { versions, held: BTreeMap::new() }
    }

    /// Takes values that are at hand anyway.
    pub fn hold(&mut self, values: BTreeMap<ChannelName, (Version, Json)>) {
        for (name, (version, value)) in values {
            if self.versions.get(&name) == Some(&version) {
                self.held.entry(name).or_insert(Held::Whole(value));
            }
        }
    }

    pub fn versions(&self) -> &BTreeMap<ChannelName, Version> {
        &self.versions
    }

    /// Has these at hand. Without a ledger everything is at hand already.
    pub async fn load(
        &mut self,
        names: impl Iterator<Item = &ChannelName>,
        ledger: Option<&Ledger>,
    ) -> Result<(), Lost> {
        let mut wanted: Vec<(ChannelName, Version)> = Vec::new();
        for name in names {
            let base = match self.held.get(name) {
                Some(Held::Whole(_)) => continue,
                Some(Held::Tail { base, .. }) => *base,
                None => self.versions.get(name).copied(),
            };
            match base {
                Some(version) if !wanted.iter().any(|(known, _)| known == name) => {
                    wanted.push((name.clone(), version))
                }
                Some(_) => {}
                None => self.join(name, None),
            }
        }
        let (Some(ledger), false) = (ledger, wanted.is_empty()) else {
            return Ok(());
        };
        let values = ledger.values(&wanted).await?;
        for ((name, _), value) in wanted.iter().zip(values) {
            self.join(name, Some(value));
        }
        Ok(())
    }

    fn join(&mut self, name: &ChannelName, base: Option<Json>) {
        let whole = match self.held.remove(name) {
            Some(Held::Tail { text, .. }) => Some(channel::apply(base.as_ref(), &Change::Append(text))),
            Some(Held::Whole(value)) => Some(value),
            None => base,
        };
        if let Some(whole) = whole {
            self.held.insert(name.clone(), Held::Whole(whole));
        }
    }

    /// A channel's value, if it was loaded and ever written.
    pub fn get(&self, name: &ChannelName) -> Option<&Json> {
        match self.held.get(name) {
            Some(Held::Whole(value)) => Some(value),
            _ => None,
        }
    }

    /// All that are at hand, for a fold.
    pub fn present(&self) -> BTreeMap<ChannelName, Json> {
        let whole = |(name, held): (&ChannelName, &Held)| match held {
            Held::Whole(value) => Some((name.clone(), value.clone())),
            Held::Tail { .. } => None,
        };
        self.held.iter().filter_map(whole).collect()
    }

    /// Applies a boundary's changes and says what of them is to be stored.
    pub fn apply(&mut self, version: Version, changes: BTreeMap<ChannelName, Change>) -> Vec<ChannelRow> {
        let mut rows = Vec::new();
        for (name, change) in changes {
            let before = self.versions.insert(name.clone(), version);
            match (&change, self.held.get_mut(&name)) {
                (Change::Append(text), Some(Held::Tail { text: tail, .. })) => {
                    if !tail.is_empty() && !text.is_empty() {
                        tail.push(',');
                    }
                    tail.push_str(text);
                }
                (Change::Append(text), None) => {
                    self.held.insert(name.clone(), Held::Tail { base: before, text: text.clone() });
                }
                (change, held) => {
                    let present = match held {
                        Some(Held::Whole(value)) => Some(&*value),
                        _ => None,
                    };
                    let whole = channel::apply(present, change);
                    self.held.insert(name.clone(), Held::Whole(whole));
                }
            }
            let value = match change {
                Change::Set(value) => ChannelValue::Whole(value),
                Change::Append(text) => ChannelValue::Appended { text, after: before },
            };
            rows.push(ChannelRow { channel: name, version, value });
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ChannelName {
        ChannelName::parse(text).unwrap()
    }

    #[tokio::test]
    async fn what_nobody_reads_is_only_added_to() {
        let mut channels = Channels::default();
        let append = |text: &str| BTreeMap::from([(name("log"), Change::Append(text.into()))]);
        let rows = channels.apply(1, append("1"));
        assert_eq!(rows[0].value, ChannelValue::Appended { text: "1".into(), after: None });
        let rows = channels.apply(2, append("2,3"));
        assert_eq!(rows[0].value, ChannelValue::Appended { text: "2,3".into(), after: Some(1) });
        assert_eq!(channels.get(&name("log")), None);
        channels.load([name("log")].iter(), None).await.unwrap();
        assert_eq!(channels.get(&name("log")).unwrap().as_str(), "[1,2,3]");
        channels.apply(3, append("4"));
        assert_eq!(channels.get(&name("log")).unwrap().as_str(), "[1,2,3,4]");
    }
}
