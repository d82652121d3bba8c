//! Proposals to a raft group and reads of its state. A node that leads handles them itself; any other node sends them
//! to the leader.

use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin_raft::{
    Commands, GroupHandle, Leadership, RaftGroupError, RaftMember, RequestLane, StateMachine, Transport,
};
use futures_util::future::{Either, select};

use super::ControlError;
use super::forward::{self, ForwardedRequest};

/// The pause between two attempts to find the leader.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// The time after which a node that has received no responses counts as a node without a majority.
const MAJORITY_WITHIN: Duration = Duration::from_secs(2);

/// The time of the first attempt of an operation, and how long further attempts may follow it.
pub(crate) struct RetryDeadline {
    began: Instant,
    max: Duration,
}

impl RetryDeadline {
    pub(crate) fn new(max: Duration) -> RetryDeadline {
        RetryDeadline { began: Instant::now(), max }
    }

    /// Waits before another attempt. If the time for attempts has passed, returns `NoLeader` with the reason `why`.
    pub(crate) async fn again<M: StateMachine>(
        &self,
        group: &GroupHandle<M>,
        why: String,
    ) -> Result<(), ControlError> {
        let waited = self.began.elapsed();
        if waited >= self.max {
            return Err(ControlError::NoLeader { waited_ms: waited.as_millis() as u64, why });
        }
        match group.lead() {
            Leadership::Nobody => drop(group.leader().await),
            Leadership::Here | Leadership::There(_) => group.pause(PAUSE).await,
        }
        Ok(())
    }
}

/// The results of the commands. In case of an error, the commands, and the reason why they certainly were not applied.
pub(crate) type ProposalOutcome = Result<Vec<Bytes>, (Commands, String)>;

/// Proposes commands to the leader, once.
pub(crate) async fn propose<M: StateMachine>(
    group: &GroupHandle<M>,
    transport: &dyn Transport,
    lead: Leadership,
    commands: Commands,
) -> Result<ProposalOutcome, ControlError> {
    match lead {
        Leadership::Here => match group.propose_all(commands).await {
            Ok(answers) => Ok(Ok(answers)),
            Err((error @ RaftGroupError::NotLeader { .. }, back)) => Ok(Err((back, error.to_string()))),
            Err((error, _)) => Err(error.into()),
        },
        Leadership::There(leader) => forward(transport, &leader, commands).await,
        Leadership::Nobody => Ok(Err((commands, "the cluster has no leader".to_owned()))),
    }
}

async fn forward(
    transport: &dyn Transport,
    leader: &RaftMember,
    commands: Commands,
) -> Result<ProposalOutcome, ControlError> {
    let request = ForwardedRequest::Propose(commands);
    let came = transport.ask(leader, RequestLane::Forward, vec![request.bytes()]).await;
    let why = match came.and_then(forward::read_answers) {
        Ok(Ok(answers)) => return Ok(Ok(answers)),
        Ok(Err(error @ RaftGroupError::NotLeader { .. })) => error.to_string(),
        Ok(Err(error)) => return Err(error.into()),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => error.to_string(),
        Err(_lost) => return Err(ControlError::Unknown),
    };
    let ForwardedRequest::Propose(back) = request else { return Err(ControlError::Unknown) };
    Ok(Err((back, why)))
}

/// Waits until this node has applied every command to which any node has responded so far.
pub(crate) async fn catch_up<M: StateMachine>(
    group: &GroupHandle<M>,
    transport: &dyn Transport,
    patience: RetryDeadline,
) -> Result<(), ControlError> {
    loop {
        let index = read_index(group, transport, &patience).await?;
        match group.applied(index).await {
            Ok(()) => return Ok(()),
            Err(late) => patience.again(group, late.to_string()).await?,
        }
    }
}

/// Like [`catch_up`], but returns `false` soon on a node without a majority.
pub(crate) async fn catch_up_if_led<M: StateMachine>(
    group: &GroupHandle<M>,
    transport: &dyn Transport,
) -> bool {
    let patience = RetryDeadline::new(MAJORITY_WITHIN);
    let (asked, late) = (pin!(read_index(group, transport, &patience)), pin!(group.pause(MAJORITY_WITHIN)));
    match select(asked, late).await {
        Either::Left((Ok(index), _)) => group.applied(index).await.is_ok(),
        Either::Left((Err(_), _)) | Either::Right(_) => false,
    }
}

/// The index of the log entry that this node has to apply before it answers a linearizable read.
async fn read_index<M: StateMachine>(
    group: &GroupHandle<M>,
    transport: &dyn Transport,
    patience: &RetryDeadline,
) -> Result<u64, ControlError> {
    loop {
        let index = match group.lead() {
            Leadership::Here => group.read_index().await,
            Leadership::There(leader) => {
                let asked = transport
                    .ask(&leader, RequestLane::Forward, vec![ForwardedRequest::ReadIndex.bytes()])
                    .await;
                asked
                    .and_then(forward::read_index)
                    .unwrap_or_else(|error| Err(RaftGroupError::NoQuorum(error.to_string())))
            }
            Leadership::Nobody => Err(RaftGroupError::NotLeader { leader: None }),
        };
        match index {
            Ok(index) => return Ok(index),
            Err(error @ (RaftGroupError::NotLeader { .. } | RaftGroupError::NoQuorum(_))) => {
                patience.again(group, error.to_string()).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Handles a proposal or read of another node.
pub(crate) async fn answer<M: StateMachine>(
    group: &GroupHandle<M>,
    request: ForwardedRequest,
    is_known: impl Fn(&[u8]) -> bool,
) -> Bytes {
    match request {
        ForwardedRequest::ReadIndex => forward::write_index(&group.read_index().await),
        ForwardedRequest::Propose(commands) if !commands.iter().all(is_known) => {
            let error =
                RaftGroupError::Refused("the leader does not know this version of a command".to_owned());
            forward::write_answers(&Err(error))
        }
        ForwardedRequest::Propose(commands) => {
            let answers = group.propose_all(commands).await;
            forward::write_answers(&answers.map_err(|(error, _)| error))
        }
    }
}
