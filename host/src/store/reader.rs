//! Readers: connections that cannot write, several at once, none of them in the writer's way.
//!
//! What is read by its key is read where it is asked for, on the caller's thread: that takes some
//! microseconds, and to have another thread do it takes ten times as long. What may go over much, as a list
//! of threads does, lets the runtime's other work go on meanwhile ([`View::scan`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, params_from_iter};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::codec::Columns;
use super::error::{Failure, StoreError};
use super::open::Connect;
use super::{Inner, Store, faults, statement};

pub(super) type Sql = statement::Sql;

/// How long a reader is waited for where all are at work.
const WAIT: Duration = Duration::from_secs(30);

/// Readers, opened when they are first needed and kept.
pub(super) struct Readers {
    connect: Connect,
    room: Semaphore,
    count: u32,
    idle: Mutex<Vec<Reader>>,
}

struct Reader {
    connection: Connection,
    /// Of each statement that it has read with, by where its text begins and how long it is: the names of its columns. SQLite
    /// hands them out one by one, and each row is asked for all of them.
    columns: HashMap<(usize, usize), Arc<[String]>>,
}

impl Readers {
    pub fn new(connect: Connect, count: u32) -> Self {
        let count = count.max(1);
        Self { connect, room: Semaphore::new(count as usize), count, idle: Mutex::default() }
    }

    /// Waits for those that are at work; nobody reads after this.
    pub async fn close(&self) {
        let all = self.room.acquire_many(self.count).await;
        self.room.close();
        self.idle().clear();
        drop(all);
    }

    async fn acquire(&self) -> Result<(SemaphorePermit<'_>, Reader), Failure> {
        let permit = match self.room.try_acquire() {
            Ok(permit) => permit,
            Err(_) => match timeout(WAIT, self.room.acquire()).await {
                Ok(Ok(permit)) => permit,
                Ok(Err(_closed)) => return Err(Failure::closed()),
                Err(_elapsed) => return Err(Failure::crowded()),
            },
        };
        let idle = self.idle().pop();
        let reader = match idle {
            Some(reader) => reader,
            None => Reader { connection: self.connect.reader()?, columns: HashMap::new() },
        };
        Ok((permit, reader))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Reader>> {
        // A list of readers is whole between any two of its calls.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader at work: each statement sees the database as it is then.
pub(super) struct View {
    /// Gone once something is wrong with it. Never locked: whoever reads has the view to itself, and whoever
    /// only holds it may be on another thread.
    reader: Mutex<Option<Reader>>,
    store: Arc<Inner>,
}

/// A reader that sees the database as it is at its first statement, however many follow.
pub(super) struct Snapshot(View);

impl Store {
    /// For one statement, which is consistent in itself.
    pub(super) async fn view(&self) -> Result<View, StoreError> {
        let (permit, reader) = self.inner.readers.acquire().await.map_err(|e| self.inner.error(e))?;
        // It is given back when the view is dropped.
        permit.forget();
        Ok(View { reader: Mutex::new(Some(reader)), store: self.inner.clone() })
    }

    /// For several statements: all see the database as it is at the first.
    pub(super) async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        faults::operation().map_err(|e| self.inner.error(e))?;
        let mut view = self.view().await?;
        view.say("BEGIN").map_err(|e| self.inner.error(e))?;
        Ok(Snapshot(view))
    }
}

impl View {
    pub fn file(&self) -> &str {
        &self.store.file
    }

    /// A statement whose rows are found by key, and bounded.
    pub async fn list<T>(
        &mut self,
        table: &'static str,
        sql: Sql,
        read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.each(table, sql, usize::MAX, read)
    }

    /// A statement that may go over very many rows, of which few may be shown.
    pub async fn scan<T>(
        &mut self,
        table: &'static str,
        sql: Sql,
        read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let is_shared =
            Handle::try_current().is_ok_and(|of| of.runtime_flavor() == RuntimeFlavor::MultiThread);
        let all = || self.each(table, sql, usize::MAX, read);
        // Whoever has a runtime of one thread has no other work to be kept from.
        if is_shared { tokio::task::block_in_place(all) } else { all() }
    }

    pub async fn find<T>(
        &mut self,
        table: &'static str,
        sql: Sql,
        read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.each(table, sql, 1, read)?.pop())
    }

    fn each<T>(
        &mut self,
        table: &'static str,
        sql: Sql,
        rows_max: usize,
        read: impl Fn(&Columns<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let store = self.store.clone();
        let failed = |error: rusqlite::Error| store.error(error);
        store.tally.statement();
        faults::operation().map_err(|e| store.error(e))?;
        let reader = self.reader().as_mut().ok_or_else(|| store.error(Failure::closed()))?;
        let mut statement = reader.connection.prepare_cached(sql.text).map_err(failed)?;
        let names = reader.columns.entry((sql.text.as_ptr() as usize, sql.text.len()));
        let names = names
            .or_insert_with(|| statement.column_names().into_iter().map(str::to_owned).collect())
            .clone();
        let mut rows = statement.query(params_from_iter(&sql.values)).map_err(failed)?;
        let mut all = Vec::new();
        while all.len() < rows_max {
            let Some(row) = rows.next().map_err(failed)? else { break };
            all.push(read(&Columns { file: &store.file, table, names: &names, row })?);
        }
        Ok(all)
    }

    fn reader(&mut self) -> &mut Option<Reader> {
        self.reader.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&mut self, word: &str) -> Result<(), Failure> {
        let reader = self.reader();
        let Some(Reader { connection, .. }) = reader else { return Err(Failure::closed()) };
        let said = connection.prepare_cached(word).and_then(|mut word| word.execute(()));
        if said.is_err() {
            *reader = None;
        }
        said?;
        Ok(())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let reader = self.reader().take();
        let readers = &self.store.readers;
        readers.idle().extend(reader);
        readers.room.add_permits(1);
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // A connection that cannot even do that is not used again.
        self.0.say("ROLLBACK").ok();
    }
}

impl std::ops::Deref for Snapshot {
    type Target = View;
    fn deref(&self) -> &View {
        &self.0
    }
}

impl std::ops::DerefMut for Snapshot {
    fn deref_mut(&mut self) -> &mut View {
        &mut self.0
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
