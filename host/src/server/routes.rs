//! All routes, and what holds for each of them: who answers what is too large, too slow or too much.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode, Version, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tracing::Instrument as _;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::problem::Problem;
use super::service::Shared;
use super::{
    answers, assistants, body, branches, components, graphs, health, journal, metrics, openapi, runs, state,
    stateless, tenants, threads,
};
use crate::model::Kind;

/// Those that answer soon, whatever happens.
fn quick() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(health::ok))
        .routes(routes!(health::ready))
        .routes(routes!(health::info))
        .routes(routes!(metrics::get))
        .routes(routes!(assistants::search))
        .routes(routes!(assistants::count))
        .routes(routes!(assistants::create))
        .routes(routes!(assistants::get, assistants::update, assistants::remove))
        .routes(routes!(assistants::schemas))
        .routes(routes!(assistants::graph))
        .routes(routes!(assistants::subgraphs))
        .routes(routes!(threads::create))
        .routes(routes!(threads::search))
        .routes(routes!(threads::count))
        .routes(routes!(threads::get, threads::update, threads::remove))
        .routes(routes!(branches::copy))
        .routes(routes!(branches::fork))
        .routes(routes!(branches::prune))
        .routes(routes!(branches::prune_one))
        .routes(routes!(state::get, state::update))
        .routes(routes!(state::get_one))
        .routes(routes!(state::get_checkpoint))
        .routes(routes!(state::history))
        .routes(routes!(runs::list, runs::create))
        .routes(routes!(runs::get, runs::remove))
        .routes(routes!(runs::cancel))
        .routes(routes!(stateless::create))
        .routes(routes!(answers::list))
        .routes(routes!(answers::answer))
        .routes(routes!(answers::resume))
        .routes(routes!(answers::steer))
        .routes(routes!(answers::retry))
        .routes(routes!(answers::upgrade))
        .routes(routes!(answers::tree))
        .routes(routes!(journal::get))
        .routes(routes!(components::list))
        .routes(routes!(components::get))
        .routes(routes!(graphs::list))
        .routes(routes!(graphs::get, graphs::put))
        .routes(routes!(tenants::list))
        .routes(routes!(tenants::get, tenants::put))
        .routes(routes!(tenants::list_keys, tenants::create_key))
        .routes(routes!(tenants::revoke_key))
}

/// Those that last as long as what they wait for.
fn lasting() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(runs::wait))
        .routes(routes!(runs::stream))
        .routes(routes!(runs::join))
        .routes(routes!(runs::join_stream))
        .routes(routes!(stateless::wait))
        .routes(routes!(stateless::stream))
}

/// Those that take more than a document.
fn heavy() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(components::put))
}

/// The one document of all routes.
pub fn document() -> OpenApi {
    let (_, api) = quick().merge(lasting()).merge(heavy()).split_for_parts();
    openapi::completed(api)
}

pub fn app(service: Shared) -> Router {
    let timed = from_fn_with_state(service.clone(), in_time);
    let (quick, _) = quick().split_for_parts();
    let (lasting, _) = lasting().split_for_parts();
    let (heavy, _) = heavy().split_for_parts();
    let document = document();
    let served = move || {
        let document = document.clone();
        async move { Json(document) }
    };
    quick
        .route("/openapi.json", get(served))
        .layer(timed)
        .merge(lasting)
        .merge(heavy)
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .layer(from_fn_with_state(Known::by(&self::document()), known))
        .layer(from_fn_with_state(service.clone(), bounded))
        .with_state(service)
}

async fn nowhere() -> Problem {
    Problem::not_found("such route; GET /openapi.json has them all")
}

async fn not_so() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        Kind::Invalid,
        "the route takes other methods; GET /openapi.json has them",
    )
}

/// So many requests at once, each in a span of its own, each counted.
async fn bounded(State(service): State<Shared>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", %method, route);
    let response = match service.requests.clone().try_acquire_owned() {
        Ok(_one_of) => match names_one_host(&request).and_then(|()| head_fits(&request)) {
            Ok(()) => next.run(request).instrument(span.clone()).await,
            Err(problem) => problem.into_response(),
        },
        Err(_) => {
            let most = service.settings.requests_at_once;
            let what = format!("{most} requests are being answered already");
            Problem::crowded("requests_at_once", most as u64, what).into_response()
        }
    };
    let took = began.elapsed();
    service.metrics.request(method.as_str(), &route, response.status().as_u16(), took);
    tracing::debug!(parent: &span, status = response.status().as_u16(), ms = took.as_millis(), "answered");
    let mut response = response;
    let headers = response.headers_mut();
    // What one tenant is shown is kept by nobody between.
    headers.entry(header::CACHE_CONTROL).or_insert(header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

/// A request's line and headers, of which what reads the connection takes a little more before it ends it without
/// a word.
const HEAD_BYTES_MAX: u64 = 32 << 10;
const HEADERS_MAX: u64 = 80;

/// RFC 9112, 3.2: which of two is meant would be another thing to whoever stands before this service.
fn names_one_host(request: &Request) -> Result<(), Problem> {
    match (request.headers().get_all(header::HOST).iter().count(), request.version()) {
        (1, _) => Ok(()),
        (0, version) if version != Version::HTTP_11 => Ok(()),
        _ => Err(Problem::new(
            StatusCode::BAD_REQUEST,
            Kind::Invalid,
            "a request names its host, and one only (Host)",
        )),
    }
}

fn head_fits(request: &Request) -> Result<(), Problem> {
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let uri = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let too_large = |limit, most, what| {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        Err(Problem::limit(status, limit, most, format!("the request's head has more than {most} {what}")))
    };
    if fields.sum::<usize>() as u64 + uri as u64 > HEAD_BYTES_MAX {
        return too_large("head_bytes", HEAD_BYTES_MAX, "bytes");
    }
    if request.headers().len() as u64 > HEADERS_MAX {
        return too_large("headers", HEADERS_MAX, "headers");
    }
    Ok(())
}

/// The parameters that each route takes in its query, as its document says.
struct Known(BTreeMap<(Method, String), BTreeSet<String>>);

impl Known {
    fn by(document: &OpenApi) -> Arc<Self> {
        let of = |operation: &Operation| -> BTreeSet<String> {
            let parameters = operation.parameters.iter().flatten().filter_map(|parameter| match parameter {
                RefOr::T(parameter) => Some(parameter),
                RefOr::Ref(_) => None,
            });
            let in_query =
                parameters.filter(|parameter| matches!(parameter.parameter_in, ParameterIn::Query));
            in_query.map(|parameter| parameter.name.clone()).collect()
        };
        let mut known = BTreeMap::new();
        for (path, item) in &document.paths.paths {
            let operations = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
                (Method::PATCH, &item.patch),
            ];
            for (method, operation) in operations {
                known.extend(
                    operation.iter().map(|operation| ((method.clone(), path.clone()), of(operation))),
                );
            }
        }
        Arc::new(Self(known))
    }
}

/// What is misspelt in a query would otherwise not be heard, and a filter that is not heard shows too much.
async fn known(State(known): State<Arc<Known>>, request: Request, next: Next) -> Response {
    let method = if request.method() == Method::HEAD { Method::GET } else { request.method().clone() };
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let names = route.and_then(|route| known.0.get(&(method, route)));
    let query = request.uri().query().unwrap_or_default();
    if let Some(names) = names
        && let Some((other, _)) =
            url::form_urlencoded::parse(query.as_bytes()).find(|(name, _)| !names.contains(name.as_ref()))
    {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let takes = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let other = body::clip(&other);
        let what = format!("there is no parameter {other:?} here; the query of this route takes {takes}");
        return Problem::invalid(what).into_response();
    }
    next.run(request).await
}

/// An answer in time, whatever becomes of the request. What was accepted goes on.
async fn in_time(State(service): State<Shared>, request: Request, next: Next) -> Response {
    let most = Duration::from_millis(service.settings.request_ms);
    match tokio::time::timeout(most, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Problem::unavailable(
            "this took too long to be answered here; if it was accepted, it goes on: the same request with the same \
             Idempotency-Key gets its reply, and GET says how things stand",
        )
        .into_response(),
    }
}
