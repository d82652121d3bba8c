use proptest::prelude::*;

use super::*;

fn mark(producer: u64, producer_epoch: u32, producer_seq: u64) -> ProducerMark {
    ProducerMark { producer, producer_epoch, producer_seq }
}

fn at(seq: u64) -> Position {
    Position { epoch: 1, seq }
}

fn small(producers_max: u32, producer_outcomes_max: u32) -> Producers {
    let limits = LogLimits { producers_max, producer_outcomes_max, ..LogLimits::default() };
    Producers::new(ProducerLimits::of(&limits))
}

/// Checks the records, and appends them at `next` if they are new.
fn publish(
    producers: &mut Producers,
    mark: ProducerMark,
    count: u64,
    next: u64,
) -> Result<DuplicateVerdict, PublishError> {
    let verdict = producers.check(mark, count)?;
    if verdict == DuplicateVerdict::Fresh {
        producers.record(mark, count, at(next));
    }
    Ok(verdict)
}

#[test]
fn producer_may_start_at_any_number_but_not_skip_one() {
    let mut producers = Producers::new(ProducerLimits::of(&LogLimits::default()));
    assert_eq!(publish(&mut producers, mark(7, 0, 1_000), 3, 1), Ok(DuplicateVerdict::Fresh));
    assert_eq!(publish(&mut producers, mark(7, 0, 1_003), 1, 4), Ok(DuplicateVerdict::Fresh));
    let refused = publish(&mut producers, mark(7, 0, 1_005), 1, 5);
    assert_eq!(refused, Err(PublishError::ProducerGap { producer_seq: 1_005, last: 1_003 }));
}

#[test]
fn retry_returns_the_position_of_the_first_attempt() {
    let mut producers = Producers::new(ProducerLimits::of(&LogLimits::default()));
    publish(&mut producers, mark(7, 0, 1), 3, 10).unwrap();
    publish(&mut producers, mark(7, 0, 4), 2, 20).unwrap();
    assert_eq!(producers.check(mark(7, 0, 1), 3), Ok(DuplicateVerdict::Duplicate { last: at(12) }));
    assert_eq!(producers.check(mark(7, 0, 4), 2), Ok(DuplicateVerdict::Duplicate { last: at(21) }));
    assert_eq!(producers.check(mark(7, 0, 2), 1), Ok(DuplicateVerdict::Duplicate { last: at(11) }));
    assert_eq!(producers.check(mark(7, 0, 1), 5), Ok(DuplicateVerdict::Duplicate { last: at(21) }));
}

#[test]
fn batch_that_mixes_repeated_and_new_records_is_refused() {
    let mut producers = Producers::new(ProducerLimits::of(&LogLimits::default()));
    publish(&mut producers, mark(7, 0, 1), 3, 1).unwrap();
    assert!(matches!(producers.check(mark(7, 0, 3), 2), Err(PublishError::Batch(_))));
    assert_eq!(producers.check(mark(7, 0, 4), 2), Ok(DuplicateVerdict::Fresh));
}

#[test]
fn older_producer_instance_is_fenced_once_a_newer_one_appends() {
    let mut producers = Producers::new(ProducerLimits::of(&LogLimits::default()));
    publish(&mut producers, mark(7, 1, 50), 1, 1).unwrap();
    assert_eq!(producers.check(mark(7, 2, 1), 1), Ok(DuplicateVerdict::Fresh));
    assert_eq!(
        producers.check(mark(7, 1, 51), 1),
        Ok(DuplicateVerdict::Fresh),
        "the newer one has appended nothing yet"
    );
    producers.record(mark(7, 2, 1), 1, at(2));
    let fenced = producers.check(mark(7, 1, 51), 1);
    assert_eq!(fenced, Err(PublishError::ProducerFenced { epoch: 1, current: 2 }));
    assert_eq!(producers.check(mark(7, 2, 1), 1), Ok(DuplicateVerdict::Duplicate { last: at(2) }));
}

#[test]
fn retry_of_a_forgotten_record_is_refused() {
    let mut producers = small(4, 2);
    for n in 0..5 {
        publish(&mut producers, mark(7, 0, 1 + n), 1, 10 * (1 + n)).unwrap();
    }
    let forgotten = producers.check(mark(7, 0, 3), 1);
    assert_eq!(forgotten, Err(PublishError::DuplicateForgotten { producer_seq: 3, remembered_from: 4 }));
    assert_eq!(producers.check(mark(7, 0, 4), 2), Ok(DuplicateVerdict::Duplicate { last: at(50) }));
}

#[test]
fn least_recently_used_producer_is_forgotten_first() {
    let mut producers = small(2, 4);
    publish(&mut producers, mark(1, 0, 5), 1, 1).unwrap();
    publish(&mut producers, mark(2, 0, 5), 1, 2).unwrap();
    assert!(matches!(producers.check(mark(1, 0, 5), 1), Ok(DuplicateVerdict::Duplicate { .. })));
    publish(&mut producers, mark(3, 0, 5), 1, 3).unwrap();
    assert_eq!(
        producers.check(mark(2, 0, 900), 1),
        Ok(DuplicateVerdict::Fresh),
        "forgotten: any number is a first contact"
    );
    assert!(matches!(producers.check(mark(1, 0, 5), 1), Ok(DuplicateVerdict::Duplicate { .. })));
    assert_eq!((producers.slots.len(), producers.by_id.len()), (2, 2));
}

#[test]
fn largest_producer_number_does_not_overflow() {
    let mut producers = Producers::new(ProducerLimits::of(&LogLimits::default()));
    assert!(matches!(producers.check(mark(7, 0, u64::MAX), 1), Err(PublishError::Batch(_))));
    publish(&mut producers, mark(7, 0, u64::MAX - 1), 1, 1).unwrap();
    assert!(matches!(producers.check(mark(7, 0, u64::MAX - 1), 1), Ok(DuplicateVerdict::Duplicate { .. })));
    assert!(producers.check(mark(7, 0, u64::MAX), 1).is_err());
}

#[derive(Debug, Clone)]
struct Attempt {
    producer: u64,
    epoch: u32,
    first: u64,
    count: u64,
    /// Whether the append is refused for another reason, after the check of the producer.
    refused: bool,
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (0..3u64, 0..3u32, 0..12u64, 1..4u64, prop::bool::weighted(0.1)).prop_map(
        |(producer, epoch, first, count, refused)| Attempt { producer, epoch, first, count, refused },
    )
}

/// A list of all appended records, from which the expected result of each attempt follows.
#[derive(Default)]
struct Naive {
    appended: Vec<(u64, u32, u64, u64)>,
}

impl Naive {
    fn verdict(&self, a: &Attempt) -> Result<DuplicateVerdict, &'static str> {
        let of_producer = || self.appended.iter().filter(|(producer, ..)| *producer == a.producer);
        let Some(current) = of_producer().map(|(_, epoch, ..)| *epoch).max() else {
            return Ok(DuplicateVerdict::Fresh);
        };
        if a.epoch < current {
            return Err("fenced");
        }
        let seqs: Vec<(u64, u64)> =
            of_producer().filter(|(_, e, ..)| *e == a.epoch).map(|(_, _, seq, at)| (*seq, *at)).collect();
        let Some(&(last, _)) = seqs.last() else { return Ok(DuplicateVerdict::Fresh) };
        let wanted = a.first..a.first + a.count;
        let known: Vec<u64> =
            seqs.iter().filter(|(seq, _)| wanted.contains(seq)).map(|(_, at)| *at).collect();
        match known.len() as u64 {
            0 if a.first == last + 1 => Ok(DuplicateVerdict::Fresh),
            0 if a.first > last => Err("gap"),
            0 => Err("forgotten"),
            n if n == a.count => Ok(DuplicateVerdict::Duplicate { last: at(known[known.len() - 1]) }),
            _ if wanted.end > last + 1 => Err("mixed"),
            _ => Err("forgotten"),
        }
    }
}

fn kind(error: &PublishError) -> &'static str {
    match error {
        PublishError::ProducerFenced { .. } => "fenced",
        PublishError::ProducerGap { .. } => "gap",
        PublishError::DuplicateForgotten { .. } => "forgotten",
        PublishError::Batch(_) => "mixed",
        _ => "other",
    }
}

proptest! {
    #[test]
    fn duplicate_check_agrees_with_a_model_that_forgets_nothing(attempts in prop::collection::vec(attempt(), 1..80)) {
        let mut producers = Producers::new(ProducerLimits::of(&LogLimits::default()));
        let mut naive = Naive::default();
        let mut next = 1;
        for a in attempts {
            let mark = mark(a.producer, a.epoch, a.first);
            let verdict = producers.check(mark, a.count);
            prop_assert_eq!(verdict.as_ref().map(|v| *v).map_err(kind), naive.verdict(&a));
            if verdict == Ok(DuplicateVerdict::Fresh) && !a.refused {
                producers.record(mark, a.count, at(next));
                for n in 0..a.count {
                    naive.appended.push((a.producer, a.epoch, a.first + n, next + n));
                }
                next += a.count;
            }
        }
    }

    /// If the log remembers only a few records, a retry may be refused or count as new, but never receives the position
    /// of another record.
    #[test]
    fn retry_never_gets_the_position_of_another_record(attempts in prop::collection::vec(attempt(), 1..80)) {
        let mut producers = small(2, 2);
        let mut appended: Vec<(u64, u32, u64, u64)> = Vec::new();
        let mut next = 1;
        for a in attempts {
            let mark = mark(a.producer, a.epoch, a.first);
            match producers.check(mark, a.count) {
                Ok(DuplicateVerdict::Fresh) => {
                    producers.record(mark, a.count, at(next));
                    appended.extend((0..a.count).map(|n| (a.producer, a.epoch, a.first + n, next + n)));
                    next += a.count;
                }
                Ok(DuplicateVerdict::Duplicate { last }) => {
                    let named = (a.producer, a.epoch, a.first + a.count - 1, last.seq);
                    prop_assert!(appended.contains(&named));
                }
                Err(_) => {}
            }
            prop_assert!(producers.slots.len() <= 2);
            prop_assert!(producers.slots.iter().all(|producer| producer.outcomes.len() <= 2));
        }
    }
}
