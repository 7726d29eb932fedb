//! Who calls: from a key to a tenant, and to what the key is for. A handler gets nothing of a tenant before
//! it has said which scope it needs.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::body::BodyBytes;
use super::keys;
use super::problem::Problem;
use super::quotas::Room;
use super::service::Shared;
use crate::engine::Host;
use crate::model::{ErrorRecord, Kind, PendingInterrupt, TenantId};
use crate::store::{OnlyFor, Scope, Store};

/// Somebody whose key was checked; what it is for was not.
pub struct Caller {
    service: Shared,
    tenant: TenantId,
    /// `None`: there is no key, and none is needed here.
    key: Option<(String, Vec<Scope>, OnlyFor)>,
    place: OwnedSemaphorePermit,
}

/// Somebody who may do what is asked, and whose it is.
pub struct Allowed {
    pub service: Shared,
    pub tenant: TenantId,
    /// The host, for this tenant.
    pub host: Host,
    /// The key's name, recorded with what is done.
    pub actor: Option<String>,
    pub only_for: OnlyFor,
    /// Among those whose requests are answered now; given up by what lasts, which has a room of its own.
    pub place: Option<OwnedSemaphorePermit>,
}

impl FromRequestParts<Shared> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Shared) -> Result<Self, Problem> {
        let (tenant, key) = match key_of(&parts.headers)? {
            Some(text) => {
                let now = service.host.clock().now();
                let found = keys::check(service.store(), text, now).await?;
                let (tenant, row) =
                    found.ok_or_else(|| unknown("this key is not known, or counts no more"))?;
                (tenant, Some((row.name, row.scopes, row.only_for)))
            }
            None if service.settings.needs_keys => {
                let what = "a key is needed (x-api-key, or Authorization: Bearer); whoever runs the service makes one";
                return Err(unknown(what));
            }
            None => {
                // Without a key only this machine is trusted: a name that somebody else made lead here is not.
                if !is_this_machine(parts) {
                    return Err(unknown("without a key this service answers to localhost only"));
                }
                (TenantId::default(), None)
            }
        };
        let settings = service.tenant_settings(&tenant).await?;
        service.meter.request(&tenant, &settings)?;
        let place = service.meter.place(&tenant, Room::Requests)?;
        // A body is read after this.
        parts.extensions.insert(BodyBytes(settings.quotas.body_bytes));
        Ok(Self { service: service.clone(), tenant, key, place })
    }
}

fn unknown(what: &str) -> Problem {
    let error = ErrorRecord::new(Kind::Denied, what).with("needs", "key");
    Problem::because(StatusCode::UNAUTHORIZED, &error)
}

fn key_of(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let malformed = || unknown("the key is no text");
    // Whose request it is must not hang on which of them is read.
    if headers.get_all("x-api-key").iter().nth(1).is_some() {
        return Err(unknown("there is more than one key: send one x-api-key"));
    }
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().map(Some).map_err(|_| malformed());
    }
    let Some(key) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let key = key.to_str().map_err(|_| malformed())?;
    let (scheme, key) = key.split_once(' ').unwrap_or((key, ""));
    match scheme.eq_ignore_ascii_case("bearer") {
        true => Ok(Some(key.trim())),
        false => Err(unknown("Authorization takes a Bearer key")),
    }
}

fn is_this_machine(parts: &Parts) -> bool {
    // HTTP/2 has it in the address.
    let authority = || parts.uri.authority().map(|authority| authority.as_str());
    let named = parts.headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default());
    let Some(host) = named.or_else(authority) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Caller {
    /// Whoever has one of these scopes.
    pub fn may(self, scopes: &[Scope]) -> Result<Allowed, Problem> {
        let Self { service, tenant, key, place } = self;
        let (actor, only_for) = match key {
            None => (None, OnlyFor::default()),
            Some((name, has, only_for)) => {
                if !has.iter().any(|scope| scopes.contains(scope)) {
                    let words: Vec<String> = scopes.iter().map(|scope| word(*scope).to_owned()).collect();
                    let what = format!("this key is not for this: it takes the scope {}", words.join(" or "));
                    let error =
                        ErrorRecord::new(Kind::Denied, &what).with("needs", "scope").with("scopes", words);
                    return Err(Problem::because(StatusCode::FORBIDDEN, &error));
                }
                // What narrows an answer key says nothing where its owner may do all that a run may.
                let narrows = !has.contains(&Scope::Run);
                (Some(name), if narrows { only_for } else { OnlyFor::default() })
            }
        };
        let host = service.host.for_tenant(tenant.clone());
        Ok(Allowed { service, tenant, host, actor, only_for, place: Some(place) })
    }

    pub fn may_run(self) -> Result<Allowed, Problem> {
        self.may(&[Scope::Run])
    }

    pub fn may_answer(self) -> Result<Allowed, Problem> {
        self.may(&[Scope::Run, Scope::Answer])
    }

    pub fn may_deploy(self) -> Result<Allowed, Problem> {
        self.may(&[Scope::Deploy])
    }

    /// To look at what is deployed.
    pub fn may_look(self) -> Result<Allowed, Problem> {
        self.may(&[Scope::Deploy, Scope::Run])
    }

    pub fn may_admin(self) -> Result<Allowed, Problem> {
        self.may(&[Scope::Admin])
    }
}

impl Allowed {
    pub fn store(&self) -> &Store {
        self.service.store()
    }

    /// Whether this key is for this question, which a graph of this name asks.
    pub fn is_for(&self, asked: &PendingInterrupt, graph: &str) -> bool {
        let has = |names: &[String], name: &str| names.is_empty() || names.iter().any(|one| one == name);
        has(&self.only_for.graphs, graph)
            && has(&self.only_for.nodes, asked.interrupt.node.as_str())
            && has(&self.only_for.agents, asked.agent.as_deref().unwrap_or_default())
    }

    /// Whether this key is for all questions there are.
    pub fn is_for_all(&self) -> bool {
        self.only_for == OnlyFor::default()
    }

    pub fn fresh_id(&self) -> Uuid {
        Uuid::now_v7()
    }
}

pub fn word(scope: Scope) -> &'static str {
    match scope {
        Scope::Admin => "admin",
        Scope::Deploy => "deploy",
        Scope::Run => "run",
        Scope::Answer => "answer",
    }
}
