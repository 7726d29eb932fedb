//! What people added beside their answers.

use crate::host;

/// One instruction, as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Instruction {
    /// Who gave it, as far as the host knows.
    pub actor: String,
    /// What they wrote.
    pub text: String,
}

/// All instructions for this task so far, oldest first.
///
/// Call it after [`interrupt`](crate::interrupt) to see what came with the answer. A call that was made
/// before the question returns what it returned then; a new call sees more.
///
/// ```no_run
/// # use holdpoint_guest::prelude::*;
/// # fn node() -> Result<(), NodeError> {
/// let approved: bool = interrupt("Refund?")?;
/// for instruction in steering::instructions() {
///     log::info!("{} adds: {}", instruction.actor, instruction.text);
/// }
/// # Ok(()) }
/// ```
pub fn instructions() -> Vec<Instruction> {
    host::instructions()
        .into_iter()
        .map(|given| Instruction { actor: given.actor, text: given.text })
        .collect()
}
