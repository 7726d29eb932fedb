//! The rows of one real thread, read out of its database as they are there; to be put down again under fresh
//! ids by SQLite alone. So whatever a thread is made of, it is never written down here by hand.

use std::fmt::Write as _;

use anyhow::Context as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Column as _, Row as _, TypeInfo as _, ValueRef as _};

/// The ids of a thread, in the order in which they were met.
pub type Ids = Vec<[u8; 16]>;

pub struct Rows(Vec<Table>);

struct Table {
    name: String,
    columns: Vec<String>,
    /// The columns that a row is known by.
    key: Vec<usize>,
    rows: Vec<Vec<Cell>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Cell {
    /// The same in every copy, as SQL.
    Literal(String),
    Id(usize),
    Thread,
    Name,
    /// A place in the order of insertion.
    Next,
}

/// How what differs between copies is named in a statement.
pub struct Names {
    pub thread: &'static str,
    pub name: &'static str,
    pub id: fn(usize) -> String,
}

impl Rows {
    pub async fn of(connection: &mut SqliteConnection, thread: &str, ids: &mut Ids) -> anyhow::Result<Self> {
        let number: i64 = sqlx::query_scalar("SELECT thread FROM threads WHERE name = ?1")
            .bind(thread)
            .fetch_one(&mut *connection)
            .await?;
        // In the order of their making: what is referred to comes first.
        let named: Vec<String> =
            sqlx::query_scalar("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
                .fetch_all(&mut *connection)
                .await?;
        let mut tables = Vec::new();
        for name in named {
            let described = sqlx::query("SELECT name, type, pk FROM pragma_table_info(?1)").bind(&name);
            let described: Vec<(String, String, i64)> = described
                .fetch_all(&mut *connection)
                .await?
                .iter()
                .map(|row| (row.get(0), row.get(1), row.get(2)))
                .collect();
            let has =
                |column: &str, kind: &str| described.iter().any(|(name, of, _)| name == column && of == kind);
            // The service's own tables name their threads, and none of these has rows there.
            let which = match (has("thread", "INTEGER"), has("task", "BLOB")) {
                (true, _) => "thread = ?1",
                (_, true) => "task IN (SELECT task FROM tasks WHERE thread = ?1)",
                _ => continue,
            };
            let text = format!("SELECT * FROM {name} WHERE {which}");
            let found = sqlx::query(AssertSqlSafe(text)).bind(number).fetch_all(&mut *connection).await?;
            let Some(first) = found.first() else { continue };
            let columns: Vec<String> =
                first.columns().iter().map(|column| column.name().to_owned()).collect();
            let primary: Vec<&str> =
                described.iter().filter(|(.., pk)| *pk > 0).map(|(name, ..)| name.as_str()).collect();
            let is_next = |column: &str| primary == [column] && column == "seq";
            let key: Vec<String> = match primary == ["seq"] {
                false => primary.iter().map(|name| (*name).to_owned()).collect(),
                true => unique(connection, &name).await?,
            };
            let key = key.iter().map(|name| columns.iter().position(|column| column == name));
            let key = key.collect::<Option<Vec<usize>>>().context("a key's columns")?;
            let cells = |row: &SqliteRow, ids: &mut Ids| {
                let cells = columns.iter().enumerate().map(|(i, column)| match column.as_str() {
                    "thread" => Ok(Cell::Thread),
                    "name" if name == "threads" => Ok(Cell::Name),
                    column if is_next(column) => Ok(Cell::Next),
                    _ => Cell::of(row, i, ids),
                });
                cells.collect::<anyhow::Result<Vec<_>>>()
            };
            let rows = found.iter().map(|row| cells(row, ids)).collect::<anyhow::Result<_>>()?;
            tables.push(Table { name, columns, key, rows });
        }
        Ok(Self(tables))
    }

    /// Statements that insert all of it; each ends as `from` says.
    pub fn inserts(&self, names: &Names, from: &str) -> Vec<String> {
        let of = |table: &Table, row: &[Cell]| table.insert(row, names, from);
        self.0.iter().flat_map(|table| table.rows.iter().map(move |row| of(table, row))).collect()
    }

    /// Statements that make `before` of the same thread this, each of one row.
    pub fn changes(&self, before: &Self, names: &Names) -> Vec<String> {
        let mut changes = Vec::new();
        for table in &self.0 {
            let was = before.0.iter().find(|was| was.name == table.name);
            for row in &table.rows {
                let is_same = |was: &&Vec<Cell>| table.key.iter().all(|at| was[*at] == row[*at]);
                match was.and_then(|was| was.rows.iter().find(is_same)) {
                    Some(was) if was == row => {}
                    Some(was) => changes.push(table.update(was, row, names)),
                    None => changes.push(table.insert(row, names, "")),
                }
            }
        }
        changes
    }
}

impl Table {
    fn insert(&self, row: &[Cell], names: &Names, from: &str) -> String {
        let values: Vec<String> = row.iter().map(|cell| cell.sql(names)).collect();
        format!("INSERT INTO {} ({}) SELECT {}{from}", self.name, self.columns.join(", "), values.join(", "))
    }

    fn update(&self, was: &[Cell], row: &[Cell], names: &Names) -> String {
        let equals = |at: usize| format!("{} = {}", self.columns[at], row[at].sql(names));
        let changed = (0..row.len()).filter(|at| was[*at] != row[*at]).map(equals).collect::<Vec<_>>();
        let key = self.key.iter().map(|at| equals(*at)).collect::<Vec<_>>();
        format!("UPDATE {} SET {} WHERE {}", self.name, changed.join(", "), key.join(" AND "))
    }
}

impl Cell {
    fn of(row: &SqliteRow, at: usize, ids: &mut Ids) -> anyhow::Result<Self> {
        let value = row.try_get_raw(at)?;
        if value.is_null() {
            return Ok(Self::Literal("NULL".to_owned()));
        }
        Ok(match value.type_info().name() {
            "INTEGER" => Self::Literal(row.get::<i64, _>(at).to_string()),
            "TEXT" => Self::Literal(format!("'{}'", row.get::<String, _>(at).replace('\'', "''"))),
            "BLOB" => {
                let bytes: Vec<u8> = row.get(at);
                match <[u8; 16]>::try_from(bytes.as_slice()) {
                    Ok(id) => Self::Id(ids.iter().position(|known| *known == id).unwrap_or_else(|| {
                        ids.push(id);
                        ids.len() - 1
                    })),
                    Err(_) => Self::Literal(blob(&bytes)?),
                }
            }
            other => anyhow::bail!("a value of type {other}, which no schema of this has"),
        })
    }

    fn sql(&self, names: &Names) -> String {
        match self {
            Self::Literal(text) => text.clone(),
            Self::Id(at) => (names.id)(*at),
            Self::Thread => names.thread.to_owned(),
            Self::Name => names.name.to_owned(),
            Self::Next => "NULL".to_owned(),
        }
    }
}

/// The columns of a table's first unique index.
async fn unique(connection: &mut SqliteConnection, table: &str) -> anyhow::Result<Vec<String>> {
    let columns = sqlx::query_scalar(
        "SELECT c.name FROM pragma_index_info((SELECT name FROM pragma_index_list(?1) WHERE \"unique\" AND origin \
         = 'u' LIMIT 1)) c",
    );
    Ok(columns.bind(table).fetch_all(connection).await?)
}

fn blob(bytes: &[u8]) -> Result<String, std::fmt::Error> {
    let mut text = String::from("x'");
    for byte in bytes {
        write!(text, "{byte:02x}")?;
    }
    Ok(text + "'")
}
