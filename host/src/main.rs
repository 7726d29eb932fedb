//! The one binary. All that it does is in [`holdpoint::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    holdpoint::cli::main()
}
