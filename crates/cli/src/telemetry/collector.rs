//! Traces to a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! Spans are collected by a thread of OpenTelemetry's library, and sent from it in batches. If the collector is away they are
//! lost, and a warning says so once, until it is back: nothing waits for it but the node's end, and that for [`FLUSH_MAX`].
//!
//! Limits: those of the library, by its variables: `OTEL_BSP_MAX_QUEUE_SIZE` spans (2,048) that wait, beyond which they are
//! dropped, in batches of `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` (512), every `OTEL_BSP_SCHEDULE_DELAY` ms (5,000).
//!
//! Why an own HTTP client: the library's are reqwest, a large tree of its own, and one that needs a runtime on the thread that sends.

use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use dunlin_server::spans;
use http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Layer;

use super::AnyLayer;
use super::client::Client;

/// How long the node's end waits for what is yet to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(2);
/// How long a batch may take, unless `OTEL_EXPORTER_OTLP_TIMEOUT` says otherwise.
const EXPORT_MAX: Duration = Duration::from_secs(10);
const NAME: &str = "dunlin";

/// See the module.
#[derive(Debug)]
pub struct Collector {
    provider: SdkTracerProvider,
}

impl Collector {
    /// The collector that is configured, here or by OpenTelemetry's variables.
    pub fn find(endpoint: Option<&str>) -> Result<Option<Collector>> {
        const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let by_variable = ENDPOINTS.into_iter().find_map(variable);
        let Some(told) = endpoint.map(str::to_owned).or(by_variable) else { return Ok(None) };
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter == "none");
        if is_off {
            return Ok(None);
        }
        if !told.starts_with("http://") {
            bail!(
                "the OTLP endpoint {told:?}: expected a URL that begins with http://; put a collector beside the node for \
                 anything else"
            );
        }
        let mut exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(Client::new(timeout())?);
        if let Some(endpoint) = endpoint {
            exporter = exporter.with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')));
        }
        let exporter = exporter.build().with_context(|| format!("cannot export traces to {told}"))?;
        let exporter = Watched { exporter, told, is_failing: AtomicBool::new(false) };
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        spans::continue_traces_by(continue_trace);
        Ok(Some(Collector { provider }))
    }

    /// Takes in the spans of the doors.
    pub fn layer(&self) -> AnyLayer {
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer(NAME))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(spans::TARGET, LevelFilter::INFO))
            .boxed()
    }

    pub fn stop(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(FLUSH_MAX) {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn timeout() -> Duration {
    let said =
        variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT").or_else(|| variable("OTEL_EXPORTER_OTLP_TIMEOUT"));
    said.and_then(|ms| ms.parse().ok()).map_or(EXPORT_MAX, Duration::from_millis)
}

/// Who we are; OpenTelemetry's variables may say otherwise.
fn resource() -> Resource {
    let named = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|given| given.contains("service.name="));
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    if named { resource.build() } else { resource.with_service_name(NAME).build() }
}

/// Makes a span a child of the one that its request came from (W3C Trace Context).
fn continue_trace(span: &Span, headers: &HeaderMap) {
    let context = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    if context.span().span_context().is_valid() {
        // It fails for spans that nobody collects.
        let _ = span.set_parent(context);
    }
}

/// Says once when exporting fails, and once when it goes on.
#[derive(Debug)]
struct Watched<E> {
    exporter: E,
    told: String,
    is_failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let outcome = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::Relaxed);
        match &outcome {
            Err(error) if !was_failing => {
                tracing::warn!(endpoint = self.told, %error, "traces are lost: the collector does not take them");
            }
            Ok(()) if was_failing => {
                tracing::warn!(endpoint = self.told, "the collector takes traces again");
            }
            _ => {}
        }
        outcome
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
