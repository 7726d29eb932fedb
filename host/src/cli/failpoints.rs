//! Only in builds for crash tests: where in the program something happens, said by the environment.
//! `FAILPOINTS` is the fail crate's own; `HOLDPOINT_KILL_AT=POINT#N` kills this process when it comes by
//! POINT for the Nth time.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use fail::FailScenario;

/// Holds for as long as what it returns lives.
pub fn listen() -> FailScenario<'static> {
    let scenario = FailScenario::setup();
    let kill_at = std::env::var("HOLDPOINT_KILL_AT").unwrap_or_default();
    if let Some((point, times)) = kill_at.rsplit_once('#')
        && let Ok(times) = times.parse()
    {
        let left = AtomicU32::new(times);
        let configured = fail::cfg_callback(point, move || {
            if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                die();
            }
        });
        // A test that kills nothing would pass for the wrong reason.
        configured.expect("a fail point takes a callback");
    }
    scenario
}

/// As SIGKILL does, and as fast: another program takes this one's place with all its threads, and has
/// nothing else to do.
fn die() {
    let error = Command::new("sh").args(["-c", "kill -KILL $$"]).exec();
    eprintln!("this process cannot kill itself: {error}");
    std::process::abort();
}
