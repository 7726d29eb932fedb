//! What somebody has to see to: the rows are the truth, and no timer can be lost.

use super::error::StoreError;
use super::{PAGE_ROWS_MAX, Store, sql};
use crate::model::ids::{TenantId, ThreadId, Timestamp};

// A question whose time is over; a run that nobody runs; input on a thread that is free.
pub(super) const THREADS: &str = "SELECT n.name AS tenant, h.name AS name \
    FROM interrupts i JOIN threads h ON h.thread = i.thread JOIN tenants n ON n.tenant = h.tenant \
    WHERE i.state = 'pending' AND i.expires_at <= ?1 \
    UNION SELECT n.name, h.name FROM tenants n JOIN threads h ON h.tenant = n.tenant AND h.status = 'running' \
    WHERE h.owner IS NULL OR h.until <= ?1 \
    UNION SELECT n.name, h.name FROM inputs q JOIN threads h ON h.thread = q.thread \
        JOIN tenants n ON n.tenant = h.tenant \
    WHERE h.status NOT IN ('running', 'interrupted') LIMIT ?2";
pub(super) const NEXT: &str =
    "SELECT min(i.expires_at) AS at FROM interrupts i WHERE i.state = 'pending' AND i.expires_at IS NOT NULL";

impl Store {
    /// Threads, of all tenants, on which something is due: a page of them.
    pub async fn due(&self, now: Timestamp) -> Result<Vec<(TenantId, ThreadId)>, StoreError> {
        let sql = sql(THREADS).bind(now.0).bind(PAGE_ROWS_MAX);
        let read = |row: &super::codec::Columns<'_>| Ok((row.name("tenant")?, row.name("name")?));
        self.view().await?.list("threads", sql, read).await
    }

    /// When the next question expires.
    pub async fn next_expiry(&self) -> Result<Option<Timestamp>, StoreError> {
        let at = self.view().await?.find("interrupts", sql(NEXT), |row| row.at_or_null("at")).await?;
        Ok(at.flatten())
    }
}
