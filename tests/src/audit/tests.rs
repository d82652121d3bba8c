use super::*;

fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    for line in ["try 20", "ack 1 10 7 10", "acks 11 15", "err lost", "ack 20 20 7 18", "last 20"] {
        ledger.add_line(line);
    }
    ledger
}

fn records(epoch: u32, seqs: (u64, u64), ns: (u64, u64)) -> TraceLine {
    TraceLine::Records { writer: 1, epoch, seqs, ns }
}

fn audit_lines(lines: &[TraceLine]) -> Result<AuditCounts, String> {
    audit(&[lines, &[TraceLine::Done]].concat(), ReaderStart::First, &ledger(), 1)
}

#[test]
fn trace_with_all_records_or_exact_gaps_passes_the_audit() {
    // Records 16 to 20 have no response in the ledger. In this trace, only two of them were appended before record 20.
    audit_lines(&[
        records(7, (1, 15), (1, 15)),
        records(7, (16, 17), (16, 17)),
        records(7, (18, 18), (20, 20)),
    ])
    .unwrap();
    let counts =
        audit_lines(&[records(7, (1, 4), (1, 4)), TraceLine::Gap(7, 5, 17), records(7, (18, 18), (20, 20))])
            .unwrap();
    assert_eq!((counts.gaps, counts.missed, counts.records), (1, 13, 5));
    let changed = TraceLine::Epoch { old: 7, last_seen: 4, new_first: (8, 1) };
    audit_lines(&[records(7, (1, 4), (1, 4)), changed, records(8, (1, 8), (3, 10))]).unwrap();
}

#[test]
fn trace_with_a_lost_or_repeated_record_fails_the_audit() {
    let start = records(7, (1, 4), (1, 4));
    let changed = |last_seen| TraceLine::Epoch { old: 7, last_seen, new_first: (8, 1) };
    let broken: [&[TraceLine]; 13] = [
        &[records(7, (2, 4), (2, 4))],
        &[start.clone(), records(7, (6, 8), (6, 8))],
        &[start.clone(), records(7, (5, 6), (6, 7))],
        &[start.clone(), records(7, (5, 8), (4, 7))],
        &[start.clone(), records(7, (4, 8), (4, 8))],
        &[start.clone(), TraceLine::Gap(7, 6, 10), records(7, (11, 11), (11, 11))],
        &[start.clone(), TraceLine::Gap(7, 5, 6), records(7, (7, 7), (8, 8))],
        &[start.clone(), TraceLine::Gap(7, 5, 8), records(7, (9, 9), (8, 8))],
        &[start.clone(), records(8, (1, 3), (5, 7))],
        &[start.clone(), changed(5)],
        &[start.clone(), changed(4), records(7, (5, 6), (5, 6))],
        &[start.clone(), records(7, (5, 21), (5, 21))],
        &[start.clone(), TraceLine::Wrong("a bad byte".to_owned())],
    ];
    for lines in broken {
        assert!(audit_lines(lines).is_err(), "{lines:?}");
    }
    assert!(audit(&[start], ReaderStart::First, &ledger(), 1).is_err(), "the end is missing");
}
