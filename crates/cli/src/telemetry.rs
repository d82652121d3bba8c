//! What a node tells of itself while it runs: lines on standard error, and, built with the feature `otel`, traces to a
//! collector of OpenTelemetry.
//!
//! Where a collector is to be told is said by `otlp.endpoint`, or by the variables of OpenTelemetry. A program that was built
//! without the feature refuses the former, and knows nothing of the latter: they are often set for a whole machine.

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

use crate::config::Config;
use crate::console::Console;
use collector::Collector;

/// A layer of any kind.
type AnyLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The logs and traces of a running node; [`stop`](Telemetry::stop) sends the rest.
#[derive(Debug)]
pub struct Telemetry {
    collector: Option<Collector>,
}

impl Telemetry {
    pub fn start(config: &Config, console: &Console) -> Result<Telemetry> {
        let collector = Collector::find(config.otlp_endpoint.as_deref())?;
        let mut layers = vec![lines(config, console)];
        layers.extend(collector.as_ref().map(Collector::layer));
        // Fails only where one is set already, and then that one is what somebody wanted.
        let _ = tracing::subscriber::set_global_default(Registry::default().with(layers));
        Ok(Telemetry { collector })
    }

    /// Sends pending traces. Call it after the node and its sessions have ended.
    pub fn stop(self) {
        if let Some(collector) = self.collector {
            collector.stop();
        }
    }
}

/// Lines on standard error. Spans are for collectors, and what the libraries of OpenTelemetry have to say comes from here. openraft
/// warns of every sign of life that is late, thirty a second; what matters of it is in the node's status.
fn lines(config: &Config, console: &Console) -> AnyLayer {
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
        lines.with_ansi(console.errors.is_on()).with_filter(wanted).boxed()
    }
}
