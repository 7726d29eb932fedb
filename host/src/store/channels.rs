//! Channel values: a row for each change, put together when they are read.

use super::codec::encode;
use super::error::StoreError;
use super::reader::{View, thread};
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::checkpoint::{ChannelRow, ChannelValue, Version};
use crate::model::ids::{ChannelName, TenantId, ThreadId};
use crate::model::json::{Json, JsonBounds};

// The chain carries keys only, and the text is fetched once at the end. It leads to ever earlier
// versions, so it ends even if a damaged row points where it must not. What is wanted comes first (CROSS
// JOIN): SQLite takes a list in JSON for long, and else goes over all values that the thread ever had.
pub(super) const CHAINS: &str = concat!(
    "WITH RECURSIVE chain (wanted, channel, version, continues, row) AS (
         SELECT w.key, v.channel, v.version, v.continues, v.rowid
         FROM json_each(?3) w CROSS JOIN channel_values v
             ON v.thread = ",
    thread!(),
    " AND v.channel = w.value ->> 0 AND v.version = w.value ->> 1
         UNION ALL
         SELECT c.wanted, v.channel, v.version, v.continues, v.rowid
         FROM chain c CROSS JOIN channel_values v
             ON v.thread = ",
    thread!(),
    " AND v.channel = c.channel AND v.version = c.continues
                AND v.version < c.version
     )
     SELECT c.channel, c.wanted, v.version, v.whole, v.continues, v.value
     FROM chain c JOIN channel_values v ON v.rowid = c.row
     ORDER BY c.wanted, c.version"
);
pub(super) const INSERT: &str = "INSERT INTO channel_values (thread, channel, version, whole, continues, value) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// One channel's value while it is put together.
struct Chain {
    /// An array without its closing bracket, or any value if nothing was put behind it.
    text: String,
    open: bool,
}

impl Store {
    /// Channels' values as they were at these versions, in the order asked for.
    pub async fn values(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        wanted: &[(ChannelName, Version)],
    ) -> Result<Vec<Json>, StoreError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.view().await?.values(tenant, thread, wanted).await
    }
}

impl View {
    /// See [`Store::values`].
    pub async fn values(
        &mut self,
        tenant: &TenantId,
        thread: &ThreadId,
        wanted: &[(ChannelName, Version)],
    ) -> Result<Vec<Json>, StoreError> {
        let sql = sql(CHAINS).bind(tenant.as_str()).bind(thread.as_str()).bind(encode(&wanted)?);
        let rows = self
            .list("channel_values", sql, |row| {
                let place: usize = row.int("wanted")?;
                let whole: bool = row.get("whole")?;
                let version: Version = row.get("version")?;
                let continues: Option<Version> = row.get("continues")?;
                Ok((place, version, whole, continues, row.text("value")?))
            })
            .await?;

        let corrupt = |place: usize, what: String| {
            let (channel, version) = &wanted[place];
            StoreError::Corrupt {
                file: self.file().to_owned(),
                table: "channel_values",
                row: format!("{channel} at version {version} of thread {thread}"),
                what,
            }
        };
        let mut rows = rows.into_iter().peekable();
        let mut values = Vec::with_capacity(wanted.len());
        for place in 0..wanted.len() {
            let mut chain: Option<Chain> = None;
            while let Some((_, version, whole, continues, text)) = rows.next_if(|row| row.0 == place) {
                chain = Some(match (chain, whole) {
                    (None, true) => Chain { text, open: false },
                    (None, false) if continues.is_none() => Chain { text: format!("[{text}"), open: true },
                    (Some(chain), false) => {
                        chain.followed_by(&text).map_err(|what| corrupt(place, what.into()))?
                    }
                    _ => {
                        let what = format!("version {version} continues {continues:?}, which is not there");
                        return Err(corrupt(place, what));
                    }
                });
            }
            let chain = chain.ok_or_else(|| corrupt(place, "no such row".into()))?;
            values.push(chain.close().map_err(|what| corrupt(place, what))?);
        }
        Ok(values)
    }
}

impl Chain {
    fn followed_by(mut self, elements: &str) -> Result<Self, &'static str> {
        if !self.open {
            if !self.text.starts_with('[') || self.text.pop() != Some(']') {
                return Err("it is no array, and something is put behind it");
            }
            self.open = true;
        }
        if self.text.len() > 1 && !elements.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(elements);
        Ok(self)
    }

    fn close(mut self) -> Result<Json, String> {
        if self.open {
            self.text.push(']');
        }
        Json::parse(&self.text, JsonBounds::TRUSTED).map_err(|e| e.to_string())
    }
}

pub(super) async fn insert(pen: &mut Pen<'_>, row: &ChannelRow) -> Result<(), Stop> {
    let (whole, continues, text) = match &row.value {
        ChannelValue::Whole(value) => (true, None, value.as_str()),
        ChannelValue::Appended { text, after } => (false, *after, text.as_str()),
    };
    let sql = sql(INSERT)
        .bind(pen.thread)
        .bind(row.channel.as_str())
        .bind(row.version)
        .bind(whole)
        .bind(continues)
        .bind(text);
    pen.one_row(sql).await
}
