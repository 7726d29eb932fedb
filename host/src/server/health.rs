//! Whether the service is there, and whether it takes work.

use axum::Json as Reply;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::service::Shared;

#[derive(Debug, Serialize, ToSchema)]
pub struct Ok200 {
    pub ok: bool,
}

/// Whether the process answers.
#[utoipa::path(get, path = "/ok", tag = "operation",
    responses((status = 200, description = "It does", body = Ok200)), security(()))]
pub async fn ok() -> Reply<Ok200> {
    Reply(Ok200 { ok: true })
}

/// Whether it takes work: its database can be read, and it is not being ended.
#[utoipa::path(get, path = "/ready", tag = "operation",
    responses((status = 200, description = "It does", body = Ok200)), security(()))]
pub async fn ready(State(service): State<Shared>) -> Result<Reply<Ok200>, Problem> {
    if service.is_stopping() {
        return Err(Problem::unavailable("the host is being ended"));
    }
    service.store().next_expiry().await?;
    Ok(Reply(Ok200 { ok: true }))
}

/// What this service calls itself.
pub const SERVICE: &str = "holdpoint";

#[derive(Debug, Serialize, ToSchema)]
pub struct Info {
    /// Which of the services that speak this protocol it is.
    pub name: String,
    pub version: String,
    pub flags: Flags,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Flags {
    pub assistants: bool,
    pub crons: bool,
    pub interrupts: bool,
}

/// What this is.
#[utoipa::path(get, path = "/info", tag = "operation",
    responses((status = 200, description = "Version and flags", body = Info)), security(()))]
pub async fn info() -> Reply<Info> {
    let flags = Flags { assistants: true, crons: false, interrupts: true };
    Reply(Info { name: SERVICE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), flags })
}
