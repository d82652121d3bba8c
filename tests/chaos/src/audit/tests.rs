use dunlin_control::Change;

use super::*;
use crate::history::{KeyRequest, KeyResponse};
use crate::locks::{GuardedWrite, LockHold};

fn put(call: u64, end: u64, revision: u64) -> Operation {
    let answered = Some((end, KeyResponse { revision, ..KeyResponse::default() }));
    Operation { client: 1, group: "g".to_owned(), asked: KeyRequest::Put(0, "v".to_owned()), call, answered }
}

#[test]
fn audit_reports_repeated_or_decreasing_revisions() {
    assert_eq!(revisions(&[put(0, 9, 2), put(1, 5, 1), put(6, 8, 3)]).unwrap(), 3);
    assert!(
        revisions(&[put(0, 1, 1), put(0, 1, 1)])
            .unwrap_err()
            .to_string()
            .contains("two changes have revision 1")
    );
    assert!(
        revisions(&[put(0, 1, 2), put(3, 4, 1)])
            .unwrap_err()
            .to_string()
            .contains("revision 2 was acknowledged before")
    );
}

fn held(lease: u64, token: u64, from: u64, until: u64) -> LockHold {
    LockHold { client: lease, lock: 0, token, lease, from, until }
}

fn history(held: Vec<LockHold>, guarded: &[(u64, Option<u64>)]) -> LockHistory {
    let guarded =
        guarded.iter().map(|&(token, revision)| GuardedWrite { lock: 0, token, revision }).collect();
    LockHistory { held, guarded }
}

#[test]
fn audit_reports_a_lock_with_two_holders_or_a_repeated_token() {
    let one_after_another =
        history(vec![held(1, 5, 0, 10), held(2, 6, 10, 20)], &[(5, Some(8)), (6, Some(9))]);
    assert_eq!(locks(&[one_after_another]).unwrap(), 2);
    let at_once = history(vec![held(1, 5, 0, 10), held(2, 6, 9, 20)], &[]);
    assert!(locks(&[at_once]).unwrap_err().to_string().contains("at the same time"));
    let same = history(vec![held(1, 5, 0, 10), held(2, 5, 11, 20)], &[]);
    assert!(locks(&[same]).unwrap_err().to_string().contains("the same token"));
}

#[test]
fn audit_reports_a_write_with_an_outdated_lock_token() {
    let refused = history(vec![], &[(5, Some(8)), (6, Some(9)), (5, None)]);
    assert_eq!(locks(&[refused]).unwrap(), 0);
    let written = history(vec![], &[(5, Some(10)), (6, Some(9))]);
    assert!(locks(&[written]).unwrap_err().to_string().contains("older token"));
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
    let told = |revisions: &[u64]| WatchTrace {
        changes: revisions.iter().map(|revision| change(*revision, "v")).collect(),
        compacted: vec![],
    };
    assert_eq!(watches(&[told(&[1, 2]), told(&[1])], &[]).unwrap(), 2);
    assert!(watches(&[told(&[1, 3])], &[]).unwrap_err().to_string().contains("revision 3, expected 2"));
    let gone = WatchTrace { compacted: vec![(2, 4)], ..told(&[1, 5]) };
    assert_eq!(watches(&[gone], &[]).unwrap(), 2);
    let other = WatchTrace { changes: vec![change(1, "w")], compacted: vec![] };
    assert!(watches(&[told(&[1]), other.clone()], &[]).unwrap_err().to_string().contains("different"));
    let mut asked = put(0, 1, 1);
    let content = change(1, "v");
    assert!(watches(&[WatchTrace { changes: vec![content], compacted: vec![] }], &[asked.clone()]).is_ok());
    asked.group = "h".to_owned();
    assert!(watches(&[other], &[asked]).is_err());
}

#[test]
fn audit_counts_operations_in_progress_at_a_fault() {
    let fault = vec![(5, "a fault".to_owned())];
    assert_eq!(struck(&[put(0, 4, 1), put(4, 6, 2), put(6, 7, 3)], &fault), 1);
    let lost = Operation { answered: None, ..put(1, 2, 1) };
    assert_eq!(struck(&[lost], &fault), 1);
}
