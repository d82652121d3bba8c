//! Handles a client's requests for keys, leases and locks. The session collects requests while it handles the bytes of
//! one read, and then proposes the collected commands to the cluster together. Results are sent when they arrive.
//!
//! Invariants:
//! - However many commands one read contains, they cause one proposal and one notification of the results.
//! - A query is evaluated only when the output has room for its result. Waiting results of queries therefore take no
//!   memory.
//! - Results of transactions wait until the output has room. A large result is charged to the memory budget until it is
//!   sent. If the budget has no room for it, the client receives an error which says that the result was lost.
//!
//! Limits: a session may have at most [`REQUESTS_MAX`] requests without a response, of at most [`REQUEST_BYTES_MAX`]
//! bytes together. Further requests are refused. Above
//! [`UNCHARGED_MESSAGE_BYTES_MAX`](crate::charging::UNCHARGED_MESSAGE_BYTES_MAX), the bytes of these requests are
//! charged to the memory budget.

use std::sync::Arc;

use bytes::Bytes;
use dunlin::raft::CommandBatch;
use dunlin::state::{ControlCommand, ControlOutcome, ControlQuery};
use dunlin::topic::{MemoryBudget, MemoryCharge, Waiter};
use dunlin::wire::{self, ControlKind, ControlResult, FromNode, RequestRefused, U32PrefixedBytes};
use dunlin::{ControlError, ControlGroup, Refused};
use tokio::task::AbortHandle;

use super::outbound::protocol;
use super::pending::{OutcomeQueue, PendingRequest, RequestOutcome, lock, push_outcomes};
use super::{CONTROL_BYTES_MAX, Session};
use crate::charging::{charge_if_large, result_dropped};

/// Token of the notification that results have arrived.
pub(super) const CONTROL_RESULT: u32 = u32::MAX - 6;

/// Maximum number of requests in one session that have no response yet.
const REQUESTS_MAX: usize = 4_096;
/// Maximum total size of a session's requests that have no response yet, bytes.
const REQUEST_BYTES_MAX: usize = 32 << 20;
/// Maximum size of a result that is never charged, bytes. Larger results come only from transactions that read keys.
const SMALL_RESULT_BYTES: usize = 1 << 10;

#[derive(Debug, Default)]
pub(super) struct ControlRequests {
    commands: CommandBatch,
    command_requests: Vec<PendingRequest>,
    queries: Vec<(PendingRequest, Bytes)>,
    outcomes: OutcomeQueue<ResponseContent>,
    pending_count: usize,
    pending_bytes: usize,
    /// Handles to cancel the requests that wait for locks.
    lock_waits: Vec<AbortHandle>,
}

#[derive(Debug)]
enum ResponseContent {
    /// The encoded [`ControlOutcome`] of a command. If it is large, also its memory charge.
    CommandOutcome(Bytes, Option<MemoryCharge>),
    /// A query that can be evaluated as soon as the output has room.
    Query(Bytes),
}

impl RequestOutcome<ResponseContent> {
    fn result_bytes(&self) -> usize {
        match &self.1 {
            Ok(ResponseContent::CommandOutcome(bytes, _)) => bytes.len(),
            _ => 0,
        }
    }
}

/// Adds the outcomes of commands to the queue. Charges large outcomes to the memory budget.
fn push_command_outcomes(
    outcomes: &OutcomeQueue<ResponseContent>,
    waiter: &Arc<Waiter>,
    requests: Vec<PendingRequest>,
    results: Result<Vec<Bytes>, ControlError>,
    budget: &Arc<MemoryBudget>,
) {
    let results = match results {
        Ok(results) => results,
        Err(error) => {
            let refused = Refused::from(&error);
            let failed = requests.into_iter().map(|request| RequestOutcome(request, Err(refused.clone())));
            return push_outcomes(outcomes, waiter, CONTROL_RESULT, failed);
        }
    };
    let mut unsent_bytes: usize = lock(outcomes).iter().map(RequestOutcome::result_bytes).sum();
    let new = requests.into_iter().zip(results).map(|(request, bytes)| {
        let is_small = bytes.len() <= SMALL_RESULT_BYTES;
        let charge = if is_small { Ok(None) } else { charge_if_large(budget, bytes.len(), unsent_bytes) };
        unsent_bytes += bytes.len();
        let content = charge.map(|charge| ResponseContent::CommandOutcome(bytes, charge));
        RequestOutcome(request, content.map_err(result_dropped))
    });
    push_outcomes(outcomes, waiter, CONTROL_RESULT, new.collect::<Vec<_>>());
}

impl Session {
    pub(super) fn control(&mut self, message: &wire::Control<'_>) {
        if let Err(refused) = self.accept_control(message) {
            self.slow_down(&refused);
            self.refuse_control(message.request, &refused);
        }
    }

    fn accept_control(&mut self, message: &wire::Control<'_>) -> Result<(), Refused> {
        if let Some(Err(refused)) = self.prepared.take() {
            return Err(refused);
        }
        let (number, bytes) = (message.request, message.bytes.0.len());
        if self.control_requests.pending_count >= REQUESTS_MAX {
            return Err(Refused::limit("control_requests_max", REQUESTS_MAX as u64));
        }
        if self.control_requests.pending_bytes + bytes > REQUEST_BYTES_MAX {
            return Err(Refused::limit("control_request_bytes_max", REQUEST_BYTES_MAX as u64));
        }
        let pending_bytes = self.control_requests.pending_bytes;
        let request = PendingRequest::new(number, bytes, pending_bytes, self.node.connection_budget())?;
        match message.kind {
            ControlKind::Command => self.accept_command(request, message.bytes.0)?,
            ControlKind::Query | ControlKind::StaleQuery => {
                let query =
                    ControlQuery::decode(message.bytes.0).map_err(|error| protocol(error.to_string()))?;
                self.node.may_query(&query).map_err(|error| Refused::from(&error))?;
                let bytes = Bytes::copy_from_slice(message.bytes.0);
                if message.kind == ControlKind::Query {
                    self.control_requests.queries.push((request, bytes));
                } else {
                    lock(&self.control_requests.outcomes)
                        .push_back(RequestOutcome(request, Ok(ResponseContent::Query(bytes))));
                }
            }
        }
        self.control_requests.pending_count += 1;
        self.control_requests.pending_bytes += bytes;
        Ok(())
    }

    fn accept_command(&mut self, request: PendingRequest, bytes: &[u8]) -> Result<(), Refused> {
        let command =
            ControlCommand::decode_from_client(bytes).map_err(|error| protocol(error.to_string()))?;
        if let ControlCommand::Move { topic, node, .. } = command {
            return self.accept_move(request, topic, node);
        }
        self.admit_command(&command, bytes.len())?;
        if let ControlCommand::Acquire { name, lease, value, wait: true } = command {
            return self.wait_for_lock(request, name.to_vec(), lease, value.to_vec());
        }
        let permitted = self.node.permit(&command, bytes, &mut self.control_requests.commands);
        permitted.map_err(|error| Refused::from(&error))?;
        self.control_requests.command_requests.push(request);
        Ok(())
    }

    /// Accepts a request to move a topic, if the client may create and delete this topic. This node chooses the topic's
    /// new epoch.
    fn accept_move(&mut self, request: PendingRequest, topic: &[u8], to: u64) -> Result<(), Refused> {
        let name = std::str::from_utf8(topic).map_err(|error| protocol(error.to_string()))?;
        let command = self.node.command_to_move(name, to).map_err(|error| Refused::from(&error))?;
        self.admit_command(&command, request.bytes)?;
        self.control_requests.commands.push_with(|out| command.encode(out));
        self.control_requests.command_requests.push(request);
        Ok(())
    }

    fn wait_for_lock(
        &mut self,
        request: PendingRequest,
        name: Vec<u8>,
        lease: u64,
        value: Vec<u8>,
    ) -> Result<(), Refused> {
        let node = self.node.clone();
        let (outcomes, waiter) = (Arc::clone(&self.control_requests.outcomes), Arc::clone(&self.waiter));
        let task = tokio::spawn(async move {
            let held = node.acquire(&name, lease, &value).await;
            let content = held.map(|token| {
                let mut out = Vec::new();
                ControlOutcome::Done { reply: dunlin::state::ControlReply::Held { token } }.encode(&mut out);
                ResponseContent::CommandOutcome(out.into(), None)
            });
            let outcome = RequestOutcome(request, content);
            push_outcomes(&outcomes, &waiter, CONTROL_RESULT, [outcome]);
        });
        self.control_requests.lock_waits.retain(|wait| !wait.is_finished());
        self.control_requests.lock_waits.push(task.abort_handle());
        Ok(())
    }

    fn cluster(&self) -> Result<Arc<ControlGroup>, Refused> {
        self.node.control().map(Arc::clone).map_err(|error| Refused::from(&error))
    }

    /// Proposes the collected commands to the cluster. If there are collected queries, also waits in the background
    /// until this node has applied all acknowledged commands. Then the queries can be evaluated.
    pub(super) fn propose_control_requests(&mut self) {
        if self.control_requests.command_requests.is_empty() && self.control_requests.queries.is_empty() {
            return;
        }
        let commands = std::mem::take(&mut self.control_requests.commands);
        let command_requests = std::mem::take(&mut self.control_requests.command_requests);
        let queries = std::mem::take(&mut self.control_requests.queries);
        let control = match self.cluster() {
            Ok(control) => control,
            Err(refused) => {
                let requests =
                    command_requests.into_iter().chain(queries.into_iter().map(|(request, _)| request));
                let mut outcomes = lock(&self.control_requests.outcomes);
                outcomes.extend(requests.map(|request| RequestOutcome(request, Err(refused.clone()))));
                return;
            }
        };
        let (outcomes, waiter) = (&self.control_requests.outcomes, &self.waiter);
        if !command_requests.is_empty() {
            let (control, outcomes, waiter) =
                (Arc::clone(&control), Arc::clone(outcomes), Arc::clone(waiter));
            let budget = Arc::clone(self.node.connection_budget());
            tokio::spawn(async move {
                let results = control.propose_decoded(commands).await;
                push_command_outcomes(&outcomes, &waiter, command_requests, results, &budget);
            });
        }
        if !queries.is_empty() {
            let (outcomes, waiter) = (Arc::clone(outcomes), Arc::clone(waiter));
            tokio::spawn(async move {
                let caught_up = control.catch_up().await.map_err(|error| Refused::from(&error));
                let new = queries.into_iter().map(|(request, bytes)| {
                    RequestOutcome(request, caught_up.clone().map(|()| ResponseContent::Query(bytes)))
                });
                push_outcomes(&outcomes, &waiter, CONTROL_RESULT, new);
            });
        }
    }

    /// Sends the results that are ready, while the output has room.
    pub(super) fn send_control_results(&mut self) {
        while self.outbound.control.len() <= CONTROL_BYTES_MAX {
            let Some(RequestOutcome(request, content)) = lock(&self.control_requests.outcomes).pop_front()
            else {
                return;
            };
            self.control_requests.pending_count -= 1;
            self.control_requests.pending_bytes -= request.bytes;
            let sent = content.and_then(|content| match content {
                ResponseContent::CommandOutcome(bytes, charge) => {
                    self.outbound.hold_charge(charge);
                    self.send_command_result(request.number, &bytes)
                }
                ResponseContent::Query(bytes) => self.send_query_result(request.number, &bytes),
            });
            if let Err(refused) = sent {
                self.refuse_control(request.number, &refused);
            }
        }
    }

    fn send_command_result(&mut self, request: u32, bytes: &[u8]) -> Result<(), Refused> {
        // Only a refusal is decoded, in order to send it as an error. All other results are sent without decoding them.
        if matches!(bytes, [_, REFUSED, ..])
            && let Ok(ControlOutcome::Refused { refusal }) = ControlOutcome::decode(bytes)
        {
            return Err(Refused::from(&refusal));
        }
        self.outbound
            .push(FromNode::ControlResult(ControlResult { request, bytes: U32PrefixedBytes(bytes) }));
        Ok(())
    }

    fn send_query_result(&mut self, request: u32, bytes: &[u8]) -> Result<(), Refused> {
        let query = ControlQuery::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        let found = self.cluster()?.with(|state| self.node.query_state(state, &query));
        let mut out = Vec::new();
        found.map_err(|error| Refused::from(&error))??.encode(&mut out);
        let charge = charge_if_large(self.node.connection_budget(), out.len(), 0)?;
        self.outbound.hold_charge(charge);
        self.outbound.push(FromNode::ControlResult(ControlResult { request, bytes: U32PrefixedBytes(&out) }));
        Ok(())
    }

    fn refuse_control(&mut self, request: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.push(FromNode::RequestRefused(RequestRefused { request, refusal }));
    }
}

impl ControlRequests {
    /// Whether all requests have responses, not counting requests that wait for locks.
    pub(super) fn all_responded(&self) -> bool {
        self.pending_count == self.lock_waits.iter().filter(|wait| !wait.is_finished()).count()
    }
}

impl Drop for ControlRequests {
    fn drop(&mut self) {
        self.lock_waits.iter().for_each(AbortHandle::abort);
    }
}

/// The second byte of each encoded [`ControlOutcome`] that is a refusal.
const REFUSED: u8 = 2;
