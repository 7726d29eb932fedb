//! The product under test is the product: real SQLite files, real components, real processes.
//!
//! A test that is a row of the case lists bears its number: `i07_…`, `s03_…`.

mod world;
mod pausing;
mod answering;
mod gates;
mod expiry;
mod steering;
mod subgraphs;
mod failures;
mod state;
mod inputs;
mod upgrade;
mod outside;
mod process;
mod crashes;
#[path = "../../host/src/sandbox/tests/by_hand.rs"]
mod by_hand;
mod limits;
mod hostile;
mod refusals;
mod layers;
mod races;
mod payloads;
mod disk;
mod effects;
mod replay;
mod equivalence;
mod service;
mod service_clients;
mod service_protocol;
mod service_streams;
mod service_durable;
mod service_tenants;
mod service_own;
mod service_document;
mod service_webhooks;
