//! Tests that a process which leaves its world hands over its regions.

use dunlin::space::StandbyMode;

use super::{
    ENTITIES, WorldTest, assert_continues, has_event, mark_entity_and_read_ticks, settings,
    start_with_one_process, until, wait_until_all_tick, wait_until_each_exists_once,
};

/// Each process ends as soon as the replacement of the previous process has joined. Most standbys have no copy yet.
#[test]
fn restarting_all_processes_in_turn_loses_no_entity() {
    for standby in [StandbyMode::None, StandbyMode::Required] {
        let test = WorldTest::new(settings("rolling", 3, standby));
        let mut members: Vec<_> = (1..=3).map(|number| test.start(number)).collect();
        wait_until_all_tick("all regions begin", &test.kv, &members);
        let before = mark_entity_and_read_ticks(&members);
        for successor in 4..=6 {
            assert_eq!(members.remove(0).leave(), Vec::<String>::new(), "{standby:?}");
            members.push(test.start(successor));
            let key = format!("space/rolling/process/{successor}");
            until("it has joined", &test.kv, &members, || test.kv.get(&key).unwrap().is_some());
        }
        assert_continues(&test.kv, &members, &before, "after each was replaced");
    }
}

/// After one process has left the world, each region has a complete standby again.
#[test]
fn killing_a_process_after_another_has_left_loses_no_entity() {
    for killed in [0, 1] {
        let test = WorldTest::new(settings("thinned", 3, StandbyMode::Required));
        let mut members: Vec<_> = (1..=3).map(|number| test.start(number)).collect();
        wait_until_all_tick("all regions begin", &test.kv, &members);
        let before = mark_entity_and_read_ticks(&members);
        assert_eq!(members.remove(0).leave(), Vec::<String>::new());
        members.remove(killed).kill();
        assert_continues(&test.kv, &members, &before, "after one left and one was killed");
        assert!(!has_event(&members[0], "Lost("), "{:?}", members[0].events);
    }
}

#[test]
fn last_process_of_a_world_reports_the_regions_that_it_keeps() {
    let (test, mut members) = start_with_one_process("last", StandbyMode::Required);
    wait_until_each_exists_once(&test.kv, &members, 0..ENTITIES);
    let reports = members.remove(0).leave();
    let regions = "NotHandedOver { regions: [RegionId(1), RegionId(2)], why: \"no other process";
    assert!(reports.len() == 1 && reports[0].starts_with(regions), "{reports:?}");
}
