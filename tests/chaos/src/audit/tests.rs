use dunlin_control::Change;

use super::*;
use crate::history::{KeyRequest, KeyResponse};
use crate::locks::{GuardedWrite, LockHoldPeriod};

fn put(call: u64, end: u64, revision: u64) -> Operation {
    let response = Some((end, KeyResponse { revision, ..KeyResponse::default() }));
    Operation {
        client: 1,
        group: "g".to_owned(),
        request: KeyRequest::Put(0, "v".to_owned()),
        call,
        response,
    }
}

#[test]
fn audit_reports_repeated_or_decreasing_revisions() {
    assert_eq!(check_revisions(&[put(0, 9, 2), put(1, 5, 1), put(6, 8, 3)]).unwrap(), 3);
    assert!(
        check_revisions(&[put(0, 1, 1), put(0, 1, 1)])
            .unwrap_err()
            .to_string()
            .contains("two changes have revision 1")
    );
    assert!(
        check_revisions(&[put(0, 1, 2), put(3, 4, 1)])
            .unwrap_err()
            .to_string()
            .contains("revision 2 was acknowledged before")
    );
}

fn hold(lease: u64, token: u64, from: u64, until: u64) -> LockHoldPeriod {
    LockHoldPeriod { client: lease, lock: 0, token, lease, from, until }
}

fn history(held: Vec<LockHoldPeriod>, guarded: &[(u64, Option<u64>)]) -> LockHistory {
    let guarded =
        guarded.iter().map(|&(token, revision)| GuardedWrite { lock: 0, token, revision }).collect();
    LockHistory { held, guarded }
}

#[test]
fn audit_reports_a_lock_with_two_holders_or_a_repeated_token() {
    let one_after_another =
        history(vec![hold(1, 5, 0, 10), hold(2, 6, 10, 20)], &[(5, Some(8)), (6, Some(9))]);
    assert_eq!(check_locks(&[one_after_another]).unwrap(), 2);
    let overlapping = history(vec![hold(1, 5, 0, 10), hold(2, 6, 9, 20)], &[]);
    assert!(check_locks(&[overlapping]).unwrap_err().to_string().contains("at the same time"));
    let repeated_token = history(vec![hold(1, 5, 0, 10), hold(2, 5, 11, 20)], &[]);
    assert!(check_locks(&[repeated_token]).unwrap_err().to_string().contains("the same token"));
}

#[test]
fn audit_reports_a_write_with_an_outdated_lock_token() {
    let refused = history(vec![], &[(5, Some(8)), (6, Some(9)), (5, None)]);
    assert_eq!(check_locks(&[refused]).unwrap(), 0);
    let written = history(vec![], &[(5, Some(10)), (6, Some(9))]);
    assert!(check_locks(&[written]).unwrap_err().to_string().contains("older token"));
}

fn change(revision: u64, value: &str) -> Change {
    let mut state = dunlin_control::ControlState::new(dunlin_control::ControlStateLimits::default());
    let mut effects = dunlin_control::ControlEffects::default();
    let put = dunlin_control::ControlCommand::Put { key: b"g/0", value: value.as_bytes(), lease: 0 };
    state.apply(&put, &mut effects).unwrap();
    Change { revision, bytes: effects.changes.remove(0).bytes }
}

#[test]
fn audit_reports_a_watch_with_missing_or_wrong_changes() {
    let watch_trace = |revisions: &[u64]| WatchTrace {
        changes: revisions.iter().map(|revision| change(*revision, "v")).collect(),
        compacted: vec![],
    };
    assert_eq!(check_watches(&[watch_trace(&[1, 2]), watch_trace(&[1])], &[]).unwrap(), 2);
    assert!(
        check_watches(&[watch_trace(&[1, 3])], &[])
            .unwrap_err()
            .to_string()
            .contains("revision 3, expected 2")
    );
    let compacted_trace = WatchTrace { compacted: vec![(2, 4)], ..watch_trace(&[1, 5]) };
    assert_eq!(check_watches(&[compacted_trace], &[]).unwrap(), 2);
    let different = WatchTrace { changes: vec![change(1, "w")], compacted: vec![] };
    assert!(
        check_watches(&[watch_trace(&[1]), different.clone()], &[])
            .unwrap_err()
            .to_string()
            .contains("different")
    );
    let mut operation = put(0, 1, 1);
    let recorded = change(1, "v");
    assert!(
        check_watches(&[WatchTrace { changes: vec![recorded], compacted: vec![] }], &[operation.clone()])
            .is_ok()
    );
    operation.group = "h".to_owned();
    assert!(check_watches(&[different], &[operation]).is_err());
}

#[test]
fn audit_counts_operations_in_progress_at_a_fault() {
    let fault = vec![(5, "a fault".to_owned())];
    assert_eq!(count_struck(&[put(0, 4, 1), put(4, 6, 2), put(6, 7, 3)], &fault), 1);
    let lost = Operation { response: None, ..put(1, 2, 1) };
    assert_eq!(count_struck(&[lost], &fault), 1);
}
