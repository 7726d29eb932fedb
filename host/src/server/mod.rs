//! HTTP. The only place that knows a status code.
//!
//! One file an endpoint group; what they have in common is in front of them. The manual of whoever runs
//! the service is `README.md` in this folder.

mod service;
mod connections;
mod routes;
mod openapi;
mod caller;
pub mod keys;
mod quotas;
mod problem;
mod way_out;
mod body;
mod shapes;
mod assistants;
mod threads;
mod state;
mod branches;
mod runs;
mod stateless;
mod streams;
mod events;
mod hub;
mod work;
mod answers;
mod journal;
mod components;
mod graphs;
mod tenants;
mod webhooks;
mod metrics;
mod health;
pub mod comments;

pub use health::SERVICE;
pub use quotas::Quotas;
pub use service::{ServeSettings, Service, Shared};

/// The OpenAPI document of the service.
pub fn document() -> serde_json::Value {
    serde_json::to_value(routes::document()).unwrap_or_default()
}
