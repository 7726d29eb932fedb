//! Effects that are HTTP requests, sent only where the operator lets a graph reach.

use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Method, Url};
use serde_json::{Value, json};

use super::effects::{EffectFailure, EffectRequest};
use super::secrets::{Secret, Secrets};
use crate::model::graph::{AuthSpec, HttpSpec};
use crate::model::ids::TenantId;

/// What a response may hold.
const RESPONSE_BYTES_MAX: usize = 1 << 20;
const TIMEOUT_MS: u64 = 30_000;

/// Where effects may go. Public addresses are open; loopback, link-local and private ones only if named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// `host` or `host:port` as they stand in the URL.
    pub allow: Vec<String>,
}

impl Egress {
    fn names(&self, url: &Url) -> bool {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return false;
        };
        self.allow.iter().any(|allowed| *allowed == host || *allowed == format!("{host}:{port}"))
    }
}

/// Why a request is not sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsendable {
    /// It is none that can be sent to.
    #[error("{0}")]
    Url(String),
    /// The operator does not let this graph reach there.
    #[error("{authority} is not a public address, and the operator has not opened it")]
    Closed { authority: String },
    #[error("tenant {tenant} has no secret {name:?} on this host; whoever runs the host gives it one")]
    NoSecret { tenant: TenantId, name: String },
    /// It is for somewhere else, or fits no header.
    #[error("{0}")]
    Secret(String),
}

pub struct HttpSender {
    egress: Egress,
    secrets: Secrets,
    /// Made on first use: most hosts send nothing.
    clients: OnceLock<Result<Clients, String>>,
}

struct Clients {
    /// Resolves to public addresses only.
    public: Client,
    /// For what the operator named.
    named: Client,
}

impl HttpSender {
    pub fn new(egress: Egress, secrets: Secrets) -> Self {
        Self { egress, secrets, clients: OnceLock::new() }
    }

    /// Whether the URL is one that may be reached, as far as its text tells, and the tenant has the secret
    /// that goes there; a name's addresses are checked when it is resolved for the connection.
    pub fn permitted(&self, tenant: &TenantId, http: &HttpSpec) -> Result<(), Unsendable> {
        let url = parse(http)?;
        self.reachable(&url)?;
        self.secret(tenant, http, &url)?;
        Ok(())
    }

    fn secret(&self, tenant: &TenantId, http: &HttpSpec, url: &Url) -> Result<Option<&Secret>, Unsendable> {
        let find = |auth: &AuthSpec| self.secrets.find(tenant, &auth.secret, url);
        http.auth.as_ref().map(find).transpose()
    }

    fn reachable(&self, url: &Url) -> Result<(), Unsendable> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Unsendable::Url(
                "a URL with a user or a password in it would show it to whoever sees the graph; use \
                        auth = { secret = \"NAME\" }"
                    .to_owned(),
            ));
        }
        if self.egress.names(url) {
            return Ok(());
        }
        let literal = match url.host() {
            Some(url::Host::Ipv4(ip)) => Some(IpAddr::V4(ip)),
            Some(url::Host::Ipv6(ip)) => Some(IpAddr::V6(ip)),
            _ => None,
        };
        match literal {
            Some(ip) if !is_public(ip) => Err(closed(url)),
            _ => Ok(()),
        }
    }

    pub async fn send(
        &self,
        tenant: &TenantId,
        http: &HttpSpec,
        request: &EffectRequest,
    ) -> Result<Result<Value, EffectFailure>, Unsendable> {
        let url = parse(http)?;
        self.reachable(&url)?;
        let secret = self.secret(tenant, http, &url)?;
        let clients = self.clients.get_or_init(Clients::new).as_ref();
        let clients = clients.map_err(|error| Unsendable::Url(error.clone()))?;
        let client = if self.egress.names(&url) { &clients.named } else { &clients.public };
        let method =
            Method::from_bytes(http.method.as_bytes()).map_err(|error| Unsendable::Url(error.to_string()))?;
        let mut builder = client
            .request(method, url.clone())
            .timeout(Duration::from_millis(http.timeout_ms.unwrap_or(TIMEOUT_MS)))
            .header("Idempotency-Key", &request.idempotency_key)
            .json(&request.input);
        for (name, value) in &http.headers {
            builder = builder.header(name, value);
        }
        if let (Some(auth), Some(secret)) = (&http.auth, secret) {
            let (name, value) = secret.header(auth).map_err(Unsendable::Secret)?;
            builder = builder.header(name, value);
        }
        match builder.send().await {
            Ok(response) => Ok(outcome(response, secret).await),
            Err(error) if has_cause::<NotPublic>(&error) => Err(closed(&url)),
            Err(error) if error.is_connect() => {
                Ok(Err(EffectFailure::Retryable(json!({ "error": "no connection" }))))
            }
            Err(error) if error.is_builder() => {
                Ok(Err(EffectFailure::Final(json!({ "error": "no valid HTTP request" }))))
            }
            Err(error) => {
                let what = if error.is_timeout() { "no answer in time" } else { "the connection broke" };
                Ok(Err(EffectFailure::Unknown(json!({ "error": what }))))
            }
        }
    }
}

const NOT_FOLLOWED: &str = "the service answered with a redirect, and none is followed; the graph has to name the address it leads to";

fn parse(http: &HttpSpec) -> Result<Url, Unsendable> {
    let wrong = |what: String| Unsendable::Url(format!("{:?} {what}", http.url));
    let url = Url::parse(&http.url).map_err(|error| wrong(format!("is no URL: {error}")))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(wrong(format!("begins with {other}:, and only http: and https: are spoken"))),
    }
}

fn closed(url: &Url) -> Unsendable {
    Unsendable::Closed { authority: url.authority().to_owned() }
}

async fn outcome(mut response: reqwest::Response, secret: Option<&Secret>) -> Result<Value, EffectFailure> {
    let status = response.status();
    let (mut bytes, mut cut_off) = (Vec::new(), false);
    loop {
        match response.chunk().await {
            Ok(None) => break,
            Ok(Some(chunk)) if bytes.len() + chunk.len() <= RESPONSE_BYTES_MAX => bytes.extend(chunk),
            // The status came, so it was done or refused; only what it said is lost.
            Ok(Some(_)) | Err(_) => {
                bytes.clear();
                cut_off = true;
                break;
            }
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut value = match cut_off {
        true => json!({ "status": status.as_u16(), "body": null, "cut_off": true }),
        false => {
            let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
            json!({ "status": status.as_u16(), "body": body })
        }
    };
    if let Some(secret) = secret {
        secret.blot(&mut value);
    }
    match status.as_u16() {
        200..=299 => Ok(value),
        // It would lead where nobody checked, and take the secret along.
        300..=399 => {
            value["error"] = NOT_FOLLOWED.into();
            Err(EffectFailure::Final(value))
        }
        // Refused before it was done, and perhaps not the next time.
        408 | 425 | 429 | 503 => Err(EffectFailure::Retryable(value)),
        500..=599 => Err(EffectFailure::Unknown(value)),
        _ => Err(EffectFailure::Final(value)),
    }
}

impl Clients {
    fn new() -> Result<Self, String> {
        // Another part of the process may have chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            Client::builder()
                // See `NOT_FOLLOWED`.
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .user_agent(concat!("holdpoint/", env!("CARGO_PKG_VERSION")))
        };
        let named = builder().build().map_err(|error| error.to_string())?;
        let public = builder().dns_resolver(PublicOnly).build().map_err(|error| error.to_string())?;
        Ok(Self { public, named })
    }
}

/// Resolves names, and refuses those that lead inside. What it returns is what is connected to, so a
/// name cannot change between the check and the connection.
struct PublicOnly;

#[derive(Debug, thiserror::Error)]
#[error("the name leads to an address that is not public")]
struct NotPublic;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addrs: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if addrs.iter().any(|addr| !is_public(addr.ip())) {
                return Err(NotPublic.into());
            }
            Ok(Box::new(addrs.into_iter()) as Addrs)
        })
    }
}

fn has_cause<E: std::error::Error + 'static>(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(|error| error.is::<E>())
}

/// Neither loopback, link-local, private, shared, multicast, nor reserved.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            !(ip.is_loopback()
                || ip.is_private()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_broadcast()
                || ip.is_documentation()
                || a == 0
                || a >= 224
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (18..20).contains(&b)))
        }
        IpAddr::V6(ip) => {
            if let Some(mapped) = ip.to_ipv4_mapped() {
                return is_public(mapped.into());
            }
            let first = ip.segments()[0];
            // Global unicast, without the ranges that embed IPv4 addresses or are for documentation.
            (first & 0xe000) == 0x2000
                && first != 0x2002
                && !(first == 0x2001 && (ip.segments()[1] < 0x0200 || ip.segments()[1] == 0x0db8))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_public_must_be_named() {
        let http = |url: &str| HttpSpec {
            method: "POST".into(),
            url: url.into(),
            headers: Default::default(),
            timeout_ms: None,
            auth: None,
        };
        let tenant = TenantId::default();
        let closed = HttpSender::new(Egress::default(), Secrets::default());
        for url in [
            "http://127.0.0.1:80/",
            "http://10.1.2.3/",
            "http://[::1]/",
            "http://169.254.169.254/latest",
            "http://[::ffff:127.0.0.1]/",
            "http://0.0.0.0/",
            "http://2130706433/",
            "http://100.64.0.1/",
            "http://[fd00::1]/",
            "https://user:password@93.184.216.34/",
        ] {
            assert!(closed.permitted(&tenant, &http(url)).is_err(), "{url}");
        }
        assert!(closed.permitted(&tenant, &http("https://93.184.216.34/")).is_ok());
        let open = HttpSender::new(Egress { allow: vec!["127.0.0.1:8700".into()] }, Secrets::default());
        assert!(open.permitted(&tenant, &http("http://127.0.0.1:8700/x")).is_ok());
        assert!(open.permitted(&tenant, &http("http://127.0.0.1:8701/x")).is_err());
    }
}
