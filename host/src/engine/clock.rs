//! What time it is, handed in: tests set it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::ids::Timestamp;

#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// Milliseconds since the Unix epoch, moved by whoever holds it.
    Set(Arc<AtomicI64>),
}

impl Clock {
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
            Self::Set(ms) => Timestamp(ms.load(Ordering::SeqCst)),
        }
    }
}
