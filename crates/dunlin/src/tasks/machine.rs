//! The replicated state machine of one shard's tasks.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;
use dunlin_raft::{FrozenMachine, StateMachine};
use dunlin_tasks::{
    CommandReply, SchedulerState, StateRestore, TaskCommand, TaskCommandOutcome, TaskEffects, TaskPublication,
};

use super::dealer::DealerSignal;
use super::dispatcher::Dispatcher;
use super::history::{self, TaskHistory};
use super::housekeeper::HousekeeperCommand;

/// The time at which epoch numbers of task events begin with 0: 2026-01-01, in ms since the Unix epoch.
const EPOCH_ZERO_MS: u64 = 1_767_225_600_000;
/// The number of ms after which the present time belongs to the next epoch number.
const EPOCH_UNIT_MS: u64 = 100;

/// If a log entry changes more tasks and due timers than this, a separate thread applies it, because a thousand changes
/// take some milliseconds. Otherwise, Raft's thread applies the entry.
const CHANGES_MAX: usize = 1_000;

/// The replicated state of one shard. Each log entry also updates the history of events, and notifies the dispatcher
/// and the shard's threads.
pub(super) struct TasksMachine {
    state: SchedulerState,
    effects: TaskEffects,
    history: TaskHistory,
    dispatcher: Arc<Dispatcher>,
    housekeeper: Sender<HousekeeperCommand>,
    dealer: DealerSignal,
    /// A buffer in which responses are encoded.
    encoded: Vec<u8>,
    /// The encoded response that is sent most often.
    done: Bytes,
}

impl TasksMachine {
    pub(super) fn new(
        state: SchedulerState,
        history: TaskHistory,
        dispatcher: Arc<Dispatcher>,
        housekeeper: Sender<HousekeeperCommand>,
        dealer: DealerSignal,
    ) -> TasksMachine {
        let mut done = Vec::new();
        TaskCommandOutcome::Done { reply: CommandReply::Done }.encode(&mut done);
        let (effects, encoded, done) = (TaskEffects::default(), Vec::new(), done.into());
        TasksMachine { state, effects, history, dispatcher, housekeeper, dealer, encoded, done }
    }

    pub(super) fn state(&self) -> &SchedulerState {
        &self.state
    }

    /// The present epoch of the shard's events.
    pub(super) fn epoch(&self) -> u32 {
        self.history.epoch_and_count().0
    }

    fn apply_command(&mut self, command: &TaskCommand<'_>) -> TaskCommandOutcome {
        match (command, self.history.epoch_and_count()) {
            // The state has no epoch yet. The first command that sets the clock begins an epoch.
            (TaskCommand::Clock { unix_ms }, (0, count)) => {
                self.history.advance_to(epoch_at(*unix_ms), count)
            }
            (TaskCommand::BeginRestored { unix_ms }, (epoch, count)) => {
                self.history.advance_to(epoch_at(*unix_ms).max(epoch.saturating_add(1)), count);
            }
            _ => {}
        }
        self.state.apply(command, &mut self.effects).into()
    }
}

/// The number of the epoch that begins at this time. Later times give higher numbers.
fn epoch_at(unix_ms: u64) -> u32 {
    let units = unix_ms.saturating_sub(EPOCH_ZERO_MS) / EPOCH_UNIT_MS;
    u32::try_from(units).unwrap_or(u32::MAX).max(1)
}

impl StateMachine for TasksMachine {
    fn advance(&mut self, now_ms: u64) {
        self.state.advance(now_ms, &mut self.effects);
    }

    fn now_ms(&self) -> u64 {
        self.state.now_ms()
    }

    fn next_due_ms(&self) -> Option<u64> {
        self.state.next_due_ms()
    }

    fn is_long(&self, now_ms: u64, commands: &mut dyn Iterator<Item = &[u8]>) -> bool {
        self.state.has_more_due(now_ms, CHANGES_MAX) || self.state.may_change_more(commands, CHANGES_MAX)
    }

    /// Whether the command makes the state larger. For a command that this version cannot decode, the result is
    /// `false`.
    fn grows(command: &[u8]) -> bool {
        TaskCommand::decode(command).is_ok_and(|command| command.grows())
    }

    /// Applies a command.
    ///
    /// # Panics
    ///
    /// If this version of Dunlin does not know the command. The node stops in this case. If it skipped the command, its
    /// state would differ from the state of nodes that apply the command. No node proposes a command that it does not
    /// know itself.
    fn apply(&mut self, _index: u64, command: &[u8]) -> Bytes {
        let command = TaskCommand::decode(command);
        let command = command.expect("every command of the log has a version that this node knows");
        let outcome = self.apply_command(&command);
        if outcome == (TaskCommandOutcome::Done { reply: CommandReply::Done }) {
            return self.done.clone();
        }
        self.encoded.clear();
        outcome.encode(&mut self.encoded);
        Bytes::copy_from_slice(&self.encoded)
    }

    fn end_entry(&mut self) {
        let TaskEffects { orders, publishes, events } = &mut self.effects;
        if !orders.is_empty() {
            self.dispatcher.dispatch(self.state.shard(), orders.drain(..));
        }
        if !publishes.is_empty() {
            let due: Vec<TaskPublication> = std::mem::take(publishes);
            // Ignore the error: the thread has ended. The next leader, or this node after its next start, publishes
            // these tasks.
            let _ = self.housekeeper.send(HousekeeperCommand::Publish(due));
        }
        if !events.is_empty() {
            self.history.record(&self.state, events);
            events.clear();
        }
        self.dealer.signal_demand(&self.state);
    }

    fn freeze(&self) -> Box<dyn FrozenMachine> {
        Box::new(FrozenTasks {
            head: history::write_head(self.history.epoch_and_count()),
            state: self.state.freeze(),
        })
    }

    fn restore(&mut self, blocks: &mut dyn Iterator<Item = Bytes>) -> io::Result<()> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let head = blocks.next().and_then(|block| history::read_head(&block));
        let (epoch, count) = head.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the bytes are no snapshot of tasks")
        })?;
        let mut restoring = StateRestore::of_shard(self.state.shard());
        for block in blocks {
            restoring.read_block(&block).map_err(invalid)?;
        }
        let before = std::mem::replace(&mut self.state, restoring.finish().map_err(invalid)?);
        self.effects.clear();
        self.history.advance_to(epoch, count);
        self.dispatcher.redispatch(&before, &self.state);
        Ok(())
    }
}

/// The state and the position of events at one moment, for a snapshot.
struct FrozenTasks {
    head: Vec<u8>,
    state: dunlin_tasks::FrozenSchedulerState,
}

impl FrozenMachine for FrozenTasks {
    fn write(&self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        take(&self.head)?;
        self.state.write(take)
    }
}
