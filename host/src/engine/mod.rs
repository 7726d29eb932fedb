//! Plan, run, commit: what happens to a thread. Knows the store and the sandbox by their faces; decides
//! in pure functions (`plan`, `matching`) and acts in thin ones.

mod host;
mod graph;
mod graph_file;
mod resume;
mod steer;
mod cancel;
mod state;
mod queue;
mod sweep;
mod upgrade;
mod fork;
mod offshoot;
mod threads;
mod session;
mod run;
mod child;
mod slot;
mod plan;
mod matching;
mod tree;
mod channels;
mod task;
mod effects;
mod http;
mod secrets;
mod ledger;
mod notify;
mod watch;
pub mod verify;
mod clock;
mod error;
mod trial;

pub use clock::Clock;
pub use effects::{EffectFailure, EffectRequest};
pub use error::EngineError;
pub use graph::Graph;
pub use graph_file::GraphFileError;
pub use host::{Host, HostBuilder, Installed, Settings};
pub use http::Egress;
pub use state::StateUpdate;
pub use sweep::Swept;
pub use threads::WhileRunning;
pub use trial::{Cost, Trial, Turn};
pub use upgrade::{Cut, Misfit, Upgrade};
pub use watch::{Watched, Watcher};
