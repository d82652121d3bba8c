//! Tests that a world survives the loss of its keys and invalid values of its keys.

use std::collections::BTreeMap;

use dunlin::space::StandbyMode;
use dunlin_client::{Kv, Transaction};
use dunlin_server::space::WorldDescription;

use super::{
    WORLD, WorldMember, WorldTest, assert_continues, describe_world, end_leases, has_event,
    mark_entity_and_read_ticks, settings, until, wait_until_all_tick,
};

/// Users who may only watch the world can read all keys below `space/WORLD/`.
#[test]
fn keys_with_the_prefix_of_a_world_do_not_contain_its_secret() {
    let test = WorldTest::new(settings(WORLD, 1, StandbyMode::None));
    let members = [test.start(1)];
    wait_until_all_tick("the world begins", &test.kv, &members);
    let secret = test.kv.get(format!("space-secret/{WORLD}")).unwrap().expect("the secret").value;
    assert_eq!(secret.len(), 32);
    let entries = test.kv.prefix("space/").unwrap();
    assert!(entries.iter().all(|entry| entry.value != secret), "{}", describe_world(&test.kv, &members));
}

#[test]
fn process_reports_which_key_contains_an_invalid_secret() {
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

/// Deletes all keys of the world, as if the cluster had restarted without its disks.
pub(super) fn delete_keys(kv: &Kv, world: &str) {
    end_leases(kv, world);
    kv.delete(format!("space-secret/{world}")).unwrap();
    for entry in kv.prefix(format!("space/{world}/")).unwrap() {
        kv.delete(entry.key).unwrap();
    }
}

#[test]
fn world_continues_after_the_loss_of_its_keys() {
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
fn paused_world_stays_paused_after_its_keys_are_deleted() {
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
