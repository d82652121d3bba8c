//! Runs a world in which a thousand entities walk in two regions. Start the program a second time with the printed
//! address: the second process joins the world and receives a region.

use std::{sync::mpsc::channel, time::Duration};

use dunlin::space::{Entity, Host, RegionId, RegionSetup, WorldBox, behaviour::RandomWalk};
use dunlin::{Config, Node};
use dunlin_client::space::{EntityId, Schema, SurroundingsWatch};
use dunlin_client::{Client, ClientOptions};
use dunlin_server::space::{WorldConfig, WorldProcess};
use dunlin_server::{Server, ServerConfig};

fn populate(host: &mut Host<3, RandomWalk>, region: RegionId) {
    for id in 0..1_000 {
        let entity = Entity::at(id, [17, 29, 43].map(|step| (id * step % 100) as f32));
        if host.owner_of(&entity.position) == region {
            host.spawn(&entity).expect("each entity has its own id");
        }
    }
}

fn main() -> anyhow::Result<()> {
    let node = Node::start(Config::default())?;
    let config = ServerConfig { tcp: vec!["127.0.0.1:0".parse()?], ..ServerConfig::default() };
    let server = Server::start(node.clone(), config)?;
    let url = format!("dunlin://{}", server.tcp_addresses()[0]);
    let client = Client::connect(&std::env::args().nth(1).unwrap_or(url.clone()), ClientOptions::default())?;
    println!("dunlin space watch walkers --url {url}");
    let setup = RegionSetup::new(RegionId(0), WorldBox::cube(100.0)?, 20.0);
    let config = WorldConfig::new("walkers", &url, setup, &[RegionId(1), RegionId(2)]);
    let (walk, (sender, events)) = (RandomWalk { speed_max: 5.0, turn: 2.0 }, channel());
    let report = move |event| drop(sender.send(event));
    let process = WorldProcess::start(&node, client.kv(), config, walk, populate, report)?;
    println!("process {}: {:?}", process.number(), events.recv()?);
    let around = SurroundingsWatch::around(EntityId(7), 20.0);
    let mut viewer = client.world("walkers").watch::<3>(around, Schema::default())?;
    while let Some(change) = viewer.next_timeout(Duration::from_secs(60))? {
        println!("{change:?}: {} in sight", viewer.visible().len());
    }
    Ok(())
}
