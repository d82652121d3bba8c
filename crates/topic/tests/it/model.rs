//! Random operations against a plain list. A failing run prints its shortest case, and its seed is kept in
//! `model.seeds`, to be tried first the next time.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::play::{Operation, play};

const SEEDS: FileFailurePersistence = FileFailurePersistence::Direct("tests/it/model.seeds");

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: Some(Box::new(SEEDS)), ..ProptestConfig::default() })]

    #[test]
    fn any_operations_in_any_order_keep_every_promise(
        operations in prop::collection::vec(any::<[u8; 4]>().prop_map(Operation::from), 1..400)
    ) {
        play(operations);
    }
}
