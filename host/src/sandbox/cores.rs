//! The threads that guests run on, one for each core. Guests take turns on them, a tick at a time, and the
//! tenants that want one take turns too, however many guests each has. The threads that serve everything
//! else are left alone by this, however busy guests are.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread;

use async_task::{Builder, Task};
use tokio::runtime::Handle;
use wasmtime::Engine;

use crate::model::ids::TenantId;

type Runnable = async_task::Runnable<TenantId>;

/// Dropped, the threads end, each after the turn that it is in.
pub(super) struct Cores(Arc<Queue>);

struct Queue {
    state: Mutex<State>,
    came: Condvar,
    engine: Engine,
}

#[derive(Default)]
struct State {
    /// The next tenant whose turn it is is in front; no line is empty.
    lines: VecDeque<(TenantId, VecDeque<Runnable>)>,
    running: HashMap<TenantId, u32>,
    idle: usize,
    closed: bool,
}

impl Cores {
    pub fn start(engine: &Engine) -> std::io::Result<Self> {
        let queue = Arc::new(Queue { state: Mutex::default(), came: Condvar::new(), engine: engine.clone() });
        let cores = Self(queue);
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let queue = Arc::clone(&cores.0);
            thread::Builder::new().name("holdpoint-guests".into()).spawn(move || queue.serve())?;
        }
        Ok(cores)
    }

    /// Runs `work` there; what it waits for is the business of the runtime that this is called in. If the
    /// task is dropped, so is the work, in its next turn.
    pub fn run<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Task<T, TenantId> {
        let work = Within { runtime: Handle::current(), work: Some(Box::pin(work)) };
        let queue = Arc::clone(&self.0);
        let (runnable, task) = Builder::new()
            .metadata(tenant.clone())
            .propagate_panic(true)
            .spawn(|_| work, move |runnable| queue.push(runnable));
        runnable.schedule();
        task
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        let lines = {
            let mut state = self.0.state();
            state.closed = true;
            std::mem::take(&mut state.lines)
        };
        drop(lines);
        self.0.came.notify_all();
    }
}

impl Queue {
    fn push(&self, runnable: Runnable) {
        let tenant = runnable.metadata().clone();
        let mut state = self.state();
        if state.closed {
            drop(state);
            // Nobody waits for it any more, or it could not have come to this.
            return drop(runnable);
        }
        let line = state.lines.iter_mut().find(|(of, _)| *of == tenant);
        let is_new = line.is_none() && !state.running.contains_key(&tenant);
        match state.lines.iter_mut().find(|(of, _)| *of == tenant) {
            Some((_, line)) => line.push_back(runnable),
            None => state.lines.push_back((tenant, [runnable].into())),
        }
        if state.idle > 0 {
            self.came.notify_one();
        } else if is_new {
            // All cores are with others: whoever runs gives way now and not at the next tick.
            self.engine.increment_epoch();
        }
    }

    fn serve(&self) {
        loop {
            let mut state = self.state();
            let runnable = loop {
                if let Some(runnable) = state.next() {
                    break runnable;
                }
                if state.closed {
                    return;
                }
                state.idle += 1;
                state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            };
            let tenant = runnable.metadata().clone();
            *state.running.entry(tenant.clone()).or_default() += 1;
            drop(state);
            runnable.run();
            let mut state = self.state();
            if let Some(running) = state.running.get_mut(&tenant) {
                *running -= 1;
                if *running == 0 {
                    state.running.remove(&tenant);
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next(&mut self) -> Option<Runnable> {
        let (tenant, mut line) = self.lines.pop_front()?;
        let runnable = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((tenant, line));
        }
        runnable
    }
}

/// Work that is polled, and dropped, as within its runtime.
struct Within<F> {
    runtime: Handle,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { runtime, work } = &mut *self;
        let _entered = runtime.enter();
        match work {
            Some(work) => work.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for Within<F> {
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        self.work = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    /// Gives way `turns` times, and takes down in each of its turns whose it was.
    async fn turns(turns: usize, name: &'static str, order: Arc<Mutex<Vec<&'static str>>>) {
        for _ in 0..turns {
            order.lock().unwrap().push(name);
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_tenant_with_one_guest_gets_as_many_turns_as_one_with_a_thousand() {
        let cores = Cores::start(&Engine::default()).unwrap();
        let order = Arc::default();
        let flood: Vec<_> = (0..1_000)
            .map(|_| cores.run(&tenant("flood"), turns(100, "flood", Arc::clone(&order))))
            .collect();
        while order.lock().unwrap().len() < 2_000 {
            tokio::task::yield_now().await;
        }
        cores.run(&tenant("one"), turns(50, "one", Arc::clone(&order))).await;
        drop(flood);
        let order = order.lock().unwrap();
        let first = order.iter().position(|&name| name == "one").unwrap();
        let last = order.iter().rposition(|&name| name == "one").unwrap();
        // One core: one for one. With more, what the others do in the meantime.
        let between = (last - first).saturating_sub(49);
        let cores = thread::available_parallelism().unwrap().get();
        assert!(between <= 49 * 2 * cores, "{between} turns of the flood within 50");
    }

    #[tokio::test]
    async fn a_tenant_that_comes_does_not_wait_for_the_next_tick() {
        // Nothing ticks in this one.
        let engine = super::super::engine::compiling().unwrap();
        let spin = wat::parse_str("(module (func (export \"run\") (loop (br 0))))").unwrap();
        let spin = wasmtime::Module::new(&engine, spin).unwrap();
        let cores = Cores::start(&engine).unwrap();
        let spins = |_| {
            let mut store = wasmtime::Store::new(&engine, ());
            store.set_fuel(u64::MAX).unwrap();
            store.set_epoch_deadline(1);
            store.epoch_deadline_callback(|_| Ok(wasmtime::UpdateDeadline::Yield(1)));
            let spin = spin.clone();
            cores.run(&tenant("flood"), async move {
                let instance = wasmtime::Instance::new_async(&mut store, &spin, &[]).await.unwrap();
                let run = instance.get_typed_func::<(), ()>(&mut store, "run").unwrap();
                run.call_async(&mut store, ()).await
            })
        };
        let flood: Vec<_> = (0..50).map(spins).collect();
        let running = || cores.0.state().running.values().sum::<u32>() as usize;
        while running() < thread::available_parallelism().unwrap().get() {
            tokio::task::yield_now().await;
        }
        let one = cores.run(&tenant("one"), async { 1 });
        let served = tokio::time::timeout(std::time::Duration::from_secs(20), one).await;
        drop(flood);
        while running() > 0 {
            engine.increment_epoch();
            tokio::task::yield_now().await;
        }
        assert_eq!(served, Ok(1));
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_dropped_and_a_panic_is_whoever_waits_for_its() {
        struct Dropped(Arc<AtomicUsize>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                // As things that belong to a runtime do.
                Handle::current();
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let cores = Cores::start(&Engine::default()).unwrap();
        let dropped: Arc<AtomicUsize> = Arc::default();
        let held = Dropped(Arc::clone(&dropped));
        let task = cores.run(&tenant("a"), async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        drop(task);
        while dropped.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let panics = cores.run(&tenant("a"), async { panic!("as it was told") });
        assert!(tokio::spawn(panics).await.unwrap_err().is_panic());
        assert_eq!(cores.run(&tenant("a"), async { 1 }).await, 1);
    }
}
