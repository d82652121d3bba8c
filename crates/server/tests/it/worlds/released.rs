//! Tests that a region survives if its new owner is killed just after another process has released the region to it,
//! and that a process runs and releases its regions although it receives too many requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin::space::StandbyMode;
use dunlin::space::behaviour::RandomWalk;
use dunlin_client::Kv;
use dunlin_server::space::{Space, SpaceError, SpaceLimits, WorldRunner};
use dunlin_wait::PATIENCE;

use super::keys::delete_keys;
use super::late_responses::LateResponses;
use super::{
    ENTITIES, MIN_TICKS, WorldMember, WorldSettings, WorldTest, assert_continues, has_event,
    mark_entity_and_read_ticks, settings, start_with_one_process, until, wait_until_each_exists_once,
};
use crate::clients::connect;

/// Number of processes that are killed one after another.
const KILLED: u64 = 4;

/// Whether the newest claim of a region is a claim of this process.
pub(super) fn has_claimed(kv: &Kv, world: &str, process: u64) -> bool {
    let claims = kv.prefix(format!("space/{world}/claim/")).unwrap();
    let claimant = |value: &[u8]| {
        let claim: serde_json::Value = serde_json::from_slice(value).unwrap();
        claim["process"].as_u64()
    };
    claims.iter().any(|entry| claimant(&entry.value) == Some(process))
}

/// The new owner never learns that its claim succeeded, so it names no standby.
#[test]
fn owner_killed_before_it_names_a_standby_loses_no_entity() {
    let (test, members) = start_with_one_process("unnamed", StandbyMode::Required);
    let before = mark_entity_and_read_ticks(&members);
    let late = LateResponses::of(&test);
    let killed = late.start_process(&test);
    until("it claims a region", &test.kv, &members, || has_claimed(&test.kv, "unnamed", 2));
    killed.kill();
    late.release();
    assert_continues(&test.kv, &members, &before, "after the new owner was killed");
    assert!(!has_event(&members[0], "Lost("), "{:?}", members[0].events);
}

/// The new owners are killed while they name their first standby, or while this standby copies the region.
#[test]
fn new_owner_that_dies_at_once_loses_no_entity() {
    let (test, members) = start_with_one_process("claimed", StandbyMode::Required);
    for number in 2..2 + KILLED {
        let before = mark_entity_and_read_ticks(&members);
        let killed = test.start(number);
        until("it claims a region", &test.kv, &members, || has_claimed(&test.kv, "claimed", number));
        killed.kill();
        assert_continues(&test.kv, &members, &before, &format!("after process {number} was killed"));
    }
    assert!(!has_event(&members[0], "Lost("), "{:?}", members[0].events);
}

/// The new owner never learns that its claim succeeded. The keys are then lost, as if the cluster's only node had
/// failed together with the new owner.
#[test]
fn former_owner_continues_if_the_new_owner_and_keys_are_lost() {
    let (test, members) = start_with_one_process("orphaned", StandbyMode::Required);
    let before = mark_entity_and_read_ticks(&members);
    let late = LateResponses::of(&test);
    let killed = late.start_process(&test);
    until("it claims a region", &test.kv, &members, || has_claimed(&test.kv, "orphaned", 2));
    delete_keys(&test.kv, "orphaned");
    killed.kill();
    late.release();
    assert_continues(&test.kv, &members, &before, "after the new owner and the keys were lost");
    assert!(!has_event(&members[0], "Lost("), "{:?}", members[0].events);
}

/// Here, the process refuses all calls of clients, as if too many of them waited.
#[test]
fn overloaded_process_releases_and_hands_over_its_regions() {
    let test = WorldTest::new(WorldSettings { expected: 1, ..settings("flooded", 2, StandbyMode::Required) });
    let (kv, times) = (connect(&test.keys.1).kv(), (PATIENCE, PATIENCE));
    let limits = SpaceLimits { orders_max: 0, ..SpaceLimits::default() };
    let flooded = WorldMember::start_limited(&test.settings, kv, 1, times, limits);
    assert!(matches!(flooded.space.submit(|_| ()), Err(SpaceError::Busy { max: 0 })));
    until("it runs both regions", &test.kv, &[] as &[WorldMember<RandomWalk>], || {
        flooded.events.lock().unwrap().iter().filter(|event| event.starts_with("Owns")).count() == 2
    });
    let members = [test.start(2)];
    until("it releases one region", &test.kv, &members, || {
        has_event(&flooded, "Released") && members[0].ticks().len() == 1
    });
    assert_eq!(flooded.leave(), Vec::<String>::new());
    wait_until_each_exists_once(&test.kv, &members, 0..ENTITIES);
}

/// Calls the runner. The call makes such a call again, until `stop` is set.
fn call_again_and_again(space: Arc<Space<3, RandomWalk>>, stop: Arc<AtomicBool>) {
    let runner = Arc::clone(&space);
    let call = move |_: &mut WorldRunner<3, RandomWalk>| {
        if !stop.load(Ordering::Relaxed) {
            call_again_and_again(runner, stop);
        }
    };
    space.submit(call).unwrap();
}

#[test]
fn regions_tick_while_clients_make_calls_without_pause() {
    let (test, members) = start_with_one_process("incessant", StandbyMode::None);
    let stop = Arc::new(AtomicBool::new(false));
    call_again_and_again(Arc::clone(&members[0].space), Arc::clone(&stop));
    let before = members[0].ticks();
    until("both regions tick", &test.kv, &members, || {
        members[0].ticks().iter().all(|(region, tick)| *tick >= before[region] + MIN_TICKS)
    });
    stop.store(true, Ordering::Relaxed);
    // After two more calls, the last of the repeated calls has ended, and no longer uses the process.
    (0..2).for_each(|_| drop(members[0].ticks()));
}
