//! Where a test makes an operation of the store fail, as a disk may.

use super::error::Failure;

/// Passed before each; and after a commit, whose failure says nothing of whether it took place.
pub(super) fn operation() -> Result<(), Failure> {
    fail::fail_point!("store::operation", |_| Err(Failure::from(std::io::Error::other(
        "an input/output error of a test"
    ))));
    Ok(())
}
