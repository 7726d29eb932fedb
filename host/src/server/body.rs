//! What comes with a request, held to its bounds before it is read: bodies as JSON, ids, queries.

use std::collections::BTreeMap;

use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri, header};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::problem::Problem;
use super::service::Shared;
use crate::model::{Json, JsonBounds, ThreadId};

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
        let bytes = Bytes::from_request(request, service).await?;
        if bytes.is_empty() {
            return parse("{}", service).map(Self);
        }
        if !is_json {
            // Also what keeps a web page from posting here: it cannot say this of itself unasked.
            let what = "the body must be JSON: Content-Type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| Problem::invalid("the body is no UTF-8 text"))?;
        parse(text, service).map(Self)
    }
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
    serde_json::from_str(json.as_str()).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        Problem::invalid(format!("the body is not what this route takes: {message}"))
    })
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large("the body is larger than this route takes"),
            _ => Self::new(StatusCode::BAD_REQUEST, "the body broke off"),
        }
    }
}

/// The parameters of a query. One that comes several times is a list, its values joined by commas.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Query<T> {
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
        query.map(|query| Self(query.0)).map_err(|rejection| Problem::invalid(rejection.body_text()))
    }
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
    ThreadId::parse(text).map_err(|_| Problem::not_found(format_args!("thread {:?}", clip(text))))
}

/// What is repeated to the caller is not longer than a line.
pub fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

/// What a caller notes about something: an object of bounded size.
pub fn object(value: Option<Map<String, Value>>, what: &str) -> Result<Json, Problem> {
    let value = Value::Object(value.unwrap_or_default());
    let json = Json::parse(&value.to_string(), JsonBounds { bytes_max: NOTE_BYTES_MAX, depth_max: 32 });
    json.map_err(|error| match error {
        crate::model::JsonError::Bytes { .. } => {
            Problem::too_large(format!("{what} has more than {NOTE_BYTES_MAX} bytes"))
        }
        error => Problem::invalid(format!("{what}: {error}")),
    })
}

const NOTE_BYTES_MAX: usize = 64 * 1024;

/// A page of a list.
pub fn page(limit: Option<u32>, offset: Option<u32>) -> Result<(u32, u32), Problem> {
    let limit = limit.unwrap_or(10);
    if !(1..=crate::store::PAGE_ROWS_MAX).contains(&limit) {
        return Err(Problem::invalid(format!("limit is 1 to {}", crate::store::PAGE_ROWS_MAX)));
    }
    Ok((limit, offset.unwrap_or(0)))
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
