//! Between rows and the model's types. What is read was perhaps changed or damaged since it was
//! written: it is checked like anything from outside, and what is wrong names table and row.

use std::fmt::Display;
use std::str::FromStr;

use rusqlite::Row;
use rusqlite::types::{FromSql, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::error::StoreError;
use crate::model::RunStatus;
use crate::model::ids::{CheckpointId, Digest, InstructionId, InterruptId, RunId, TaskId, Timestamp};
use crate::model::json::{Json, JsonBounds};

/// Ids are stored as their 16 bytes.
pub(super) trait BlobId: Sized {
    fn of(uuid: Uuid) -> Self;
    fn uuid(&self) -> &Uuid;
    fn blob(&self) -> &[u8] {
        self.uuid().as_bytes()
    }
}

macro_rules! blob_ids {
    ($($id:ident),*) => { $(impl BlobId for $id {
        fn of(uuid: Uuid) -> Self { Self(uuid) }
        fn uuid(&self) -> &Uuid { &self.0 }
    })* };
}
blob_ids!(RunId, TaskId, CheckpointId, InterruptId, InstructionId);

/// Host-made data as JSON text.
pub(super) fn encode(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::rejected(format!("no JSON in a value: {e}")))
}

pub(super) fn int(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// One row of a table. The first column of every statement names the row.
pub(super) struct Columns<'r> {
    pub file: &'r str,
    pub table: &'static str,
    /// Of its columns, in their order.
    pub names: &'r [String],
    pub row: &'r Row<'r>,
}

impl<'r> Columns<'r> {
    pub fn wrong(&self, column: &str, what: impl Display) -> StoreError {
        StoreError::Corrupt {
            file: self.file.to_owned(),
            table: self.table,
            row: self.name_of_row(),
            what: format!("{column}: {what}"),
        }
    }

    fn name_of_row(&self) -> String {
        match self.row.get_ref(0) {
            Ok(ValueRef::Blob(bytes)) => {
                Uuid::from_slice(bytes).map_or_else(|_| hex::encode(bytes), |id| id.to_string())
            }
            Ok(ValueRef::Integer(number)) => number.to_string(),
            Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => "?".into(),
        }
    }

    pub fn get<T: FromSql>(&self, column: &'static str) -> Result<T, StoreError> {
        self.value(column).and_then(|value| T::column_result(value).map_err(|e| self.wrong(column, e)))
    }

    fn value(&self, column: &str) -> Result<ValueRef<'_>, StoreError> {
        let place = self.names.iter().position(|name| name == column);
        let place = place.ok_or_else(|| self.wrong(column, "the statement has no such column"))?;
        self.row.get_ref(place).map_err(|e| self.wrong(column, e))
    }

    /// Text that nobody needs for longer than the row is there.
    fn text_or_null(&self, column: &'static str) -> Result<Option<&str>, StoreError> {
        self.value(column)?.as_str_or_null().map_err(|e| self.wrong(column, e))
    }

    /// Parses a column, if it holds something.
    fn parsed<T, E: Display>(
        &self,
        column: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, StoreError> {
        let text = self.text_or_null(column)?;
        text.map(|text| parse(text).map_err(|e| self.wrong(column, e))).transpose()
    }

    pub fn some<T>(&self, column: &'static str, value: Option<T>) -> Result<T, StoreError> {
        value.ok_or_else(|| self.wrong(column, "nothing where something should be"))
    }

    pub fn id_or_null<T: BlobId>(&self, column: &'static str) -> Result<Option<T>, StoreError> {
        let bytes: Option<Vec<u8>> = self.get(column)?;
        let id = bytes.map(|bytes| Uuid::from_slice(&bytes).map(T::of));
        id.transpose().map_err(|e| self.wrong(column, e))
    }

    pub fn uuid(&self, column: &'static str) -> Result<Uuid, StoreError> {
        self.bytes(column).map(Uuid::from_bytes)
    }

    pub fn id<T: BlobId>(&self, column: &'static str) -> Result<T, StoreError> {
        let id = self.id_or_null(column)?;
        self.some(column, id)
    }

    pub fn bytes<const N: usize>(&self, column: &'static str) -> Result<[u8; N], StoreError> {
        let bytes: Vec<u8> = self.get(column)?;
        let len = bytes.len();
        bytes.try_into().map_err(|_| self.wrong(column, format!("{len} bytes instead of {N}")))
    }

    pub fn digest(&self, column: &'static str) -> Result<Digest, StoreError> {
        self.bytes(column).map(Digest)
    }

    pub fn int<T: TryFrom<i64>>(&self, column: &'static str) -> Result<T, StoreError> {
        let value: i64 = self.get(column)?;
        T::try_from(value).map_err(|_| self.wrong(column, format!("{value} is out of range")))
    }

    pub fn at(&self, column: &'static str) -> Result<Timestamp, StoreError> {
        self.get(column).map(Timestamp)
    }

    pub fn at_or_null(&self, column: &'static str) -> Result<Option<Timestamp>, StoreError> {
        Ok(self.get::<Option<i64>>(column)?.map(Timestamp))
    }

    pub fn text(&self, column: &'static str) -> Result<String, StoreError> {
        self.get(column)
    }

    pub fn name<T: FromStr<Err: Display>>(&self, column: &'static str) -> Result<T, StoreError> {
        let name = self.parsed(column, T::from_str)?;
        self.some(column, name)
    }

    pub fn word<T>(&self, column: &'static str, parse: fn(&str) -> Option<T>) -> Result<T, StoreError> {
        let word = self.parsed(column, |text| {
            parse(text).ok_or_else(|| format!("{:?} is none of the words it can be", clip(text)))
        })?;
        self.some(column, word)
    }

    pub fn status(&self, column: &'static str) -> Result<RunStatus, StoreError> {
        self.word(column, RunStatus::parse)
    }

    pub fn json_or_null(&self, column: &'static str) -> Result<Option<Json>, StoreError> {
        self.parsed(column, |text| Json::parse(text, JsonBounds::TRUSTED))
    }

    pub fn json(&self, column: &'static str) -> Result<Json, StoreError> {
        let json = self.json_or_null(column)?;
        self.some(column, json)
    }

    pub fn decoded_or_null<T: DeserializeOwned>(
        &self,
        column: &'static str,
    ) -> Result<Option<T>, StoreError> {
        self.parsed(column, |text| serde_json::from_str(text))
    }

    pub fn decoded<T: DeserializeOwned>(&self, column: &'static str) -> Result<T, StoreError> {
        let value = self.decoded_or_null(column)?;
        self.some(column, value)
    }
}

/// What is shown of a damaged value may be huge; the error is not.
fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}
