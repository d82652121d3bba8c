//! Worlds of moving entities, as their clients see them: who is near an entity, and what it is to do.
//!
//! ```no_run
//! use std::time::Duration;
//! use dunlin_client::space::{Command, Entity, EntityId, Schema, Watch};
//! use dunlin_client::{Client, Options};
//!
//! let client = Client::connect("dunlin://localhost", Options::default())?;
//! let mut world = client.world("birds");
//! let one = EntityId(1_000_007);
//! world.command(&Command { velocity: Some([0.0, 0.0, 9.0]), ..Command::<3>::of(one) }, Duration::from_secs(5))?;
//! world.spawn(&Entity { velocity: [1.0, 0.0, 0.0], ..Entity::at(7, [5.0, 5.0, 5.0]) }, Duration::from_secs(5))?;
//! world.despawn(EntityId(7), Duration::from_secs(5))?;
//! let mut viewer = world.watch::<3>(Watch::around(one, 20.0), Schema::default())?;
//! while let Some(change) = viewer.next_timeout(Duration::from_secs(5))? {
//!     println!("{change:?}: {} in sight", viewer.visible().len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A world's processes are found by the keys that they agree through; each is asked at its own node.

mod command;
mod line;
mod places;
mod viewer;

use std::collections::BTreeMap;

use crate::client::{Client, ConnectError};
use crate::request::Requester;

pub use command::{CommandError, Commanded};
pub use dunlin_space::{
    Change, Command, Component, Entity, EntityId, Kind, RegionId, Rule, Schema, SchemaError, Visible, Watch,
    WorldNameError, check_world_name,
};
pub use places::{Place, Places, PlacesError};
pub use viewer::{ViewError, Viewer};

/// A world whose processes agree through a client's node.
#[derive(Debug)]
pub struct World {
    client: Client,
    name: String,
    /// Where commands were taken, by the address of a process's node.
    requesters: BTreeMap<String, Requester>,
}

impl Client {
    /// The world of this name. Its processes' nodes are reached as this client's is: with the same name, credentials and trust.
    pub fn world(&self, name: &str) -> World {
        World { client: self.clone(), name: name.to_owned(), requesters: BTreeMap::new() }
    }

    /// A client of another node of the same kind.
    fn beside(&self, url: &str) -> Result<Client, ConnectError> {
        Client::connect(url, self.shared.options.clone())
    }
}

fn subject(world: &str, process: u64, what: &str) -> String {
    format!("space.{world}.process.{process}.{what}")
}
