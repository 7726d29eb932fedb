//! Requests that named themselves: one sent twice gets the first reply twice.

use super::codec::Columns;
use super::error::StoreError;
use super::reader::thread;
use super::write::{Pen, Stop};
use super::{Store, sql};
use crate::model::ids::{Digest, TenantId, ThreadId, Timestamp};
use crate::model::json::Json;

pub(super) const BY_ID: &str = concat!(
    "SELECT q.request, q.command, q.at, q.reply FROM requests q WHERE q.thread = ",
    thread!(),
    " AND q.request = ?3"
);
const PUT: &str = "INSERT INTO requests (thread, request, command, at, reply) VALUES (?1, ?2, ?3, ?4, ?5) \
    ON CONFLICT (thread, request) DO UPDATE SET reply = coalesce(excluded.reply, reply)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRow {
    /// Digest of what it asked.
    pub command: Digest,
    /// When it was accepted.
    pub at: Timestamp,
    /// `None`: it is not finished.
    pub reply: Option<Json>,
}

impl Store {
    pub async fn request(
        &self,
        tenant: &TenantId,
        thread: &ThreadId,
        request_id: &str,
    ) -> Result<Option<RequestRow>, StoreError> {
        let sql = sql(BY_ID).bind(tenant.as_str()).bind(thread.as_str()).bind(request_id);
        let read = |row: &Columns<'_>| {
            let (command, at, reply) = (row.digest("command")?, row.at("at")?, row.json_or_null("reply")?);
            Ok(RequestRow { command, at, reply })
        };
        self.view().await?.find("requests", sql, read).await
    }
}

pub(super) async fn put(
    pen: &mut Pen<'_>,
    request_id: &str,
    command: Digest,
    at: Timestamp,
    reply: Option<&Json>,
) -> Result<(), Stop> {
    let sql = sql(PUT)
        .bind(pen.thread)
        .bind(request_id)
        .bind(command.0.as_slice())
        .bind(at.0)
        .bind(reply.map(Json::as_str));
    pen.one_row(sql).await
}
