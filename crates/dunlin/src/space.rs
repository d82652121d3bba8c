//! Regions of space that one process runs, without the sockets between processes: those are `server`'s.
//!
//! A [`Host`] makes the ticks of its regions, carries messages between them, publishes what changes in each as the records of a
//! stateful topic ([`topic_of`]), and gives what is for regions elsewhere to whoever carries it. The rules of entities, hand-overs
//! and ghosts are `space`'s.

mod host;
mod standby;

pub use dunlin_space::*;
pub(crate) use host::Figures;
pub use host::{Holding, Host, HostCounts, HostError, RegionFigures, Stage, Turn};
pub use standby::{StandbyError, Standbys};
