//! What comes with a request, held to its bounds before it is read: bodies as JSON, ids, queries.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri, header};
use futures::StreamExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};

use super::problem::Problem;
use super::service::Shared;
use crate::model::{Json, JsonBounds, Kind, ThreadId};

/// What the caller's tenant may send at once, known since the key was checked.
#[derive(Clone, Copy, Debug)]
pub struct BodyBytes(pub u64);

/// A body's bounds, with the names that they are set by.
pub struct Bounds {
    pub bytes: (&'static str, u64),
    pub ms: (&'static str, u64),
}

impl Bounds {
    /// The smaller one counts.
    fn of_tenant(self, quota: Option<&BodyBytes>) -> Self {
        match quota {
            Some(BodyBytes(quota)) if *quota < self.bytes.1 => Self { bytes: ("body_bytes", *quota), ..self },
            _ => self,
        }
    }
}

/// All of a body. One that is too large is not read to its end, and one that comes a byte now and then is not
/// waited for.
pub async fn read(request: Request, bounds: Bounds) -> Result<Vec<u8>, Problem> {
    let Bounds { bytes, ms } = bounds.of_tenant(request.extensions().get());
    let too_large = || {
        let (limit, most) = bytes;
        Problem::too_large(limit, most, format!("the body is larger than the {most} bytes that are taken"))
    };
    let told = request.headers().get(header::CONTENT_LENGTH);
    let told = told.and_then(|length| length.to_str().ok()?.parse::<u64>().ok()).unwrap_or(0);
    if told > bytes.1 {
        return Err(too_large());
    }
    let mut pieces = request.into_body().into_data_stream();
    let reading = async {
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().await {
            let broken = |_| Problem::new(StatusCode::BAD_REQUEST, Kind::Invalid, "the body broke off");
            let piece = piece.map_err(broken)?;
            if (all.len() + piece.len()) as u64 > bytes.1 {
                return Err(too_large());
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    };
    match tokio::time::timeout(Duration::from_millis(ms.1), reading).await {
        Ok(read) => read,
        Err(_) => {
            let what = format!("the body did not come to its end in {} ms", ms.1);
            Err(Problem::limit(StatusCode::REQUEST_TIMEOUT, ms.0, ms.1, what))
        }
    }
}

/// A JSON body. An empty one is an empty object.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, service: &Shared) -> Result<Self, Problem> {
        let is_json = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| {
            let kind = kind.to_str().unwrap_or_default();
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
        });
        let bounds = Bounds {
            bytes: ("body_bytes", service.settings.body_bytes as u64),
            ms: ("body_ms", service.settings.body_ms),
        };
        let (mut parts, body) = request.into_parts();
        let thread = thread_of(&mut parts, service).await;
        let bytes = read(Request::from_parts(parts, body), bounds).await?;
        if bytes.is_empty() {
            return parse("{}", service).map(Self);
        }
        if !is_json {
            // Also what keeps a web page from posting here: it cannot say this of itself unasked.
            let what = "the body must be JSON: Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Kind::Invalid, what));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| Problem::invalid("the body is no UTF-8 text"))?;
        let body = parse(text, service)?;
        match (thread, serde_json::from_str(text)) {
            (Some(thread), Ok(Names { thread_id: Value::String(other) })) if other != thread => {
                let what = "thread_id in the body is of another thread than the path's; leave it out";
                Err(Problem::invalid(what))
            }
            _ => Ok(Self(body)),
        }
    }
}

/// What a body names beside what is asked.
#[derive(Deserialize)]
struct Names {
    thread_id: Value,
}

/// The thread that the path names, where a body has no other to name.
async fn thread_of(parts: &mut Parts, service: &Shared) -> Option<String> {
    let is_new = parts.extensions.get::<MatchedPath>().is_some_and(|path| path.as_str().ends_with("/fork"));
    let named = RawPathParams::from_request_parts(parts, service).await.ok()?;
    let thread = named.iter().find(|(name, _)| *name == "thread_id")?.1.to_owned();
    (!is_new).then_some(thread)
}

fn parse<T: DeserializeOwned>(text: &str, service: &Shared) -> Result<T, Problem> {
    let bound = ("body_bytes", service.settings.body_bytes as u64);
    let json = service.host.limits().take_json(text, "the body", bound);
    let json = json.map_err(|error| Problem::from(crate::model::Refused::of(error)))?;
    // A list would be read as the fields in their order, whatever its sender meant by it.
    if !json.as_str().starts_with('{') {
        let kind = json.kind();
        return Err(Problem::invalid(format!("the body is {kind}; this route takes an object")));
    }
    // The text as it is checked, so that what is read is what was bounded.
    let reader = &mut serde_json::Deserializer::from_str(json.as_str());
    serde_path_to_error::deserialize(reader).map_err(|error| {
        let (at, message) = (error.path().to_string(), error.inner().to_string());
        let message = message.split(" at line ").next().unwrap_or_default();
        let at = if at == "." { String::new() } else { format!("{}: ", clip(&at)) };
        Problem::invalid(format!("the body is not what this route takes: {at}{message}"))
    })
}

/// The parameters of a query. One that comes several times is a list, its values joined by commas.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + IntoParams> FromRequestParts<Shared> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let mut named: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
            let all = named.entry(name.into_owned()).or_default();
            if !all.is_empty() {
                all.push(',');
            }
            all.push_str(&value);
        }
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&named).finish();
        let malformed = || Problem::invalid("the query cannot be read");
        let uri = Uri::try_from(format!("/?{query}")).map_err(|_| malformed())?;
        let query: Result<axum::extract::Query<T>, QueryRejection> = axum::extract::Query::try_from_uri(&uri);
        query.map(|query| Self(query.0)).map_err(|rejection| {
            let text = rejection.body_text();
            let text = text.rsplit("query string: ").next().unwrap_or_default();
            let (name, why) = text.split_once(": ").unwrap_or(("the query", text));
            let known = T::into_params(|| Some(ParameterIn::Query));
            let takes = known.iter().find(|parameter| parameter.name == name).and_then(taken);
            let given = named.get(name).map(|given| clip(given)).unwrap_or_default();
            Problem::invalid(match takes {
                Some(takes) => format!("{name} is {takes}, not {given:?}"),
                None => format!("{name}: {why}"),
            })
        })
    }
}

/// What a parameter takes, if its schema says it in numbers.
fn taken(parameter: &Parameter) -> Option<String> {
    let schema = serde_json::to_value(parameter.schema.as_ref()?).ok()?;
    let is = |kind: &str| {
        let kinds = &schema["type"];
        kinds == kind || kinds.as_array().is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    };
    if !is("integer") {
        return None;
    }
    let bound = |name: &str| schema[name].as_f64().map(|bound| format!("{bound:.0}"));
    Some(match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => format!("a whole number from {least} to {most}"),
        (Some(least), None) => format!("a whole number, {least} or more"),
        _ => "a whole number".to_owned(),
    })
}

/// The parameters of a path.
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<Shared> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Shared) -> Result<Self, Problem> {
        let path: Result<axum::extract::Path<T>, PathRejection> =
            axum::extract::Path::from_request_parts(parts, service).await;
        // An id that cannot be one is of nothing that there is.
        path.map(|path| Self(path.0)).map_err(|_| Problem::not_found("such thing: its id is no id"))
    }
}

/// A thread's name from a path: what cannot be one names none.
pub fn thread(text: &str) -> Result<ThreadId, Problem> {
    ThreadId::parse(text).map_err(|error| {
        Problem::not_found(format_args!("thread {:?}, and none can be called so: {}", clip(text), error.rule))
    })
}

/// What is repeated to the caller is not longer than a line.
pub fn clip(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What a caller notes about something: an object of bounded size.
pub fn object(value: Option<Map<String, Value>>, what: &str) -> Result<Json, Problem> {
    let value = Value::Object(value.unwrap_or_default());
    let json = Json::parse(&value.to_string(), JsonBounds { bytes_max: NOTE_BYTES_MAX, depth_max: 32 });
    json.map_err(|error| match error {
        crate::model::JsonError::Bytes { .. } => {
            let most = NOTE_BYTES_MAX;
            Problem::too_large("metadata_bytes", most as u64, format!("{what} has more than {most} bytes"))
        }
        error => Problem::invalid(format!("{what}: {error}")),
    })
}

const NOTE_BYTES_MAX: usize = 64 * 1024;

/// A page of a list.
pub fn page(limit: Option<i64>, offset: Option<i64>) -> Result<(u32, u32), Problem> {
    let within = |name: &str, given: Option<i64>, (least, usual, most): (u32, u32, u32)| {
        let Some(given) = given else { return Ok(usual) };
        let fits = u32::try_from(given).ok().filter(|given| (least..=most).contains(given));
        let what = || format!("{name} is a whole number from {least} to {most}, not {given}");
        fits.ok_or_else(|| Problem::invalid(what()))
    };
    let limit = within("limit", limit, (1, 10, crate::store::PAGE_ROWS_MAX))?;
    Ok((limit, within("offset", offset, (0, 0, u32::MAX))?))
}

/// An id as a part of a path that the server hands out.
pub fn encoded(text: &str) -> String {
    let mut path = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => path.push(byte.into()),
            // A dot alone would be a step in the path.
            other => path.push_str(&format!("%{other:02X}")),
        }
    }
    path
}
