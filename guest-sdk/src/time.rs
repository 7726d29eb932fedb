//! The node's clock.

use std::time::SystemTime;

use crate::host;

/// What time it is: in a component as `SystemTime::now`, which the host answers in the same way in each attempt; in a
/// test the [script](crate::testing::Script)'s, which `SystemTime::now` does not know of.
///
/// An answer moves it on to when it was given. Derive no idempotency key from it.
pub fn now() -> SystemTime {
    host::now()
}
