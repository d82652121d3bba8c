//! Executes commands and queries about tasks. The leader of a shard executes the shard's commands and queries itself;
//! any other node sends them to the leader.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dunlin_raft::{CommandBatch, GroupHandle, Leadership, RaftGroupError};
use dunlin_tasks::{CommandReply, ShardRoute, TaskCommand, TaskCommandOutcome, TaskQuery, TaskQueryResult};
use futures_util::future::join_all;

use super::machine::TasksMachine;
use super::routed::RoutedCommands;
use super::{TaskShard, Tasks, TasksError};
use crate::clock::now_ns;
use crate::control::Consistency;
use crate::control::forward::ForwardedRequest;
use crate::control::proposing::{self, RetryDeadline};

/// If the cluster's clock is ahead of this node's clock by more than this number of ms, the cluster's clock is
/// corrected.
const CLOCK_MS_MAX: u64 = 20;

impl Tasks {
    /// Proposes commands whose encoding was checked before. Each shard applies its commands one after another, with no
    /// other command in between. Returns an encoded [`TaskCommandOutcome`] for each command. Commands that certainly
    /// were not applied are retried for `answer_ms_max`.
    pub async fn propose_decoded(&self, commands: CommandBatch) -> Result<Vec<Bytes>, TasksError> {
        if let [only] = &self.shards[..] {
            return only.propose_decoded(commands).await;
        }
        let mut routed = RoutedCommands::of(&commands, self.limits.shards)?;
        let of_shards = self.shards.iter().zip(std::mem::take(&mut routed.commands));
        let propose = |(shard, commands): (&Arc<TaskShard>, CommandBatch)| {
            let shard = Arc::clone(shard);
            async move { if commands.is_empty() { Ok(Vec::new()) } else { shard.propose_decoded(commands).await } }
        };
        let mut results = join_all(of_shards.map(propose)).await;
        let any_applied =
            results.iter().any(|result| result.as_ref().is_ok_and(|responses| !responses.is_empty()));
        match results.iter().position(Result::is_err) {
            // Some shards have applied their commands, so the outcome of all commands together is unknown.
            Some(_) if any_applied => Err(TasksError::unknown()),
            Some(at) => results.swap_remove(at),
            None => routed.join(results.into_iter().flatten().collect()),
        }
    }

    /// Proposes one command.
    pub async fn execute(&self, command: &TaskCommand<'_>) -> Result<CommandReply, TasksError> {
        let mut commands = CommandBatch::default();
        commands.push_with(|out| command.encode(out));
        decode_reply(&self.propose_decoded(commands).await?)
    }

    /// Waits until this node has applied every command that any node has acknowledged so far.
    pub async fn catch_up(&self) -> Result<(), TasksError> {
        join_all(self.shards.iter().map(|shard| shard.catch_up())).await.into_iter().collect()
    }

    /// Like [`Tasks::catch_up`], but returns `false` after a short time if the node reaches no majority.
    pub(crate) async fn try_catch_up(&self) -> bool {
        let each = self.shards.iter().map(|shard| shard.try_catch_up());
        join_all(each).await.into_iter().all(|caught_up| caught_up)
    }

    /// Whether this node has applied, in every shard, all log entries that existed when it started.
    pub(crate) fn has_applied_log(&self) -> bool {
        self.shards.iter().all(|shard| shard.has_caught_up())
    }

    /// Answers a query from this node's state.
    pub fn answer(&self, query: &TaskQuery<'_>) -> Result<TaskQueryResult, TasksError> {
        match query.route(self.limits.shards) {
            ShardRoute::One(number) => match self.shards.get(usize::from(number)) {
                Some(shard) => {
                    let within = query.clone().within(number);
                    let found = shard.with(|state| state.answer(&within))??;
                    Ok(found.from_within(number, self.limits.shards, query))
                }
                // The query asks for a page after the last shard's tasks. The page is empty.
                None => Ok(TaskQueryResult::Tasks { tasks: Vec::new(), next: None, now_ms: 0 }),
            },
            ShardRoute::All => {
                let parts = self.read_each(|state| state.answer(query))?;
                let parts = parts.into_iter().collect::<Result<_, _>>()?;
                TaskQueryResult::join(parts).ok_or_else(TasksError::unknown)
            }
        }
    }

    /// Answers a query from a state of the requested consistency.
    pub async fn query(
        &self,
        consistency: Consistency,
        query: &TaskQuery<'_>,
    ) -> Result<TaskQueryResult, TasksError> {
        if consistency == Consistency::Linearizable || !self.has_applied_log() {
            self.catch_up().await?;
        }
        self.answer(query)
    }
}

/// Decodes the first response. Returns an error if the command was refused.
pub(crate) fn decode_reply(responses: &[Bytes]) -> Result<CommandReply, TasksError> {
    match TaskCommandOutcome::decode(responses.first().ok_or_else(TasksError::unknown)?)? {
        TaskCommandOutcome::Done { reply } => Ok(reply),
        TaskCommandOutcome::Refused { refusal } => Err(refusal.into()),
    }
}

impl TaskShard {
    /// Like [`Tasks::propose_decoded`], but for commands for this shard.
    pub(super) async fn propose_decoded(&self, commands: CommandBatch) -> Result<Vec<Bytes>, TasksError> {
        let group = self.group()?;
        let prepare = || self.set_clock_of_term(&group);
        proposing::propose(&group, &*self.transport, self.retry_deadline(), commands, prepare).await
    }

    fn retry_deadline(&self) -> RetryDeadline {
        RetryDeadline::new(Duration::from_millis(self.limits.raft.answer_ms_max))
    }

    /// Like [`Tasks::execute`], but for a command for this shard.
    pub(super) async fn execute(&self, command: &TaskCommand<'_>) -> Result<CommandReply, TasksError> {
        let mut commands = CommandBatch::default();
        commands.push_with(|out| command.encode(out));
        decode_reply(&self.propose_decoded(commands).await?)
    }

    /// Waits until this node has applied every command of the shard that any node has acknowledged so far.
    pub async fn catch_up(&self) -> Result<(), TasksError> {
        Ok(proposing::catch_up(&*self.group()?, &*self.transport, self.retry_deadline()).await?)
    }

    async fn try_catch_up(&self) -> bool {
        match self.group() {
            Ok(group) => proposing::try_catch_up(&*group, &*self.transport).await,
            Err(_ended) => false,
        }
    }

    /// Whether this node has applied all entries of the shard's log that existed when it started.
    fn has_caught_up(&self) -> bool {
        let has_applied = || self.status().is_ok_and(|status| status.applied >= self.last_before);
        let caught_up = self.caught_up.load(Ordering::Relaxed) || has_applied();
        self.caught_up.store(caught_up, Ordering::Relaxed);
        caught_up
    }

    /// If this node leads and has not set the cluster's clock in this term, sets the clock. This is necessary because
    /// the clock does not advance while there is no leader.
    async fn set_clock_of_term(&self, group: &GroupHandle<TasksMachine>) -> Result<(), TasksError> {
        let term = group.term();
        if self.clock_term.load(Ordering::Relaxed) == term {
            return Ok(());
        }
        // The clock's value comes first in the log, before all other commands of this term.
        if self.propose_clock(group).await? {
            self.clock_term.store(term, Ordering::Relaxed);
        }
        Ok(())
    }

    /// If this node leads and the cluster's clock is wrong, corrects the clock.
    pub(super) async fn correct_clock(&self) -> Result<(), TasksError> {
        let group = self.group()?;
        if group.leadership() != Leadership::Local {
            return Ok(());
        }
        if self.clock_term.load(Ordering::Relaxed) != group.term() {
            return self.set_clock_of_term(&group).await;
        }
        let unix_ms = now_ns() / 1_000_000;
        // The state contains the clock's value at the last command, so a correct clock may look as if it were behind. A
        // clock that is ahead of this node's clock, or far behind it, is wrong.
        let known_ms = group.with(|machine| machine.state().unix_ms_of(machine.state().now_ms()));
        if known_ms > unix_ms + CLOCK_MS_MAX || known_ms + CLOCK_RENEWED_MS < unix_ms {
            self.propose_clock(&group).await?;
        }
        Ok(())
    }

    /// Begins a new epoch of events after a restore from a backup. Skips the fencing tokens and ids that workers and
    /// clients may have received after the backup was made.
    pub async fn begin_restored(&self) -> Result<(), TasksError> {
        let (mut commands, unix_ms) = (CommandBatch::default(), now_ns() / 1_000_000);
        commands.push_with(|out| TaskCommand::BeginRestored { unix_ms }.encode(out));
        decode_reply(&self.propose_decoded(commands).await?).map(drop)
    }

    /// Proposes the present time as the cluster's clock. Also proposes this node's `state_bytes_max` if the cluster
    /// uses another limit. Returns `false` if this node does not lead.
    async fn propose_clock(&self, group: &GroupHandle<TasksMachine>) -> Result<bool, TasksError> {
        let mut commands = CommandBatch::default();
        let unix_ms = now_ns() / 1_000_000;
        commands.push_with(|out| TaskCommand::Clock { unix_ms }.encode(out));
        let limits = group.with(|machine| machine.state().limits());
        let state_bytes_max = self.limits.state_bytes_max / u64::from(self.limits.shards);
        if limits.state_bytes_max != state_bytes_max {
            let limits = dunlin_tasks::SchedulerLimits { state_bytes_max, ..limits };
            commands.push_with(|out| TaskCommand::Limit { limits }.encode(out));
        }
        match group.propose_all(commands).await {
            Ok(_) => Ok(true),
            Err((RaftGroupError::NotLeader { .. }, _)) => Ok(false),
            Err((error, _)) => Err(error.into()),
        }
    }

    /// Handles a proposal or read that another node has forwarded to this node.
    pub(super) async fn handle_forwarded(
        &self,
        group: &GroupHandle<TasksMachine>,
        request: ForwardedRequest,
    ) -> Bytes {
        if matches!(request, ForwardedRequest::Propose(_)) && group.leadership() == Leadership::Local {
            // Ignore the error: the proposal below returns it, too.
            let _ = self.set_clock_of_term(group).await;
        }
        proposing::handle_forwarded(group, request, |command| TaskCommand::decode(command).is_ok()).await
    }
}

/// If the cluster's clock is behind this node's clock by more than this number of ms, the cluster's clock is corrected.
const CLOCK_RENEWED_MS: u64 = 60_000;
