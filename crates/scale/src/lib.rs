//! Decides how many workers run (autoscaling).
//!
//! A [`Scaler`] receives [`SchedulerSample`]s of a task scheduler, and decides on actions for a [`Provider`], which
//! starts and ends workers. The provider's [`ProviderEvent`]s report the results. The scaler has no clock, threads or
//! sockets: its caller passes the time.
//!
//! Invariants:
//! - The same samples, events and times give the same actions.
//! - The scaler never requests fewer than `workers_min` or more than `workers_max` workers, for any
//!   measurement and any forecast.
//! - A forecast never removes workers.
//! - The scaler removes only workers that hold no task. If such a worker still receives a task, the worker has time to
//!   finish the task: at least the longest timeout of any task in progress.
//! - A task counts as waiting only if one more worker could start it now.
//!
//! The feature `planning` adds parts that only `dunlin scale` needs, and not a node: documents, prices and the
//! simulator.

mod autoscaler;
mod decision;
#[cfg(feature = "planning")]
mod document;
mod fleet;
mod forecast;
mod limits;
mod meter;
#[cfg(feature = "planning")]
mod plan;
mod policy;
#[cfg(feature = "planning")]
mod prices;
mod provider;
#[cfg(feature = "planning")]
mod random;
#[cfg(feature = "planning")]
mod recommend;
mod sample;
mod scaler;
#[cfg(feature = "planning")]
pub mod sim;
#[cfg(feature = "planning")]
mod simulated;
#[cfg(feature = "planning")]
mod sizing;
mod trigger;
mod windows;

pub use autoscaler::{Autoscaler, SchedulerSnapshot};
pub use decision::{Decisions, ScaleIn, ScaleOut};
#[cfg(feature = "planning")]
pub use document::{DocumentError, InstanceGroup, ScalingDocument};
pub use fleet::{Fleet, FleetMember, InstancePhase};
pub use forecast::{ArrivalForecast, ForecastStatus, Forecaster};
pub use limits::ScalerLimits;
pub use meter::{LoadMeter, SchedulerTotals};
#[cfg(feature = "planning")]
pub use plan::{CapacityPlan, Demand, plan};
pub use policy::{
    ForecastPolicy, Policy, PolicyError, ScaleInPolicy, ScaleOutPolicy, ScaleThresholds, SpotPolicy,
    WarmPoolPolicy,
};
#[cfg(feature = "planning")]
pub use prices::{MachineType, PRICES_TOML, Prices, PricesError};
pub use provider::{InstanceId, InstanceMarket, Provider, ProviderAction, ProviderEvent};
#[cfg(feature = "planning")]
pub use recommend::{Recommendation, recommend};
pub use sample::{LoadMeasurement, SchedulerSample};
pub use scaler::Scaler;
#[cfg(feature = "planning")]
pub use simulated::{ProviderDelays, SimulatedProvider};
#[cfg(feature = "planning")]
pub use sizing::{MachineFit, WorkerNeed};
pub use trigger::ScaleOutTrigger;
pub use windows::WeeklyWindow;
