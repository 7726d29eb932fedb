//! The tests are in `it/`.
