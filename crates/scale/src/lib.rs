//! How many workers there should be.
//!
//! A [`Scaler`] looks at [`Sample`]s of a scheduler and tells a [`Provider`] what to do; what the provider says comes back to it as
//! [`Event`]s. It has no clock, threads or sockets: time is an argument.
//!
//! Invariants:
//! - The same samples, events and times give the same actions.
//! - Never fewer than `workers_min` and never more than `workers_max` are asked for, whatever is measured or forecast.
//! - A forecast never makes workers fewer.
//! - Who is sent away holds nothing when that is decided, and has the time that the longest of its tasks may take.
//! - What counts as work that waits is only what one worker more could start now.

mod conductor;
mod decision;
mod document;
mod fleet;
mod forecast;
mod limits;
mod meter;
mod plan;
mod policy;
mod prices;
mod provider;
mod random;
mod recommend;
mod sample;
mod scaler;
pub mod sim;
mod simulated;
mod sizing;
mod trigger;
mod windows;

pub use conductor::{Conductor, Looked};
pub use decision::{Decisions, ScaleIn, ScaleOut};
pub use document::{Document, DocumentError, Group};
pub use fleet::{Fleet, Member, Phase};
pub use forecast::{Ahead, Forecaster, Outlook};
pub use limits::Limits;
pub use meter::{Meter, Totals};
pub use plan::{Demand, Plan, plan};
pub use policy::{Inward, Out, Policy, PolicyError, Predictive, Spot, Triggers, Warm};
pub use prices::{Machine, PRICES_TOML, Prices, PricesError};
pub use provider::{Action, Event, Instance, Market, Provider};
pub use recommend::{Recommendation, recommend};
pub use sample::{Measured, Sample};
pub use scaler::Scaler;
pub use simulated::{Delays, Simulated};
pub use sizing::{Fit, Need};
pub use trigger::Trigger;
pub use windows::Window;
