//! A statement and its values.

use std::sync::Arc;

use rusqlite::ToSql;
use rusqlite::types::{ToSqlOutput, ValueRef};

pub(super) struct Sql {
    pub text: &'static str,
    pub values: Vec<Value>,
}

pub(super) enum Value {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
    /// Large, and not copied.
    Shared(Arc<Vec<u8>>),
}

impl Sql {
    pub fn new(text: &'static str) -> Self {
        Self { text, values: Vec::with_capacity(16) }
    }

    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
            Self::Shared(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

macro_rules! values {
    ($($from:ty => |$value:ident| $to:expr),* $(,)?) => { $(impl From<$from> for Value {
        fn from($value: $from) -> Self { $to }
    })* };
}
values! {
    i64 => |number| Self::Int(number),
    u32 => |number| Self::Int(number.into()),
    bool => |is| Self::Int(is.into()),
    String => |text| Self::Text(text),
    &str => |text| Self::Text(text.to_owned()),
    Vec<u8> => |bytes| Self::Blob(bytes),
    &[u8] => |bytes| Self::Blob(bytes.to_vec()),
    Arc<Vec<u8>> => |bytes| Self::Shared(bytes),
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
