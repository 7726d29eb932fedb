//! What proves to a service that it is this tenant who asks. A secret belongs to a tenant and a host: it is
//! put into the header of a request to that host and goes nowhere else, neither into a graph, a guest, a row,
//! a log nor an error.

use std::collections::BTreeMap;
use std::fmt;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use serde_json::Value;

use super::http::Unsendable;
use crate::model::graph::{AuthSpec, is_secret_name};
use crate::model::ids::TenantId;

/// Less can be guessed, and stands in answers by chance.
const VALUE_BYTES_MIN: usize = 8;
const VALUE_BYTES_MAX: usize = 8 << 10;

#[derive(Clone)]
pub struct Secret {
    /// As it stands in the URL: `host`, for https on its usual port, or `host:port`.
    host: String,
    value: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(for {})", self.host)
    }
}

/// All that a host was given.
#[derive(Clone, Debug, Default)]
pub struct Secrets(BTreeMap<(TenantId, String), Secret>);

impl Secrets {
    pub fn insert(&mut self, tenant: TenantId, name: String, host: String, value: String) {
        self.0.insert((tenant, name), Secret { host, value });
    }

    /// Whether each can be sent at all; said when the host is opened, and not in the middle of a run.
    pub fn check(&self) -> Result<(), String> {
        for ((_, name), secret) in &self.0 {
            let wrong = |what: &str| {
                // Whatever else is wrong with it, what stands here may be a secret.
                Err(format!("the secret {name:?}: {what}"))
            };
            if !is_secret_name(name) {
                return wrong("a name is 1 to 64 of a to z, 0 to 9 and '-'");
            }
            let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
            if secret.host.is_empty() || !secret.host.chars().all(is_host) {
                return wrong("its host is HOST or HOST:PORT as in the URL, without https:// and path");
            }
            if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&secret.value.len()) {
                return wrong("its value has 8 bytes to 8 KiB");
            }
            if !secret.value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
                || secret.value.trim() != secret.value
            {
                return wrong("its value is printable ASCII, without line breaks, or spaces around it");
            }
        }
        Ok(())
    }

    /// The tenant's secret of this name, if it may go there.
    pub fn find(&self, tenant: &TenantId, name: &str, url: &Url) -> Result<&Secret, Unsendable> {
        let Some(secret) = self.0.get(&(tenant.clone(), name.to_owned())) else {
            return Err(Unsendable::NoSecret { tenant: tenant.clone(), name: name.to_owned() });
        };
        if !secret.is_for(url) {
            let asked = format!("{}://{}", url.scheme(), url.authority());
            return Err(Unsendable::Secret(format!(
                "the secret {name:?} is for {}, and {asked} is not that; a host that is named without a port \
                 is reached by https alone",
                secret.host
            )));
        }
        Ok(secret)
    }
}

impl Secret {
    fn is_for(&self, url: &Url) -> bool {
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return false;
        };
        let alone = url.scheme() == "https" && port == 443 && self.host.eq_ignore_ascii_case(host);
        alone || self.host.eq_ignore_ascii_case(&format!("{host}:{port}"))
    }

    /// As it goes over the wire; nothing that shows a request shows it.
    pub fn header(&self, auth: &AuthSpec) -> Result<(HeaderName, HeaderValue), String> {
        let (name, text) = match &auth.header {
            None => (AUTHORIZATION, format!("Bearer {}", self.value)),
            Some(header) => (
                HeaderName::from_bytes(header.as_bytes()).map_err(|_| format!("{header:?} is no header"))?,
                self.value.clone(),
            ),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| "it is no header value".to_owned())?;
        value.set_sensitive(true);
        Ok((name, value))
    }

    /// A service that shows a request to its sender would show the node what it must not see.
    pub fn blot_text(&self, text: &str) -> String {
        text.replace(&self.value, BLOT)
    }

    /// Likewise, also where it was written with escapes.
    pub fn blot(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.contains(&self.value) => *text = self.blot_text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.blot(value)),
            Value::Object(members) => {
                if members.keys().any(|name| name.contains(&self.value)) {
                    *members = std::mem::take(members)
                        .into_iter()
                        .map(|(name, value)| (self.blot_text(&name), value))
                        .collect();
                }
                members.values_mut().for_each(|value| self.blot(value));
            }
            // Of digits only, it may come back as a number.
            Value::Number(number) if number.to_string().contains(&self.value) => *value = BLOT.into(),
            _ => {}
        }
    }
}

const BLOT: &str = "[secret]";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secrets(host: &str, value: &str) -> Secrets {
        let mut secrets = Secrets::default();
        secrets.insert(TenantId::default(), "pay-token".into(), host.into(), value.into());
        secrets
    }

    #[test]
    fn a_secret_goes_to_its_host_and_nowhere_else() {
        for (host, url, goes) in [
            ("pay.example", "https://pay.example/refunds", true),
            ("Pay.Example", "https://pay.example:443/", true),
            ("pay.example", "http://pay.example/", false),
            ("pay.example", "https://pay.example:8443/", false),
            ("pay.example", "https://pay.example.evil.example/", false),
            ("pay.example", "https://evil.example/?pay.example", false),
            ("pay.example", "https://pay.example@evil.example/", false),
            ("pay.example:8443", "https://pay.example:8443/", true),
            ("pay.example:80", "http://pay.example/", true),
            ("[::1]:80", "http://[::1]/", true),
        ] {
            let secrets = secrets(host, "not to be seen");
            let found = secrets.find(&TenantId::default(), "pay-token", &Url::parse(url).unwrap());
            assert_eq!(found.is_ok(), goes, "{host} {url}: {found:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_secret_is_said_without_it() {
        for (host, value) in [
            ("https://pay.example/", "not to be seen"),
            ("pay.example", "seen"),
            ("pay.example", "not to\nbe seen"),
            ("pay.example", " not to be seen"),
            ("pay.example", "nicht zu säen"),
        ] {
            let secrets = secrets(host, value);
            let refused = secrets.check().unwrap_err();
            assert!(!refused.contains(value), "{refused}");
            assert!(!format!("{secrets:?}").contains(value));
        }
        assert!(secrets("pay.example:80", "not to be seen").check().is_ok());
    }

    #[test]
    fn what_a_service_shows_of_a_secret_is_blotted() {
        let Secrets(all) = secrets("pay.example", r#"a"b\c-12345"#);
        let secret = all.values().next().unwrap();
        let mut shown: Value =
            serde_json::from_str(r#"{"h": ["Bearer a\"b\\c-12345."], "a\u0022b\\c-12345": 1}"#).unwrap();
        secret.blot(&mut shown);
        assert_eq!(shown, json!({ "h": ["Bearer [secret]."], "[secret]": 1 }));
    }
}
