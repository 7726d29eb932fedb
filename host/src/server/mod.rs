//! HTTP. The only place that knows a status code.

pub mod comments;
