//! Worlds of moving entities, for clients. A client changes entities, and watches the entities near an entity or a
//! point.

mod command;
mod viewer;
mod viewer_link;
mod world_owners;

use std::collections::BTreeMap;

use crate::client::{Client, ConnectError};
use crate::request::Requester;

pub use command::{CommandError, CommandResult};
pub use dunlin_space::{
    Component, ComponentKind, Entity, EntityCommand, EntityId, RegionId, SceneChange, Schema, SchemaError,
    SurroundingsWatch, VisibilityRule, VisibleEntity, WorldNameError, check_world_name,
};
pub use viewer::{ViewError, Viewer};
pub use world_owners::{RegionOwner, WorldOwners, WorldOwnersError};

/// A world of the client's cluster, whose entities the client can watch and change.
#[derive(Debug)]
pub struct World {
    client: Client,
    name: String,
    /// A requester for each process of the world, by the address of the process's node.
    requesters: BTreeMap<String, Requester>,
}

impl Client {
    /// Returns a handle to the world with this name. Connections to the world's processes use the name, credentials and
    /// TLS options of this client.
    pub fn world(&self, name: &str) -> World {
        World { client: self.clone(), name: name.to_owned(), requesters: BTreeMap::new() }
    }

    /// Connects to the node at `url` with the options of this client, such as its name, credentials and TLS options.
    pub fn connect_to_node(&self, url: &str) -> Result<Client, ConnectError> {
        Client::connect(url, self.shared.options.clone())
    }

    /// Like [`connect_to_node`](Self::connect_to_node), but does not wait for the node.
    fn open_node(&self, url: &str) -> Result<Client, ConnectError> {
        Client::open(url, self.shared.options.clone())
    }
}

fn subject(world: &str, process: u64, endpoint: &str) -> String {
    format!("space.{world}.process.{process}.{endpoint}")
}
