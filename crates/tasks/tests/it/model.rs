//! Random commands, compared with a ledger of the tasks that workers hold.
//!
//! A failing run prints its shortest case. The case's seed is stored in `model.seeds` and tried first in the next run.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::play::{Deed, play};

const SEEDS: FileFailurePersistence = FileFailurePersistence::Direct("tests/it/model.seeds");

fn cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig {
        cases: if usual.cases == 256 { 100 } else { usual.cases },
        failure_persistence: Some(Box::new(SEEDS)),
        ..usual
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_commands_lose_no_task_and_exceed_no_quota(
        deeds in prop::collection::vec(any::<[u8; 6]>().prop_map(Deed), 1..200)
    ) {
        play(&deeds);
    }
}
