//! A fork from any checkpoint, pruned or not, ends as the run that it was made from: on the random graphs of
//! the equivalence test.

use holdpoint::model::Kind;
use holdpoint::{Command, Execution, ResumeTarget, RunStatus};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;

use crate::equivalence::{Asking, Hosts, Person, Shape, seed, shape};
use crate::forks::history;
use crate::world::*;

const GRAPHS: u32 = 60;

/// How a run ended.
#[derive(Debug, PartialEq)]
struct End {
    status: RunStatus,
    error: Option<Kind>,
    state: Value,
}

impl Hosts {
    /// Answers one question after the other until none is left, and prunes in between if told.
    async fn answered(&self, thread: &str, mut execution: Execution, prune: Option<u32>) -> End {
        let mut person = Person::default();
        while let Some(asked) = execution.interrupts.first() {
            if let Some(keep) = prune {
                self.here.prune(on(thread), keep).await.unwrap();
                assert_eq!(self.here.execution(on(thread)).await.unwrap(), execution);
            }
            let (id, value) = person.answer(asked);
            let target = ResumeTarget::run(execution.run_id).interrupt(id);
            let command = if asked.kind.is_gate() { Command::proceed() } else { Command::resume(value) };
            execution = self.here.resume_targeted(target, command).await.unwrap();
        }
        let state = self.here.state(on(thread)).await.unwrap();
        End { status: execution.status, error: execution.error.map(|error| error.kind), state }
    }

    async fn forked(&self, shape: &Shape, thread: &str, picks: &[u8]) -> Result<usize, TestCaseError> {
        let graph = self.here.compile(&shape.spec(Asking::People, &self.here).await).await.unwrap();
        let input = script(shape.script(Asking::People));
        let first = graph.invoke(on(thread), input).await.unwrap();
        let keep = picks[0].is_multiple_of(2).then(|| 1 + u32::from(picks[0]) % 5);
        let right = self.answered(thread, first, keep).await;
        let all = history(&self.here, thread).await;
        for (i, pick) in picks.iter().enumerate() {
            let at = &all[usize::from(*pick) % all.len()];
            let name = format!("{thread} fork {i}");
            let fork = self.here.fork(on(thread), Some(at.checkpoint), name.parse().unwrap()).await.unwrap();
            let end = self.answered(&name, fork, None).await;
            prop_assert_eq!(&end, &right, "{}: {:?}", name, at);
        }
        Ok(all.len())
    }
}

#[test]
fn i55_a_fork_ends_as_the_run_that_it_was_made_from() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hosts = runtime.block_on(Hosts::new());
    let seed = seed();
    let config =
        Config { cases: GRAPHS, failure_persistence: None, max_shrink_iters: 100, ..Config::default() };
    let bytes = [seed.to_be_bytes(), [0; 16]].concat();
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let (threads, checkpoints) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let ran = runner.run(&(shape(), vec(any::<u8>(), 1..4)), |(shape, picks)| {
        let thread = format!("t{}", threads.replace(threads.get() + 1));
        let count = runtime.block_on(hosts.forked(&shape, &thread, &picks))?;
        checkpoints.set(checkpoints.get() + count);
        Ok(())
    });
    if let Err(error) = ran {
        panic!("HOLDPOINT_TEST_SEED={seed}: {error}");
    }
    assert!(checkpoints.get() > 3 * GRAPHS as usize, "{} checkpoints", checkpoints.get());
}
