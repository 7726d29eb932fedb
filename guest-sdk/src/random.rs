//! Random numbers: the same in each attempt of a task, and seeded from it, so that they are no secret.

use crate::host;

/// Any number, each as likely as another; in a test the [script](crate::testing::Script)'s.
///
/// Derive no idempotency key from it.
pub fn number() -> u64 {
    host::random()
}
