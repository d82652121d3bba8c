//! State that all connections of the gRPC listener share.

use std::sync::OnceLock;

use tokio::sync::Mutex;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::dispatch::{DUNLIN, KV, RATATOSKR, TASKS};
use super::ratatoskr::MessageSubscriptions;

/// State of all gRPC connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// The open subscriptions of `MessageBroker`.
    pub(super) subscriptions: MessageSubscriptions,
    health: OnceLock<HealthReporter>,
    /// Whether the services were last reported as serving; `None` before the first report.
    is_serving: Mutex<Option<bool>>,
}

impl Services {
    /// The health service. Like `/readyz`, it reports whether the node is ready.
    pub(super) async fn health(&self, is_ready: bool) -> HealthServer<HealthService> {
        let reporter = self.health.get_or_init(HealthReporter::new).clone();
        self.report_health(is_ready).await;
        HealthServer::new(HealthService::from_health_reporter(reporter))
    }

    /// Whether any client has called the health service.
    pub(crate) fn has_health_clients(&self) -> bool {
        self.health.get().is_some()
    }

    /// Sets the health of all services: serving or not serving. Later calls of `Check` and open calls of `Watch`
    /// receive this health.
    pub(crate) async fn report_health(&self, is_ready: bool) {
        let Some(reporter) = self.health.get() else { return };
        let mut is_serving = self.is_serving.lock().await;
        if *is_serving == Some(is_ready) {
            return;
        }
        let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in ["", DUNLIN, KV, TASKS, RATATOSKR] {
            reporter.set_service_status(service, status).await;
        }
        // `is_serving` is set last. If this function is cancelled before that, the next call sets all services again.
        *is_serving = Some(is_ready);
    }
}
