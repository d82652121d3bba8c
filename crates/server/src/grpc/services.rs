//! State that all connections of the listener share.

use std::sync::OnceLock;

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
}

impl Services {
    /// The health service.
    pub(super) async fn health(&self) -> HealthServer<HealthService> {
        let reporter = match self.health.get() {
            Some(reporter) => reporter,
            None => {
                let reporter = HealthReporter::new();
                for service in [DUNLIN, KV, TASKS, RATATOSKR] {
                    reporter.set_service_status(service, ServingStatus::Serving).await;
                }
                self.health.get_or_init(|| reporter)
            }
        };
        HealthServer::new(HealthService::from_health_reporter(reporter.clone()))
    }

    /// Reports the services as not serving from now on.
    pub(super) async fn stop(&self) {
        let Some(reporter) = self.health.get() else { return };
        for service in ["", DUNLIN, KV, TASKS, RATATOSKR] {
            reporter.set_service_status(service, ServingStatus::NotServing).await;
        }
    }
}
