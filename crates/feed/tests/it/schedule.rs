use dunlin_feed::{DENSE_SLEEP_NS, DueRecord, FeedSchedule, ScheduleAction};
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;

fn take_due(schedule: &mut FeedSchedule, now_ns: u64) -> Vec<DueRecord> {
    std::iter::from_fn(|| schedule.take(now_ns)).collect()
}

#[test]
fn due_times_stay_evenly_spaced_when_records_are_taken_late() {
    let mut schedule = FeedSchedule::new(1_000, [3]);
    let second = take_due(&mut schedule, 1_000 + SECOND_NS - 1);
    let times: Vec<u64> = second.iter().map(|due| due.at_ns - 1_000).collect();
    assert_eq!(times, [0, 333_333_333, 666_666_666]);
    assert_eq!(schedule.peek(), Some(DueRecord { at_ns: 1_000 + SECOND_NS, instrument: 0 }));
    let mut late = FeedSchedule::new(1_000, [3]);
    assert_eq!(take_due(&mut late, 1_000 + 2 * SECOND_NS)[..3], second[..]);
}

#[test]
fn instruments_with_equal_rates_take_turns() {
    let mut schedule = FeedSchedule::new(0, [2, 4, 2, 0]);
    let order: Vec<_> = take_due(&mut schedule, SECOND_NS - 1)
        .iter()
        .map(|due| (due.at_ns / 1_000_000, due.instrument))
        .collect();
    assert_eq!(order, [(0, 0), (0, 1), (250, 2), (250, 1), (500, 0), (500, 1), (750, 2), (750, 1)]);
}

#[test]
fn feed_schedule_counts_late_records_and_the_longest_delay() {
    let mut schedule = FeedSchedule::new(0, [1_000]).with_late_after_ns(2_000_000);
    assert_eq!(take_due(&mut schedule, 1_500_000).len(), 2);
    assert_eq!(schedule.lateness().to_string(), "on schedule: none of 2 records later than 2 ms");
    assert_eq!((schedule.due(10_900_000), schedule.scheduled_by(10_900_000)), (9, 11));
    assert_eq!(take_due(&mut schedule, 10_900_000).len(), 9);
    let lateness = *schedule.lateness();
    assert_eq!((lateness.taken, lateness.late, lateness.episodes, lateness.worst_ns), (11, 7, 1, 8_900_000));
    assert_eq!(take_due(&mut schedule, 11_000_000).len(), 1);
    assert_eq!(take_due(&mut schedule, 20_000_000).len(), 9);
    assert_eq!(
        schedule.lateness().to_string(),
        "the source slipped 2 times: 13 of 21 records later than 2 ms, the worst by 8.9 ms"
    );
}

#[test]
fn feed_schedule_sleeps_then_spins_until_the_due_time() {
    let mut schedule = FeedSchedule::new(0, [1_000]).with_spin_ns(100_000);
    assert_eq!(schedule.next_action(0), ScheduleAction::Emit);
    schedule.take(0);
    assert_eq!(schedule.next_action(0), ScheduleAction::Sleep { until_ns: 900_000 });
    assert_eq!([900_000, 999_999].map(|now| schedule.next_action(now)), [ScheduleAction::Spin; 2]);
    assert_eq!([1_000_000, 7_000_000].map(|now| schedule.next_action(now)), [ScheduleAction::Emit; 2]);
    assert_eq!(FeedSchedule::new(0, []).next_action(5), ScheduleAction::Sleep { until_ns: u64::MAX });
    assert_eq!(FeedSchedule::new(9, [1]).take(8), None, "nothing is due before the start");
}

#[test]
fn schedule_sleeps_in_a_dense_feed_unless_told_to_spin() {
    let mut schedule = FeedSchedule::new(0, [50_000; 2]).with_spin_ns(30_000);
    let mut spinning = FeedSchedule::new(0, [50_000; 2]).with_spin_ns(u64::MAX);
    for now in (0..10_000_000).step_by(10_000) {
        schedule.take(now);
        spinning.take(now);
    }
    let now = 9_990_001;
    assert_eq!(schedule.next_action(now), ScheduleAction::Sleep { until_ns: now + DENSE_SLEEP_NS });
    assert_eq!(schedule.next_action(now + DENSE_SLEEP_NS), ScheduleAction::Emit);
    assert_eq!(spinning.next_action(now), ScheduleAction::Spin, "a source that always spins never sleeps");
}

#[test]
fn feed_source_spins_shortly_before_a_record_is_due() {
    let mut schedule = FeedSchedule::new(0, [1_000, 999]).with_spin_ns(30_000);
    while schedule.take(u64::MAX).unwrap().at_ns < 3_000_000_000 {}
    let due = schedule.peek().unwrap().at_ns;
    assert_eq!(schedule.next_action(due - 10), ScheduleAction::Spin);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Compares the times of the scheduled records with exact divisions, and the number of due records with the number
    /// of records that can be taken.
    #[test]
    fn due_times_of_the_schedule_equal_an_exact_calculation(
        rates in prop::collection::vec(prop_oneof![0..5_u32, 0..3_000_u32], 1..6),
        start in 0..SECOND_NS,
        span in 0..2 * SECOND_NS,
    ) {
        let mut schedule = FeedSchedule::new(start, rates.clone());
        let now = start + span;
        let due = schedule.due(now);
        let all = take_due(&mut schedule, now);
        prop_assert_eq!((all.len() as u64, due), (due, schedule.scheduled_by(now)));
        prop_assert!(all.is_sorted_by_key(|due| due.at_ns));
        for (instrument, rate) in rates.iter().enumerate() {
            let peers = rates.iter().filter(|peer| *peer == rate).count() as u128;
            let before = rates[..instrument].iter().filter(|peer| *peer == rate).count() as u128;
            let own: Vec<u64> = all.iter().filter(|due| due.instrument == instrument).map(|due| due.at_ns).collect();
            for (k, at) in own.iter().enumerate() {
                let exact = (k as u128 * peers + before) * u128::from(SECOND_NS) / (u128::from(*rate) * peers);
                prop_assert_eq!(u128::from(at - start), exact);
            }
            let ideal = f64::from(*rate) * span as f64 / 1e9;
            prop_assert!((own.len() as f64 - ideal).abs() <= 1.001, "{} records instead of {}", own.len(), ideal);
        }
    }
}
