//! Sends traces to an OpenTelemetry collector, by OTLP over HTTP.
//!
//! A thread of OpenTelemetry's library collects spans and sends them in batches. If the collector is unreachable, spans
//! are lost, and one warning is logged. A running node never waits for the collector. A node that ends waits at most
//! [`FLUSH_MAX`] until its last spans are sent.
//!
//! Environment variables of the library set limits; the defaults are in parentheses. At most `OTEL_BSP_MAX_QUEUE_SIZE`
//! (2,048) spans wait to be sent, and further spans are dropped. A batch has at most `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`
//! (512) spans. Batches are sent every `OTEL_BSP_SCHEDULE_DELAY` (5,000) ms.
//!
//! The HTTP client reqwest, which the library could use, is not used: it has many dependencies, and needs a runtime on
//! the sending thread.

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
use super::client::ExporterClient;

/// How long a node that ends waits for its last spans to be sent.
const FLUSH_MAX: Duration = Duration::from_secs(2);
/// The time limit for sending a batch, unless `OTEL_EXPORTER_OTLP_TIMEOUT` sets another limit.
const EXPORT_MAX: Duration = Duration::from_secs(10);
/// The name of the tracer. It is also the name of the service, unless OpenTelemetry's variables set another name.
const NAME: &str = "dunlin";

/// A client of an OpenTelemetry collector, which sends the node's spans.
#[derive(Debug)]
pub struct Collector {
    provider: SdkTracerProvider,
}

impl Collector {
    /// Returns the collector that the configuration or OpenTelemetry's environment variables name, if any.
    pub fn find(endpoint: Option<&str>) -> Result<Option<Collector>> {
        const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let by_variable = ENDPOINTS.into_iter().find_map(variable);
        let Some(url) = endpoint.map(str::to_owned).or(by_variable) else { return Ok(None) };
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|exporter| exporter == "none");
        if is_off {
            return Ok(None);
        }
        if !url.starts_with("http://") {
            bail!(
                "the OTLP endpoint {url:?} does not begin with http://; for another protocol, run a \
                 collector on the node's machine and give its http:// URL"
            );
        }
        let mut exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(ExporterClient::new(timeout())?);
        if let Some(endpoint) = endpoint {
            exporter = exporter.with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')));
        }
        let exporter = exporter.build().with_context(|| format!("cannot export traces to {url}"))?;
        let exporter = ReportingExporter { exporter, url, is_failing: AtomicBool::new(false) };
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
        spans::set_trace_continuation(continue_trace);
        Ok(Some(Collector { provider }))
    }

    /// Returns the layer of the log subscriber that collects the spans of listeners.
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
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn timeout() -> Duration {
    let text =
        variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT").or_else(|| variable("OTEL_EXPORTER_OTLP_TIMEOUT"));
    text.and_then(|ms| ms.parse().ok()).map_or(EXPORT_MAX, Duration::from_millis)
}

/// Returns the attributes that describe this node to the collector. OpenTelemetry's environment variables may replace
/// them.
fn resource() -> Resource {
    let named = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|given| given.contains("service.name="));
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    if named { resource.build() } else { resource.with_service_name(NAME).build() }
}

/// Makes `span` a child of the span that the request's headers name (W3C Trace Context).
fn continue_trace(span: &Span, headers: &HeaderMap) {
    let context = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    if context.span().span_context().is_valid() {
        // The call fails if no layer collects the span.
        let _ = span.set_parent(context);
    }
}

/// Logs a message when the export of spans begins to fail, and when it succeeds again.
#[derive(Debug)]
struct ReportingExporter<E> {
    exporter: E,
    url: String,
    is_failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for ReportingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let outcome = self.exporter.export(batch).await;
        let was_failing = self.is_failing.swap(outcome.is_err(), Ordering::Relaxed);
        match &outcome {
            Err(error) if !was_failing => {
                tracing::warn!(endpoint = self.url, %error, "traces are lost: the collector refuses them or cannot be reached");
            }
            Ok(()) if was_failing => {
                tracing::warn!(endpoint = self.url, "the collector accepts traces again");
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
