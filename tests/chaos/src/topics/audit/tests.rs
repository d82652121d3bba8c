use super::super::publisher::PublishCall;
use super::*;

fn at(epoch: u32, seq: u64) -> Position {
    at_seq(epoch, seq)
}

fn trace(events: Vec<ReaderEvent>) -> SubscriberTrace {
    SubscriberTrace { topic: "t", node: 0, events }
}

/// Returns a ledger of batches. Each batch is given by the numbers of its first and last record, and by the
/// acknowledged position of the last record.
fn ledger(batches: &[(u64, u64, Option<Position>)]) -> PublishedBatches {
    let published = batches.iter().map(|&(first, last, position)| PublishCall {
        first,
        last,
        call: 0,
        response: position.map(|position| (1, position)),
    });
    PublishedBatches { published: published.collect(), refused: 0 }
}

fn record(epoch: u32, seq: u64, number: u64) -> ReaderEvent {
    ReaderEvent::Record(at(epoch, seq), number)
}

fn error_text(is_durable: bool, ledger: &PublishedBatches, events: Vec<ReaderEvent>) -> String {
    format!("{:#}", check_topic(is_durable, ledger, &[&trace(events)]).unwrap_err())
}

#[test]
fn audit_allows_no_missing_record_of_a_durable_topic() {
    let ledger = ledger(&[(1, 2, Some(at(1, 2))), (3, 3, Some(at(3, 3)))]);
    let complete =
        vec![record(1, 1, 1), record(1, 2, 2), ReaderEvent::Epoch(1, 2, None, at(3, 3)), record(3, 3, 3)];
    let counts = check_topic(true, &ledger, &[&trace(complete.clone())]).unwrap();
    assert_eq!(counts, ReadCounts { read: 3, gaps: 0, epochs: 1 });
    let lost = vec![record(1, 1, 1), ReaderEvent::Epoch(1, 1, None, at(3, 3)), record(3, 3, 3)];
    assert!(error_text(true, &ledger, lost).contains("epoch 1 ended at 1"));
    let gap = vec![
        ReaderEvent::Gap(1, 1, 1),
        record(1, 2, 2),
        ReaderEvent::Epoch(1, 2, None, at(3, 3)),
        record(3, 3, 3),
    ];
    assert!(error_text(true, &ledger, gap).contains("received gaps"));
    let truncated = complete[..3].to_vec();
    assert!(error_text(true, &ledger, truncated).contains("record 3 was acknowledged at"));
    let repeated = vec![record(1, 1, 1), record(1, 2, 2), record(1, 3, 2)];
    assert!(error_text(true, &ledger, repeated).contains("expected record 3"));
}

#[test]
fn audit_allows_only_reported_losses_of_a_volatile_topic() {
    let ledger = ledger(&[(1, 4, Some(at(1, 4))), (5, 5, None), (6, 6, Some(at(2, 1)))]);
    let events = vec![
        record(1, 1, 1),
        ReaderEvent::Gap(1, 2, 2),
        record(1, 3, 3),
        ReaderEvent::Epoch(1, 3, None, at(2, 1)),
        record(2, 1, 6),
    ];
    assert_eq!(
        check_topic(false, &ledger, &[&trace(events)]).unwrap(),
        ReadCounts { read: 3, gaps: 1, epochs: 1 }
    );
    let all = vec![record(1, 1, 1), ReaderEvent::Epoch(1, 1, Some(1), at(2, 2)), record(2, 2, 6)];
    assert!(
        error_text(false, &ledger, all).contains("record 2 was acknowledged"),
        "nothing is said to be missing"
    );
    let silent = vec![record(1, 1, 1), record(1, 3, 3)];
    assert!(error_text(false, &ledger, silent).contains("after Some"));
    let ended = vec![record(1, 1, 1), record(1, 2, 2)];
    assert!(error_text(false, &ledger, ended).contains("missing without a gap"));
    let other = vec![record(1, 1, 9)];
    assert!(error_text(false, &ledger, other).contains("a subscriber read record 9 there"));
    let skipped = vec![record(1, 1, 1), ReaderEvent::Epoch(1, 4, None, at(2, 1))];
    assert!(error_text(false, &ledger, skipped).contains("after"), "record 4 is missing");
}

#[test]
fn audit_requires_equal_records_for_all_subscribers() {
    let ledger = ledger(&[]);
    let (first, second) = (trace(vec![record(1, 1, 1)]), trace(vec![record(1, 1, 2)]));
    assert!(check_topic(false, &ledger, &[&first, &first]).is_ok());
    assert!(check_topic(false, &ledger, &[&first, &second]).is_err());
}
