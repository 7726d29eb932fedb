//! The parts of a cycle by themselves: the store with the same rows, the sandbox with the same attempts.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use holdpoint::model::checkpoint::{
    Answer, ChannelRow, ChannelValue, CheckpointKind, CheckpointRow, Finish, InterruptRow, JournalRow, Plan,
    RunRow, TaskRow, TaskState,
};
use holdpoint::model::journal::{Entry, Instruction, Journal};
use holdpoint::model::{
    ChannelName, CheckpointId, InterruptId, Json, Limits, NodeId, RunId, TaskId, TenantId, ThreadId,
    Timestamp,
};
use holdpoint::sandbox::{Attempt, Component, Context, End, LogLevel, Outside, Performed};
use holdpoint::store::{Batch, Expect, LeaseChange, Store, ThreadSnapshot, Write};
use holdpoint::{RunConfig, RunStatus};

use crate::turns::{Counted, Measured, counted};
use crate::{Bench, node};

/// A paused run of the real thing, from which the same rows are made anew.
pub struct Parts {
    store: Store,
    tenant: TenantId,
    example: ThreadSnapshot,
    input: Json,
    script: Json,
    answer: Json,
    component: Component,
    asked: Entry,
    /// What the parts do in all, which must be what the whole does.
    start: Counted,
    resume: Counted,
}

/// The ids of one thread that was only written.
struct Ids {
    run: RunId,
    boundary: CheckpointId,
    pause: CheckpointId,
    task: TaskId,
    interrupt: InterruptId,
}

impl Parts {
    pub async fn new(bench: &Bench) -> anyhow::Result<Self> {
        let tenant = TenantId::default();
        let store = bench.host.store().expect("the host was opened with a database").clone();
        bench.graph.invoke(RunConfig::thread("example"), node::input()).await?;
        let example = store.load(&tenant, &ThreadId::parse("example")?).await?.expect("it was just started");
        let digest = example.root.tasks[0].component;
        let component = bench.host.sandbox().cached(digest).await.expect("it was just run");
        let asked = example.root.journal[0].entry.clone();
        let script = &node::input()["script"];
        let mut parts = Self {
            store,
            tenant,
            example,
            input: Json::from_value(&node::input())?,
            script: Json::from_value(script)?,
            answer: Json::from_value(&node::answer())?,
            component,
            asked,
            start: Counted::default(),
            resume: Counted::default(),
        };
        parts.count(bench).await?;
        Ok(parts)
    }

    async fn count(&mut self, bench: &Bench) -> anyhow::Result<()> {
        let mut m = Measured::default();
        let thread = ThreadId::parse("parts-counted")?;
        let ids = Ids::fresh();
        let before = counted(bench);
        self.store_start(&mut m, &thread, &ids).await?;
        let between = counted(bench);
        self.store_resume(&mut m, &thread, &ids).await?;
        let after = counted(bench);
        self.start = between.since(before);
        self.resume = after.since(between);
        Ok(())
    }

    /// What a cycle asks of the store, on a thread of its own.
    pub async fn store(&mut self, _: &Bench, m: &mut Measured, thread: &str) -> anyhow::Result<()> {
        let (thread, ids) = (ThreadId::parse(thread)?, Ids::fresh());
        self.store_start(m, &thread, &ids).await?;
        self.store_resume(m, &thread, &ids).await
    }

    async fn store_start(&self, m: &mut Measured, thread: &ThreadId, ids: &Ids) -> anyhow::Result<()> {
        let absent = m.load_absent.time(self.store.load(&self.tenant, thread)).await?;
        anyhow::ensure!(absent.is_none(), "thread {thread} was there already");
        let batch = self.start_batch(thread, ids);
        m.commit_start.time(self.store.commit(batch)).await?;
        Ok(())
    }

    async fn store_resume(&self, m: &mut Measured, thread: &ThreadId, ids: &Ids) -> anyhow::Result<()> {
        let paused =
            m.load_paused.time(self.store.load(&self.tenant, thread)).await?.expect("it was started");
        let read = [(channel("script"), 1)];
        m.values.time(self.store.values(&self.tenant, thread, &read)).await?;
        let batch = self.resume_batch(thread, ids, &paused);
        m.commit_resume.time(self.store.commit(batch)).await?;
        Ok(())
    }

    /// The two attempts of a cycle.
    pub async fn sandbox(&mut self, bench: &Bench, m: &mut Measured) -> anyhow::Result<()> {
        let sandbox = bench.host.sandbox();
        let journal = Arc::new(Mutex::new(Journal::default()));
        let ran = m.run_start.time_only(sandbox.run(&self.component, self.attempt(journal))).await;
        anyhow::ensure!(matches!(ran.end, End::Paused), "{ran:#?}");

        let mut recorded = Journal::recorded(vec![self.asked.clone()], 0);
        recorded.answer(0, 0, self.answer.clone(), now());
        let journal = Arc::new(Mutex::new(recorded));
        let ran = m.run_resume.time_only(sandbox.run(&self.component, self.attempt(journal))).await;
        anyhow::ensure!(matches!(ran.end, End::Finished { .. }), "{ran:#?}");
        Ok(())
    }

    fn attempt(&self, journal: Arc<Mutex<Journal>>) -> Attempt {
        Attempt {
            tenant: TenantId::default(),
            context: Context {
                thread_id: "parts".into(),
                run_id: self.example.root.run.run.to_string(),
                task_id: self.example.root.tasks[0].task.to_string(),
                node: node::NODE.into(),
                path: Vec::new(),
                step: 0,
                arg: None,
            },
            state: self.input.clone(),
            journal,
            outside: Arc::new(Nobody),
            clock: now(),
            seed: [7; 32],
            limits: Limits::default(),
        }
    }

    /// As the engine writes a run that asks at once.
    fn start_batch(&self, thread: &ThreadId, ids: &Ids) -> Batch {
        let Ids { run, boundary, pause, task, interrupt } = *ids;
        let example = &self.example;
        let writes = vec![
            Write::Run(RunRow { run, status: RunStatus::Running, ..example.root.run.clone() }),
            Write::Checkpoint(CheckpointRow {
                checkpoint: boundary,
                parent: None,
                run,
                kind: CheckpointKind::Boundary,
                status: RunStatus::Running,
                ..example.root.checkpoint.clone()
            }),
            Write::Channel(ChannelRow {
                channel: channel("script"),
                version: 1,
                value: ChannelValue::Whole(self.script.clone()),
            }),
            Write::Task(TaskRow { task, run, boundary, ..example.root.tasks[0].clone() }),
            Write::Journal(JournalRow { task, index: 0, entry: self.asked.clone() }),
            Write::Interrupt(InterruptRow {
                interrupt,
                run,
                task,
                boundary,
                checkpoint: pause,
                ..example.root.interrupts[0].clone()
            }),
            Write::Checkpoint(CheckpointRow {
                checkpoint: pause,
                parent: Some(boundary),
                run,
                kind: CheckpointKind::Pause { boundary },
                plan: Plan::default(),
                channels: Default::default(),
                ..example.root.checkpoint.clone()
            }),
            Write::RunStatus { run, status: RunStatus::Interrupted, error: None, ended_at: None },
        ];
        let expect = Expect::Absent { secret: [7; 32] };
        self.batch(thread, expect, pause, RunStatus::Interrupted, writes)
    }

    /// As the engine writes an answer after which the run completes.
    fn resume_batch(&self, thread: &ThreadId, ids: &Ids, paused: &ThreadSnapshot) -> Batch {
        let at = now();
        let head = CheckpointId::fresh();
        let mut channels = paused.root.checkpoint.channels.clone();
        channels.insert(channel("a"), 2);
        let writes = vec![
            Write::Answer {
                interrupt: ids.interrupt,
                answer: Answer { value: self.answer.clone(), at, by: None, reason: None },
            },
            Write::Task(TaskRow {
                attempts: 2,
                state: TaskState::Finished(Finish::default()),
                ..paused.root.tasks[0].clone()
            }),
            Write::Checkpoint(CheckpointRow {
                checkpoint: head,
                parent: Some(paused.head),
                kind: CheckpointKind::Boundary,
                step: 1,
                version: 2,
                plan: Plan::default(),
                channels,
                status: RunStatus::Completed,
                ..paused.root.checkpoint.clone()
            }),
            Write::Channel(ChannelRow {
                channel: channel("a"),
                version: 2,
                value: ChannelValue::Appended { text: self.answer.to_string(), after: None },
            }),
            Write::RunStatus { run: ids.run, status: RunStatus::Completed, error: None, ended_at: Some(at) },
        ];
        let expect = Expect::At { head: paused.head, epoch: paused.epoch };
        self.batch(thread, expect, head, RunStatus::Completed, writes)
    }

    fn batch(
        &self,
        thread: &ThreadId,
        expect: Expect,
        head: CheckpointId,
        status: RunStatus,
        writes: Vec<Write>,
    ) -> Batch {
        let (tenant, thread) = (self.tenant.clone(), thread.clone());
        Batch { tenant, thread, expect, head, status, lease: LeaseChange::Keep, writes }
    }

    /// Whether the parts still stand for the whole.
    pub fn differences(&self, start: Counted, resume: Counted) -> impl Iterator<Item = String> {
        let rows = [("start", start, self.start), ("resume", resume, self.resume)];
        rows.into_iter().filter(|(_, whole, parts)| whole.statements != parts.statements).map(
            |(what, whole, parts)| {
                let (whole, parts) = (whole.statements, parts.statements);
                format!(
                    "OUT OF DATE: a {what} makes {whole} statements, the rows in parts.rs that stand for it {parts}"
                )
            },
        )
    }
}

impl Ids {
    fn fresh() -> Self {
        let boundary = CheckpointId::fresh();
        let node = NodeId::parse(node::NODE).expect("a node's name");
        let task = TaskId::derive(boundary, 0, &node);
        Self {
            run: RunId::fresh(),
            boundary,
            pause: CheckpointId::fresh(),
            task,
            interrupt: InterruptId::derive(task, "node", (0, 0), 0),
        }
    }
}

/// Nothing that a node which only asks could reach.
struct Nobody;

impl Outside for Nobody {
    fn perform<'a>(&'a self, _: usize, _: &'a str, _: &'a str, _: &'a Json) -> BoxFuture<'a, Performed> {
        Box::pin(std::future::ready(Performed::Fault))
    }

    fn steering(&self) -> BoxFuture<'_, Option<Vec<Instruction>>> {
        Box::pin(async { Some(Vec::new()) })
    }

    fn log(&self, _: LogLevel, _: &str) {}

    fn emit(&self, _: Json) {}
}

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).expect("a channel's name")
}

fn now() -> Timestamp {
    holdpoint::engine::Clock::System.now()
}
