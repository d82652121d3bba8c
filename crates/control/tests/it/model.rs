//! Compares the control state with a simple model that consists of maps and lists.
//!
//! A failing run prints the shortest failing case that it finds. The seed of this case is kept in `model.seeds`, and
//! later runs try it first.

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
    fn random_commands_give_the_results_of_a_simple_model(
        random_commands in prop::collection::vec(any::<[u8; 6]>().prop_map(RandomCommand), 1..200)
    ) {
        compare_with_oracle(&random_commands);
    }
}
