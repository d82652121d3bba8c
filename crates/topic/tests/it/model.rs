//! Tests random sequences of operations on a topic, and compares the results with a plain list. A failing run prints
//! the shortest sequence that fails. Each run first tries the sequences of the seeds in `model.seeds`. Each failure
//! that was found also has a test with a name of its own. `PROPTEST_CASES` sets the number of random sequences.

use dunlin_topic::OnGap::Oldest;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::play::Operation::*;
use crate::play::{Operation, play};

const SEEDS: FileFailurePersistence = FileFailurePersistence::Direct("tests/it/model.seeds");

fn cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(1_000), failure_persistence: Some(Box::new(SEEDS)), ..usual }
}

#[test]
fn expired_record_causes_no_second_lag_warning() {
    let publish = |ms| Publish { bytes: 8, by_ref: true, expires_ms: Some(ms), key: None };
    let subscribe = |start| Subscribe { start, on_gap: Oldest };
    play([
        subscribe(0),
        subscribe(0),
        publish(0),
        Batch { count: 32, bytes: 3_784 },
        Batch { count: 3, bytes: 8 },
        subscribe(63),
        Expire,
        Take { reader: 2 },
        Drain { reader: 2, max: 35 },
        publish(0),
        Batch { count: 16, bytes: 9_032 },
    ]);
}

#[test]
fn subscriber_that_has_taken_the_last_record_is_not_lagging() {
    let subscribe = |start| Subscribe { start, on_gap: Oldest };
    play([
        subscribe(0),
        subscribe(0),
        subscribe(0),
        subscribe(0),
        subscribe(0),
        Batch { count: 2, bytes: 8 },
        subscribe(30),
        Take { reader: 0 },
        Publish { bytes: 8, by_ref: true, expires_ms: Some(10), key: None },
    ]);
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_operations_match_the_model(
        operations in prop::collection::vec(any::<[u8; 4]>().prop_map(Operation::from), 1..400)
    ) {
        play(operations);
    }
}
