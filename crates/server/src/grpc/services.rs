//! What all connections of the door share.

use std::sync::OnceLock;

use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::dispatch::{DUNLIN, KV, RATATOSKR, TASKS};
use super::ratatoskr::Subscriptions;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Services {
    /// Those of `MessageBroker`.
    pub(super) subscriptions: Subscriptions,
    health: OnceLock<HealthReporter>,
}

impl Services {
    /// Who says whether the services are up.
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

    /// Says that they are not, from now on.
    pub(super) async fn stop(&self) {
        let Some(reporter) = self.health.get() else { return };
        for service in ["", DUNLIN, KV, TASKS, RATATOSKR] {
            reporter.set_service_status(service, ServingStatus::NotServing).await;
        }
    }
}
