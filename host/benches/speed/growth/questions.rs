//! Questions that one node asks, one after another: the last answer, beside the replay of all before it.

use holdpoint::model::journal::Journal;
use holdpoint::model::{Json, TenantId, ThreadId};
use holdpoint::sandbox::{Component, End};
use holdpoint::store::ThreadSnapshot;
use holdpoint::{Graph, GraphSpec, Host, Reducer};
use serde_json::{Value, json};

use super::{Line, show};
use crate::amount::Amount;
use crate::attempt::{attempt, now};
use crate::report::{Report, Row};
use crate::samples::Samples;
use crate::{Page, copies, cycle, node};

/// A database whose threads wait for their last answer.
struct Database {
    questions: usize,
    host: Host,
    graph: Graph,
    /// One of them.
    asked: ThreadSnapshot,
    component: Component,
    state: Json,
}

pub async fn measure(page: &Page, amount: Amount, report: &mut Report) -> anyhow::Result<()> {
    let mut databases = Vec::new();
    for questions in amount.questions.iter().copied() {
        databases.push(Database::open(page, report, (amount.turns, questions)).await?);
    }
    let mut resume = Line::new("the last resume", amount.questions);
    let mut replay = Line::new("its replay alone", amount.questions);
    let mut fuel = Vec::new();
    for i in amount.turns(amount.turns) {
        for database in &databases {
            let (mut resumed, mut replayed) = (Samples::default(), Samples::default());
            cycle::answered(&database.graph, &copies::name(i), &mut resumed).await?;
            let used = database.replay(&mut replayed).await?;
            resume.samples(database.questions).extend(resumed);
            replay.samples(database.questions).extend(replayed);
            if i == 0 {
                fuel.push((database.questions, used));
            }
        }
    }
    report.title("Questions of one node, the last answered; raw is the fewest");
    let sizes = ("Of the last answer by the questions of the node", "questions");
    let shown = |questions| match questions {
        1 => "1 question".to_owned(),
        questions => format!("{questions} questions"),
    };
    let mut rest = Line::new("beside its replay", amount.questions);
    for questions in amount.questions.iter().copied() {
        let beside = resume.samples(questions).p50() - replay.samples(questions).p50();
        rest.samples(questions).push(std::time::Duration::from_secs_f64(beside.max(0.0) / 1e6));
    }
    show(report, sizes, shown, &mut [resume, replay, rest]);
    let first = fuel.first().map_or(0, |(_, fuel)| *fuel) as f64;
    for (questions, fuel) in fuel {
        let name = format!("fuel of the replay, {}", shown(questions));
        report.add(Row::value(name, fuel as f64, "fuel").raw(first).on_page());
    }
    for database in databases {
        database.host.close().await;
    }
    Ok(())
}

impl Database {
    async fn open(page: &Page, report: &Report, (count, questions): (usize, usize)) -> anyhow::Result<Self> {
        let mut script: Vec<Value> = vec![node::ask(); questions];
        script.push(json!({ "put_last": "a" }));
        let input = json!({ "script": script });
        // One database's copies are nobody else's.
        let name = format!("questions-{questions}");
        let asked = (count, questions);
        let db = copies::database((page, report), &name, asked, (&spec(), input.clone())).await?;
        let host = page.host(&db).await?;
        let graph = host.compile(&spec()).await?;
        let store = host.store().expect("it was opened with a database");
        let asked = store.load(&TenantId::default(), &ThreadId::parse(copies::name(0))?).await?;
        let asked = asked.expect("a copy of a thread is a thread");
        let component = host.sandbox().cached(asked.root.tasks[0].component).await;
        let component = component.expect("it was just run");
        Ok(Self { questions, graph, asked, component, state: Json::from_value(&input)?, host })
    }

    /// The attempt that follows the last answer; gives the fuel that it took.
    async fn replay(&self, samples: &mut Samples) -> anyhow::Result<u64> {
        let rows = &self.asked.root.journal;
        anyhow::ensure!(rows.len() == self.questions, "{} calls are on record", rows.len());
        let mut journal = Journal::recorded(rows.iter().map(|row| row.entry.clone()).collect(), 0);
        journal.answer(rows.len() - 1, 0, Json::from_value(&node::answer())?, now());
        let running = self.host.sandbox().run(&self.component, attempt(self.state.clone(), journal));
        let ran = samples.time_only(running).await;
        anyhow::ensure!(matches!(ran.end, End::Finished { .. }), "{ran:#?}");
        Ok(ran.fuel)
    }
}

/// The last answer alone is written, so that updates are of one size.
fn spec() -> GraphSpec {
    node::graph(&node::component()).channel("a", Reducer::Replace)
}
