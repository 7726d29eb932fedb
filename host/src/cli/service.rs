//! A service that runs somewhere, as its client sees it: what is asked of it, and why it did not do it. What a failure
//! is, the document says that it answers with, and not a number.

use std::time::Duration;

use reqwest::header::{HeaderValue, LOCATION};
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::document::Exit;
use super::screen::clip;
use crate::model::{Digest, ErrorRecord, Kind};
use crate::server::SERVICE;

/// Where the key stands: an argument could be read by everybody on this machine.
pub const KEY_VARIABLE: &str = "HOLDPOINT_KEY";
const KEY_HEADER: &str = "x-api-key";
/// What an answer may hold.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Longer than a service takes to say that it took too long.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// A component has to come and to be compiled.
const UPLOAD_WITHIN: Duration = Duration::from_secs(960);
const SAID_CHARS_MAX: usize = 2_000;

/// Why a service did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("{url} is no address of a service: {what}")]
    Url { url: String, what: String },
    #[error("{KEY_VARIABLE} holds no key: a key is one line of printable characters")]
    NoKey,
    #[error(
        "the key would go to {host} in the clear, over http, where whoever stands between can take it: name the \
         service with https://, or say --insecure-http if nobody does"
    )]
    InTheClear { host: String },
    #[error(
        "nothing answers at {url} ({why}); is `holdpoint serve` running there? --url names another address"
    )]
    Unreachable { url: String, why: String },
    #[error(
        "the service at {url} did not answer within {ms} ms; what it has taken it goes on with, so the same command \
         finds what is done already, and --timeout-ms gives it more time"
    )]
    Late { url: String, ms: u128 },
    #[error("the connection to {url} broke ({why}); the same command again goes on from there")]
    Broken { url: String, why: String },
    #[error("what answers at {url} is no Holdpoint: {what}; --url names another address")]
    NotHoldpoint { url: String, what: String },
    #[error(
        "{url} sends on to {to:?}, and the key goes nowhere that was not named: if that is right, say --url"
    )]
    SentOn { url: String, to: String },
    #[error("{said}; {hint}")]
    Key { said: String, hint: String },
    /// The service's own words.
    #[error("{what}: {}", .error.message)]
    Refused { what: String, error: ErrorRecord },
    #[error(
        "{file} has the digest {sent}, and the service says that it got {got}: it was damaged on its way"
    )]
    WrongDigest { file: String, sent: Digest, got: Digest },
}

impl ServiceError {
    pub fn exit(&self) -> Exit {
        match self {
            Self::Url { .. }
            | Self::NoKey
            | Self::InTheClear { .. }
            | Self::NotHoldpoint { .. }
            | Self::SentOn { .. } => Exit::Usage,
            Self::Unreachable { .. } | Self::Late { .. } | Self::Broken { .. } | Self::WrongDigest { .. } => {
                Exit::Failed
            }
            Self::Key { .. } => Exit::Refused,
            Self::Refused { error, .. } => match error.kind {
                // It may go later.
                _ if error.more.contains_key("retry_after_ms") => Exit::Failed,
                Kind::Busy | Kind::Store => Exit::Failed,
                Kind::Invalid | Kind::Limit => Exit::Usage,
                _ => Exit::Refused,
            },
        }
    }

    pub fn record(&self) -> ErrorRecord {
        let kind = match self {
            Self::Refused { error, .. } => {
                return ErrorRecord { message: self.to_string(), ..error.clone() };
            }
            Self::Key { .. } => Kind::Denied,
            Self::WrongDigest { .. } => Kind::Store,
            _ if self.exit() == Exit::Usage => Kind::Invalid,
            _ => Kind::Busy,
        };
        ErrorRecord::new(kind, self.to_string())
    }
}

/// How a service is spoken to.
#[derive(Debug)]
pub struct Speaking {
    /// A key may go over http to another machine.
    pub insecure_http: bool,
    /// How long each request may take, where that is not as usual.
    pub timeout: Option<Duration>,
}

/// A service, and who asks.
#[derive(Debug)]
pub struct Service {
    base: Url,
    key: Option<String>,
    timeout: Option<Duration>,
    client: Client,
}

impl Service {
    /// Nothing is sent yet.
    pub fn at(url: &str, key: Option<String>, speaking: &Speaking) -> Result<Self, ServiceError> {
        let base = address(url)?;
        // What a file had around it is not the key's.
        let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        if key.as_ref().is_some_and(|key| !key.bytes().all(|byte| byte.is_ascii_graphic())) {
            return Err(ServiceError::NoKey);
        }
        if key.is_some() && base.scheme() == "http" && !is_this_machine(&base) && !speaking.insecure_http {
            let host = base.host_str().unwrap_or_default().to_owned();
            return Err(ServiceError::InTheClear { host });
        }
        // Another part of the process may have chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            // It would take the key along to where nobody named.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_WITHIN)
            .user_agent(concat!("holdpoint/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = client.map_err(|error| {
            let why = format!("this machine cannot speak http: {}", cause(&error));
            ServiceError::Unreachable { url: base.to_string(), why }
        })?;
        Ok(Self { base, key, timeout: speaking.timeout, client })
    }

    pub fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// An address of the service's.
    pub fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        // An address that has a host has a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// Before it is shown a key: whether this is a Holdpoint at all.
    pub async fn is_holdpoint(&self) -> Result<(), ServiceError> {
        #[derive(Deserialize)]
        struct Info {
            name: String,
        }
        let request = self.client.get(self.url(&["info"])).timeout(self.timeout.unwrap_or(ANSWER_WITHIN));
        let (is_done, text) = self.answer(request, ANSWER_WITHIN).await?;
        match serde_json::from_str::<Info>(&text) {
            Ok(info) if is_done && info.name == SERVICE => Ok(()),
            _ => Err(self.not_holdpoint("GET /info does not say that it is one")),
        }
    }

    pub async fn has_component(&self, digest: Digest) -> Result<bool, ServiceError> {
        let request = self.request(Method::GET, &["components", &digest.to_string()]);
        let (is_done, text) = self.answer(request, ANSWER_WITHIN).await?;
        if is_done {
            return Ok(true);
        }
        match self.failure("the service cannot say what it has", &text) {
            ServiceError::Refused { error, .. } if error.kind == Kind::NotFound => Ok(false),
            failure => Err(failure),
        }
    }

    /// `file`: what it is called where something is wrong with it.
    pub async fn upload(&self, file: &str, digest: Digest, bytes: Vec<u8>) -> Result<(), ServiceError> {
        #[derive(Deserialize)]
        struct Component {
            digest: Digest,
        }
        let request = self.request(Method::PUT, &["components"]).body(bytes);
        let what = format!("{file} was refused");
        let component: Component = self.done(request, UPLOAD_WITHIN, &what).await?;
        match component.digest == digest {
            true => Ok(()),
            false => {
                let (file, got) = (file.to_owned(), component.digest);
                Err(ServiceError::WrongDigest { file, sent: digest, got })
            }
        }
    }

    /// Puts a graph under its name.
    pub async fn deploy<T: DeserializeOwned>(
        &self,
        file: &str,
        name: &str,
        graph: &impl serde::Serialize,
    ) -> Result<T, ServiceError> {
        let body = serde_json::json!({ "graph": graph });
        let request = self.request(Method::PUT, &["graphs", name]).json(&body);
        self.done(request, ANSWER_WITHIN, &format!("{file} was refused")).await
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let request = self.client.request(method, self.url(path));
        match self.key.as_deref().map(HeaderValue::from_str) {
            Some(Ok(mut key)) => {
                key.set_sensitive(true);
                request.header(KEY_HEADER, key)
            }
            _ => request,
        }
    }

    async fn done<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        within: Duration,
        what: &str,
    ) -> Result<T, ServiceError> {
        let (is_done, text) = self.answer(request, within).await?;
        match (is_done, serde_json::from_str(&text)) {
            (true, Ok(done)) => Ok(done),
            (true, Err(error)) => Err(self.not_holdpoint(&format!("its answer cannot be read: {error}"))),
            (false, _) => Err(self.failure(what, &text)),
        }
    }

    /// Whether it was done, and what was said.
    async fn answer(
        &self,
        request: RequestBuilder,
        within: Duration,
    ) -> Result<(bool, String), ServiceError> {
        let within = self.timeout.unwrap_or(within);
        let failed = |error: reqwest::Error| {
            let (url, why) = (self.base.to_string(), self.cause(&error));
            match (error.is_timeout(), error.is_connect()) {
                (_, true) => ServiceError::Unreachable { url, why },
                (true, _) => ServiceError::Late { url, ms: within.as_millis() },
                _ => ServiceError::Broken { url, why },
            }
        };
        let mut response = request.timeout(within).send().await.map_err(failed)?;
        if response.status().is_redirection() {
            return Err(ServiceError::SentOn {
                url: response.url().to_string(),
                to: self.sent_to(&response),
            });
        }
        let told = response.content_length().unwrap_or(0);
        let mut bytes = Vec::new();
        let too_much = |so_far: u64| so_far > ANSWER_BYTES_MAX as u64;
        while !too_much(told.max(bytes.len() as u64)) {
            match response.chunk().await.map_err(failed)? {
                Some(chunk) => bytes.extend_from_slice(&chunk),
                None => {
                    let text = self.blotted(&String::from_utf8_lossy(&bytes));
                    return Ok((response.status().is_success(), text));
                }
            }
        }
        Err(self.not_holdpoint(&format!("its answer has more than {ANSWER_BYTES_MAX} bytes")))
    }

    fn cause(&self, error: &reqwest::Error) -> String {
        let cause = cause(error);
        // What rustls says where the first bytes are none of TLS.
        match self.base.scheme() == "https" && cause.contains("InvalidContentType") {
            true => "what is there does not speak TLS; is it http://?".to_owned(),
            false => cause,
        }
    }

    fn sent_to(&self, response: &Response) -> String {
        let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default();
        clip(&self.blotted(to), 200).into_owned()
    }

    /// Whatever answers was shown the key, and could have it shown on.
    fn blotted(&self, text: &str) -> String {
        match &self.key {
            Some(key) => text.replace(key.as_str(), "[key]"),
            None => text.to_owned(),
        }
    }

    fn not_holdpoint(&self, what: &str) -> ServiceError {
        ServiceError::NotHoldpoint { url: self.base.to_string(), what: clip(what, 300).into_owned() }
    }

    /// Why it was not done: as the service says it.
    fn failure(&self, what: &str, text: &str) -> ServiceError {
        #[derive(Deserialize)]
        struct Problem {
            detail: String,
            error: Option<Value>,
        }
        let Ok(Problem { detail, error }) = serde_json::from_str::<Problem>(text) else {
            return self.not_holdpoint("what it answers is none of its documents");
        };
        // A kind that only a later version knows is none here.
        let error: Option<ErrorRecord> = error.and_then(|error| serde_json::from_value(error).ok());
        let detail = clip(&detail, SAID_CHARS_MAX).into_owned();
        let needs = error.as_ref().and_then(|error| error.more.get("needs")).and_then(Value::as_str);
        let create = "`holdpoint key create --tenant TENANT --name NAME --scope deploy --scope run`";
        let hint = match (needs, self.has_key()) {
            (Some("key"), false) => {
                format!("put one into {KEY_VARIABLE}; on the service's machine {create} makes it")
            }
            (Some("key"), true) => {
                format!("it stands in {KEY_VARIABLE}; {create} makes one, on the service's machine")
            }
            (Some("scope"), _) => format!(
                "to deploy takes the scope deploy, which the key in {KEY_VARIABLE} has not; {create} makes one that \
                 has, on the service's machine"
            ),
            _ => {
                // Every refusal has a kind; what has none that is known here is the service's own affair.
                let error = error.unwrap_or_else(|| ErrorRecord::new(Kind::Store, ""));
                let wait_ms = error.more.get("retry_after_ms").and_then(Value::as_u64);
                let detail = match wait_ms {
                    Some(ms) => format!("{detail}; it may go in {} s", ms.div_ceil(1_000)),
                    None => detail,
                };
                return ServiceError::Refused {
                    what: what.to_owned(),
                    error: ErrorRecord { message: detail, ..error },
                };
            }
        };
        ServiceError::Key { said: format!("{what}: {detail}"), hint }
    }
}

fn address(text: &str) -> Result<Url, ServiceError> {
    let wrong = |url: &str, what: &str| Err(ServiceError::Url { url: url.to_owned(), what: what.to_owned() });
    let Ok(url) = Url::parse(text) else {
        return wrong(text, "it is like http://127.0.0.1:2024");
    };
    if !url.username().is_empty() || url.password().is_some() {
        // Whatever stands there may be a secret.
        return wrong("the URL", &format!("a key does not belong into it, but into {KEY_VARIABLE}"));
    }
    if !["http", "https"].contains(&url.scheme()) || url.host_str().is_none_or(str::is_empty) {
        return wrong(text, "it is like http://127.0.0.1:2024, and begins with http:// or https://");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong(text, "it has neither a query (?) nor a fragment (#)");
    }
    Ok(url)
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What lies at the bottom of an error.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str, key: Option<&str>, insecure_http: bool) -> Result<Service, ServiceError> {
        Service::at(url, key.map(str::to_owned), &Speaking { insecure_http, timeout: None })
    }

    #[test]
    fn a_key_goes_to_another_machine_by_https_alone_unless_that_is_said() {
        for (url, goes) in [
            ("http://127.0.0.1:2024", true),
            ("http://127.9.9.9", true),
            ("http://localhost:2024", true),
            ("http://[::1]:2024/", true),
            ("https://desk.example", true),
            ("http://desk.example", false),
            ("http://10.0.0.1:2024", false),
            ("http://0.0.0.0:2024", false),
            ("http://[fd00::1]:2024", false),
            ("http://localhost.desk.example", false),
        ] {
            assert!(at(url, None, false).is_ok(), "{url}");
            assert!(at(url, Some("hp_1"), true).is_ok(), "{url}");
            match at(url, Some("hp_1"), false) {
                Ok(_) => assert!(goes, "{url}"),
                Err(error) => {
                    assert!(!goes && error.to_string().contains("--insecure-http"), "{url}: {error}")
                }
            }
        }
    }

    #[test]
    fn an_address_is_one_and_holds_no_key() {
        for (url, word) in [
            ("127.0.0.1:2024", "it is like http://"),
            ("desk.example", "it is like http://"),
            ("ftp://desk.example", "begins with http://"),
            ("file:///etc", "begins with http://"),
            ("http://desk.example/?q", "neither a query"),
            ("http://desk.example/#f", "neither a query"),
            ("https://me:hp_secret@desk.example", "HOLDPOINT_KEY"),
        ] {
            let said = at(url, None, false).unwrap_err().to_string();
            assert!(said.contains(word) && !said.contains("hp_secret"), "{url}: {said}");
        }
        for (key, is_one) in
            [("hp_1\n", true), ("", true), ("a b", false), ("hp_1\r\nx: y", false), ("ü", false)]
        {
            assert_eq!(at("http://localhost", Some(key), false).is_ok(), is_one, "{key:?}");
        }
    }

    #[test]
    fn a_path_is_put_behind_the_address_whatever_stands_in_it() {
        for (url, expected) in [
            ("http://h", "http://h/graphs/a%2Fb"),
            ("http://h/", "http://h/graphs/a%2Fb"),
            ("http://h/below/", "http://h/below/graphs/a%2Fb"),
        ] {
            assert_eq!(at(url, None, false).unwrap().url(&["graphs", "a/b"]).as_str(), expected);
        }
    }

    #[test]
    fn what_the_service_says_decides_what_is_said() {
        let service = at("http://localhost", Some("hp_1"), false).unwrap();
        let unkeyed = at("http://localhost", None, false).unwrap();
        let needs = |needs: &str| {
            format!(r#"{{"detail":"no","error":{{"kind":"denied","message":"no","needs":"{needs}"}}}}"#)
        };
        for (service, text, exit, words) in [
            (
                &service,
                needs("scope"),
                Exit::Refused,
                &["no; to deploy takes the scope deploy", "key create"][..],
            ),
            (&service, needs("key"), Exit::Refused, &["it stands in HOLDPOINT_KEY"]),
            (&unkeyed, needs("key"), Exit::Refused, &["put one into HOLDPOINT_KEY"]),
            (&service, r#"{"detail":"bad"}"#.into(), Exit::Failed, &["x was refused: bad"]),
            (
                &service,
                r#"{"detail":"slow","error":{"kind":"limit","message":"slow","retry_after_ms":1500}}"#.into(),
                Exit::Failed,
                &["x was refused: slow; it may go in 2 s"],
            ),
            (
                &service,
                r#"{"detail":"gone","error":{"kind":"not-found","message":"gone"}}"#.into(),
                Exit::Refused,
                &["x was refused: gone"],
            ),
            (&service, "<html>".into(), Exit::Usage, &["is no Holdpoint"]),
            (&service, r#"{"detail":7}"#.into(), Exit::Usage, &["is no Holdpoint"]),
        ] {
            let error = service.failure("x was refused", &text);
            assert_eq!(error.exit(), exit, "{text}: {error}");
            for word in words {
                assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
            }
        }
        assert_eq!(service.blotted("hp_1, hp_1"), "[key], [key]");
    }
}
