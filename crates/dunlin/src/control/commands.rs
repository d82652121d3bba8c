//! Executes commands and reads of keys, leases and locks. The leader executes commands and reads itself; any other node
//! sends them to the leader.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use dunlin_control::{
    ControlCommand, ControlOutcome, ControlQuery, ControlQueryResult, ControlRefusal, ControlReply,
    ControlState, Key, LockStatus,
};
use dunlin_raft::{CommandBatch, GroupHandle, Leadership, RaftGroupError};
use futures_util::future::{Either, select};

use super::forward::{self, ForwardedRequest};
use super::lock_waiters::LockOutcome;
use super::machine::ControlMachine;
use super::proposing::{self, PAUSE, RetryDeadline};
use super::{Consistency, ControlError, ControlGroup};

/// The number of leases is limited to `state_bytes_max` divided by this number of bytes. This limit is at least
/// [`LEASES_MIN`] and at most [`LEASES_MAX`].
const LEASE_BYTES: u64 = 1 << 10;
/// The lowest limit on the number of leases.
const LEASES_MIN: u64 = 10_000;
/// The highest limit on the number of leases.
const LEASES_MAX: u64 = 1_000_000;
/// How many revisions and lease numbers are skipped after a restore from a backup: more than clients can have used
/// since the backup was made. etcd's documentation gives the same advice for `etcdutl snapshot restore
/// --bump-revision`.
const RESTORE_SKIPS: u64 = 1_000_000_000;
/// Maximum number of leases or lock waits that one log entry ends.
const BATCH_MAX: usize = 1_000;

impl ControlGroup {
    /// Proposes commands to the Raft group, through the leader if this node does not lead. The cluster applies these
    /// commands one after another, with no other command in between. Returns an encoded [`ControlOutcome`] for each
    /// command. Commands that certainly were not applied are retried for `answer_ms_max`.
    pub async fn propose(&self, commands: CommandBatch) -> Result<Vec<Bytes>, ControlError> {
        commands.iter().try_for_each(|command| ControlCommand::decode(command).map(drop))?;
        self.propose_decoded(commands).await
    }

    /// Like [`ControlGroup::propose`], but without the check that the commands can be decoded.
    pub async fn propose_decoded(&self, commands: CommandBatch) -> Result<Vec<Bytes>, ControlError> {
        let group = self.group()?;
        let prepare = || self.prepare_term(&group);
        proposing::propose(&group, &*self.transport, self.retry_deadline(), commands, prepare).await
    }

    fn retry_deadline(&self) -> RetryDeadline {
        RetryDeadline::new(Duration::from_millis(self.limits.raft.answer_ms_max))
    }

    /// Proposes one command.
    pub async fn execute(&self, command: &ControlCommand<'_>) -> Result<ControlReply, ControlError> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        self.execute_encoded(&bytes).await
    }

    /// Like [`ControlGroup::execute`], but for an encoded command.
    pub(crate) async fn execute_encoded(&self, command: &[u8]) -> Result<ControlReply, ControlError> {
        let mut commands = CommandBatch::default();
        commands.push(command);
        let responses = self.propose_decoded(commands).await?;
        let outcome = ControlOutcome::decode(responses.first().ok_or(ControlError::Unknown)?)?;
        Ok(Result::from(outcome)?)
    }

    /// Like [`ControlGroup::execute`], but for several commands, which are applied one after another with no other command
    /// in between. Returns the result of each command.
    pub async fn execute_all(
        &self,
        all: &[ControlCommand<'_>],
    ) -> Result<Vec<Result<ControlReply, ControlRefusal>>, ControlError> {
        let mut commands = CommandBatch::default();
        all.iter().for_each(|command| commands.push_with(|out| command.encode(out)));
        let responses = self.propose_decoded(commands).await?;
        let outcomes = responses.iter().map(|response| Ok(ControlOutcome::decode(response)?.into()));
        outcomes.collect::<Result<Vec<_>, ControlError>>().and_then(|outcomes| {
            match outcomes.len() == all.len() {
                true => Ok(outcomes),
                false => Err(ControlError::Unknown),
            }
        })
    }

    /// Waits until this node has applied every command that any node has acknowledged so far.
    pub async fn catch_up(&self) -> Result<(), ControlError> {
        proposing::catch_up(&*self.group()?, &*self.transport, self.retry_deadline()).await
    }

    /// Like [`ControlGroup::catch_up`], but returns `false` after a short time if the node cannot reach a majority.
    pub(crate) async fn try_catch_up(&self) -> bool {
        match self.group() {
            Ok(group) => proposing::try_catch_up(&*group, &*self.transport).await,
            Err(_ended) => false,
        }
    }

    /// The locks for which a user's leases wait. Each entry has the waiting lease and the lock's name.
    pub(crate) async fn waits_of(&self, user: &str) -> Result<Vec<(u64, Key)>, ControlError> {
        self.read(Consistency::Linearizable, |state| state.waits_of_user(user.as_bytes())).await
    }

    /// Executes `Release` commands. Each command releases a lock that its lease holds, or removes the lease from the
    /// lock's queue. If the lease neither holds the lock nor waits for it, the command has no effect.
    pub(crate) async fn release_all(&self, releases: &[ControlCommand<'_>]) -> Result<(), ControlError> {
        for chunk in releases.chunks(BATCH_MAX) {
            self.execute_all(chunk).await?;
        }
        Ok(())
    }

    /// Ends a user's leases, with their keys and locks.
    pub(crate) async fn end_leases_of(&self, user: &str) -> Result<(), ControlError> {
        loop {
            let leases =
                self.read(Consistency::Linearizable, |state| state.leases_of_user(user.as_bytes())).await?;
            if leases.is_empty() {
                return Ok(());
            }
            for chunk in leases.chunks(BATCH_MAX) {
                let commands: Vec<_> = chunk.iter().map(|&lease| ControlCommand::Revoke { lease }).collect();
                self.execute_all(&commands).await?;
            }
        }
    }

    /// Whether this node has stopped, or has applied all log entries that existed when it started.
    pub(crate) fn has_applied_log(&self) -> bool {
        self.has_caught_up().unwrap_or(true)
    }

    /// Whether this node has applied all log entries that existed when it started.
    fn has_caught_up(&self) -> Result<bool, ControlError> {
        let caught_up = self.caught_up.load(Ordering::Relaxed) || self.status()?.applied >= self.last_before;
        self.caught_up.store(caught_up, Ordering::Relaxed);
        Ok(caught_up)
    }

    /// Calls `read` with a state of the requested consistency, and returns the result.
    pub async fn read<R>(
        &self,
        consistency: Consistency,
        read: impl FnOnce(&ControlState) -> R,
    ) -> Result<R, ControlError> {
        if consistency == Consistency::Linearizable || !self.has_caught_up()? {
            self.catch_up().await?;
        }
        self.with(read)
    }

    /// The present epoch of the revisions.
    pub async fn epoch(&self) -> Result<u32, ControlError> {
        self.read(Consistency::Stale, ControlState::epoch).await
    }

    /// Answers a query of keys, leases or locks.
    pub async fn query(
        &self,
        consistency: Consistency,
        query: &ControlQuery<'_>,
    ) -> Result<ControlQueryResult, ControlError> {
        Ok(self.read(consistency, |state| state.answer(query)).await??)
    }

    /// Waits for a lock under a lease and returns its token. If the future is dropped, the lease stays in the lock's
    /// queue, and the caller has to release the lock.
    pub async fn acquire(&self, name: &[u8], lease: u64, value: &[u8]) -> Result<u64, ControlError> {
        let mut command = Vec::new();
        ControlCommand::Acquire { name, lease, value, wait: true }.encode(&mut command);
        let acquired = self.acquire_by(name, lease, &command, std::future::pending()).await?;
        acquired.ok_or(ControlError::Unknown)
    }

    /// Like [`ControlGroup::acquire`], but for an encoded command. Returns `None` if `cancelled` completes before the wait
    /// ends. When this function returns, the cluster either has applied the command or will never apply it.
    pub(crate) async fn acquire_by(
        &self,
        name: &[u8],
        lease: u64,
        command: &[u8],
        cancelled: impl Future<Output = ()>,
    ) -> Result<Option<u64>, ControlError> {
        if let Some(token) = self.request_lock(command).await? {
            return Ok(Some(token));
        }
        let mut cancelled = pin!(cancelled);
        loop {
            // First apply all earlier commands, such as a release by the same lease. If this node applied such a
            // command only after this wait has begun, this wait would end with the outcome of an earlier wait.
            self.catch_up().await.map_err(queued_error)?;
            let mut lock_wait = LockWait {
                control: self,
                name,
                lease,
                outcome: Some(self.lock_waiters.register(name, lease)),
            };
            // The lease may have received the lock, or left the queue, before the wait began. Do not request the lock
            // again: if a command has removed the lease from the queue, a request would put it back.
            self.catch_up().await.map_err(queued_error)?;
            match self.with(|state| state.lock_status(name, lease)).map_err(queued_error)?? {
                LockStatus::Held { token } => return Ok(Some(token)),
                LockStatus::Waiting => {}
            }
            match select(pin!(lock_wait.wait()), cancelled.as_mut()).await {
                Either::Left((Some(outcome), _)) => return Ok(Some(outcome?)),
                Either::Left((None, _)) => {}
                Either::Right(((), _)) => return Ok(None),
            }
            // The wait ended without an outcome: either a snapshot replaced the state, or the node is stopping. If the
            // node is stopping, `group` returns an error.
            self.group()?;
        }
    }

    /// Requests a lock. Returns its token, or `None` if the lease waits in the lock's queue.
    async fn request_lock(&self, command: &[u8]) -> Result<Option<u64>, ControlError> {
        match self.execute_encoded(command).await? {
            ControlReply::Held { token } => Ok(Some(token)),
            ControlReply::Waiting { .. } => Ok(None),
            _ => Err(ControlError::Unknown),
        }
    }

    /// Begins the first epoch of a cluster that has none. Applies the whole log first: a restarted node can become the
    /// leader before it has applied its log, and the log may already contain an epoch.
    pub(super) async fn begin_epoch(&self) -> Result<(), ControlError> {
        let group = self.group()?;
        let mut command = Vec::new();
        ControlCommand::Begin { epoch: self.epoch }.encode(&mut command);
        let response = loop {
            let result = match group.catch_up().await {
                Ok(()) if self.has_begun() => return Ok(()),
                Ok(()) => group.propose(command.clone().into()).await,
                Err(error) => Err(error),
            };
            match result {
                Err(RaftGroupError::NotLeader { .. }) if group.leader().await.is_some() => {
                    if group.leadership() != Leadership::Local {
                        return Ok(());
                    }
                    group.pause(PAUSE).await;
                }
                other => break other?,
            }
        };
        match Result::from(ControlOutcome::decode(&response)?) {
            Ok(_) | Err(ControlRefusal::OldEpoch { .. }) => Ok(()),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Begins a new epoch after a restore from a backup. The new epoch is later than the present one, and not below the
    /// clock's epoch. It is therefore also later than all epochs that this node has begun since the backup. Skips the
    /// revisions, fencing tokens and lease numbers that clients may have received after the backup was made.
    pub async fn begin_restored(&self) -> Result<(), ControlError> {
        let epoch = self.epoch.max(self.view.state().epoch().saturating_add(1));
        self.execute(&ControlCommand::BeginRestored { epoch, skipped: RESTORE_SKIPS }).await.map(drop)
    }

    /// Prepares the leader for commands. Begins an epoch if there is none, and proposes the leader's limits once in
    /// each term.
    async fn prepare_term(&self, group: &GroupHandle<ControlMachine>) -> Result<(), ControlError> {
        if !self.has_begun() {
            self.begin_epoch().await?;
        }
        let term = group.term();
        if self.limits_term.load(Ordering::Relaxed) == term {
            return Ok(());
        }
        let state_bytes_max = self.limits.state_bytes_max;
        // The state has room for `leases_max` leases, because a lease takes less memory than `LEASE_BYTES`.
        let leases_max = (state_bytes_max / LEASE_BYTES).clamp(LEASES_MIN, LEASES_MAX);
        let present = self.view.state().limits();
        let limits = dunlin_control::ControlStateLimits { state_bytes_max, leases_max, ..present };
        let mut command = Vec::new();
        ControlCommand::Limit { limits }.encode(&mut command);
        match group.propose(command.into()).await {
            Ok(_) => self.limits_term.store(term, Ordering::Relaxed),
            // Another node leads now, and it proposes its own limits.
            Err(RaftGroupError::NotLeader { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Handles a proposal or read that another node has forwarded to this node.
    pub(super) async fn handle_forwarded(
        &self,
        group: &GroupHandle<ControlMachine>,
        request: ForwardedRequest,
    ) -> Bytes {
        if matches!(request, ForwardedRequest::Propose(_))
            && group.leadership() == Leadership::Local
            && self.prepare_term(group).await.is_err()
        {
            // This error says that the command was certainly not applied. The node that forwarded the command therefore
            // sends it again.
            return forward::encode_responses(&Err(RaftGroupError::NotLeader { leader: None }));
        }
        proposing::handle_forwarded(group, request, |command| ControlCommand::decode(command).is_ok()).await
    }
}

/// Replaces `NoLeader` by `Unknown`. `NoLeader` would say that nothing has changed, but the lease may already be in the
/// lock's queue.
fn queued_error(error: ControlError) -> ControlError {
    match error {
        ControlError::NoLeader { .. } => ControlError::Unknown,
        other => other,
    }
}

/// A caller at this node that waits for a lock. Dropping the value ends the wait.
struct LockWait<'a> {
    control: &'a ControlGroup,
    name: &'a [u8],
    lease: u64,
    outcome: Option<tokio::sync::oneshot::Receiver<LockOutcome>>,
}

impl LockWait<'_> {
    async fn wait(&mut self) -> Option<LockOutcome> {
        match &mut self.outcome {
            Some(outcome) => outcome.await.ok(),
            None => None,
        }
    }
}

impl Drop for LockWait<'_> {
    fn drop(&mut self) {
        self.outcome = None;
        self.control.lock_waiters.unregister(self.name, self.lease);
    }
}
