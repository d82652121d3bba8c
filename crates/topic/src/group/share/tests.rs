use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn records(seqs: std::ops::RangeInclusive<u64>) -> impl RecordSource {
    let mut seqs = seqs;
    move || seqs.next().map(|seq| SourceItem::Record { seq, key: None })
}

fn limits() -> LogLimits {
    LogLimits {
        group_members_max: 3,
        share_in_flight_max: 4,
        group_lost_ranges_max: 2,
        ..LogLimits::default()
    }
}

#[test]
fn each_record_goes_to_one_member() {
    let mut share = ShareGroup::new(&limits(), 10);
    let mut source = records(11..=13);
    let (a, b) = (share.join().unwrap(), share.join().unwrap());
    assert_eq!(share.take(a, &mut source), Ok(Some(11)));
    assert_eq!(share.take(b, &mut source), Ok(Some(12)));
    assert_eq!(share.take(b, &mut source), Ok(Some(13)));
    assert_eq!(share.take(a, &mut source), Ok(None));
    assert_eq!(share.position(), 10);
    share.confirm(a, 11).unwrap();
    assert_eq!(share.position(), 11);
    share.confirm(b, 13).unwrap();
    assert_eq!(share.position(), 13);
}

#[test]
fn member_with_too_many_unconfirmed_records_gets_no_more() {
    let mut share = ShareGroup::new(&limits(), 0);
    let mut source = records(1..=100);
    let a = share.join().unwrap();
    let taken = std::iter::from_fn(|| share.take(a, &mut source).unwrap()).count();
    assert_eq!(taken, 4);
    share.confirm(a, 2).unwrap();
    assert_eq!(share.take(a, &mut source), Ok(Some(5)));
}

#[test]
fn unconfirmed_records_of_a_departed_member_are_reported_lost() {
    let mut share = ShareGroup::new(&limits(), 0);
    let mut source = records(1..=4);
    let (a, b) = (share.join().unwrap(), share.join().unwrap());
    for member in [a, a, b, a] {
        share.take(member, &mut source).unwrap();
    }
    share.confirm(a, 1).unwrap();
    share.leave(a).unwrap();
    assert_eq!(share.take_lost(b), Some(LostRecords::unconfirmed(2, 2)));
    assert_eq!(share.take_lost(b), Some(LostRecords::unconfirmed(4, 4)));
    assert_eq!(share.take_lost(b), None);
    assert_eq!(share.take(a, &mut source), Err(GroupError::NoMember(a)));
}

#[test]
fn returned_records_go_to_other_members() {
    let mut share = ShareGroup::new(&limits(), 0);
    let mut source = records(1..=6);
    let (a, b) = (share.join().unwrap(), share.join().unwrap());
    for member in [a, a, a, b] {
        share.take(member, &mut source).unwrap();
    }
    share.confirm(a, 1).unwrap();
    share.leave_and_return(a).unwrap();
    assert!(share.has_returned());
    assert_eq!(share.position(), 1);
    assert_eq!([(); 2].map(|()| share.take(b, &mut source)), [Ok(Some(2)), Ok(Some(3))]);
    assert_eq!(share.take(b, &mut source), Ok(Some(5)));
    assert!(!share.has_returned() && !share.has_lost(b));
    // Member b received the records 4, 2, 3 and 5, in this order, so the call also confirms record 4.
    share.confirm(b, 2).unwrap();
    share.leave(b).unwrap();
    let c = share.join().unwrap();
    assert_eq!(share.take_lost(c), Some(LostRecords::unconfirmed(3, 3)));
    assert_eq!(share.take_lost(c), Some(LostRecords::unconfirmed(5, 5)));
    assert_eq!(share.take(c, &mut source), Ok(Some(6)));
}

#[test]
fn dropped_records_of_a_departed_member_are_reported_lost() {
    let mut share = ShareGroup::new(&limits(), 0);
    let mut source = records(1..=4);
    let a = share.join().unwrap();
    for _ in 0..4 {
        share.take(a, &mut source).unwrap();
    }
    share.leave_and_return(a).unwrap();
    let b = share.join().unwrap();
    share.drop_before(3);
    assert_eq!(share.take_lost(b), Some(LostRecords::dropped(1, 2)));
    assert_eq!(share.take(b, &mut source), Ok(Some(3)));
    share.report_dropped(b, 3).unwrap();
    assert_eq!(share.take_lost(b), Some(LostRecords::dropped(3, 3)));
    assert_eq!(share.take(b, &mut source), Ok(Some(4)));
    share.confirm(b, 4).unwrap();
    assert_eq!(share.position(), 4);
}

#[test]
fn record_that_cannot_be_read_yet_is_delivered_later() {
    let mut share = ShareGroup::new(&limits(), 0);
    let mut source = records(1..=4);
    let a = share.join().unwrap();
    for _ in 0..3 {
        share.take(a, &mut source).unwrap();
    }
    share.leave_and_return(a).unwrap();
    let b = share.join().unwrap();
    assert_eq!(share.take(b, &mut source), Ok(Some(1)));
    for _ in 0..2 {
        assert_eq!(share.take(b, &mut source), Ok(Some(2)));
        share.withdraw(b, 2).unwrap();
    }
    assert_eq!([(); 3].map(|()| share.take(b, &mut source)), [2, 3, 4].map(|seq| Ok(Some(seq))));
    share.confirm(b, 4).unwrap();
    assert!(share.position() == 4 && !share.has_lost(b));
}

#[test]
fn share_group_delivers_earlier_records_exactly_once() {
    let mut share = ShareGroup::new(&limits(), 10);
    let mut source = records(11..=14);
    let a = share.join().unwrap();
    assert_eq!(share.take(a, &mut source), Ok(Some(11)));
    share.add_earlier(8, 10);
    assert!(share.has_returned());
    assert_eq!([(); 3].map(|()| share.take(a, &mut source)), [8, 9, 10].map(|seq| Ok(Some(seq))));
    // The member received record 9 after record 11, so the call also confirms record 11.
    share.confirm(a, 9).unwrap();
    assert_eq!(share.take(a, &mut source), Ok(Some(12)));
    share.leave_and_return(a).unwrap();
    assert_eq!(share.delivered_since(8), [(8, 9), (11, 11)], "10 and 12 go to other members");
    assert_eq!(share.position(), 9);
}

#[test]
fn losses_of_an_empty_group_are_reported_to_its_next_member() {
    let mut share = ShareGroup::new(&limits(), 0);
    let mut source = records(1..=2);
    let a = share.join().unwrap();
    share.take(a, &mut source).unwrap();
    share.leave(a).unwrap();
    let b = share.join().unwrap();
    assert_eq!(share.take_lost(b), Some(LostRecords::unconfirmed(1, 1)));
}

#[test]
fn another_member_gets_the_loss_report_of_a_departed_one() {
    let mut share = ShareGroup::new(&limits(), 0);
    let a = share.join().unwrap();
    let mut items = [SourceItem::LostRecords { first: 1, last: 2 }].into_iter();
    share.take(a, &mut || items.next()).unwrap();
    let b = share.join().unwrap();
    share.leave(a).unwrap();
    assert_eq!(share.take_lost(b), Some(LostRecords::dropped(1, 2)));
    assert_eq!(share.take_lost(b), None);
}

#[test]
fn share_group_member_over_the_limit_is_refused() {
    let mut share = ShareGroup::new(&limits(), 0);
    (0..3).for_each(|_| assert!(share.join().is_ok()));
    assert_eq!(share.join(), Err(GroupError::Full { members_max: 3 }));
}

#[derive(Debug, Clone)]
enum Step {
    Join,
    Leave(usize),
    Take(usize),
    Confirm(usize, u64),
    Lose(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Join),
        1 => (0..3usize).prop_map(Step::Leave),
        8 => (0..3usize).prop_map(Step::Take),
        3 => (0..3usize, 0..6u64).prop_map(|(member, back)| Step::Confirm(member, back)),
        1 => (1..4u64).prop_map(Step::Lose),
    ]
}

proptest! {
    #[test]
    fn every_record_is_taken_once_or_reported_as_lost(steps in prop::collection::vec(step(), 1..200)) {
        // With this limit, the group never merges lost ranges, so the reports name every lost record.
        let mut share = ShareGroup::new(&LogLimits { group_lost_ranges_max: 10_000, ..limits() }, 0);
        let mut members: Vec<MemberId> = Vec::new();
        let mut next = 1u64;
        let mut to_lose = 0;
        let mut unconfirmed: BTreeMap<u64, MemberId> = BTreeMap::new();
        let (mut confirmed, mut reported) = (BTreeSet::new(), BTreeSet::new());
        let pick = |members: &[MemberId], n: usize| (!members.is_empty()).then(|| members[n % members.len()]);
        for step in steps {
            match step {
                Step::Join => members.extend(share.join().ok()),
                Step::Leave(n) => if let Some(member) = pick(&members, n) {
                    members.retain(|m| *m != member);
                    while let Some(lost) = share.take_lost(member) {
                        reported.extend(lost.first..=lost.last);
                    }
                    share.leave(member).unwrap();
                    unconfirmed.retain(|_, holder| *holder != member);
                },
                Step::Take(n) => if let Some(member) = pick(&members, n) {
                    let mut source = || {
                        let first = next;
                        if std::mem::take(&mut to_lose) > 0 {
                            next += 2;
                            return Some(SourceItem::LostRecords { first, last: first + 1 });
                        }
                        next += 1;
                        Some(SourceItem::Record { seq: first, key: None })
                    };
                    let in_flight = unconfirmed.values().filter(|holder| **holder == member).count();
                    let taken = share.take(member, &mut source).unwrap();
                    prop_assert_eq!(taken.is_none(), in_flight == 4);
                    if let Some(seq) = taken {
                        prop_assert_eq!(unconfirmed.insert(seq, member), None);
                        prop_assert!(!confirmed.contains(&seq));
                    }
                },
                Step::Confirm(n, back) => if let Some(member) = pick(&members, n) {
                    let through = (next - 1).saturating_sub(back);
                    share.confirm(member, through).unwrap();
                    confirmed.extend(unconfirmed.extract_if(..=through, |_, h| *h == member).map(|(seq, _)| seq));
                },
                Step::Lose(n) => to_lose = n,
            }
            let position = unconfirmed.keys().next().map_or(next - 1, |first| first - 1);
            prop_assert_eq!(share.position(), position);
        }
        for member in members.drain(..) {
            share.leave(member).unwrap();
        }
        let last = share.join().unwrap();
        while let Some(lost) = share.take_lost(last) {
            prop_assert!(lost.is_exact());
            reported.extend(lost.first..=lost.last);
        }
        prop_assert_eq!(share.position(), next - 1);
        for seq in 1..next {
            prop_assert!(confirmed.contains(&seq) != reported.contains(&seq), "{}", seq);
        }
    }
}
