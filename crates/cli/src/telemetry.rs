//! Telemetry of a running node: log lines on standard error and, with the feature `otel`, traces to an
//! OpenTelemetry collector.
//!
//! The configuration key `otlp.endpoint` or OpenTelemetry's environment variables name the collector. A program that
//! was built without the feature refuses `otlp.endpoint`, but ignores the variables, because they are often set for a
//! whole machine.

#[cfg(feature = "otel")]
mod client;
#[cfg(feature = "otel")]
mod collector;
#[cfg(not(feature = "otel"))]
#[path = "telemetry/no_collector.rs"]
mod collector;

use anyhow::Result;
use dunlin_server::spans;
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use crate::config::NodeConfig;
use crate::console::Console;
use collector::Collector;

/// A part of the log subscriber, which writes log lines or collects traces.
type AnyLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The logging and tracing of a running node. [`stop`](Telemetry::stop) sends the remaining traces.
#[derive(Debug)]
pub struct Telemetry {
    collector: Option<Collector>,
}

impl Telemetry {
    pub fn start(config: &NodeConfig, console: &Console) -> Result<Telemetry> {
        let collector = Collector::find(config.otlp_endpoint.as_deref())?;
        let mut layers = vec![lines(config, console)];
        layers.extend(collector.as_ref().map(Collector::layer));
        // The call fails only if this process already has a global log subscriber, which then stays in use.
        let _ = tracing::subscriber::set_global_default(Registry::default().with(layers));
        Ok(Telemetry { collector })
    }

    /// Sends the traces that have not been sent yet. Before this call, the caller must have ended the node and its
    /// sessions.
    pub fn stop(self) {
        if let Some(collector) = self.collector {
            collector.stop();
        }
    }
}

/// Returns the layer that writes log lines to standard error, without spans. It leaves out the lines of the library
/// openraft, which logs up to thirty warnings a second about late heartbeats. The node's status shows the relevant
/// events.
fn lines(config: &NodeConfig, console: &Console) -> AnyLayer {
    let level: Level = config.log.parse().unwrap_or(Level::WARN);
    let wanted = Targets::new()
        .with_default(level)
        .with_target(spans::TARGET, LevelFilter::OFF)
        .with_target("opentelemetry", LevelFilter::OFF)
        .with_target("openraft", LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if config.log_as_json {
        lines.json().flatten_event(true).with_filter(wanted).boxed()
    } else {
        lines.with_ansi(console.errors.has_colors()).with_filter(wanted).boxed()
    }
}
