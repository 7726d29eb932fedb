//! What was done, counted.

use holdpoint::Host;

use crate::machine;

#[derive(Clone, Copy, Default)]
pub struct Counted {
    pub statements: u64,
    pub commits: u64,
    pub instantiations: u64,
    /// Zero where the system does not say.
    pub written_bytes: u64,
}

pub fn counted(host: &Host) -> Counted {
    let store = host.store().map(|store| store.counters()).unwrap_or_default();
    Counted {
        statements: store.statements,
        commits: store.commits,
        instantiations: host.sandbox().counters().instantiations,
        written_bytes: machine::written_bytes().unwrap_or_default(),
    }
}

impl Counted {
    pub fn add(&mut self, more: Self) {
        self.statements += more.statements;
        self.commits += more.commits;
        self.instantiations += more.instantiations;
        self.written_bytes += more.written_bytes;
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            statements: self.statements - before.statements,
            commits: self.commits - before.commits,
            instantiations: self.instantiations - before.instantiations,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}
