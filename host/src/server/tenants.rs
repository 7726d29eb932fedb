//! For the operator: tenants, their keys, what they may use and what they do use.

use axum::Json as Reply;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::assistants::line;
use super::body::{self, Body, Path};
use super::caller::{Allowed, Caller, word};
use super::keys::{self, NewKey};
use super::problem::Problem;
use super::quotas::Quotas;
use super::shapes::time;
use crate::model::TenantId;
use crate::store::{KeyRow, OnlyFor, Scope, ServiceWrite};

/// A tenant, what it may use, and what it uses.
#[derive(Debug, Serialize, ToSchema)]
pub struct Tenant {
    pub tenant: String,
    pub quotas: Quotas,
    /// Who is told of every question that waits.
    pub webhook: Option<String>,
    /// Signs what is told, in hex; shown when it is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
    pub usage: Usage,
}

/// Counted now.
#[derive(Debug, Serialize, ToSchema)]
pub struct Usage {
    pub threads: u64,
    pub components: u64,
    pub component_bytes: u64,
    pub state_bytes: u64,
    /// What tasks asked and were told.
    pub journal_bytes: u64,
    /// What its nodes computed since this process began.
    pub fuel: u64,
    pub runs: u64,
    pub invocations: u64,
    pub pending: u64,
}

async fn existing(allowed: &Allowed, text: &str) -> Result<TenantId, Problem> {
    let missing = || Problem::not_found(format_args!("tenant {:?}", body::clip(text)));
    let tenant = TenantId::parse(text).map_err(|_| missing())?;
    match allowed.store().has_tenant(&tenant).await? {
        true => Ok(tenant),
        false => Err(missing()),
    }
}

async fn shown(allowed: &Allowed, tenant: &TenantId, secret: Option<[u8; 32]>) -> Result<Tenant, Problem> {
    allowed.service.meter.forget(tenant);
    let settings = allowed.service.tenant_settings(tenant).await?;
    let usage = allowed.store().usage(tenant).await?;
    Ok(Tenant {
        tenant: tenant.to_string(),
        quotas: settings.quotas,
        webhook: settings.webhook,
        webhook_secret: secret.map(hex::encode),
        usage: Usage {
            threads: usage.threads,
            components: usage.components,
            component_bytes: usage.component_bytes,
            state_bytes: usage.state_bytes,
            journal_bytes: usage.journal_bytes,
            fuel: allowed.service.host.for_tenant(tenant.clone()).fuel_spent(),
            runs: usage.runs,
            invocations: usage.invocations,
            pending: usage.pending,
        },
    })
}

/// The tenants there are.
#[utoipa::path(get, path = "/tenants", tag = "operation",
    responses((status = 200, description = "By name", body = Vec<String>)))]
pub async fn list(caller: Caller) -> Result<Reply<Vec<String>>, Problem> {
    let allowed = caller.may_admin()?;
    let tenants = allowed.store().tenants().await?;
    Ok(Reply(tenants.iter().map(ToString::to_string).collect()))
}

/// A tenant, with what it uses.
#[utoipa::path(get, path = "/tenants/{tenant}", tag = "operation", params(("tenant" = String, Path)),
    responses((status = 200, description = "The tenant", body = Tenant)))]
pub async fn get(caller: Caller, Path(tenant): Path<String>) -> Result<Reply<Tenant>, Problem> {
    let allowed = caller.may_admin()?;
    let tenant = existing(&allowed, &tenant).await?;
    Ok(Reply(shown(&allowed, &tenant, None).await?))
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TenantPut {
    /// What is left out is as it is by default.
    pub quotas: Option<Quotas>,
    /// Where to post every question that waits; null: nowhere.
    pub webhook: Option<String>,
    /// Makes another secret.
    pub new_webhook_secret: bool,
}

/// Make a tenant, or change what it may use.
#[utoipa::path(put, path = "/tenants/{tenant}", tag = "operation", params(("tenant" = String, Path)),
    request_body = TenantPut, responses((status = 200, description = "The tenant", body = Tenant)))]
pub async fn put(
    caller: Caller,
    Path(tenant): Path<String>,
    Body(put): Body<TenantPut>,
) -> Result<Reply<Tenant>, Problem> {
    let allowed = caller.may_admin()?;
    let tenant = TenantId::parse(tenant).map_err(|error| Problem::invalid(error.to_string()))?;
    if let Some(url) = &put.webhook {
        allowed.host.may_notify(url).map_err(Problem::invalid)?;
    }
    allowed.service.meter.forget(&tenant);
    let mut settings = allowed.service.tenant_settings(&tenant).await?;
    let known = settings.webhook_secret.filter(|_| !put.new_webhook_secret);
    let secret = known.unwrap_or_else(|| {
        let mut secret = [0; 32];
        // Without an entropy source there is no safe way to go on, on any system that this runs on.
        getrandom::fill(&mut secret).expect("the system has random numbers");
        secret
    });
    settings.quotas = put.quotas.unwrap_or_default();
    settings.webhook = put.webhook;
    let writes = vec![ServiceWrite::Tenant, ServiceWrite::Settings(settings.row(secret))];
    let written = allowed.store().serve(&tenant, writes).await?;
    debug_assert!(written.is_ok(), "what is set is put over any other");
    Ok(Reply(shown(&allowed, &tenant, known.is_none().then_some(secret)).await?))
}

/// A key, without its secret half.
#[derive(Debug, Serialize, ToSchema)]
pub struct Key {
    pub key_id: String,
    pub name: String,
    /// Of admin, deploy, run, answer.
    pub scopes: Vec<String>,
    pub only_for: KeyOnlyFor,
    pub created_at: String,
    pub expires_at: Option<String>,
    pub revoked_at: Option<String>,
}

/// Whose questions an `answer` key is for; an empty list names all.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KeyOnlyFor {
    pub graphs: Vec<String>,
    pub nodes: Vec<String>,
    pub agents: Vec<String>,
}

impl Key {
    fn of(row: &KeyRow) -> Self {
        Self {
            key_id: row.key.to_string(),
            name: row.name.clone(),
            scopes: row.scopes.iter().map(|scope| word(*scope).to_owned()).collect(),
            only_for: KeyOnlyFor {
                graphs: row.only_for.graphs.clone(),
                nodes: row.only_for.nodes.clone(),
                agents: row.only_for.agents.clone(),
            },
            created_at: time(row.created_at),
            expires_at: row.expires_at.map(time),
            revoked_at: row.revoked_at.map(time),
        }
    }
}

/// A new key.
#[derive(Debug, Serialize, ToSchema)]
pub struct MadeKey {
    /// Shown here, and never again.
    pub key: String,
    pub key_id: String,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyCreate {
    /// Whose it is; recorded with what is done with it.
    pub name: String,
    pub scopes: Vec<ScopeWord>,
    #[serde(default)]
    pub only_for: KeyOnlyFor,
    pub expires_after_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScopeWord {
    Admin,
    Deploy,
    Run,
    Answer,
}

impl From<ScopeWord> for Scope {
    fn from(word: ScopeWord) -> Self {
        match word {
            ScopeWord::Admin => Self::Admin,
            ScopeWord::Deploy => Self::Deploy,
            ScopeWord::Run => Self::Run,
            ScopeWord::Answer => Self::Answer,
        }
    }
}

/// Make a key for a tenant.
#[utoipa::path(post, path = "/tenants/{tenant}/keys", tag = "operation", params(("tenant" = String, Path)),
    request_body = KeyCreate, responses((status = 200, description = "The key, shown once", body = MadeKey)))]
pub async fn create_key(
    caller: Caller,
    Path(tenant): Path<String>,
    Body(create): Body<KeyCreate>,
) -> Result<Reply<MadeKey>, Problem> {
    let allowed = caller.may_admin()?;
    let tenant = existing(&allowed, &tenant).await?;
    if create.scopes.is_empty() {
        return Err(Problem::invalid("scopes: a key is for at least one of admin, deploy, run, answer"));
    }
    let now = allowed.host.clock().now();
    let new = NewKey {
        name: line(create.name, "name")?,
        scopes: create.scopes.into_iter().map(Scope::from).collect(),
        only_for: OnlyFor {
            graphs: create.only_for.graphs,
            nodes: create.only_for.nodes,
            agents: create.only_for.agents,
        },
        expires_at: create.expires_after_ms.map(|ms| now.plus_ms(ms)),
    };
    let (key, row) = keys::create(allowed.store(), &tenant, new, now).await?;
    Ok(Reply(MadeKey { key, key_id: row.key.to_string() }))
}

/// A tenant's keys.
#[utoipa::path(get, path = "/tenants/{tenant}/keys", tag = "operation", params(("tenant" = String, Path)),
    responses((status = 200, description = "The oldest first", body = Vec<Key>)))]
pub async fn list_keys(caller: Caller, Path(tenant): Path<String>) -> Result<Reply<Vec<Key>>, Problem> {
    let allowed = caller.may_admin()?;
    let tenant = existing(&allowed, &tenant).await?;
    let rows = allowed.store().keys(&tenant).await?;
    Ok(Reply(rows.iter().map(Key::of).collect()))
}

/// Take a key back: from now on it counts no more.
#[utoipa::path(delete, path = "/tenants/{tenant}/keys/{key_id}", tag = "operation",
    params(("tenant" = String, Path), ("key_id" = String, Path)),
    responses((status = 204, description = "It counts no more")))]
pub async fn revoke_key(
    caller: Caller,
    Path((tenant, key)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let allowed = caller.may_admin()?;
    let tenant = existing(&allowed, &tenant).await?;
    let missing = || Problem::not_found(format_args!("key {:?} that counts", body::clip(&key)));
    let id: Uuid = key.parse().map_err(|_| missing())?;
    match keys::revoke(allowed.store(), &tenant, id, allowed.host.clock().now()).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing()),
    }
}
