//! What holds of a database at any moment, whatever died while it wrote there. Looked at from outside, in
//! SQL of its own.

use std::collections::BTreeMap;
use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, SqliteConnection};

/// Each lists what must not be.
const NEVER: [(&str, &str); 11] = [
    ("a damaged page", "SELECT integrity_check FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
    ("a row that points nowhere", "SELECT \"table\" FROM pragma_foreign_key_check"),
    (
        "a journal with a gap",
        "SELECT hex(task) FROM (SELECT tenant, task, entry FROM journal UNION SELECT tenant, task, entry \
         FROM interrupts WHERE called_at IS NOT NULL) GROUP BY tenant, task \
         HAVING count(*) <> max(entry) + 1 OR min(entry) <> 0",
    ),
    (
        "questions that are counted wrong",
        "SELECT h.name FROM threads h WHERE h.pending <> \
         (SELECT count(*) FROM interrupts i WHERE i.thread = h.thread AND i.state = 'pending')",
    ),
    (
        "a pause without a question",
        "SELECT h.name FROM threads h WHERE h.status = 'interrupted' AND NOT EXISTS \
         (SELECT 1 FROM interrupts i WHERE i.thread = h.thread AND i.state = 'pending')",
    ),
    (
        "a question that nobody shows",
        "SELECT hex(i.interrupt) FROM interrupts i JOIN threads h ON h.thread = i.thread \
         WHERE i.state = 'pending' AND h.status NOT IN ('interrupted', 'running', 'failed')",
    ),
    (
        "a question whose task does not wait",
        "SELECT hex(i.interrupt) FROM interrupts i JOIN tasks k ON k.tenant = i.tenant AND k.task = i.task \
         WHERE i.state = 'pending' AND k.state <> 'paused'",
    ),
    (
        "a task that waits for no question",
        "SELECT hex(k.task) FROM tasks k JOIN threads h ON h.thread = k.thread \
         WHERE h.status = 'interrupted' AND k.state = 'paused' AND k.child IS NULL AND NOT EXISTS \
         (SELECT 1 FROM interrupts i WHERE i.tenant = k.tenant AND i.task = k.task AND i.state = 'pending')",
    ),
    (
        "a thread whose head is not there",
        "SELECT h.name FROM threads h WHERE NOT EXISTS \
         (SELECT 1 FROM checkpoints c WHERE c.thread = h.thread AND c.checkpoint = h.head)",
    ),
    (
        "a run that goes on in a thread that has ended",
        "SELECT hex(r.run) FROM runs r JOIN threads h ON h.thread = r.thread \
         WHERE h.status = 'completed' AND r.status IN ('running', 'interrupted')",
    ),
    (
        "an effect that its task's journal knows otherwise",
        "SELECT e.effect_key FROM effects e JOIN journal j ON j.tenant = e.tenant AND j.task = e.task \
         WHERE e.state = 'known' AND j.reply_kind = 'known' AND j.call ->> 'key' = e.effect_key \
         AND j.call ->> 'name' = e.effect AND j.reply <> e.outcome",
    ),
];

/// What was once true, and stays: answers, and the outcomes of effects.
const STAYS: [(&str, &str); 3] = [
    ("answer", "SELECT hex(interrupt), answer FROM interrupts WHERE state = 'answered'"),
    (
        "effect",
        "SELECT thread || '/' || node || '/' || effect || '/' || effect_key, outcome || hex(input) \
         FROM effects WHERE state = 'known'",
    ),
    ("end", "SELECT name, status || hex(head) FROM threads WHERE status = 'completed'"),
];

/// Remembers what was true of one database.
#[derive(Default)]
pub struct Witness {
    known: BTreeMap<(&'static str, String), String>,
}

impl Witness {
    /// Whoever looks sees at least what others saw before it began to look.
    pub async fn look(&mut self, db: &Path) -> Result<(), String> {
        if !db.exists() {
            return Ok(());
        }
        let connecting = SqliteConnectOptions::new()
            .filename(db)
            .busy_timeout(std::time::Duration::from_secs(20))
            .disable_statement_logging();
        let mut connection = connecting.connect().await.map_err(|error| error.to_string())?;
        let seen = self.through(&mut connection).await;
        // Not the last to close it, if its process died: what is in the log must be found by the next one.
        connection.close().await.ok();
        seen
    }

    async fn through(&mut self, connection: &mut SqliteConnection) -> Result<(), String> {
        let error = |error: sqlx::Error| error.to_string();
        let mut at_once = connection.begin().await.map_err(error)?;
        let made = sqlx::query("SELECT 1 FROM sqlite_schema WHERE name = 'requests'");
        if made.fetch_optional(&mut *at_once).await.map_err(error)?.is_none() {
            // Its first process died while it made it.
            return Ok(());
        }
        for (what, statement) in NEVER {
            let found =
                sqlx::query(AssertSqlSafe(statement)).fetch_all(&mut *at_once).await.map_err(error)?;
            if let Some(row) = found.first() {
                return Err(format!("{what}: {:?}", row.try_get::<String, _>(0)));
            }
        }
        for (what, statement) in STAYS {
            let mut now = BTreeMap::new();
            for row in sqlx::query(AssertSqlSafe(statement)).fetch_all(&mut *at_once).await.map_err(error)? {
                let of: (String, String) = (row.get(0), row.get(1));
                now.insert((what, of.0), of.1);
            }
            for (key, value) in self.known.iter().filter(|((kind, _), _)| *kind == what) {
                if now.get(key) != Some(value) {
                    return Err(format!("{key:?} was {value}, and is {:?}", now.get(key)));
                }
            }
            self.known.extend(now);
        }
        Ok(())
    }
}
