//! Readers: connections that cannot write, several at once, none of them in the writer's way.

use std::ops::DerefMut;
use std::sync::Arc;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::SqliteRow;
use sqlx::{Sqlite, SqliteConnection, Transaction};

use super::codec::Columns;
use super::error::StoreError;
use super::{Inner, Store, faults, statement};

pub(super) type Sql = statement::Sql;

/// A reader at work.
pub(super) struct View<C> {
    connection: C,
    store: Arc<Inner>,
}

impl Store {
    /// For one statement, which is consistent in itself.
    pub(super) async fn view(&self) -> Result<View<PoolConnection<Sqlite>>, StoreError> {
        let connection = self.inner.readers.acquire().await.map_err(|e| self.inner.error(e))?;
        Ok(View { connection, store: self.inner.clone() })
    }

    /// For several statements: all see the database as it is at the first.
    pub(super) async fn snapshot(&self) -> Result<View<Transaction<'static, Sqlite>>, StoreError> {
        faults::operation().map_err(|e| self.inner.error(e))?;
        let connection = self.inner.readers.begin().await.map_err(|e| self.inner.error(e))?;
        Ok(View { connection, store: self.inner.clone() })
    }
}

impl<C: DerefMut<Target = SqliteConnection> + Send> View<C> {
    pub fn file(&self) -> &str {
        &self.store.file
    }

    pub async fn rows(&mut self, sql: Sql) -> Result<Vec<SqliteRow>, StoreError> {
        self.store.tally.statement();
        faults::operation().map_err(|e| self.store.error(e))?;
        sql.sent().fetch_all(&mut *self.connection).await.map_err(|e| self.store.error(e))
    }

    pub async fn list<T>(
        &mut self,
        table: &'static str,
        sql: Sql,
        read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.rows(sql).await?;
        rows.iter().map(|row| read(&Columns { file: self.file(), table, row })).collect()
    }

    pub async fn find<T>(
        &mut self,
        table: &'static str,
        sql: Sql,
        read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.store.tally.statement();
        faults::operation().map_err(|e| self.store.error(e))?;
        let row = sql.sent().fetch_optional(&mut *self.connection).await.map_err(|e| self.store.error(e))?;
        row.map(|row| read(&Columns { file: self.file(), table, row: &row })).transpose()
    }
}

/// The number of the thread that a statement's first two parameters name: tenant, thread.
macro_rules! thread {
    () => {
        "(SELECT h.thread FROM tenants n JOIN threads h ON h.tenant = n.tenant \
          WHERE n.name = ?1 AND h.name = ?2)"
    };
}
/// The number of the tenant that a statement's first parameter names.
macro_rules! tenant {
    () => {
        "(SELECT n.tenant FROM tenants n WHERE n.name = ?1)"
    };
}
pub(super) use {tenant, thread};
