//! Room for a bounded number at once, and a queue for it that is fair between tenants.
//!
//! The tenants that wait are served one after the other, whoever came first. And the last of the room is
//! kept for tenants that have none: a flood that fills the rest does not make others wait for its end.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::ids::TenantId;

/// How many, and how much memory for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub count: u32,
    pub memory_bytes: u64,
}

#[derive(Clone)]
pub struct Places(Arc<Mutex<State>>);

struct State {
    all: Room,
    free: Room,
    /// Of `free`, what only tenants without a place get.
    kept: Room,
    held: HashMap<TenantId, u32>,
    /// The next tenant to be served is in front.
    lines: VecDeque<Line>,
    next_id: u64,
}

/// A tenant's; never empty.
struct Line {
    tenant: TenantId,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    id: u64,
    room: Room,
    at_once_max: u32,
    called: oneshot::Sender<()>,
}

/// Some room, waited for and then held. Dropped, it is free, or nobody waits for it any more.
pub struct Place {
    places: Places,
    id: u64,
    tenant: TenantId,
    room: Room,
}

enum Fit {
    Yes,
    /// Others may pass.
    NotThisTenant,
    /// Others wait behind it, or it would wait for ever.
    NoRoom,
}

impl Places {
    /// There is always room for one.
    pub fn new(all: Room, kept: Room) -> Self {
        let all = Room { count: all.count.max(1), ..all };
        let kept = Room { count: kept.count.min(all.count - 1), ..kept };
        Self(Arc::new(Mutex::new(State {
            all,
            free: all,
            kept,
            held: HashMap::new(),
            lines: VecDeque::new(),
            next_id: 0,
        })))
    }

    /// Waits until there is room for it, and until `tenant` holds less than `at_once_max`.
    pub async fn take(&self, tenant: &TenantId, at_once_max: u32, room: Room) -> Place {
        let (place, called) = self.ask(tenant, at_once_max.max(1), room);
        // The sender is gone only after it called.
        let _ = called.await;
        place
    }

    fn ask(&self, tenant: &TenantId, at_once_max: u32, room: Room) -> (Place, oneshot::Receiver<()>) {
        let (called, calls) = oneshot::channel();
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        // What asks for more than there is gets all of it.
        let room = Room { memory_bytes: room.memory_bytes.min(state.all.memory_bytes), ..room };
        let waiting = Waiting { id, room, at_once_max, called };
        match state.lines.iter_mut().find(|line| line.tenant == *tenant) {
            Some(line) => line.waiting.push_back(waiting),
            None => state.lines.push_back(Line { tenant: tenant.clone(), waiting: [waiting].into() }),
        }
        state.serve();
        (Place { places: self.clone(), id, tenant: tenant.clone(), room }, calls)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn serve(&mut self) {
        let mut at = 0;
        while let Some(line) = self.lines.get(at) {
            let Some(first) = line.waiting.front() else { break };
            match self.fits(&line.tenant, first) {
                Fit::NotThisTenant => at += 1,
                Fit::NoRoom => break,
                Fit::Yes => {
                    let Some(mut line) = self.lines.remove(at) else { break };
                    if let Some(first) = line.waiting.pop_front() {
                        self.free.count -= first.room.count;
                        self.free.memory_bytes -= first.room.memory_bytes;
                        *self.held.entry(line.tenant.clone()).or_default() += 1;
                        // Who does not listen any more gives it back when it is dropped.
                        let _ = first.called.send(());
                    }
                    if !line.waiting.is_empty() {
                        self.lines.push_back(line);
                    }
                    // Those who were passed over because of what they hold still hold it.
                }
            }
        }
    }

    fn fits(&self, tenant: &TenantId, waiting: &Waiting) -> Fit {
        let held = self.held.get(tenant).copied().unwrap_or(0);
        let leaves = |least: Room| {
            let count = self.free.count.checked_sub(waiting.room.count);
            let memory_bytes = self.free.memory_bytes.checked_sub(waiting.room.memory_bytes);
            count.is_some_and(|count| count >= least.count)
                && memory_bytes.is_some_and(|bytes| bytes >= least.memory_bytes)
        };
        if held >= waiting.at_once_max || held > 0 && !leaves(self.kept) {
            return Fit::NotThisTenant;
        }
        if leaves(Room { count: 0, memory_bytes: 0 }) { Fit::Yes } else { Fit::NoRoom }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        let line = state.lines.iter().position(|line| line.tenant == self.tenant);
        let waiting = line.and_then(|line| {
            let waiting = state.lines[line].waiting.iter().position(|waiting| waiting.id == self.id)?;
            Some((line, waiting))
        });
        match waiting {
            Some((line, waiting)) => {
                state.lines[line].waiting.remove(waiting);
                if state.lines[line].waiting.is_empty() {
                    state.lines.remove(line);
                }
            }
            None => {
                state.free.count += self.room.count;
                state.free.memory_bytes += self.room.memory_bytes;
                if let Some(held) = state.held.get_mut(&self.tenant) {
                    *held -= 1;
                    if *held == 0 {
                        state.held.remove(&self.tenant);
                    }
                }
            }
        }
        state.serve();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Room = Room { count: 1, memory_bytes: 10 };
    const NOTHING: Room = Room { count: 0, memory_bytes: 0 };

    struct Asked(Option<Place>, oneshot::Receiver<()>);

    impl Asked {
        fn has_place(&mut self) -> bool {
            // Taken once; after that the channel is closed.
            !matches!(self.1.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        }
    }

    fn ask(places: &Places, tenant: &str, at_once_max: u32, room: Room) -> Asked {
        let (place, called) = places.ask(&TenantId::parse(tenant).unwrap(), at_once_max, room);
        Asked(Some(place), called)
    }

    #[test]
    fn tenants_that_wait_are_served_in_turn_whoever_came_first() {
        let places = Places::new(Room { count: 1, memory_bytes: 10 }, NOTHING);
        let mut now = ask(&places, "a", 9, ONE);
        assert!(now.has_place());
        let order = ["a", "a", "a", "b", "b", "c"];
        let mut waiting: Vec<_> =
            order.iter().map(|tenant| (*tenant, ask(&places, tenant, 9, ONE))).collect();
        let mut served = Vec::new();
        while !waiting.is_empty() {
            drop(now.0.take());
            let next: Vec<usize> = (0..waiting.len()).filter(|&at| waiting[at].1.has_place()).collect();
            let [next] = next[..] else { panic!("{next:?}") };
            let (tenant, asked) = waiting.remove(next);
            served.push(tenant);
            now = asked;
        }
        assert_eq!(served, ["a", "b", "c", "a", "b", "a"]);
    }

    #[test]
    fn the_last_of_the_room_is_for_tenants_that_have_none() {
        let places = Places::new(Room { count: 4, memory_bytes: 100 }, Room { count: 1, memory_bytes: 20 });
        let mut flood: Vec<_> = (0..9).map(|_| ask(&places, "a", 9, ONE)).collect();
        assert_eq!(flood.iter_mut().filter_map(|asked| asked.has_place().then_some(())).count(), 3);
        assert!(ask(&places, "b", 9, ONE).has_place());
        // It gave its place back; what is kept stays kept.
        assert_eq!(flood.iter_mut().filter_map(|asked| asked.has_place().then_some(())).count(), 3);
    }

    #[test]
    fn memory_is_room_too_and_what_is_large_is_not_passed_for_ever() {
        let places = Places::new(Room { count: 9, memory_bytes: 100 }, NOTHING);
        let mut small: Vec<_> =
            (0..3).map(|_| ask(&places, "a", 9, Room { memory_bytes: 30, ..ONE })).collect();
        assert!(small.iter_mut().all(Asked::has_place));
        let mut large = ask(&places, "b", 9, Room { memory_bytes: 500, ..ONE });
        let mut behind = ask(&places, "c", 9, ONE);
        small.pop();
        assert!(!large.has_place() && !behind.has_place(), "it would go on and on");
        small.clear();
        assert!(large.has_place() && !behind.has_place(), "all there is, for more than there is");
        drop(large);
        assert!(behind.has_place());
    }

    #[test]
    fn a_tenants_own_bound_holds_and_does_not_hold_up_others() {
        let places = Places::new(Room { count: 9, memory_bytes: 900 }, NOTHING);
        let mut own: Vec<_> = (0..3).map(|_| ask(&places, "a", 2, ONE)).collect();
        assert_eq!([own[0].has_place(), own[1].has_place(), own[2].has_place()], [true, true, false]);
        assert!(ask(&places, "b", 2, ONE).has_place());
        own.remove(0);
        assert!(own[1].has_place());
    }

    #[test]
    fn who_stops_waiting_leaves_nothing_behind() {
        let places = Places::new(ONE, NOTHING);
        let first = ask(&places, "a", 9, ONE);
        drop(ask(&places, "b", 9, ONE));
        drop(ask(&places, "a", 9, ONE));
        drop(first);
        let state = places.state();
        assert_eq!((state.free, state.lines.len(), state.held.len()), (ONE, 0, 0));
    }
}
