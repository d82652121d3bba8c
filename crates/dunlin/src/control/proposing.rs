//! Proposes commands to a raft group, and finds out what a read of the group's state has to wait for. The leader does
//! this itself; any other node sends a request to the leader.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin_raft::{
    CommandBatch, GroupHandle, Leadership, RaftGroupError, RaftMember, RequestLane, StateMachine, Transport,
};
use futures_util::future::{Either, select};

use super::ControlError;
use super::forward::{self, ForwardedRequest};

/// The pause between two attempts to reach the leader.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// How long a node waits for a response from a majority before it gives up.
const MAJORITY_WITHIN: Duration = Duration::from_secs(2);

/// The time until which an operation may be tried again.
pub(crate) struct RetryDeadline {
    began: Instant,
    max: Duration,
}

impl RetryDeadline {
    pub(crate) fn new(max: Duration) -> RetryDeadline {
        RetryDeadline { began: Instant::now(), max }
    }

    /// Waits before another attempt. If no time for attempts is left, returns `NoLeader` with `why`, the reason why the
    /// last attempt failed.
    async fn wait<M: StateMachine>(&self, group: &GroupHandle<M>, why: String) -> Result<(), ControlError> {
        let waited = self.began.elapsed();
        if waited >= self.max {
            return Err(ControlError::NoLeader { waited_ms: waited.as_millis() as u64, why });
        }
        match group.leadership() {
            Leadership::Unknown => drop(group.leader().await),
            Leadership::Local | Leadership::Remote(_) => group.pause(PAUSE).await,
        }
        Ok(())
    }
}

/// The responses to proposed commands. If the commands certainly were not applied, the error holds the commands and the
/// reason.
type ProposalOutcome = Result<Vec<Bytes>, (CommandBatch, String)>;

/// Proposes commands to the leader. Commands that certainly were not applied are proposed again until the deadline. If
/// this node is the leader, it calls `prepare` before each attempt.
pub(crate) async fn propose<M, E, F>(
    group: &GroupHandle<M>,
    transport: &dyn Transport,
    retry_deadline: RetryDeadline,
    mut commands: CommandBatch,
    prepare: impl Fn() -> F,
) -> Result<Vec<Bytes>, E>
where
    M: StateMachine,
    E: From<ControlError>,
    F: Future<Output = Result<(), E>>,
{
    loop {
        let leadership = group.leadership();
        if leadership == Leadership::Local {
            prepare().await?;
        }
        match propose_once(group, transport, leadership, commands).await? {
            Ok(responses) => return Ok(responses),
            Err((unapplied, why)) => {
                commands = unapplied;
                retry_deadline.wait(group, why).await?;
            }
        }
    }
}

async fn propose_once<M: StateMachine>(
    group: &GroupHandle<M>,
    transport: &dyn Transport,
    lead: Leadership,
    commands: CommandBatch,
) -> Result<ProposalOutcome, ControlError> {
    match lead {
        Leadership::Local => match group.propose_all(commands).await {
            Ok(responses) => Ok(Ok(responses)),
            Err((error @ RaftGroupError::NotLeader { .. }, unapplied)) => {
                Ok(Err((unapplied, error.to_string())))
            }
            Err((error, _)) => Err(error.into()),
        },
        Leadership::Remote(leader) => forward(transport, &leader, commands).await,
        Leadership::Unknown => Ok(Err((commands, "the cluster has no leader".to_owned()))),
    }
}

async fn forward(
    transport: &dyn Transport,
    leader: &RaftMember,
    commands: CommandBatch,
) -> Result<ProposalOutcome, ControlError> {
    let request = ForwardedRequest::Propose(commands);
    let response = transport.request(leader, RequestLane::Forward, vec![request.bytes()]).await;
    let why = match response.and_then(forward::decode_responses) {
        Ok(Ok(responses)) => return Ok(Ok(responses)),
        Ok(Err(error @ RaftGroupError::NotLeader { .. })) => error.to_string(),
        Ok(Err(error)) => return Err(error.into()),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => error.to_string(),
        Err(_lost) => return Err(ControlError::Unknown),
    };
    let ForwardedRequest::Propose(unapplied) = request else { return Err(ControlError::Unknown) };
    Ok(Err((unapplied, why)))
}

/// Waits until this node has applied every command that any node has acknowledged so far.
pub(crate) async fn catch_up<M: StateMachine>(
    group: &GroupHandle<M>,
    transport: &dyn Transport,
    retry_deadline: RetryDeadline,
) -> Result<(), ControlError> {
    loop {
        let index = read_index(group, transport, &retry_deadline).await?;
        match group.applied(index).await {
            Ok(()) => return Ok(()),
            Err(late) => retry_deadline.wait(group, late.to_string()).await?,
        }
    }
}

/// Like [`catch_up`], but returns `false` after a short time if the node cannot reach a majority.
pub(crate) async fn try_catch_up<M: StateMachine>(group: &GroupHandle<M>, transport: &dyn Transport) -> bool {
    let retry_deadline = RetryDeadline::new(MAJORITY_WITHIN);
    let (index, late) =
        (pin!(read_index(group, transport, &retry_deadline)), pin!(group.pause(MAJORITY_WITHIN)));
    match select(index, late).await {
        Either::Left((Ok(index), _)) => group.applied(index).await.is_ok(),
        Either::Left((Err(_), _)) | Either::Right(_) => false,
    }
}

/// The index of a log entry. Once this node has applied this entry, it can answer a linearizable read.
async fn read_index<M: StateMachine>(
    group: &GroupHandle<M>,
    transport: &dyn Transport,
    retry_deadline: &RetryDeadline,
) -> Result<u64, ControlError> {
    loop {
        let index = match group.leadership() {
            Leadership::Local => group.read_index().await,
            Leadership::Remote(leader) => {
                let index = transport
                    .request(&leader, RequestLane::Forward, vec![ForwardedRequest::ReadIndex.bytes()])
                    .await;
                index
                    .and_then(forward::decode_index)
                    .unwrap_or_else(|error| Err(RaftGroupError::NoQuorum(error.to_string())))
            }
            Leadership::Unknown => Err(RaftGroupError::NotLeader { leader: None }),
        };
        match index {
            Ok(index) => return Ok(index),
            Err(error @ (RaftGroupError::NotLeader { .. } | RaftGroupError::NoQuorum(_))) => {
                retry_deadline.wait(group, error.to_string()).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Handles a proposal or read that another node has forwarded to this node.
pub(crate) async fn handle_forwarded<M: StateMachine>(
    group: &GroupHandle<M>,
    request: ForwardedRequest,
    is_known: impl Fn(&[u8]) -> bool,
) -> Bytes {
    match request {
        ForwardedRequest::ReadIndex => forward::encode_index(&group.read_index().await),
        ForwardedRequest::Propose(commands) if !commands.iter().all(is_known) => {
            let error = RaftGroupError::Refused(
                "the leader does not know the version of a command in this request".to_owned(),
            );
            forward::encode_responses(&Err(error))
        }
        ForwardedRequest::Propose(commands) => {
            let responses = group.propose_all(commands).await;
            forward::encode_responses(&responses.map_err(|(error, _)| error))
        }
    }
}
