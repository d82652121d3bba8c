//! Compares the state with a simple model of maps and lists.
//!
//! A failing run prints its shortest case. Its seed is kept in `model.seeds` and tried first in later runs.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::oracle::{RandomCommand, compare_with_oracle};

const SEEDS: FileFailurePersistence = FileFailurePersistence::Direct("tests/it/model.seeds");

fn cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(500), failure_persistence: Some(Box::new(SEEDS)), ..usual }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_commands_match_a_plain_model(
        random_commands in prop::collection::vec(any::<[u8; 6]>().prop_map(RandomCommand), 1..200)
    ) {
        compare_with_oracle(&random_commands);
    }
}
