//! Runs those regions of a world that one process owns. The sockets between processes are in `server`.
//!
//! A [`Host`] runs the ticks of its regions, carries messages between them, publishes each region's changes to a state
//! topic ([`topic_of`]), and returns messages for regions of other processes. The rules of entities, handovers and
//! ghosts are in `space`.

mod host;
mod standby;

pub use dunlin_space::*;
pub(crate) use host::Figures;
pub use host::{EntityStatus, Host, HostCounts, HostError, HostOutput, RegionFigures, WorldTopics};
pub use standby::{StandbyError, StandbyProgress, Standbys};
