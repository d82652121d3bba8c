//! Tests that each id of an entity exists only once in a world.

use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, channel};

use dunlin::space::behaviour::RandomWalk;
use dunlin::space::{
    Behaviour, Entity, EntityId, Host, Partition, RegionAuthority, RegionId, RegionReport, StandbyMode,
};
use dunlin_server::space::{Secret, Space, SpaceConfig, SpaceLimits, SpawnError, TickPace, WorldPeer};
use dunlin_wait::PATIENCE;

use super::{
    ENTITIES, REGIONS, WorldMember, WorldSettings, WorldTest, populate, settings, until, wait_until_all_tick,
    wait_until_each_exists_once,
};

/// The id of an entity that `populate` creates in every region.
const TWICE: u64 = 7_777;

/// Returns a position inside this region.
fn position_in<B: Behaviour<3> + Clone>(host: &Host<3, B>, region: RegionId) -> [f32; 3] {
    let corner = |nth: u32| [0, 1, 2].map(|axis| if nth >> axis & 1 == 0 { 20.0 } else { 80.0 });
    (0..8).map(corner).find(|at| host.owner_of(at) == region).unwrap()
}

#[test]
fn entity_created_in_two_regions_is_kept_in_only_one() {
    let populate = |host: &mut Host<3, RandomWalk>, region| {
        populate(host, region);
        host.spawn(&Entity::at(TWICE, position_in(host, region))).unwrap();
    };
    let test = WorldTest::new(WorldSettings { populate, ..settings("twice", 2, StandbyMode::None) });
    let members = [test.start(1), test.start(2)];
    let mut reports = Vec::new();
    until("one of them is taken out again", &test.kv, &members, || {
        let new =
            members.iter().flat_map(|member| member.space.call(|runner| runner.take_reports()).unwrap());
        reports.extend(new);
        let twice = |(_, report): &(RegionId, RegionReport)| matches!(report, RegionReport::Duplicate { id, .. } if id.0 == TWICE);
        reports.iter().any(twice)
    });
    wait_until_each_exists_once(&test.kv, &members, (0..ENTITIES).chain([TWICE]));
}

pub(super) type Spawned = Receiver<Result<(RegionId, u64), SpawnError>>;

/// Spawns an entity in this region, as if a client had requested it.
pub(super) fn spawn(member: &WorldMember<RandomWalk>, id: u64, region: RegionId) -> Spawned {
    let (sender, spawned) = channel();
    let reply = move |done| drop(sender.send(done));
    let order = move |runner: &mut dunlin_server::space::WorldRunner<3, RandomWalk>| {
        let entity = Entity::at(id, position_in(runner.host(), region));
        runner.spawn_for(&entity, reply);
    };
    member.space.submit(order).unwrap();
    spawned
}

#[test]
fn concurrent_spawns_of_one_id_in_two_regions_create_one_entity() {
    let test = WorldTest::new(settings("raced", 2, StandbyMode::None));
    let members = [test.start(1), test.start(2)];
    wait_until_all_tick("both regions begin", &test.kv, &members);
    let own = |member: &WorldMember<RandomWalk>| RegionId(*member.ticks().keys().next().unwrap());
    let regions = [own(&members[0]), own(&members[1])];
    // Until a process is connected to the owners of all other regions, it refuses to spawn entities.
    until("each process can spawn", &test.kv, &members, || {
        (0..2).all(|at| {
            let spawned = spawn(&members[at], 999 - at as u64, regions[at]).recv_timeout(PATIENCE);
            !matches!(spawned.expect("an answer"), Err(SpawnError::NoOwner(_)))
        })
    });
    let raced = 1_000..1_020_u64;
    for id in raced.clone() {
        let both = [0, 1].map(|at| spawn(&members[at], id, regions[at]));
        let done = both.map(|spawned| spawned.recv_timeout(PATIENCE).expect("an answer"));
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1, "{id}: {done:?}");
        let refused = done.iter().find_map(|done| done.as_ref().err()).unwrap().to_string();
        assert!(refused.contains(&format!("entity {id} is ")), "{refused}");
        let again = spawn(&members[0], id, regions[0]).recv_timeout(PATIENCE).expect("an answer");
        assert!(again.is_err(), "{again:?}");
    }
    wait_until_each_exists_once(&test.kv, &members, (0..ENTITIES).chain(998..1_000).chain(raced));
}

/// Here, the process whose region has the higher number asks before the other process spawns the entity. The asking
/// process then waits for a third process. In the meantime, the other process learns of a spawn that is not checked
/// yet.
#[test]
fn duplicate_spawn_is_removed_if_a_third_process_answers_late() {
    let test = WorldTest::new(settings("awaited", 3, StandbyMode::None));
    let mut members: Vec<_> = (1..=3).map(|number| test.start(number)).collect();
    wait_until_all_tick("all regions begin", &test.kv, &members);
    members.sort_by_key(|member| member.ticks().into_keys().next());
    until("all processes know all owners", &test.kv, &members, || {
        members.iter().all(|member| member.space.call(|runner| runner.remote_regions().len()).unwrap() == 2)
    });
    for member in &members {
        // Without ticks, no entity leaves its region.
        member.space.call(|runner| runner.set_pace(TickPace::Hold, None)).unwrap();
    }
    let (third, blocked) = channel::<()>();
    members[2].space.submit(move |_| _ = blocked.recv()).unwrap();
    for (version, asks, other) in [(2, 1, 0), (3, 0, 1)] {
        let spawned = members[asks].space.call(move |runner| {
            let entity = Entity::at(TWICE, position_in(runner.host(), REGIONS[asks]));
            runner.host_mut().spawn(&entity)
        });
        spawned.unwrap().unwrap();
        // The other process receives this partition after the question.
        let broadcast = members[asks].space.call(move |runner| {
            let cuts = runner.host().partition().regions().to_vec();
            runner.broadcast_partition(&Partition::of(3, version, cuts).unwrap());
        });
        broadcast.unwrap();
        dunlin_wait::until("the other process has received the question", || {
            members[other].space.call(|runner| runner.host().partition().version()).unwrap() == version
        });
    }
    drop(third);
    wait_until_each_exists_once(&test.kv, &members, (0..ENTITIES).chain([TWICE]));
}

/// Starts a process that runs these regions in these epochs, without a lease.
fn start_space(number: u64, peers: &[WorldPeer], regions: &[(RegionId, u64)]) -> Space<3, RandomWalk> {
    let WorldSettings { setup, behaviour, .. } = settings("former", 3, StandbyMode::None);
    let mut host = Host::new(setup, behaviour, Partition::even(3, &REGIONS), None);
    for (region, epoch) in regions {
        host.begin(*region, RegionAuthority { epoch: *epoch, until_ns: u64::MAX }).unwrap();
    }
    let config = SpaceConfig {
        world: "former".to_owned(),
        process: number,
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        peers: peers.to_vec(),
        pace: TickPace::Hold,
        lockstep: false,
        balance: None,
        insecure: false,
        secret: Secret::of([1; 32]),
        limits: SpaceLimits::default(),
    };
    Space::start(config, host).unwrap()
}

/// Here, a former owner of a region responds before the present owner, because the former owner still runs another
/// region.
#[test]
fn id_check_ignores_the_response_of_a_former_region_owner() {
    let former = start_space(1, &[], &[(REGIONS[1], 1), (REGIONS[2], 1)]);
    let owner = start_space(2, &[], &[(REGIONS[1], 2)]);
    let peer = |process: u64, space: &Space<3, RandomWalk>| WorldPeer { process, address: space.address() };
    let spawner = start_space(3, &[peer(1, &former), peer(2, &owner)], &[(REGIONS[0], 1)]);
    dunlin_wait::until("the spawning process knows all owners", || {
        spawner.call(|runner| runner.remote_regions()).unwrap() == [(REGIONS[1], 2, 2), (REGIONS[2], 1, 1)]
    });
    let ((unblock, blocked), (blocks, blocking)) = (channel::<()>(), channel());
    let block = move |_: &mut dunlin_server::space::WorldRunner<3, RandomWalk>| {
        blocks.send(()).unwrap();
        let _ = blocked.recv();
    };
    owner.submit(block).unwrap();
    blocking.recv_timeout(PATIENCE).expect("the owner is blocked");
    let (sender, spawned) = channel();
    let order = move |runner: &mut dunlin_server::space::WorldRunner<3, RandomWalk>| {
        let entity = Entity::at(TWICE, position_in(runner.host(), REGIONS[0]));
        runner.spawn_for(&entity, move |done| drop(sender.send(done)));
    };
    spawner.submit(order).unwrap();
    let done = spawned.recv_timeout(PATIENCE).expect("an answer");
    assert!(matches!(&done, Err(SpawnError::NoOwner(regions)) if regions.contains(&REGIONS[1])), "{done:?}");
    drop(unblock);
}

/// The region without an owner may already have an entity with the same id.
#[test]
fn spawn_is_refused_while_a_region_has_no_owner() {
    let test = WorldTest::new(settings("away", 2, StandbyMode::None));
    let mut members = vec![test.start(1), test.start(2)];
    wait_until_all_tick("both regions begin", &test.kv, &members);
    members.remove(1).kill();
    let own = RegionId(*members[0].ticks().keys().next().unwrap());
    until("it is refused", &test.kv, &members, || {
        let done = spawn(&members[0], 2_000, own).recv_timeout(PATIENCE).expect("an answer");
        match done {
            Ok(_) => {
                let dismiss = |runner: &mut dunlin_server::space::WorldRunner<3, RandomWalk>| {
                    runner.host_mut().despawn(EntityId(2_000)).is_ok()
                };
                members[0].space.call(dismiss).unwrap();
                false
            }
            Err(SpawnError::NoOwner(regions)) => regions.len() == 1 && regions[0] != own,
            Err(other) => panic!("{other}"),
        }
    });
}

/// Here, a process is killed while the other process waits for its response to the question whether an id is in use.
#[test]
fn takeover_during_an_id_check_leaves_no_spawn_unanswered() {
    let test = WorldTest::new(settings("asked", 2, StandbyMode::Required));
    let mut members = vec![test.start(1), test.start(2)];
    wait_until_all_tick("both regions begin", &test.kv, &members);
    let killed = members.remove(1);
    // From now on, the process does not respond, but it still owns its region.
    killed.space.stop().unwrap();
    let own = RegionId(*members[0].ticks().keys().next().unwrap());
    let unchecked = move |runner: &mut dunlin_server::space::WorldRunner<3, RandomWalk>| {
        let entity = Entity::at(2_000, position_in(runner.host(), own));
        runner.host_mut().spawn(&entity).is_ok()
    };
    assert!(members[0].space.call(unchecked).unwrap());
    killed.kill();
    until("the other takes the region over", &test.kv, &members, || members[0].ticks().len() == 2);
    let spawned = spawn(&members[0], 2_001, own).recv_timeout(PATIENCE).expect("an answer");
    assert!(spawned.is_ok(), "{spawned:?}");
    assert!(members[0].ids().contains(&2_000), "the entity that was checked meanwhile remains");
}
