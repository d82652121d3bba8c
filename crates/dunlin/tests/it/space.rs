//! Regions of space, and the topics that tell of them.

use dunlin::space::behaviour::Walk;
use dunlin::space::{
    Authority, Entity, EntityId, Host, HostError, Partition, RegionId, Setup, Stage, StoreError, World,
    topic_of,
};
use dunlin::topic::{Notice, Publish, Start, Subscribe, SubscribeOptions};
use dunlin::{Node, TopicError};

use crate::{all, node};

const WORLD: &str = "birds";
const REGION: RegionId = RegionId(1);

fn host(node: &Node) -> Host<3, Walk> {
    let setup = Setup::new(REGION, World::cube(100.0).unwrap(), 1.0);
    let walk = Walk { speed_max: 1.0, turn: 1.0 };
    let stage = Stage { node: node.clone(), world: WORLD.to_owned(), history_bytes: 1 << 20 };
    Host::new(setup, walk, Partition::even(3, &[REGION]), Some(stage))
}

fn begin(host: &mut Host<3, Walk>) -> Result<(), HostError> {
    host.begin(REGION, Authority { epoch: 1, until_ns: u64::MAX })
}

#[test]
fn a_region_begins_though_somebody_read_of_it_before_it_was_there() {
    let node = node();
    let topic = topic_of(WORLD, REGION);
    let mut early = node.subscribe(&topic, &SubscribeOptions::default()).unwrap();
    let mut host = host(&node);
    begin(&mut host).unwrap();
    host.spawn(&Entity::at(7, [1.0; 3])).unwrap();
    host.tick(1);
    drop(host.take_turn());
    assert_eq!(host.counts().unpublished, 0);
    assert!(all(&mut early).contains(&format!("{topic} deleted")), "it is told that it read of nothing");
    let from_snapshot = SubscribeOptions { start: Start::Snapshot, ..SubscribeOptions::default() };
    let seen = all(&mut node.subscribe(&topic, &from_snapshot).unwrap());
    assert!(seen.iter().any(|event| event.contains("Snapshot")), "{seen:?}");
}

#[test]
fn a_region_s_topic_that_was_prepared_is_what_it_begins_with() {
    let node = node();
    let mut host = host(&node);
    host.prepare(REGION).unwrap();
    host.prepare(REGION).unwrap();
    let mut reader = node.subscribe(&topic_of(WORLD, REGION), &SubscribeOptions::default()).unwrap();
    begin(&mut host).unwrap();
    let told = reader.try_next().unwrap();
    assert!(told.is_some_and(|event| !matches!(event, dunlin::topic::Event::Notice(Notice::Deleted { .. }))));
}

#[test]
fn a_topic_in_which_something_is_does_not_make_way_for_a_region_s() {
    let node = node();
    let topic = topic_of(WORLD, REGION);
    node.publisher(&topic).unwrap().publish("somebody's").unwrap();
    let refused = begin(&mut host(&node)).unwrap_err();
    let exists = |why: &TopicError| matches!(why, TopicError::Exists(_));
    assert!(matches!(&refused, HostError::Topic { why, .. } if exists(why)), "{refused}");
    assert_eq!(node.topics(None, "", 10).topics.len(), 1);
}

#[test]
fn spawn_says_what_is_wrong_with_a_place_or_an_id() {
    let node = node();
    let setup = Setup::new(RegionId(0), World::cube(100.0).unwrap(), 1.0);
    let walk = Walk { speed_max: 1.0, turn: 1.0 };
    let regions = [RegionId(1), RegionId(2), RegionId(3)];
    let stage = Stage { node: node.clone(), world: WORLD.to_owned(), history_bytes: 1 << 20 };
    let mut host = Host::new(setup, walk, Partition::even(3, &regions), Some(stage));
    let (low, high) = ([1.0; 3], [99.0; 3]);
    let (here, elsewhere) = (host.owner_of(&low), host.owner_of(&high));
    let middle = regions.into_iter().find(|region| ![here, elsewhere].contains(region)).unwrap();
    for region in [here, middle] {
        host.begin(region, Authority { epoch: 1, until_ns: u64::MAX }).unwrap();
    }
    host.spawn(&Entity::at(7, low)).unwrap();
    let corner = |nth: u32| [0, 1, 2].map(|axis| if nth >> axis & 1 == 0 { 10.0 } else { 90.0 });
    let inside = (0..8).map(corner).find(|at| host.owner_of(at) == middle).unwrap();
    let mut refused = |id, at| host.spawn(&Entity::at(id, at)).unwrap_err();
    assert_eq!(refused(8, high), StoreError::Elsewhere { id: EntityId(8), region: elsewhere });
    assert_eq!(refused(8, [101.0; 3]), StoreError::Outside(EntityId(8)));
    assert_eq!(refused(7, inside), StoreError::Duplicate(EntityId(7)), "another region of this host has it");
}
