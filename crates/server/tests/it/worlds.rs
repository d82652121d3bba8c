//! Tests that all regions of a world go on with all their entities when processes start and fail.

mod keys;
mod late_responses;
mod leaving;
mod released;
mod standbys;
mod unique_ids;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::space::behaviour::RandomWalk;
use dunlin::space::{
    BalancePolicy, Behaviour, Entity, EntityId, Host, Partition, RegionId, RegionSetup, StandbyMode,
    WorldBox, WorldTopics, topic_of,
};
use dunlin::topic::Subscriber;
use dunlin::{Config, Node};
use dunlin_client::Kv;
use dunlin_server::Server;
use dunlin_server::space::{
    RegionOwnership, RegionOwnershipConfig, RegionPopulator, Secret, Space, SpaceConfig, SpaceLimits,
    TickPace, monotonic_ns,
};
use dunlin_wait::{Deadline, PATIENCE, POLL};

use crate::clients::connect;
use crate::serve;

const WORLD: &str = "restless";
const ENTITIES: u64 = 300;
const REGIONS: [RegionId; 3] = [RegionId(1), RegionId(2), RegionId(3)];
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of processes that are killed one after another.
const KILLED: u64 = 8;
/// A region counts as continuing after this many ticks.
const MIN_TICKS: u64 = 5;

/// Settings of a world, which all its processes share.
pub struct WorldSettings<B> {
    pub name: &'static str,
    pub setup: RegionSetup<3>,
    pub behaviour: B,
    pub regions: &'static [RegionId],
    /// Number of processes with which the world begins.
    pub expected: usize,
    pub balance: Option<BalancePolicy>,
    pub populate: fn(&mut Host<3, B>, RegionId),
}

/// A process of a world. It runs on threads of the test's process.
pub struct WorldMember<B> {
    number: u64,
    owners: RegionOwnership,
    pub space: Arc<Space<3, B>>,
    pub events: Arc<Mutex<Vec<String>>>,
    /// The number of events, including an event that waits for the lock of `events`.
    event_count: Arc<AtomicUsize>,
    /// Subscribers for the regions' records. They subscribed before the regions began.
    _early: Vec<Subscriber>,
}

impl<B: Behaviour<3> + Clone + Send + 'static> WorldMember<B> {
    pub fn start(settings: &WorldSettings<B>, kv: Kv, number: u64) -> WorldMember<B> {
        WorldMember::start_with_ttl(settings, kv, number, PATIENCE)
    }

    /// Starts a process whose lease has this time to live.
    fn start_with_ttl(settings: &WorldSettings<B>, kv: Kv, number: u64, ttl: Duration) -> WorldMember<B> {
        WorldMember::start_with(settings, kv, number, (ttl, PATIENCE))
    }

    /// Starts a process whose lease has the time to live `ttl`. A region without an owner waits for the time
    /// `patience`.
    fn start_with(
        settings: &WorldSettings<B>,
        kv: Kv,
        number: u64,
        times: (Duration, Duration),
    ) -> WorldMember<B> {
        WorldMember::start_limited(settings, kv, number, times, SpaceLimits::default())
    }

    /// Starts a process with this time to live of its lease, with this patience, and with these limits.
    fn start_limited(
        settings: &WorldSettings<B>,
        kv: Kv,
        number: u64,
        (ttl, patience): (Duration, Duration),
        limits: SpaceLimits,
    ) -> WorldMember<B> {
        let (name, regions, setup) = (settings.name, settings.regions, settings.setup.clone());
        let pace = TickPace::Every(setup.tick_ns);
        let node = Node::start(Config::default()).unwrap();
        let early =
            |region: &RegionId| node.subscribe(&topic_of(name, *region), &Default::default()).unwrap();
        let early = regions.iter().map(early).collect();
        let fixture = WorldTopics { node, world: name.to_owned(), history_bytes: 1 << 20 };
        let host = Host::new(setup, settings.behaviour.clone(), Partition::even(3, regions), Some(fixture));
        let config = SpaceConfig {
            world: name.to_owned(),
            process: number,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            peers: Vec::new(),
            pace,
            lockstep: false,
            balance: settings.balance,
            insecure: false,
            secret: Secret::of([1; 32]),
            limits,
        };
        let space = Arc::new(Space::start(config, host).unwrap());
        let config = RegionOwnershipConfig {
            world: name.to_owned(),
            process: number,
            address: space.address(),
            url: String::new(),
            regions: regions.to_vec(),
            expected: settings.expected,
            standby: settings.setup.standby == StandbyMode::Required,
            ttl,
            poll_interval: POLL_INTERVAL,
            patience,
            pace,
            recipe: serde_json::Value::Null,
        };
        let (events, event_count) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let record_event = {
            let (events, event_count) = (Arc::clone(&events), Arc::clone(&event_count));
            move |event| {
                event_count.fetch_add(1, Ordering::Relaxed);
                events.lock().unwrap().push(format!("{event:?}"));
            }
        };
        let populate: RegionPopulator<3, B> = Arc::new(settings.populate);
        let owners =
            RegionOwnership::start(kv, config, Arc::clone(&space), None, populate, record_event).unwrap();
        WorldMember { number, owners, space, events, event_count, _early: early }
    }

    /// Ends the process like a crash: it sends nothing more, and hands no region over.
    pub fn kill(self) {
        self.space.stop().unwrap();
        // The lease ends at once, so that the test need not wait until it expires.
        drop(self.owners);
    }

    /// Ends the process after it has handed over its regions. Returns the reports of regions that it did not hand over.
    fn leave(self) -> Vec<String> {
        self.owners.leave();
        self.space.stop().unwrap();
        let events = self.events.lock().unwrap();
        events.iter().filter(|event| event.starts_with("NotHandedOver")).cloned().collect()
    }

    /// For each region of the process, the number of its last tick.
    pub fn ticks(&self) -> BTreeMap<u32, u64> {
        let ticks = |host: &Host<3, B>| {
            host.regions().map(|(id, region)| (id.0, region.tick_number())).collect::<BTreeMap<_, _>>()
        };
        self.space.call(move |runner| ticks(runner.host())).unwrap()
    }

    pub fn ids(&self) -> Vec<u64> {
        let ledger = self.space.call(|runner| runner.host().ledger()).unwrap();
        ledger.into_iter().map(|(id, ..)| id.0).collect()
    }
}

fn populate(host: &mut Host<3, RandomWalk>, region: RegionId) {
    for nth in 0..ENTITIES {
        let along = |axis: u64| ((nth + 1) * (7 + axis) * 40_503 % 10_007) as f32 / 100.07;
        let entity = Entity::at(nth, [along(0), along(1), along(2)]);
        if host.owner_of(&entity.position) == region {
            host.spawn(&entity).unwrap();
        }
    }
}

/// Describes the keys and processes of the world, for the message of a failed test.
fn describe_world<B: Behaviour<3> + Clone + Send + 'static>(kv: &Kv, members: &[WorldMember<B>]) -> String {
    let keys = kv.prefix("space/").unwrap();
    let line = |key: &[u8], value: &[u8]| {
        format!("  {} = {}\n", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
    };
    let keys: String = keys.iter().map(|entry| line(&entry.key, &entry.value)).collect();
    let member = |member: &WorldMember<B>| {
        let WorldMember { number, events, .. } = member;
        let elsewhere = member.space.call(|runner| (runner.connected(), runner.remote_regions())).unwrap();
        format!("  {number}: {:?} {elsewhere:?} {:?}\n", member.ticks(), events.lock().unwrap())
    };
    keys + &members.iter().map(member).collect::<String>()
}

pub fn until<B: Behaviour<3> + Clone + Send + 'static>(
    what: &str,
    kv: &Kv,
    members: &[WorldMember<B>],
    mut done: impl FnMut() -> bool,
) {
    let deadline = Deadline::new();
    while !done() {
        if deadline.is_over() {
            deadline.check(format!("{what}\n{}", describe_world(kv, members)));
        }
        std::thread::sleep(POLL);
    }
}

/// Waits until each process has one region and each region has made several ticks. If regions have standbys, another
/// process then has a copy of each region's state.
pub fn wait_until_all_tick<B: Behaviour<3> + Clone + Send + 'static>(
    when: &str,
    kv: &Kv,
    members: &[WorldMember<B>],
) {
    let mut since: Option<Vec<BTreeMap<u32, u64>>> = None;
    until(when, kv, members, || {
        let now: Vec<_> = members.iter().map(WorldMember::ticks).collect();
        if now.iter().any(|ticks| ticks.len() != 1) {
            since = None;
            return false;
        }
        let before = since.get_or_insert_with(|| now.clone());
        // A region has moved since the first check, so the checks begin again.
        if before.iter().zip(&now).any(|(before, now)| !before.keys().eq(now.keys())) {
            since = None;
            return false;
        }
        let continues = |(before, now): (&u64, &u64)| *now >= before + MIN_TICKS;
        before.iter().zip(&now).all(|(before, now)| before.values().zip(now.values()).all(continues))
    });
}

/// Waits until the processes together have exactly one entity for each of these ids, which must be in ascending order.
pub fn wait_until_each_exists_once<B: Behaviour<3> + Clone + Send + 'static>(
    kv: &Kv,
    members: &[WorldMember<B>],
    expected: impl Iterator<Item = u64> + Clone,
) {
    until("each entity exists exactly once", kv, members, || {
        let mut ids: Vec<u64> = members.iter().flat_map(WorldMember::ids).collect();
        ids.sort_unstable();
        ids.into_iter().eq(expected.clone())
    });
}

/// The settings of a world, and the node with its keys.
struct WorldTest {
    kv: Kv,
    settings: WorldSettings<RandomWalk>,
    keys: (Node, Server),
}

impl WorldTest {
    fn new(settings: WorldSettings<RandomWalk>) -> WorldTest {
        let keys = serve();
        WorldTest { kv: connect(&keys.1).kv(), settings, keys }
    }

    /// Starts a process of the world with this number.
    fn start(&self, number: u64) -> WorldMember<RandomWalk> {
        WorldMember::start(&self.settings, connect(&self.keys.1).kv(), number)
    }
}

/// Starts a world of two regions, and the process that owns both. Returns when both regions tick.
fn start_with_one_process(
    name: &'static str,
    standby: StandbyMode,
) -> (WorldTest, Vec<WorldMember<RandomWalk>>) {
    let test = WorldTest::new(WorldSettings { expected: 1, ..settings(name, 2, standby) });
    let members = vec![test.start(1)];
    until("both regions tick", &test.kv, &members, || {
        let ticks = members[0].ticks();
        ticks.len() == 2 && ticks.values().all(|tick| *tick > 0)
    });
    (test, members)
}

#[test]
fn world_keeps_all_entities_as_processes_die_one_by_one() {
    let test = WorldTest::new(settings(WORLD, 3, StandbyMode::Required));
    let mut members: Vec<_> = (1..=3).map(|number| test.start(number)).collect();
    wait_until_all_tick("all regions begin", &test.kv, &members);
    for killed in 0..KILLED {
        members.remove((killed % 3) as usize).kill();
        members.push(test.start(4 + killed));
        wait_until_all_tick(&format!("all go on after {killed} others"), &test.kv, &members);
    }
    test.kv.put(format!("space/{WORLD}/hold/0"), "1").unwrap();
    wait_until_each_exists_once(&test.kv, &members, 0..ENTITIES);
}

/// Settings of a world that has `count` regions and expects `count` processes.
fn settings(name: &'static str, count: usize, standby: StandbyMode) -> WorldSettings<RandomWalk> {
    let mut setup = RegionSetup::new(RegionId(0), WorldBox::cube(100.0).unwrap(), 4.0);
    (setup.tick_ns, setup.standby) = (5_000_000, standby);
    let behaviour = RandomWalk { speed_max: 40.0, turn: 4.0 };
    let regions = &REGIONS[..count];
    WorldSettings { name, setup, behaviour, regions, expected: count, balance: None, populate }
}

/// Ends the lease of each process, as if the processes had been stopped for longer than their leases last.
fn end_leases(kv: &Kv, world: &str) {
    for entry in kv.prefix(format!("space/{world}/process/")).unwrap() {
        // Fails if the process has a new lease in the meantime.
        let _ = kv.revoke(entry.lease);
    }
}

/// Gives one entity a kind that no other entity has. Returns the present tick of each region.
fn mark_entity_and_read_ticks(members: &[WorldMember<RandomWalk>]) -> BTreeMap<u32, u64> {
    for member in members {
        let mark = dunlin::space::EntityCommand::<3> {
            kind: Some(7),
            ..dunlin::space::EntityCommand::of(EntityId(5))
        };
        // Only the process that has the entity accepts the command.
        let _ = member
            .space
            .call(move |runner| runner.host_mut().apply_client_command(&mark, monotonic_ns()).is_ok());
    }
    members.iter().flat_map(WorldMember::ticks).collect()
}

fn count_marked_entities(members: &[WorldMember<RandomWalk>]) -> usize {
    let of_kind = |host: &Host<3, RandomWalk>| {
        let kinds = host.regions().flat_map(|(_, region)| region.store().kinds().to_vec());
        kinds.filter(|kind| *kind == 7).count()
    };
    members.iter().map(|member| member.space.call(move |runner| of_kind(runner.host())).unwrap()).sum()
}

/// Checks that each region has continued after its tick in `before`, and that each entity still exists exactly once.
fn assert_continues(kv: &Kv, members: &[WorldMember<RandomWalk>], before: &BTreeMap<u32, u64>, what: &str) {
    until(&format!("all regions go on {what}"), kv, members, || {
        let now: BTreeMap<u32, u64> = members.iter().flat_map(WorldMember::ticks).collect();
        before.iter().all(|(region, tick)| now.get(region).is_some_and(|now| *now >= tick + MIN_TICKS))
    });
    wait_until_each_exists_once(kv, members, 0..ENTITIES);
    assert_eq!(
        count_marked_entities(members),
        1,
        "{what}: entities are as they were, and not as they were populated"
    );
}

fn has_event(member: &WorldMember<RandomWalk>, prefix: &str) -> bool {
    member.events.lock().unwrap().iter().any(|event| event.starts_with(prefix))
}

#[test]
fn owner_with_an_expired_lease_continues_its_regions() {
    for standby in [StandbyMode::None, StandbyMode::Required] {
        let (test, members) = start_with_one_process("paused", standby);
        let before = mark_entity_and_read_ticks(&members);
        end_leases(&test.kv, "paused");
        until("it reclaims them", &test.kv, &members, || has_event(&members[0], "Reclaimed"));
        assert_continues(&test.kv, &members, &before, "after the lease ended");
        assert!(!has_event(&members[0], "Lost"), "{:?}", members[0].events);
    }
}

#[test]
fn process_whose_number_is_in_use_is_refused() {
    let test = WorldTest::new(WorldSettings { expected: 1, ..settings("numbered", 1, StandbyMode::None) });
    let first = test.start(4);
    until("the first begins", &test.kv, std::slice::from_ref(&first), || first.ticks().len() == 1);
    let members = [first, test.start(4)];
    let refused = "Away(\"another process of this world has number 4";
    until("the second is refused", &test.kv, &members, || has_event(&members[1], refused));
    assert_eq!((members[0].ticks().len(), members[1].ticks().len()), (1, 0));
}

#[test]
fn processes_with_different_settings_report_the_conflict() {
    let keys = serve();
    let kv = connect(&keys.1).kv();
    let usual = settings("differing", 2, StandbyMode::None);
    let mut slower = settings("differing", 2, StandbyMode::None);
    slower.setup.tick_ns *= 2;
    let member = |settings, number| WorldMember::start(settings, connect(&keys.1).kv(), number);
    let members = [member(&usual, 1), member(&slower, 2)];
    until("both report it", &kv, &members, || members.iter().all(|member| has_event(member, "Conflict")));
}

/// If two processes expect different numbers of processes, or differ in whether regions have standbys, they report
/// this, but do not refuse each other.
#[test]
fn disagreement_on_process_count_or_standbys_is_reported() {
    let keys = serve();
    let kv = connect(&keys.1).kv();
    for (name, expected, standby) in
        [("counted", 3, StandbyMode::None), ("guarded", 2, StandbyMode::Required)]
    {
        let usual = settings(name, 2, StandbyMode::None);
        let other = WorldSettings { expected, ..settings(name, 2, standby) };
        let member = |settings, number| WorldMember::start(settings, connect(&keys.1).kv(), number);
        let members = [member(&usual, 1), member(&other, 2), member(&usual, 3)];
        let reports = |member: &WorldMember<RandomWalk>, process: u64| {
            has_event(member, &format!("OtherSettings {{ process: {process},"))
        };
        until("both sides report it", &kv, &members, || {
            reports(&members[0], 2) && reports(&members[1], 1) && reports(&members[1], 3)
        });
        assert!(!reports(&members[0], 3), "equal settings are no report");
    }
}

#[test]
fn process_that_joins_a_world_without_standbys_gets_a_region() {
    let (test, mut members) = start_with_one_process("shared", StandbyMode::None);
    let before = mark_entity_and_read_ticks(&members);
    members.push(test.start(2));
    until("each has one", &test.kv, &members, || members.iter().all(|member| member.ticks().len() == 1));
    assert_continues(&test.kv, &members, &before, "after one was given away");
    members.push(test.start(3));
    until("the third is told that it is idle", &test.kv, &members, || has_event(&members[2], "Idle"));
}

/// Here, the keys are lost. Another process then takes over the region and populates it again, before the previous
/// owner connects.
#[test]
fn replaced_owner_reports_the_entity_count_of_its_lost_region() {
    let test = WorldTest::new(WorldSettings { expected: 1, ..settings("robbed", 1, StandbyMode::None) });
    let members = [test.start(1)];
    until("it begins", &test.kv, &members, || {
        members[0].ticks().values().all(|tick| *tick > 0) && !members[0].ids().is_empty()
    });
    let epoch = 1_u64 << 60;
    test.kv.put("space/robbed/epoch/1", epoch.to_string()).unwrap();
    test.kv
        .put("space/robbed/region/1", serde_json::json!({"process": 99, "epoch": epoch}).to_string())
        .unwrap();
    until("it says what is lost", &test.kv, &members, || {
        has_event(&members[0], "GivenUp { region: RegionId(1), held: Some((")
    });
    let events = members[0].events.lock().unwrap().clone();
    assert!(
        events.iter().any(|event| event.ends_with(&format!(", {ENTITIES})), heir: None }}"))),
        "{events:?}"
    );
}

/// Here, the owner of a region is stopped for longer than its lease lasts.
#[test]
fn replaced_owner_reports_the_standby_that_took_over() {
    let test = WorldTest::new(settings("heir", 2, StandbyMode::Required));
    let members = [1, 2].map(|number| test.start(number));
    wait_until_all_tick("each has a region", &test.kv, &members);
    let (region, epoch) = (*members[0].ticks().keys().next().unwrap(), 1_u64 << 60);
    test.kv.put(format!("space/heir/epoch/{region}"), epoch.to_string()).unwrap();
    let owner = serde_json::json!({"process": 2, "epoch": epoch}).to_string();
    test.kv.put(format!("space/heir/region/{region}"), owner).unwrap();
    until("it names who goes on", &test.kv, &members, || {
        members[0].events.lock().unwrap().iter().any(|event| event.ends_with("heir: Some(2) }"))
    });
}
