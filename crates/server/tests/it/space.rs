//! Worlds whose regions are shared out by leases.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::space::behaviour::Walk;
use dunlin::space::{
    Command, Entity, EntityId, Host, Partition, RegionId, Rule, Schema, Setup, Stage, ViewerId, Watch, World,
};
use dunlin::{Node, Responder};
use dunlin_client::Kv;
use dunlin_server::Server;
use dunlin_server::space::{
    Balance, Owners, OwnersConfig, Pace, Populate, Space, SpaceConfig, SpaceLimits, Told, Viewing,
    ViewingError, answer,
};

use crate::clients::connect;
use crate::serve;

const WORLD: &str = "crowded";
const ENTITIES: u64 = 2_000;
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
const REGIONS: [RegionId; 2] = [RegionId(1), RegionId(2)];
const STRIP: f32 = 8.0;

struct Member {
    // It answers no more before its world ends.
    _responder: Responder,
    _owners: Owners,
    space: Arc<Space<3, Walk>>,
    cuts: Arc<std::sync::Mutex<Vec<u64>>>,
}

/// A process of the world, on threads of this one: entities are as fast as this, and move from where `populate` puts them.
fn member(
    kv: Kv,
    (node, server): &(Node, Server),
    process: u64,
    speed_max: f32,
    populate: fn(&mut Host<3, Walk>, RegionId),
) -> Member {
    let mut setup = Setup::new(RegionId(0), World::cube(100.0).unwrap(), STRIP);
    setup.tick_ns = 5_000_000;
    let pace = Pace::Every(setup.tick_ns);
    let walk = Walk { speed_max, turn: 1.0 };
    let stage = Stage { node: node.clone(), world: WORLD.to_owned(), history_bytes: 1 << 20 };
    let host = Host::new(setup, walk, Partition::even(3, &REGIONS), Some(stage));
    let config = SpaceConfig {
        world: WORLD.to_owned(),
        process,
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        peers: Vec::new(),
        pace,
        lockstep: false,
        insecure: false,
        limits: SpaceLimits::default(),
    };
    let space = Arc::new(Space::start(config, host).unwrap());
    let config = OwnersConfig {
        world: WORLD.to_owned(),
        process,
        address: space.address(),
        url: format!("dunlin://{}", server.tcp_addresses()[0]),
        regions: REGIONS.to_vec(),
        expected: 2,
        standby: false,
        ttl: Duration::from_secs(30),
        look: LOOK,
        patience: PATIENCE,
        pace,
        balance: (speed_max > 0.0).then(|| Balance { every: Duration::from_millis(200), tolerance: 1.25 }),
    };
    let cuts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = Arc::clone(&cuts);
    let tell = move |what| {
        if let Told::Cut(version) = what {
            told.lock().unwrap().push(version);
        }
    };
    let populate: Populate<3, Walk> = Arc::new(populate);
    let owners = Owners::start(kv, config, Arc::clone(&space), populate, tell).unwrap();
    let responder = answer(node, WORLD, &space).unwrap();
    Member { _responder: responder, _owners: owners, space, cuts }
}

/// All in one corner of one region.
fn crowd(host: &mut Host<3, Walk>, region: RegionId) {
    for nth in 0..ENTITIES {
        let along = |axis: u64| ((nth + 1) * (7 + axis) * 40_503 % 10_007) as f32 / 10_007.0 * 40.0;
        let entity = Entity::at(nth, [along(0), along(1), along(2)]);
        if host.owner_of(&entity.position) == region {
            host.spawn(&entity).unwrap();
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn regions_are_cut_anew_where_loads_are_uneven_and_nobody_is_lost_over_it() {
    let nodes = [serve(), serve()];
    // The first one's node holds what they agree on.
    let (one, two) = (connect(&nodes[0].1), connect(&nodes[0].1));
    let members = [member(one.kv(), &nodes[0], 1, 0.5, crowd), member(two.kv(), &nodes[1], 2, 0.5, crowd)];
    let counts = || members.each_ref().map(|member| member.space.ask(|runner| runner.host().len()).unwrap());
    until("everybody is in one region", || counts().iter().sum::<usize>() == ENTITIES as usize);
    until("each has a fair part of them", || counts().iter().all(|count| *count > ENTITIES as usize / 4));
    one.kv().put(format!("space/{WORLD}/hold/0"), "1").unwrap();
    let ids = || {
        let ledgers =
            members.each_ref().map(|member| member.space.ask(|runner| runner.host().ledger()).unwrap());
        let mut ids: Vec<u64> = ledgers.iter().flatten().map(|(id, ..)| id.0).collect();
        ids.sort_unstable();
        ids
    };
    let mut seen = Vec::new();
    until("everybody is there, once", || {
        seen = ids();
        seen.iter().copied().eq(0..ENTITIES)
    });
    for member in &members {
        let cuts = member.cuts.lock().unwrap().clone();
        assert!(!cuts.is_empty() && cuts.is_sorted(), "{cuts:?}");
    }
}

/// Everywhere around the border of the two, and nobody moves but by command.
fn line(host: &mut Host<3, Walk>, region: RegionId) {
    for nth in 0..200 {
        let entity = Entity { kind: (nth % 2) as u32, ..Entity::at(nth, place(nth)) };
        if host.owner_of(&entity.position) == region {
            host.spawn(&entity).unwrap();
        }
    }
}

fn place(nth: u64) -> [f32; 3] {
    [50.0, 50.0, 40.0 + nth as f32 * 0.1]
}

/// Who of the line is within sight of a place, and of a kind.
fn near(at: f32, moved: &[u64], kind: Option<u64>) -> Vec<u64> {
    let seen = |nth: &u64| {
        (place(*nth)[2] - at).abs() <= STRIP
            && !moved.contains(nth)
            && kind.is_none_or(|kind| nth % 2 == kind)
    };
    (0..200).filter(seen).collect()
}

#[test]
fn a_viewer_sees_over_borders_who_is_near_and_may_be_seen_and_commands_who_is_anywhere() {
    let nodes = [serve(), serve()];
    let (one, two) = (connect(&nodes[0].1), connect(&nodes[0].1));
    let members = [member(one.kv(), &nodes[0], 1, 0.0, line), member(two.kv(), &nodes[1], 2, 0.0, line)];
    let counts = || members.each_ref().map(|member| member.space.ask(|runner| runner.host().len()).unwrap());
    until("everybody is there", || counts() == [100, 100]);
    let watch =
        |center: u64, rule| Watch { center: EntityId(center), radius: STRIP, rule, bytes_per_tick: 1_000 };
    let viewing =
        |viewer: u64, watch| Viewing::<3>::new(one.kv(), WORLD, Schema::default(), ViewerId(viewer), watch);
    let (mut all, mut odd) = (viewing(1, watch(90, Rule::All)), viewing(2, watch(90, Rule::OfKind(1))));
    let ids = |viewing: &mut Viewing<3>| {
        let mut ids: Vec<u64> = viewing.look().unwrap().visible().keys().map(|id| id.0).collect();
        ids.sort_unstable();
        ids
    };
    until("it sees all on both sides of the border", || ids(&mut all) == near(49.0, &[], None));
    until("and the other only its own", || ids(&mut odd) == near(49.0, &[], Some(1)));

    // One goes out of sight, and the one that is watched around goes over the border.
    let to = |id: u64, z: f32| Command { position: Some([50.0, 50.0, z]), ..Command::of(EntityId(id)) };
    all.command(to(91, 90.0)).unwrap();
    until("it does not see who is gone", || ids(&mut all) == near(49.0, &[91], None));
    all.command(to(90, 52.0)).unwrap();
    let after = || {
        let mut ids = near(52.0, &[90, 91], None);
        ids.push(90);
        ids.sort_unstable();
        ids
    };
    until("it sees who is near the other place", || ids(&mut all) == after());
    until("it is another's", || counts() == [98, 102]);

    assert!(matches!(all.command(to(4_000, 1.0)), Err(ViewingError::Unknown)));
    let outside = all.command(to(90, 101.0)).unwrap_err().to_string();
    assert!(outside.contains("outside of the world"), "{outside}");
    let mut far = viewing(3, Watch { radius: 9.0, ..watch(90, Rule::All) });
    let refused = far.look().unwrap_err().to_string();
    assert!(refused.contains("know no more than 8 of each other"), "{refused}");
}
