//! The product under test is the product: real SQLite files, real components, real processes.
//!
//! A test that is a row of the case lists bears its number: `i07_…`, `s03_…`.

mod world;
mod pausing;
mod answering;
mod gates;
mod expiry;
mod steering;
mod subgraphs;
mod failures;
mod state;
mod inputs;
mod upgrade;
mod outside;
mod process;
mod errand;
mod invariants;
mod crashes;
mod kills;
#[path = "../../host/src/sandbox/tests/by_hand.rs"]
mod by_hand;
mod limits;
mod memory;
mod compiling;
mod fairness;
mod granted;
mod stopping;
mod hostile;
mod refusals;
mod layers;
mod races;
mod forks;
mod pruning;
mod payloads;
mod disk;
mod faults;
mod fuzz;
mod effects;
mod secrets;
mod replay;
mod equivalence;
mod telling;
mod determinism;
mod replaying;
mod verify;
mod offshoots;
mod conformance;
mod languages;
mod trying;
