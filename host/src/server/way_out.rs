//! What there is to do about a refusal, as a request. What only whoever runs the host can do, the message says.

use super::body::encoded;
use crate::model::{ErrorRecord, WayOut};

/// The error as it is said over HTTP: its message goes on with what to ask for.
pub fn told(mut error: ErrorRecord) -> ErrorRecord {
    for way in std::mem::take(&mut error.ways_out) {
        if let Some(request) = request(&way) {
            error.message.push_str("; ");
            error.message.push_str(&request);
        }
    }
    error
}

fn request(way: &WayOut) -> Option<String> {
    Some(match way {
        WayOut::Threads => "POST /threads/search lists those that are".into(),
        WayOut::Pending => "GET /interrupts shows what waits, and in which run".into(),
        WayOut::Checkpoints { thread } => {
            format!("POST /threads/{}/history lists those that there are", encoded(thread.as_str()))
        }
        WayOut::Fork { thread, .. } => {
            format!("POST /threads/{}/fork makes another thread from it", encoded(thread.as_str()))
        }
        WayOut::ForkEarlier { thread } => {
            format!("an earlier checkpoint can be forked (POST /threads/{}/history)", encoded(thread.as_str()))
        }
        WayOut::Queue => {
            "new input can wait for its end or take its place (multitask_strategy: enqueue, interrupt or rollback)"
                .into()
        }
        WayOut::CutJournal { .. } => {
            "to have a task begin anew from an entry of its journal, cut it there (cuts of the upgrade)".into()
        }
        WayOut::Install => "PUT /components installs one".into(),
        // The service goes on by itself with what is due, and has no request for the others.
        WayOut::Continue { .. }
        | WayOut::DeleteRunning
        | WayOut::Build
        | WayOut::Open { .. }
        | WayOut::GiveSecret { .. } => return None,
    })
}
