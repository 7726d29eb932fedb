//! What the host does, as spans (run, step, task, attempt, host call, commit), sent to a collector over
//! OTLP/HTTP. Off unless an endpoint is named. Nothing that a node or a person said is in them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

/// After this a collector that does not answer is given up on; what it was sent is lost.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Where collectors take spans, below the endpoint that is named for all there is.
const PATH: &str = "/v1/traces";

/// Sends what is over; until it is shut down.
#[derive(Clone)]
pub struct Spans(SdkTracerProvider);

impl Spans {
    /// To the collector at `endpoint`, such as `http://localhost:4318`.
    pub fn to(endpoint: &str) -> Result<Self, String> {
        let endpoint = endpoint.trim_end_matches('/');
        let url = if endpoint.ends_with(PATH) { endpoint.to_owned() } else { format!("{endpoint}{PATH}") };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new()?)
            .with_endpoint(url)
            .with_timeout(TIMEOUT)
            .build()
            .map_err(|error| error.to_string())?;
        // A service that is named by the variable of the standard keeps that name.
        let named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
        let resource = Resource::builder();
        let resource = if named { resource } else { resource.with_service_name("holdpoint") };
        let provider =
            SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter);
        Ok(Self(provider.build()))
    }

    /// What takes the spans down: the host's own, and no library's.
    pub fn layer(&self) -> Box<dyn Layer<Registry> + Send + Sync> {
        let tracer = self.0.tracer("holdpoint");
        let own = Targets::new().with_target("holdpoint", Level::INFO);
        tracing_opentelemetry::layer().with_tracer(tracer).with_filter(own).boxed()
    }

    /// Sends what is left.
    pub fn shut_down(&self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "the last spans were not sent");
        }
    }
}

/// Sends from the exporter's own thread, on a runtime of its own: also while the host's is busy or gone.
#[derive(Debug)]
struct Client {
    runtime: Arc<Mutex<tokio::runtime::Runtime>>,
    client: reqwest::Client,
}

impl Client {
    fn new() -> Result<Self, String> {
        // Another part of the process may have chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
        let client = client.build().map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        Ok(Self { runtime: Arc::new(Mutex::new(runtime)), client })
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let request = reqwest::Request::try_from(request)?;
        let runtime = self.runtime.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        runtime.block_on(async {
            let response = self.client.execute(request).await?;
            let status = response.status();
            let mut answer = Response::new(response.bytes().await?);
            *answer.status_mut() = status;
            Ok(answer)
        })
    }
}
