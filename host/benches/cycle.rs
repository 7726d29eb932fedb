//! Pause and resume beside a bare commit and a bare call; run by `make bench`.

fn main() {}
