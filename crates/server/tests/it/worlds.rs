//! Worlds whose processes come and go: regions go on with everybody, whoever is gone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::space::behaviour::Walk;
use dunlin::space::{
    Balance, Behaviour, Entity, Host, Partition, RegionId, Setup, Stage, Standby, World, topic_of,
};
use dunlin::topic::Subscriber;
use dunlin::{Config, Node};
use dunlin_client::Kv;
use dunlin_server::space::{Owners, OwnersConfig, Pace, Populate, Secret, Space, SpaceConfig, SpaceLimits};
use dunlin_wait::{Deadline, PATIENCE, POLL};

use crate::clients::connect;
use crate::serve;

const WORLD: &str = "restless";
const ENTITIES: u64 = 300;
const REGIONS: [RegionId; 3] = [RegionId(1), RegionId(2), RegionId(3)];
const LOOK: Duration = Duration::from_millis(20);
/// Processes that are killed, one after another.
const KILLED: u64 = 8;
/// Ticks by which it is seen that a region goes on.
const GOES_ON: u64 = 5;

/// What all processes of a world agree on.
pub struct Scene<B> {
    pub name: &'static str,
    pub setup: Setup<3>,
    pub behaviour: B,
    pub regions: &'static [RegionId],
    pub balance: Option<Balance>,
    pub populate: fn(&mut Host<3, B>, RegionId),
}

/// A process of a world, on threads of this one.
pub struct Member<B> {
    number: u64,
    owners: Owners,
    pub space: Arc<Space<3, B>>,
    pub told: Arc<Mutex<Vec<String>>>,
    /// Somebody who reads of regions before they are here.
    _early: Vec<Subscriber>,
}

impl<B: Behaviour<3> + Clone + Send + 'static> Member<B> {
    pub fn start(scene: &Scene<B>, kv: Kv, number: u64) -> Member<B> {
        let (name, regions, setup) = (scene.name, scene.regions, scene.setup.clone());
        let pace = Pace::Every(setup.tick_ns);
        let node = Node::start(Config::default()).unwrap();
        let early =
            |region: &RegionId| node.subscribe(&topic_of(name, *region), &Default::default()).unwrap();
        let early = regions.iter().map(early).collect();
        let stage = Stage { node, world: name.to_owned(), history_bytes: 1 << 20 };
        let host = Host::new(setup, scene.behaviour.clone(), Partition::even(3, regions), Some(stage));
        let config = SpaceConfig {
            world: name.to_owned(),
            process: number,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            peers: Vec::new(),
            pace,
            lockstep: false,
            balance: scene.balance,
            insecure: false,
            secret: Secret::of([1; 32]),
            limits: SpaceLimits::default(),
        };
        let space = Arc::new(Space::start(config, host).unwrap());
        let config = OwnersConfig {
            world: name.to_owned(),
            process: number,
            address: space.address(),
            url: String::new(),
            regions: regions.to_vec(),
            expected: regions.len(),
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
        let populate: Populate<3, B> = Arc::new(scene.populate);
        let owners = Owners::start(kv, config, Arc::clone(&space), populate, tell).unwrap();
        Member { number, owners, space, told, _early: early }
    }

    /// Nothing is said any more, and nobody is given anything.
    pub fn kill(self) {
        self.space.stop().unwrap();
        // Its lease ends now, and not after its time to live.
        drop(self.owners);
    }

    /// The ticks of its regions.
    pub fn ticks(&self) -> BTreeMap<u32, u64> {
        let ticks = |host: &Host<3, B>| {
            host.regions().map(|(id, region)| (id.0, region.tick_number())).collect::<BTreeMap<_, _>>()
        };
        self.space.ask(move |runner| ticks(runner.host())).unwrap()
    }

    pub fn ids(&self) -> Vec<u64> {
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
fn stand<B: Behaviour<3> + Clone + Send + 'static>(kv: &Kv, members: &[Member<B>]) -> String {
    let keys = kv.prefix("space/").unwrap();
    let line = |key: &[u8], value: &[u8]| {
        format!("  {} = {}\n", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
    };
    let keys: String = keys.iter().map(|entry| line(&entry.key, &entry.value)).collect();
    let member = |member: &Member<B>| {
        let Member { number, told, .. } = member;
        let elsewhere = member.space.ask(|runner| (runner.connected(), runner.elsewhere())).unwrap();
        format!("  {number}: {:?} {elsewhere:?} {:?}\n", member.ticks(), told.lock().unwrap())
    };
    keys + &members.iter().map(member).collect::<String>()
}

pub fn until<B: Behaviour<3> + Clone + Send + 'static>(
    what: &str,
    kv: &Kv,
    members: &[Member<B>],
    mut done: impl FnMut() -> bool,
) {
    let deadline = Deadline::new();
    while !done() {
        if deadline.is_over() {
            deadline.check(format!("{what}\n{}", stand(kv, members)));
        }
        std::thread::sleep(POLL);
    }
}

/// Each process has a region, and each region goes on: so another process knows whatever happens in it.
pub fn until_all_go_on<B: Behaviour<3> + Clone + Send + 'static>(when: &str, kv: &Kv, members: &[Member<B>]) {
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
    let mut setup = Setup::new(RegionId(0), World::cube(100.0).unwrap(), 4.0);
    (setup.tick_ns, setup.standby) = (5_000_000, Standby::Required);
    let behaviour = Walk { speed_max: 40.0, turn: 4.0 };
    let scene = Scene { name: WORLD, setup, behaviour, regions: &REGIONS, balance: None, populate };
    let mut members: Vec<_> = (1..=3).map(|number| Member::start(&scene, kv(), number)).collect();
    until_all_go_on("all regions begin", &client.kv(), &members);
    for killed in 0..KILLED {
        members.remove((killed % 3) as usize).kill();
        members.push(Member::start(&scene, kv(), 4 + killed));
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
