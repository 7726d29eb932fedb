//! The road of a node
