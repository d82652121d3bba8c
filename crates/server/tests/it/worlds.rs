//! Tests that all regions of a world go on with all their entities when processes start and fail.

mod late_responses;
mod leaving;
mod released;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::space::behaviour::RandomWalk;
use dunlin::space::{
    BalancePolicy, Behaviour, Entity, EntityId, Host, Partition, RegionId, RegionReport, RegionSetup,
    StandbyMode, WorldBox, WorldTopics, topic_of,
};
use dunlin::topic::Subscriber;
use dunlin::{Config, Node};
use dunlin_client::{Kv, Transaction};
use dunlin_server::Server;
use dunlin_server::space::{
    RegionOwnership, RegionOwnershipConfig, RegionPopulator, Secret, Space, SpaceConfig, SpaceLimits,
    SpawnError, TickPace, WorldDescription, monotonic_ns,
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
    /// Subscribers for the regions' records. They subscribed before the regions began.
    _early: Vec<Subscriber>,
}

impl<B: Behaviour<3> + Clone + Send + 'static> WorldMember<B> {
    pub fn start(settings: &WorldSettings<B>, kv: Kv, number: u64) -> WorldMember<B> {
        WorldMember::start_with_ttl(settings, kv, number, PATIENCE)
    }

    /// Starts a process whose lease has this time to live.
    fn start_with_ttl(settings: &WorldSettings<B>, kv: Kv, number: u64, ttl: Duration) -> WorldMember<B> {
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
            limits: SpaceLimits::default(),
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
            patience: PATIENCE,
            pace,
            recipe: serde_json::Value::Null,
        };
        let events = Arc::new(Mutex::new(Vec::new()));
        let record_event = {
            let events = Arc::clone(&events);
            move |event| events.lock().unwrap().push(format!("{event:?}"))
        };
        let populate: RegionPopulator<3, B> = Arc::new(settings.populate);
        let owners =
            RegionOwnership::start(kv, config, Arc::clone(&space), None, populate, record_event).unwrap();
        WorldMember { number, owners, space, events, _early: early }
    }

    /// Ends the process like a crash: it sends nothing more, and hands no region over.
    pub fn kill(self) {
        self.space.stop().unwrap();
        // The lease ends at once, so that the test need not wait until it expires.
        drop(self.owners);
    }

    /// Ends the process in order. Returns the reports of regions that it did not hand over.
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

/// Waits until each process has one region and each region has made several ticks. With a standby, another process then
/// has a copy of the region's state.
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

/// Users who may only watch the world can read all keys below `space/WORLD/`.
#[test]
fn keys_below_the_prefix_of_a_world_do_not_contain_its_secret() {
    let test = WorldTest::new(settings(WORLD, 1, StandbyMode::None));
    let members = [test.start(1)];
    wait_until_all_tick("the world begins", &test.kv, &members);
    let secret = test.kv.get(format!("space-secret/{WORLD}")).unwrap().expect("the secret").value;
    assert_eq!(secret.len(), 32);
    let entries = test.kv.prefix("space/").unwrap();
    assert!(entries.iter().all(|entry| entry.value != secret), "{}", describe_world(&test.kv, &members));
}

#[test]
fn process_names_the_key_that_contains_an_invalid_secret() {
    let test = WorldTest::new(settings(WORLD, 1, StandbyMode::None));
    let key = format!("space-secret/{WORLD}");
    test.kv.put(&key, "short").unwrap();
    let members = [test.start(1)];
    let is_named = || {
        let events = members[0].events.lock().unwrap();
        events.iter().any(|event| event.contains(&key) && event.contains("delete the key"))
    };
    until("the key is named", &test.kv, &members, is_named);
    test.kv.delete(&key).unwrap();
    wait_until_all_tick("the world begins", &test.kv, &members);
}

#[test]
fn owner_reports_and_overwrites_invalid_keys_of_its_region() {
    let test = WorldTest::new(settings("garbled", 2, StandbyMode::Required));
    let members = [test.start(1), test.start(2)];
    wait_until_all_tick("all regions begin", &test.kv, &members);
    mark_entity_and_read_ticks(&members);
    for kind in ["epoch", "standby", "region"] {
        let before: BTreeMap<u32, u64> = members.iter().flat_map(WorldMember::ticks).collect();
        let key = format!("space/garbled/{kind}/1");
        test.kv.put(&key, "garbage").unwrap();
        until("the key is overwritten", &test.kv, &members, || {
            test.kv.get(&key).unwrap().is_none_or(|entry| *entry.value != *b"garbage")
        });
        let reported = format!("InvalidKey({key:?})");
        assert!(members.iter().any(|member| has_event(member, &reported)), "{reported}");
        assert_continues(&test.kv, &members, &before, &format!("after {key} was invalid"));
    }
    assert!(!members.iter().any(|member| has_event(member, "Lost")));
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

/// Deletes all keys of the world, as if the cluster had restarted without its disks.
fn delete_keys(kv: &Kv, world: &str) {
    end_leases(kv, world);
    kv.delete(format!("space-secret/{world}")).unwrap();
    for entry in kv.prefix(format!("space/{world}/")).unwrap() {
        kv.delete(entry.key).unwrap();
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
        let test = WorldTest::new(WorldSettings { expected: 1, ..settings("paused", 2, standby) });
        let members = [test.start(1)];
        until("both regions tick", &test.kv, &members, || {
            let ticks = members[0].ticks();
            ticks.len() == 2 && ticks.values().all(|tick| *tick > 0)
        });
        let before = mark_entity_and_read_ticks(&members);
        end_leases(&test.kv, "paused");
        until("it reclaims them", &test.kv, &members, || has_event(&members[0], "Reclaimed"));
        assert_continues(&test.kv, &members, &before, "after the lease ended");
        assert!(!has_event(&members[0], "Lost"), "{:?}", members[0].events);
    }
}

#[test]
fn world_continues_after_the_cluster_lost_its_keys() {
    let test = WorldTest::new(settings("forgotten", 2, StandbyMode::Required));
    let members: Vec<_> = (1..=2).map(|number| test.start(number)).collect();
    wait_until_all_tick("all regions begin", &test.kv, &members);
    let before = mark_entity_and_read_ticks(&members);
    delete_keys(&test.kv, "forgotten");
    // On a slow machine, one process may first have reclaimed both regions, and then have returned one.
    until("regions are reclaimed", &test.kv, &members, || {
        members.iter().any(|member| has_event(member, "Reclaimed"))
    });
    assert_continues(&test.kv, &members, &before, "after the keys were lost");
    until("the world can be found", &test.kv, &members, || {
        WorldDescription::read(&test.kv, "forgotten").is_ok()
    });
}

#[test]
fn pause_of_a_world_survives_the_loss_of_its_keys() {
    let test = WorldTest::new(settings("held", 2, StandbyMode::None));
    let members = [test.start(1), test.start(2)];
    wait_until_all_tick("all regions begin", &test.kv, &members);
    let hold = "space/held/hold/0";
    test.kv.put(hold, "1").unwrap();
    until("no process makes ticks", &test.kv, &members, || {
        members.iter().all(|member| !member.space.call(|runner| runner.is_busy()).unwrap())
    });
    let ticks = || members.iter().flat_map(WorldMember::ticks).collect::<BTreeMap<_, _>>();
    let before = ticks();
    // Deletes all keys in one transaction. If only the key `hold` were missing, the world would make ticks again.
    let entries = test.kv.prefix("space/held/").unwrap();
    let all = entries.iter().fold(Transaction::new(), |all, entry| all.delete(&entry.key));
    assert!(test.kv.transact(&all).unwrap().succeeded);
    until("both processes continue their regions", &test.kv, &members, || {
        members.iter().all(|member| has_event(member, "Reclaimed")) && ticks().len() == before.len()
    });
    assert!(test.kv.get(hold).unwrap().is_some(), "the key of the pause is written again");
    assert_eq!(ticks(), before, "no tick was made");
}

/// Here, one of two processes is killed, then the world's keys are deleted, and a new process joins.
#[test]
fn joining_process_does_not_repopulate_existing_regions() {
    let test = WorldTest::new(settings("survived", 2, StandbyMode::Required));
    let mut members = vec![test.start(1), test.start(2)];
    wait_until_all_tick("all regions begin", &test.kv, &members);
    let before = mark_entity_and_read_ticks(&members);
    members.remove(0).kill();
    delete_keys(&test.kv, "survived");
    members.push(test.start(3));
    assert_continues(&test.kv, &members, &before, "after one was killed with the keys");
    wait_until_all_tick("each has one", &test.kv, &members);
}

/// Here, one of two processes is killed together with the node that has the keys. The new process writes the world's
/// description before the surviving process connects again.
#[test]
fn surviving_process_restores_lost_keys_of_existing_regions() {
    let test = WorldTest::new(settings("rerun", 2, StandbyMode::None));
    let mut members = vec![test.start(1), test.start(2)];
    wait_until_all_tick("all regions begin", &test.kv, &members);
    let began = [1, 2].map(|region| format!("space/rerun/began/{region}"));
    let have_begun = || began.iter().all(|key| test.kv.get(key).unwrap().is_some());
    until("the keys say that both have begun", &test.kv, &members, have_begun);
    // When a process has version 2 of the partition, it has also read that both regions have begun.
    let cut = members[1].space.call(|runner| {
        let stretches = runner.host().partition().regions().iter();
        stretches.map(|(first, region)| (*first, region.0)).collect::<Vec<_>>()
    });
    test.kv
        .put("space/rerun/cut/0", serde_json::json!({"version": 2, "cuts": cut.unwrap()}).to_string())
        .unwrap();
    until("the second has the new partition", &test.kv, &members, || {
        members[1].space.call(|runner| runner.host().partition().version()).unwrap() == 2
    });
    members.remove(0).kill();
    // Deletes all keys except the description in one transaction. The surviving process therefore always finds a
    // description.
    let (description, entries) = (WorldDescription::key("rerun"), test.kv.prefix("space/rerun/").unwrap());
    let deleted = entries.iter().filter(|entry| entry.key != description);
    let all = deleted.fold(Transaction::new(), |all, entry| all.delete(&entry.key));
    test.kv.transact(&all).unwrap();
    until("the begun regions are written again", &test.kv, &members, have_begun);
    assert!(
        test.kv.get("space/rerun/cut/0").unwrap().is_some(),
        "the partition is written before the regions"
    );
    assert!(has_event(&members[0], "KeysLost"), "{:?}", members[0].events);
    members.push(test.start(3));
    until("the survivor continues its region", &test.kv, &members, || has_event(&members[0], "Reclaimed"));
    assert!(members[1].ids().is_empty(), "the lost region is not populated again");
}

#[test]
fn process_with_a_number_in_use_is_refused() {
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

/// Processes report that they expect different numbers of processes or different standbys, but do not refuse each
/// other.
#[test]
fn processes_report_different_process_counts_and_standby_modes() {
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
    let test = WorldTest::new(WorldSettings { expected: 1, ..settings("shared", 2, StandbyMode::None) });
    let mut members = vec![test.start(1)];
    until("it has both", &test.kv, &members, || members[0].ticks().len() == 2);
    let before = mark_entity_and_read_ticks(&members);
    members.push(test.start(2));
    until("each has one", &test.kv, &members, || members.iter().all(|member| member.ticks().len() == 1));
    assert_continues(&test.kv, &members, &before, "after one was given away");
    members.push(test.start(3));
    until("the third is told that it is idle", &test.kv, &members, || has_event(&members[2], "Idle"));
}

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

type Spawned = Receiver<Result<(RegionId, u64), SpawnError>>;

/// Spawns an entity in this region, as if a client had requested it.
fn spawn(member: &WorldMember<RandomWalk>, id: u64, region: RegionId) -> Spawned {
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

/// Here, the process with the higher region asks before the other one spawns the entity. The asking process then waits
/// for a third process, so that the other one learns of a spawn that is not checked yet.
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
