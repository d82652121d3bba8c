//! Worlds whose processes come and go: regions go on with everybody, whoever is gone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::space::behaviour::Walk;
use dunlin::space::{Entity, Host, Partition, RegionId, Setup, Stage, Standby, World, topic_of};
use dunlin::topic::Subscriber;
use dunlin::{Config, Node};
use dunlin_client::Kv;
use dunlin_server::space::{Owners, OwnersConfig, Pace, Populate, Space, SpaceConfig, SpaceLimits};

use crate::clients::connect;
use crate::serve;

const WORLD: &str = "restless";
const ENTITIES: u64 = 300;
const REGIONS: [RegionId; 3] = [RegionId(1), RegionId(2), RegionId(3)];
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Processes that are killed, one after another.
const KILLED: u64 = 8;
/// Ticks by which it is seen that a region goes on.
const GOES_ON: u64 = 5;

/// A process of the world, on threads of this one.
struct Member {
    number: u64,
    owners: Owners,
    space: Arc<Space<3, Walk>>,
    told: Arc<Mutex<Vec<String>>>,
    /// Somebody who reads of regions before they are here.
    _early: Vec<Subscriber>,
}

impl Member {
    fn start(kv: Kv, number: u64) -> Member {
        let mut setup = Setup::new(RegionId(0), World::cube(100.0).unwrap(), 4.0);
        (setup.tick_ns, setup.standby) = (5_000_000, Standby::Required);
        let pace = Pace::Every(setup.tick_ns);
        let node = Node::start(Config::default()).unwrap();
        let early =
            |region: &RegionId| node.subscribe(&topic_of(WORLD, *region), &Default::default()).unwrap();
        let early = REGIONS.iter().map(early).collect();
        let stage = Stage { node, world: WORLD.to_owned(), history_bytes: 1 << 20 };
        let walk = Walk { speed_max: 40.0, turn: 4.0 };
        let host = Host::new(setup, walk, Partition::even(3, &REGIONS), Some(stage));
        let config = SpaceConfig {
            world: WORLD.to_owned(),
            process: number,
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
            process: number,
            address: space.address(),
            url: String::new(),
            regions: REGIONS.to_vec(),
            expected: REGIONS.len(),
            standby: true,
            ttl: PATIENCE,
            look: LOOK,
            patience: PATIENCE,
            pace,
        };
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let told = Arc::clone(&told);
            move |what| told.lock().unwrap().push(format!("{what:?}"))
        };
        let populate: Populate<3, Walk> = Arc::new(populate);
        let owners = Owners::start(kv, config, Arc::clone(&space), populate, tell).unwrap();
        Member { number, owners, space, told, _early: early }
    }

    /// Nothing is said any more, and nobody is given anything.
    fn kill(self) {
        self.space.stop().unwrap();
        // Its lease ends now, and not after its time to live.
        drop(self.owners);
    }

    /// The ticks of its regions.
    fn ticks(&self) -> BTreeMap<u32, u64> {
        let ticks = |host: &Host<3, Walk>| {
            host.regions().map(|(id, region)| (id.0, region.tick_number())).collect::<BTreeMap<_, _>>()
        };
        self.space.ask(move |runner| ticks(runner.host())).unwrap()
    }

    fn ids(&self) -> Vec<u64> {
        let ledger = self.space.ask(|runner| runner.host().ledger()).unwrap();
        ledger.into_iter().map(|(id, ..)| id.0).collect()
    }
}

fn populate(host: &mut Host<3, Walk>, region: RegionId) {
    for nth in 0..ENTITIES {
        let along = |axis: u64| ((nth + 1) * (7 + axis) * 40_503 % 10_007) as f32 / 100.07;
        let entity = Entity::at(nth, [along(0), along(1), along(2)]);
        if host.owner_of(&entity.position) == region {
            host.spawn(&entity).unwrap();
        }
    }
}

/// How it stands, where something does not happen.
fn stand(kv: &Kv, members: &[Member]) -> String {
    let keys = kv.prefix(format!("space/{WORLD}/")).unwrap();
    let line = |key: &[u8], value: &[u8]| {
        format!("  {} = {}\n", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
    };
    let keys: String = keys.iter().map(|entry| line(&entry.key, &entry.value)).collect();
    let member = |member: &Member| {
        let Member { number, told, .. } = member;
        let elsewhere = member.space.ask(|runner| (runner.connected(), runner.elsewhere())).unwrap();
        format!("  {number}: {:?} {elsewhere:?} {:?}\n", member.ticks(), told.lock().unwrap())
    };
    keys + &members.iter().map(member).collect::<String>()
}

fn until(what: &str, kv: &Kv, members: &[Member], mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}\n{}", stand(kv, members));
        std::thread::sleep(LOOK);
    }
}

/// Each process has a region, and each region goes on: so another process knows whatever happens in it.
fn until_all_go_on(when: &str, kv: &Kv, members: &[Member]) {
    let mut since: Option<Vec<BTreeMap<u32, u64>>> = None;
    until(when, kv, members, || {
        let now: Vec<_> = members.iter().map(Member::ticks).collect();
        if now.iter().any(|ticks| ticks.len() != 1) {
            since = None;
            return false;
        }
        let before = since.get_or_insert_with(|| now.clone());
        // A region that went elsewhere meanwhile is looked at anew.
        if before.iter().zip(&now).any(|(before, now)| !before.keys().eq(now.keys())) {
            since = None;
            return false;
        }
        let goes_on = |(before, now): (&u64, &u64)| *now >= before + GOES_ON;
        before.iter().zip(&now).all(|(before, now)| before.values().zip(now.values()).all(goes_on))
    });
}

#[test]
fn a_world_outlives_one_after_another_of_its_processes_with_everybody() {
    let keys = serve();
    let client = connect(&keys.1);
    let kv = || connect(&keys.1).kv();
    let mut members: Vec<Member> = (1..=3).map(|number| Member::start(kv(), number)).collect();
    until_all_go_on("all regions begin", &client.kv(), &members);
    for killed in 0..KILLED {
        members.remove((killed % 3) as usize).kill();
        members.push(Member::start(kv(), 4 + killed));
        until_all_go_on(&format!("all go on after {killed} others"), &client.kv(), &members);
    }
    client.kv().put(format!("space/{WORLD}/hold/0"), "1").unwrap();
    let mut ids = Vec::new();
    until("everybody is there, once", &client.kv(), &members, || {
        ids = members.iter().flat_map(Member::ids).collect();
        ids.sort_unstable();
        ids.iter().copied().eq(0..ENTITIES)
    });
}
