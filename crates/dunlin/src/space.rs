//! Regions of a world that one process runs. The sockets between processes are in `server`.
//!
//! A [`Host`] runs the ticks of its regions, carries messages between them, publishes their changes as records of a
//! state topic ([`topic_of`]), and returns messages for regions elsewhere. The rules of entities, handovers and
//! ghosts are in `space`.

mod host;
mod standby;

pub use dunlin_space::*;
pub(crate) use host::Figures;
pub use host::{EntityStatus, Host, HostCounts, HostError, HostOutput, RegionFigures, WorldTopics};
pub use standby::{StandbyError, Standbys};
