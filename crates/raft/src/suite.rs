//! Runs openraft's test suite for storage on this crate's log and state machine.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_journal::FakeDisk;
use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::vote::leader_id_adv::LeaderId;
use openraft::{EntryPayload, StorageError};

use crate::commands::CommandBatch;
use crate::limits::RaftLimits;
use crate::log::{self, RaftLog};
use crate::machine::{FrozenMachine, StateMachine};
use crate::machines::Machines;
use crate::proposal;
use crate::type_config::{LogEntry, LogId, Types};

/// A state machine that adds up bytes. It panics in the middle of the command `fail`.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sum {
    pub(crate) sum: u64,
    pub(crate) now_ms: u64,
}

impl StateMachine for Sum {
    fn advance(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn next_due_ms(&self) -> Option<u64> {
        None
    }

    fn grows(_command: &[u8]) -> bool {
        true
    }

    fn apply(&mut self, _index: u64, command: &[u8]) -> Bytes {
        self.sum += command.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        assert_ne!(command, b"fail");
        Bytes::copy_from_slice(&self.sum.to_le_bytes())
    }

    fn freeze(&self) -> Box<dyn FrozenMachine> {
        Box::new(self.clone())
    }

    fn restore(&mut self, blocks: &mut dyn Iterator<Item = Bytes>) -> io::Result<()> {
        let numbers: Vec<u64> =
            blocks.map(|block| u64::from_le_bytes(block[..8].try_into().unwrap())).collect();
        (self.sum, self.now_ms) = (numbers[0], numbers[1]);
        Ok(())
    }
}

impl FrozenMachine for Sum {
    fn write(&self, write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        write_block(&self.sum.to_le_bytes())?;
        write_block(&self.now_ms.to_le_bytes())
    }
}

struct Stores;

impl StoreBuilder<Types, RaftLog, Machines> for Stores {
    async fn build(&self) -> Result<((), RaftLog, Machines), StorageError<Types>> {
        let disk = Arc::new(FakeDisk::new(1));
        let limits = RaftLimits { reserve_bytes: 0, ..RaftLimits::default() };
        let log = log::open(disk.clone(), Path::new("/raft/log"), &limits).unwrap();
        let (snapshots, room) = (Path::new("/raft/snapshots"), log.room().clone());
        let machines = Machines::open(disk, snapshots, Sum::default(), 0, room).unwrap();
        Ok(((), log, machines))
    }
}

#[tokio::test]
async fn store_passes_the_test_suite_of_openraft() {
    Suite::test_all(Stores).await.unwrap();
}

/// Applies a command in an entry with this index. Returns `false` if the state machine panics.
async fn is_applied(machines: &Machines, index: u64, command: &[u8]) -> bool {
    let log_id = LogId::new(LeaderId { term: 1, node_id: 1 }, index);
    let payload = EntryPayload::Normal(proposal::join(1, [&CommandBatch::one(command)].into_iter()));
    let entries = futures_util::stream::iter([Ok((LogEntry { log_id, payload }, None))]);
    let mut applying = machines.clone();
    tokio::spawn(async move { applying.apply(entries).await.unwrap() }).await.is_ok()
}

#[tokio::test]
async fn no_snapshot_holds_a_command_that_failed_halfway() {
    let (_, _, mut machines) = Stores.build().await.unwrap();
    assert!(is_applied(&machines, 1, b"a").await);
    assert_eq!(machines.build_snapshot().await.unwrap().meta.last_log_id.unwrap().index, 1);
    assert!(!is_applied(&machines, 2, b"fail").await);
    assert!(machines.build_snapshot().await.is_err());
    assert_eq!(machines.get_current_snapshot().await.unwrap().unwrap().meta.last_log_id.unwrap().index, 1);
}
