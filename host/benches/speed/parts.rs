//! The parts of a cycle by themselves: the store with the same rows, the sandbox with the same attempts.

use holdpoint::model::checkpoint::{
    Answer, ChannelRow, ChannelValue, CheckpointKind, CheckpointRow, Finish, InterruptRow, JournalRow, Plan,
    RunRow, TaskRow, TaskState,
};
use holdpoint::model::journal::{Entry, Journal};
use holdpoint::model::{
    ChannelName, CheckpointId, InterruptId, Json, NodeId, RunId, TaskId, TenantId, ThreadId,
};
use holdpoint::sandbox::{Component, End};
use holdpoint::store::{Batch, Expect, LeaseChange, Store, ThreadSnapshot, Write, merged};
use holdpoint::{Host, RunConfig, RunStatus};

use crate::attempt::{attempt, now};
use crate::counted::{Counted, counted};
use crate::cycle::Measured;
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
    does: Does,
}

/// How many statements each part makes.
#[derive(Clone, Copy, Default)]
struct Does {
    load_absent: u64,
    commit_start: u64,
    head: u64,
    load_paused: u64,
    values: u64,
    commit_resume: u64,
}

/// Which parts a whole consists of, as its statements tell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Consists {
    /// All is read that could be, and committed.
    Reads,
    /// The thread is known, and one look at its head says whether it is still so.
    ReadsHead,
    /// Nothing is read: the store or the engine had it at hand.
    ReadsNothing,
    /// The rows here no longer stand for what the engine writes, or it reads something else.
    Otherwise,
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
            does: Does::default(),
        };
        parts.store(bench, &mut Measured::default(), "parts-counted").await?;
        Ok(parts)
    }

    /// What a cycle asks of the store, on a thread of its own.
    pub async fn store(&mut self, bench: &Bench, m: &mut Measured, thread: &str) -> anyhow::Result<()> {
        let (thread, ids, host) = (ThreadId::parse(thread)?, Ids::fresh(), &bench.host);
        let before = statements(host);
        let absent = m.load_absent.time(self.store.load(&self.tenant, &thread)).await?;
        anyhow::ensure!(absent.is_none(), "thread {thread} was there already");
        let loaded_absent = statements(host);
        let batch = self.start_batch(&thread, &ids);
        m.commit_start.time(self.store.commit(batch)).await?;
        let started = statements(host);

        m.head.time(self.store.head(&self.tenant, &thread)).await?;
        let looked = statements(host);
        let paused = m.load_paused.time(self.store.load(&self.tenant, &thread)).await?;
        let paused = paused.expect("it was started");
        let loaded = statements(host);
        let read = [(channel("script"), 1)];
        m.values.time(self.store.values(&self.tenant, &thread, &read)).await?;
        let valued = statements(host);
        let batch = self.resume_batch(&thread, &ids, &paused);
        m.commit_resume.time(self.store.commit(batch)).await?;
        self.does = Does {
            load_absent: loaded_absent - before,
            commit_start: started - loaded_absent,
            head: looked - started,
            load_paused: loaded - looked,
            values: valued - loaded,
            commit_resume: statements(host) - valued,
        };
        Ok(())
    }

    /// The two attempts of a cycle.
    pub async fn sandbox(&self, bench: &Bench, m: &mut Measured) -> anyhow::Result<()> {
        let sandbox = bench.host.sandbox();
        let asking = attempt(self.input.clone(), Journal::default());
        let ran = m.run_start.time_only(sandbox.run(&self.component, asking)).await;
        anyhow::ensure!(matches!(ran.end, End::Paused), "{ran:#?}");

        let mut recorded = Journal::recorded(vec![self.asked.clone()], 0);
        recorded.answer(0, 0, self.answer.clone(), now());
        let replaying = attempt(self.input.clone(), recorded);
        let ran = m.run_resume.time_only(sandbox.run(&self.component, replaying)).await;
        anyhow::ensure!(matches!(ran.end, End::Finished { .. }), "{ran:#?}");
        Ok(())
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
        Batch { tenant, thread, expect, head, status, lease: LeaseChange::Keep, writes: merged(writes) }
    }

    pub fn start(&self, whole: Counted) -> Consists {
        Consists::of(whole, self.does.commit_start, (self.does.load_absent, 0))
    }

    pub fn resume(&self, whole: Counted) -> Consists {
        let Does { head, load_paused, values, .. } = self.does;
        Consists::of(whole, self.does.commit_resume, (load_paused + values, head))
    }
}

impl Consists {
    fn of(whole: Counted, commit: u64, (reads, head): (u64, u64)) -> Self {
        match whole.statements {
            all if all == commit + reads => Self::Reads,
            all if all == commit + head && head > 0 => Self::ReadsHead,
            all if all == commit => Self::ReadsNothing,
            _ => Self::Otherwise,
        }
    }
}

fn statements(host: &Host) -> u64 {
    counted(host).statements
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

fn channel(name: &str) -> ChannelName {
    ChannelName::parse(name).expect("a channel's name")
}
