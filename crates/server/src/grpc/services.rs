//! State that all connections of the listener share.

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
    /// The open streams of `MessageBroker`.
    pub(super) subscriptions: MessageSubscriptions,
    health: OnceLock<HealthReporter>,
    /// Whether the services were last reported as serving; `None` before the first report.
    is_serving: Mutex<Option<bool>>,
}

impl Services {
    /// The health service. It reports whether the node is ready, like `/readyz`.
    pub(super) async fn health(&self, is_ready: bool) -> HealthServer<HealthService> {
        let reporter = self.health.get_or_init(HealthReporter::new).clone();
        self.report_health(is_ready).await;
        HealthServer::new(HealthService::from_health_reporter(reporter))
    }

    /// Whether any client has called the health service.
    pub(crate) fn has_health_clients(&self) -> bool {
        self.health.get().is_some()
    }

    /// Reports all services as serving or not serving, to later calls of `Check` and to open calls of `Watch`.
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
        // Sets `is_serving` last, so that if the caller is cancelled earlier, the next report sets the remaining
        // services.
        *is_serving = Some(is_ready);
    }
}
