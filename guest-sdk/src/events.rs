//! For those who watch a run live.

use serde::Serialize;

use crate::{NodeError, host, json};

/// Show a value to whoever watches: progress, a token of a reply, a half-made draft.
///
/// It is not state. It reaches watchers at once, before anything is durable, and a run that is resumed
/// does not repeat it.
///
/// ```no_run
/// # use holdpoint_guest::prelude::*;
/// # fn node() -> Result<(), NodeError> {
/// events::emit(&json!({ "pages_read": 3 }))?;
/// # Ok(()) }
/// ```
pub fn emit(event: &(impl Serialize + ?Sized)) -> Result<(), NodeError> {
    let event = json::to_text(event)
        .map_err(|why| NodeError::fail(format!("an event cannot be written as JSON: {why}")))?;
    host::emit(&event);
    Ok(())
}
