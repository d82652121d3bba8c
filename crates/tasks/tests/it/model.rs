//! Compares the state with a ledger of the tasks that workers hold, after random commands.
//!
//! A run that fails prints the shortest failing case. The seed of this case is stored in `model.seeds`, and the next
//! run tries it first.

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::random_commands::{CommandBytes, run_commands};

const SEEDS: FileFailurePersistence = FileFailurePersistence::Direct("tests/it/model.seeds");

fn cases() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if default.cases == 256 { 100 } else { default.cases },
        failure_persistence: Some(Box::new(SEEDS)),
        ..default
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn random_commands_lose_no_task_and_exceed_no_quota(
        commands in prop::collection::vec(any::<[u8; 6]>().prop_map(CommandBytes), 1..200)
    ) {
        run_commands(&commands);
    }
}
