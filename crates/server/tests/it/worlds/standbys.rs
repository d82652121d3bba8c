//! Tests that a region keeps its entities and acknowledged changes, and continues, although its owner or its standbys
//! pause and end.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use dunlin::space::behaviour::RandomWalk;
use dunlin::space::{RegionId, StandbyMode};
use dunlin_wait::PATIENCE;

use super::late_responses::LateResponses;
use super::released::has_claimed;
use super::unique_ids::spawn;
use super::{
    ENTITIES, MIN_TICKS, WorldMember, WorldSettings, WorldTest, assert_continues, has_event,
    mark_entity_and_read_ticks, settings, until, wait_until_each_exists_once,
};
use crate::clients::connect;

const REGION: RegionId = RegionId(1);
const OWNER: u64 = 2;
const STANDBY: u64 = 1;
const OTHER: u64 = 3;
/// The number of a process that has ended.
const ENDED: u64 = 99;
/// The id of the entity that the tests spawn.
const SPAWNED: u64 = 2_000;

/// The process that the region's key names as its standby, and whether its copy is complete.
fn standby(test: &WorldTest) -> Option<(u64, bool)> {
    let entry = test.kv.get(standby_key(test)).unwrap()?;
    let key: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
    Some((key["process"].as_u64()?, key["before"].is_null()))
}

fn standby_key(test: &WorldTest) -> String {
    format!("space/{}/standby/1", test.settings.name)
}

/// Writes to the region's key that the standby with a complete copy is `process`; 0 if the region has no standby.
fn write_standby(test: &WorldTest, process: u64) {
    let entry = test.kv.get(standby_key(test)).unwrap().expect("a standby");
    let mut key: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
    key["process"] = process.into();
    test.kv.put(standby_key(test), key.to_string()).unwrap();
}

fn process_key(test: &WorldTest, process: u64) -> String {
    format!("space/{}/process/{process}", test.settings.name)
}

/// Ends the lease of a process. A paused process gets no other lease.
fn end_lease(test: &WorldTest, process: u64) {
    if let Some(entry) = test.kv.get(process_key(test, process)).unwrap() {
        // Fails if the process has a new lease in the meantime.
        let _ = test.kv.revoke(entry.lease);
    }
}

/// Starts a world of one region, the region's owner, and its standby. The owner reports at once if the region stands
/// still. Returns when the standby has a copy.
fn start_with_standby(name: &'static str) -> (WorldTest, Vec<WorldMember<RandomWalk>>) {
    let test = WorldTest::new(WorldSettings { expected: 1, ..settings(name, 1, StandbyMode::Required) });
    let kv = connect(&test.keys.1).kv();
    let mut members = vec![WorldMember::start_with(&test.settings, kv, OWNER, (PATIENCE, Duration::ZERO))];
    until("the region begins", &test.kv, &members, || members[0].ticks().len() == 1);
    members.push(test.start(STANDBY));
    until("the standby has a copy", &test.kv, &members, || standby(&test) == Some((STANDBY, true)));
    (test, members)
}

/// Stops the thread with which a process exchanges messages, until the returned sender is dropped.
fn pause(member: &WorldMember<RandomWalk>) -> Sender<()> {
    let (resume, resumed) = channel();
    let (pauses, paused) = channel();
    let call = move |_: &mut dunlin_server::space::WorldRunner<3, RandomWalk>| {
        pauses.send(()).unwrap();
        let _ = resumed.recv();
    };
    member.space.submit(call).unwrap();
    paused.recv_timeout(PATIENCE).unwrap();
    resume
}

/// Stops the thread with which a process reads the world's keys, until the returned guard is dropped: the thread waits
/// to report an invalid key.
fn stop_reading_keys<'a>(
    test: &WorldTest,
    member: &'a WorldMember<RandomWalk>,
) -> MutexGuard<'a, Vec<String>> {
    let events = member.events.lock().unwrap();
    let before = member.event_count.load(Ordering::Relaxed);
    test.kv.put(format!("space/{}/epoch/{ENDED}", test.settings.name), "garbage").unwrap();
    until("the process reports the key", &test.kv, &[] as &[WorldMember<RandomWalk>], || {
        member.event_count.load(Ordering::Relaxed) > before
    });
    events
}

/// How often the process has reported that its region stands still.
fn standstills(member: &WorldMember<RandomWalk>) -> usize {
    let events = member.events.lock().unwrap();
    events.iter().filter(|event| event.starts_with("StandsStill { region: RegionId(1)")).count()
}

#[test]
fn acknowledged_spawn_survives_the_loss_of_its_owner() {
    let (test, mut members) = start_with_standby("acknowledged");
    let resume = pause(&members[1]);
    let spawned = spawn(&members[0], SPAWNED, REGION);
    assert_eq!(members[0].ticks().len(), 1, "the owner has executed the spawn");
    assert!(spawned.try_recv().is_err(), "the standby has not confirmed the spawn");
    drop(resume);
    assert!(spawned.recv_timeout(PATIENCE).expect("a response").is_ok());
    members.remove(0).kill();
    wait_until_each_exists_once(&test.kv, &members, (0..ENTITIES).chain([SPAWNED]));
}

/// Here, the standby pauses for longer than its lease. The owner names another process as the standby. This process
/// ends before it has a copy.
#[test]
fn region_continues_when_its_former_standby_is_chosen_again() {
    let (test, mut members) = start_with_standby("interrupted");
    // Counted before the pause, because the owner reports each standstill only once.
    let reports = standstills(&members[0]);
    let other = test.start(OTHER);
    let has_joined = || test.kv.get(process_key(&test, OTHER)).unwrap().is_some();
    until("the other process has joined", &test.kv, &members, has_joined);
    let _other_paused = pause(&other);
    let resume = pause(&members[1]);
    until("the other process is named", &test.kv, &members[..1], || {
        end_lease(&test, STANDBY);
        standby(&test) == Some((OTHER, false))
    });
    let spawned = spawn(&members[0], SPAWNED, REGION);
    until("the owner reports that the region stands still", &test.kv, &members[..1], || {
        standstills(&members[0]) > reports
    });
    assert!(spawned.try_recv().is_err(), "no standby has confirmed the spawn");
    drop(resume);
    until("the standby is connected again", &test.kv, &members, || {
        members[0].space.call(|runner| runner.connected()).unwrap().contains(&STANDBY)
    });
    let before = members[0].ticks()[&REGION.0];
    until("the region continues", &test.kv, &members, || {
        end_lease(&test, OTHER);
        members[0].ticks()[&REGION.0] >= before + MIN_TICKS
    });
    assert!(spawned.recv_timeout(PATIENCE).expect("a response").is_ok());
    members.remove(0).kill();
    wait_until_each_exists_once(&test.kv, &members, (0..ENTITIES).chain([SPAWNED]));
}

/// Here, another process becomes the standby and ends. Meanwhile, the first standby stays connected and reads no keys.
#[test]
fn replaced_standby_that_is_chosen_again_gets_a_new_copy() {
    let (test, mut members) = start_with_standby("replaced");
    let keys_unread = stop_reading_keys(&test, &members[1]);
    write_standby(&test, ENDED);
    let is_named_again = || standby(&test) == Some((STANDBY, false));
    until("the standby is named again", &test.kv, &members[..1], is_named_again);
    let before = members[0].ticks()[&REGION.0];
    drop(keys_unread);
    until("the region continues", &test.kv, &members, || {
        members[0].ticks()[&REGION.0] >= before + MIN_TICKS && standby(&test) == Some((STANDBY, true))
    });
    members.remove(0).kill();
    wait_until_each_exists_once(&test.kv, &members, 0..ENTITIES);
}

/// Here, the region runs alone for a moment. Meanwhile, its standby reads no keys and stays connected.
#[test]
fn standby_that_missed_updates_gets_a_new_copy() {
    let (test, mut members) = start_with_standby("alone");
    let keys_unread = stop_reading_keys(&test, &members[1]);
    write_standby(&test, 0);
    until("the standby is named again, and does not count", &test.kv, &members[..1], || {
        let follower = members[0].space.call(|runner| runner.follower_of(REGION)).unwrap();
        standby(&test) == Some((STANDBY, false)) && follower.is_none()
    });
    drop(keys_unread);
    until("the standby has a copy", &test.kv, &members, || standby(&test) == Some((STANDBY, true)));
    members.remove(0).kill();
    wait_until_each_exists_once(&test.kv, &members, 0..ENTITIES);
}

/// Here, the only process pauses for longer than its lease. Meanwhile, another process joins, whose patience is zero.
#[test]
fn region_waits_for_its_paused_owner() {
    for standby in [StandbyMode::None, StandbyMode::Required] {
        let test = WorldTest::new(WorldSettings { expected: 1, ..settings("awaited", 1, standby) });
        let mut members = vec![test.start(OWNER)];
        let begins = || members[0].ticks().values().any(|tick| *tick > 0);
        until("the region begins", &test.kv, &members, begins);
        let before = mark_entity_and_read_ticks(&members);
        let resume = pause(&members[0]);
        end_lease(&test, OWNER);
        let kv = connect(&test.keys.1).kv();
        let other = WorldMember::start_with(&test.settings, kv, OTHER, (PATIENCE, Duration::ZERO));
        until("it waits for the owner", &test.kv, &[] as &[WorldMember<RandomWalk>], || {
            end_lease(&test, OWNER);
            has_event(&other, "WaitsFor { region: RegionId(1), process: 2 }")
        });
        drop(resume);
        members.push(other);
        assert_continues(&test.kv, &members, &before, "after its owner has returned");
        assert!(!has_event(&members[1], "Lost("), "{:?}", members[1].events);
    }
}

/// Here, the standby claims the region, because the owner's lease has ended. The standby never learns that its claim
/// succeeded, and is killed before it names a standby.
#[test]
fn owner_continues_if_the_standby_is_lost_early() {
    let name = "returning";
    let test = WorldTest::new(WorldSettings { expected: 1, ..settings(name, 1, StandbyMode::Required) });
    let members = [test.start(1)];
    until("the region begins", &test.kv, &members, || members[0].ticks().len() == 1);
    let late = LateResponses::of(&test);
    let killed = late.start_process(&test);
    until("the standby has a copy", &test.kv, &members, || standby(&test) == Some((2, true)));
    let before = mark_entity_and_read_ticks(&members);
    let keys_unread = stop_reading_keys(&test, &members[0]);
    end_lease(&test, 1);
    until("the standby claims the region", &test.kv, &[] as &[WorldMember<RandomWalk>], || {
        has_claimed(&test.kv, name, 2)
    });
    killed.kill();
    late.release();
    drop(keys_unread);
    assert_continues(&test.kv, &members, &before, "after the standby was killed");
    assert!(!has_event(&members[0], "Lost("), "{:?}", members[0].events);
}
