//! What there is to do about a refusal, as a command.

use crate::engine::EngineError;
use crate::model::{ErrorRecord, WayOut};

/// The error as the command line says it: its message goes on with what to type.
pub fn told(mut error: ErrorRecord) -> ErrorRecord {
    let ways = std::mem::take(&mut error.ways_out);
    error.message.push_str(&words(&ways));
    error
}

/// The same to a person.
pub fn said(error: &EngineError) -> String {
    format!("{error}{}", words(&error.record().ways_out))
}

/// As they stand behind a message.
fn words(ways: &[WayOut]) -> String {
    ways.iter().map(|way| format!("; {}", command(way))).collect()
}

fn command(way: &WayOut) -> String {
    match way {
        WayOut::Threads => "`holdpoint threads` lists those that are, and a run starts one".into(),
        WayOut::Pending => "`holdpoint pending` shows what waits, and in which run".into(),
        WayOut::Checkpoints { thread } => {
            format!("`holdpoint history --thread {thread}` lists those that there are")
        }
        WayOut::Fork { thread, checkpoint } => {
            format!(
                "to go on from there: holdpoint fork --thread {thread} --checkpoint {checkpoint} --to NEW"
            )
        }
        WayOut::ForkEarlier { thread } => {
            format!("or fork an earlier checkpoint (holdpoint history --thread {thread})")
        }
        WayOut::Continue { thread } => {
            format!("`holdpoint continue --thread {thread}` goes on with it, also where its process died")
        }
        WayOut::Queue => {
            "new input can wait for its end or take its place (holdpoint run --if-busy enqueue, or supersede)"
                .into()
        }
        WayOut::DeleteRunning => "or delete it all the same (--force)".into(),
        WayOut::CutJournal { task } => {
            let at = task.map_or_else(|| "TASK:ENTRY".to_owned(), |task| format!("{task}:0"));
            format!(
                "to have a task begin anew from an entry of its journal, cut it there (holdpoint upgrade --cut {at})"
            )
        }
        WayOut::Install => "`holdpoint install FILE` installs one".into(),
        WayOut::Build => "`holdpoint build` makes one of a node's source".into(),
        WayOut::Open { authority } => format!("whoever runs the host opens it with --egress {authority}"),
        WayOut::GiveSecret { name } => {
            let variable = name.to_ascii_uppercase().replace('-', "_");
            format!("--secrets FILE, or HOLDPOINT_SECRET_{variable}, gives it one")
        }
    }
}
