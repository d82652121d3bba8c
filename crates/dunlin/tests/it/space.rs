//! Tests of the regions of a world, and of the regions' topics.

use std::collections::VecDeque;

use dunlin::space::behaviour::{Flock, RandomWalk};
use dunlin::space::curve::{Curve, MortonCurve};
use dunlin::space::{
    CommandError, Entity, EntityCommand, EntityId, EntityStatus, Host, HostError, Partition, RegionAuthority,
    RegionId, RegionSetup, Scene, Schema, StandbyMode, StoreError, SurroundingsWatch, Takeover, ViewerId,
    WorldBox, WorldTopics, topic_of,
};
use dunlin::topic::{Notice, Publish, Start, Subscribe, SubscribeOptions};
use dunlin::{Node, TopicError};

use crate::{all, node};

const WORLD: &str = "birds";
const REGION: RegionId = RegionId(1);

fn host(node: &Node) -> Host<3, RandomWalk> {
    let setup = RegionSetup::new(REGION, WorldBox::cube(100.0).unwrap(), 1.0);
    let walk = RandomWalk { speed_max: 1.0, turn: 1.0 };
    let topics = WorldTopics { node: node.clone(), world: WORLD.to_owned(), history_bytes: 1 << 20 };
    Host::new(setup, walk, Partition::even(3, &[REGION]), Some(topics))
}

fn begin(host: &mut Host<3, RandomWalk>) -> Result<(), HostError> {
    host.begin(REGION, RegionAuthority { epoch: 1, until_ns: u64::MAX })
}

#[test]
fn ghost_strip_narrower_than_the_sight_radius_is_refused() {
    let begin = |strip, regions: &[RegionId]| {
        let setup = RegionSetup::new(REGION, WorldBox::<3>::cube(100.0).unwrap(), strip);
        let flock = Flock { sight: 10.0, ..Flock::default() };
        let mut host = Host::new(setup, flock, Partition::even(3, regions), None);
        host.begin(REGION, RegionAuthority { epoch: 1, until_ns: u64::MAX })
    };
    let regions = [REGION, RegionId(2)];
    let refused = begin(9.0, &regions).unwrap_err();
    assert!(matches!(&refused, HostError::Strip(error) if error.width_min == 10.0), "{refused}");
    begin(10.0, &regions).unwrap();
    // A world of one region has no borders, so that the strip cannot be too narrow.
    begin(9.0, &[REGION]).unwrap();
}

#[test]
fn metrics_of_a_region_are_updated_without_ticks() {
    let node = node();
    let mut host = host(&node);
    begin(&mut host).unwrap();
    host.spawn(&Entity::at(7, [1.0; 3])).unwrap();
    host.elapse(1);
    let figures = node.region_figures();
    assert_eq!((figures.len(), figures[0].entities, figures[0].ticks), (1, 1, 0));
}

/// In this test, a viewer watches one entity. Another entity is spawned in a neighbouring region, which knows only a
/// ghost of the watched entity.
#[test]
fn viewer_sees_spawned_entities_of_two_regions_without_a_tick() {
    let regions = [REGION, RegionId(2)];
    let setup = RegionSetup::new(REGION, WorldBox::cube(100.0).unwrap(), 10.0);
    let walk = RandomWalk { speed_max: 1.0, turn: 1.0 };
    let mut host = Host::new(setup, walk, Partition::even(3, &regions), None);
    for region in regions {
        host.begin(region, RegionAuthority { epoch: 1, until_ns: u64::MAX }).unwrap();
    }
    let point = |axis: usize, along: f32| {
        let mut point = [25.0; 3];
        point[axis] = along;
        point
    };
    let is_border = |axis: &usize| host.owner_of(&point(*axis, 49.0)) != host.owner_of(&point(*axis, 51.0));
    let axis = (0..3).find(is_border).unwrap();
    host.spawn(&Entity::at(1, point(axis, 49.0))).unwrap();
    host.watch(ViewerId(1), SurroundingsWatch::around(EntityId(1), 5.0)).unwrap();
    let mut scene = Scene::<3>::new(Schema::default());
    let mut visible_ids = |host: &mut Host<3, RandomWalk>| {
        drop(host.take_output());
        host.show_changes(true, 1);
        host.send_viewer_updates(|_, update| scene.apply(update, &mut Vec::new()).unwrap());
        let mut ids: Vec<u64> = scene.visible().keys().map(|id| id.0).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(visible_ids(&mut host), [1]);
    host.spawn(&Entity::at(2, point(axis, 51.0))).unwrap();
    assert_eq!(visible_ids(&mut host), [1, 2]);
    host.despawn(EntityId(2)).unwrap();
    assert_eq!(visible_ids(&mut host), [1]);
}

#[test]
fn region_replaces_a_topic_that_a_subscriber_created() {
    let node = node();
    let topic = topic_of(WORLD, REGION);
    let mut early = node.subscribe(&topic, &SubscribeOptions::default()).unwrap();
    let mut host = host(&node);
    begin(&mut host).unwrap();
    host.spawn(&Entity::at(7, [1.0; 3])).unwrap();
    host.tick(1);
    drop(host.take_output());
    assert_eq!(host.counts().unpublished, 0);
    assert!(
        all(&mut early).contains(&format!("{topic} deleted")),
        "the subscriber receives the end of the topic"
    );
    let from_snapshot = SubscribeOptions { start: Start::Snapshot, ..SubscribeOptions::default() };
    let seen = all(&mut node.subscribe(&topic, &from_snapshot).unwrap());
    assert!(seen.iter().any(|event| event.contains("Snapshot")), "{seen:?}");
}

#[test]
fn region_keeps_the_topic_that_was_prepared_for_it() {
    let node = node();
    let mut host = host(&node);
    host.prepare(REGION).unwrap();
    host.prepare(REGION).unwrap();
    let mut subscriber = node.subscribe(&topic_of(WORLD, REGION), &SubscribeOptions::default()).unwrap();
    begin(&mut host).unwrap();
    let event = subscriber.try_next().unwrap();
    assert!(
        event.is_some_and(|event| !matches!(event, dunlin::topic::Event::Notice(Notice::Deleted { .. })))
    );
}

/// In this test, the node has no memory for records for some time.
#[test]
fn topic_of_a_region_recovers_after_refused_records() {
    let node = node();
    let mut host = host(&node);
    begin(&mut host).unwrap();
    host.spawn(&Entity::at(7, [1.0; 3])).unwrap();
    let topic = node.topics(None, "", 10).topics.remove(0);
    let tick = |host: &mut Host<3, RandomWalk>| {
        host.tick(1);
        drop(host.take_output());
    };
    let is_equal = |host: &Host<3, RandomWalk>| {
        let checksum = host.ledger().iter().fold(0_u64, |sum, (_, _, hash)| sum.wrapping_add(*hash));
        topic.logs()[0].state_info().is_some_and(|(_, state)| state.checksum == checksum)
    };
    tick(&mut host);
    assert!(is_equal(&host));
    let room = node.budget().room();
    node.budget().charge(room).unwrap();
    (8..5_000).for_each(|id| host.spawn(&Entity::at(id, [2.0; 3])).unwrap());
    tick(&mut host);
    assert_eq!(host.counts().unpublished, 1, "there is no room for so long a record");
    tick(&mut host);
    node.budget().release(room);
    let recovered = (0..100).find(|_| {
        tick(&mut host);
        is_equal(&host)
    });
    assert!(recovered.is_some(), "{:?}", host.counts());
    tick(&mut host);
    assert!(is_equal(&host), "later records follow the state");
}

/// In this test, a client deletes the topic of a region twice: while the region runs ticks, and while it does not.
#[test]
fn deleted_topic_of_a_region_is_recreated_with_the_state() {
    let node = node();
    let mut host = host(&node);
    begin(&mut host).unwrap();
    host.spawn(&Entity::at(7, [1.0; 3])).unwrap();
    let name = topic_of(WORLD, REGION);
    let tick = |host: &mut Host<3, RandomWalk>| {
        host.tick(1);
        drop(host.take_output());
    };
    let epoch_and_checksum = || {
        let topic = node.topic(&name).unwrap();
        let checksum = topic.logs()[0].state_info().map(|(_, state)| state.checksum);
        (topic.logs()[0].last().epoch, checksum)
    };
    let checksum = |host: &Host<3, RandomWalk>| {
        Some(host.ledger().iter().fold(0_u64, |sum, (_, _, hash)| sum.wrapping_add(*hash)))
    };
    tick(&mut host);
    assert!(host.restore_topics().is_empty());
    let first = epoch_and_checksum();
    assert_eq!(first.1, checksum(&host));
    let mut watcher = node.subscribe(&format!("space.{WORLD}.region.*"), &Default::default()).unwrap();
    for paused in [true, false] {
        let before = epoch_and_checksum().0;
        node.delete_topic(&name).unwrap();
        assert!(all(&mut watcher).contains(&format!("{name} deleted")), "the watcher receives the end");
        // Add an entity. In the paused round, no tick publishes it before the topic is restored.
        host.spawn(&Entity::at(if paused { 8 } else { 9 }, [2.0; 3])).unwrap();
        if !paused {
            tick(&mut host);
        }
        let restored = host.restore_topics();
        assert!(restored.len() == 1 && restored[0].1.is_ok(), "{restored:?}");
        let (epoch, state) = epoch_and_checksum();
        assert!(epoch > before, "{epoch} after {before}");
        assert_eq!(state, checksum(&host));
        assert!(!all(&mut watcher).is_empty(), "the watcher receives the new topic");
        tick(&mut host);
        assert_eq!(epoch_and_checksum(), (epoch, checksum(&host)), "later records follow the state");
        assert!(host.restore_topics().is_empty());
    }
}

#[test]
fn topic_with_records_is_not_replaced_by_a_region() {
    let node = node();
    let topic = topic_of(WORLD, REGION);
    node.publisher(&topic).unwrap().publish("somebody's").unwrap();
    let refused = begin(&mut host(&node)).unwrap_err();
    let exists = |why: &TopicError| matches!(why, TopicError::Exists(_));
    assert!(matches!(&refused, HostError::Topic { why, .. } if exists(why)), "{refused}");
    assert_eq!(node.topics(None, "", 10).topics.len(), 1);
}

/// Here, another program has published to the topic of the region's name.
#[test]
fn takeover_keeps_the_state_if_the_region_topic_is_in_use() {
    let mut former = host(&node());
    begin(&mut former).unwrap();
    former.spawn(&Entity::at(7, [1.0; 3])).unwrap();
    let state = former.retire(REGION).unwrap();
    let (node, topic) = (node(), topic_of(WORLD, REGION));
    node.publisher(&topic).unwrap().publish("somebody's").unwrap();
    let mut host = host(&node);
    let authority = RegionAuthority { epoch: 2, until_ns: u64::MAX };
    host.take_over(REGION, state, &Takeover { authority, peers: &[], now_ns: 0 }).unwrap();
    assert_eq!(host.region(REGION).unwrap().store().len(), 1);
    assert!(matches!(host.restore_topics()[..], [(REGION, Err(HostError::Topic { .. }))]));
    node.delete_topic(&topic).unwrap();
    assert!(matches!(host.restore_topics()[..], [(REGION, Ok(()))]));
    assert!(host.restore_topics().is_empty());
}

#[test]
fn refusal_of_a_spawn_names_the_invalid_position_or_id() {
    let node = node();
    let setup = RegionSetup::new(RegionId(0), WorldBox::cube(100.0).unwrap(), 1.0);
    let walk = RandomWalk { speed_max: 1.0, turn: 1.0 };
    let regions = [RegionId(1), RegionId(2), RegionId(3)];
    let topics = WorldTopics { node: node.clone(), world: WORLD.to_owned(), history_bytes: 1 << 20 };
    let mut host = Host::new(setup, walk, Partition::even(3, &regions), Some(topics));
    let (low, high) = ([1.0; 3], [99.0; 3]);
    let (here, elsewhere) = (host.owner_of(&low), host.owner_of(&high));
    let middle = regions.into_iter().find(|region| ![here, elsewhere].contains(region)).unwrap();
    for region in [here, middle] {
        host.begin(region, RegionAuthority { epoch: 1, until_ns: u64::MAX }).unwrap();
    }
    host.spawn(&Entity::at(7, low)).unwrap();
    let corner = |nth: u32| [0, 1, 2].map(|axis| if nth >> axis & 1 == 0 { 10.0 } else { 90.0 });
    let inside = (0..8).map(corner).find(|at| host.owner_of(at) == middle).unwrap();
    let mut refused = |id, at| host.spawn(&Entity::at(id, at)).unwrap_err();
    assert_eq!(refused(8, high), StoreError::Elsewhere { id: EntityId(8), region: elsewhere });
    assert_eq!(refused(8, [101.0; 3]), StoreError::Outside(EntityId(8)));
    assert_eq!(
        refused(7, inside),
        StoreError::Duplicate(EntityId(7)),
        "another region of this host has the entity"
    );
}

/// A process that releases a region removes the lease before it checks that the new owner has all changes.
#[test]
fn region_without_a_lease_refuses_spawn_and_despawn() {
    let mut host = host(&node());
    begin(&mut host).unwrap();
    host.spawn(&Entity::at(1, [1.0; 3])).unwrap();
    host.set_authority(REGION, None);
    let refused = Err(StoreError::NoLease(REGION));
    assert_eq!(host.spawn(&Entity::at(2, [2.0; 3])), refused);
    assert_eq!(host.despawn(EntityId(1)), refused);
    host.set_authority(REGION, Some(RegionAuthority { epoch: 1, until_ns: u64::MAX }));
    host.despawn(EntityId(1)).unwrap();
}

#[test]
fn spawned_entity_is_unconfirmed_until_its_id_proves_unique() {
    let mut host = host(&node());
    begin(&mut host).unwrap();
    assert!(!host.has_unconfirmed(REGION));
    host.spawn(&Entity::at(1, [1.0; 3])).unwrap();
    assert!(host.has_unconfirmed(REGION) && !host.has_unconfirmed(RegionId(2)));
    host.confirm_unique(EntityId(1));
    assert!(!host.has_unconfirmed(REGION));
}

/// A region that is being released has no lease. Its next owner might not learn of a removal.
#[test]
fn duplicate_entity_stays_in_a_region_without_a_lease() {
    let (mut host, id) = (host(&node()), EntityId(1));
    begin(&mut host).unwrap();
    host.spawn(&Entity::at(id.0, [1.0; 3])).unwrap();
    host.set_authority(REGION, None);
    assert!(!host.remove_duplicate(id, RegionId(2)));
    assert!(host.is_unconfirmed(id) && host.find_entity(id).is_some());
    host.set_authority(REGION, Some(RegionAuthority { epoch: 1, until_ns: u64::MAX }));
    assert!(host.remove_duplicate(id, RegionId(2)));
    assert!(!host.is_unconfirmed(id) && host.find_entity(id).is_none());
}

/// Delivers messages between the two hosts until none is left. Calls `check` before each message.
fn exchange_and_check(
    hosts: &mut [Host<3, RandomWalk>; 2],
    now_ns: u64,
    mut check: impl FnMut(&mut [Host<3, RandomWalk>; 2]),
) {
    let mut queue = VecDeque::new();
    loop {
        for (from, output) in hosts.each_mut().map(Host::take_output).into_iter().enumerate() {
            queue.extend(output.messages.into_iter().map(|message| (from, message)));
        }
        let Some((from, (to, bytes))) = queue.pop_front() else { return };
        check(hosts);
        hosts[1 - from].receive(to, &bytes, now_ns);
    }
}

fn exchange(hosts: &mut [Host<3, RandomWalk>; 2], now_ns: u64) {
    exchange_and_check(hosts, now_ns, |_| ());
}

/// Two hosts, each with one region of the same world. Entities do not move.
fn two_hosts(regions: [RegionId; 2]) -> [Host<3, RandomWalk>; 2] {
    let mut hosts = regions.map(|region| {
        let setup = RegionSetup {
            standby: StandbyMode::None,
            ..RegionSetup::new(region, WorldBox::cube(100.0).unwrap(), 1.0)
        };
        let walk = RandomWalk { speed_max: 0.0, turn: 0.0 };
        let mut host = Host::new(setup, walk, Partition::even(3, &regions), None);
        host.begin(region, RegionAuthority { epoch: 1, until_ns: u64::MAX }).unwrap();
        host
    });
    hosts[0].record_peer_epoch(regions[1], 1, 0).unwrap();
    hosts[1].record_peer_epoch(regions[0], 1, 0).unwrap();
    exchange(&mut hosts, 0);
    hosts
}

/// Otherwise, a client that asks both regions would be told that the entity does not exist.
#[test]
fn at_least_one_region_always_knows_an_entity_in_handover() {
    let regions = [RegionId(1), RegionId(2)];
    let (mut hosts, id) = (two_hosts(regions), EntityId(7));
    hosts[0].spawn(&Entity::at(id.0, [1.0; 3])).unwrap();
    // Region 1 keeps no part of the world except its first cell.
    let partition = Partition::of(3, 2, vec![(0, regions[0]), (1, regions[1])]).unwrap();
    let mut is_seen_between = false;
    for tick in 0..200 {
        let now_ns = tick * 20_000_000;
        hosts.iter_mut().for_each(|host| {
            host.set_partition(&partition, now_ns);
            host.tick(now_ns);
        });
        exchange_and_check(&mut hosts, now_ns, |hosts| {
            let command = EntityCommand::<3>::of(id);
            let results = hosts.each_mut().map(|host| host.apply_client_command(&command, now_ns));
            let is_unknown =
                |at: usize| matches!(&results[at], Err(CommandError::Store(StoreError::Unknown(_))));
            assert!(!is_unknown(0) || !is_unknown(1), "tick {tick}");
            let arriving = Some((regions[1], EntityStatus::Coming));
            is_seen_between |= hosts[0].find_entity(id).is_none() && hosts[1].find_entity(id) == arriving;
        });
    }
    assert_eq!(hosts[1].find_entity(id), Some((regions[1], EntityStatus::Own)));
    assert!(
        is_seen_between,
        "the first region has given the entity up, and the second one waits for the commit"
    );
}

/// An entity was in the other region for some time, and has returned. If that region then reports that it knows the
/// entity's id, this id is not a duplicate: it belongs to the same entity.
#[test]
fn entity_that_returned_to_its_region_is_no_duplicate() {
    let regions = [RegionId(1), RegionId(2)];
    let (even, mut hosts) = (Partition::even(3, &regions), two_hosts(regions));
    let (stays, goes) = (EntityId(1), EntityId(2));
    let key = |at: &[f32; 3]| MortonCurve::key(hosts[0].setup().world.grid_point(at));
    let corner = |nth: u32| [0, 1, 2].map(|axis| if nth >> axis & 1 == 0 { 10.0 } else { 90.0 });
    let mut own: Vec<_> = (0..8).map(corner).filter(|at| hosts[0].owner_of(at) == regions[0]).collect();
    own.sort_unstable_by_key(key);
    let (border, cut) = (even.stretch(regions[1]).unwrap().0, key(own.last().unwrap()));
    for (id, at) in [(stays, own.first()), (goes, own.last())] {
        hosts[0].spawn(&Entity::at(id.0, *at.unwrap())).unwrap();
    }
    // The border moves away and back. The entity `goes` changes its region each time.
    for (version, at) in [(2, cut), (3, border)] {
        let partition = Partition::of(3, version, vec![(0, regions[0]), (at, regions[1])]).unwrap();
        for tick in 0..200 {
            let now_ns = (version * 1_000 + tick) * 20_000_000;
            hosts.iter_mut().for_each(|host| {
                host.set_partition(&partition, now_ns);
                host.tick(now_ns);
            });
            exchange(&mut hosts, now_ns);
        }
        assert_eq!(hosts[1].find_entity(goes).is_some(), version == 2, "version {version}");
    }
    for id in [stays, goes] {
        hosts[0].remove_duplicate(id, regions[1]);
    }
    assert_eq!((hosts[0].find_entity(stays), hosts[0].find_entity(goes).is_some()), (None, true));
}
