//! What holds for all routes, put into their one document.

use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Components, ContentBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa::{PartialSchema as _, ToSchema as _};

use super::problem::ProblemBody;

/// What any route may answer beside what it says itself.
const PROBLEMS: [(&str, &str); 14] = [
    ("400", "The request is malformed"),
    ("401", "No key, or none that counts"),
    ("403", "The key is not for this, or the operator does not allow it"),
    ("404", "There is no such thing, or it is another tenant's"),
    ("405", "The route takes other methods"),
    ("408", "The body did not come in its time"),
    ("409", "It does not fit how things stand; the body says how they do"),
    ("413", "Too large: the body names the limit"),
    ("415", "The body is not of the kind that this takes"),
    ("422", "The request is not what this takes: the body says why"),
    ("429", "Too much: the body names the quota"),
    ("431", "The request's head is too large"),
    ("500", "The host could not do it; its log says why"),
    ("503", "Not now; Retry-After says when"),
];

pub fn completed(mut api: OpenApi) -> OpenApi {
    api.info.title = "Holdpoint".into();
    api.info.version = env!("CARGO_PKG_VERSION").into();
    api.info.description = Some(
        "Runs graphs of sandboxed nodes that can stop to ask a person, and go on from there. Assistants, threads and \
         runs speak the protocol of the field's public SDKs; answers, deployment and operation are beside it."
            .into(),
    );
    let components = api.components.get_or_insert_with(Components::new);
    components.schemas.insert(ProblemBody::name().into_owned(), ProblemBody::schema());
    let header = SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::new("x-api-key")));
    components.add_security_scheme("key", header);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let none: [&str; 0] = [];
    api.security =
        Some(vec![SecurityRequirement::new("key", none), SecurityRequirement::new("bearer", none)]);
    for item in api.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            with_problems(operation);
        }
    }
    api
}

fn with_problems(operation: &mut Operation) {
    for (status, description) in PROBLEMS {
        let schema = RefOr::Ref(Ref::from_schema_name(ProblemBody::name()));
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(description).content("application/json", content);
        operation.responses.responses.entry(status.to_owned()).or_insert_with(|| response.build().into());
    }
}
