//! Handles requests for keys, leases and locks. Requests are collected while the read buffer is handled, and then
//! proposed to the cluster together. Results are sent when they arrive.
//!
//! Invariants:
//! - One read of the socket causes one proposal and one notification of its result, however many commands were read.
//! - A query is evaluated when there is room for its result, so that results take no memory while they wait.
//!
//! Limits: [`REQUESTS_MAX`] requests, and [`REQUEST_BYTES_MAX`] of their bytes, without a response; further requests
//! are refused.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dunlin::raft::Commands;
use dunlin::state::{ControlCommand, ControlOutcome, ControlQuery};
use dunlin::topic::Waiter;
use dunlin::wire::{self, ControlKind, ControlResult, FromNode, LongBytes, RequestRefused};
use dunlin::{Control, ControlError, Refused};
use tokio::task::AbortHandle;

use super::outbound::protocol;
use super::{CONTROL_BYTES_MAX, Session};

/// Token with which results notify the session's waiter.
pub(super) const CONTROLLED: u32 = u32::MAX - 6;

/// Maximum number of requests of one session that have no response yet.
const REQUESTS_MAX: usize = 4_096;
/// Maximum size of the requests that have no response yet, bytes.
const REQUEST_BYTES_MAX: usize = 32 << 20;

/// The requests for keys, leases and locks of one session.
#[derive(Debug, Default)]
pub(super) struct ControlRequests {
    commands: Commands,
    of_commands: Vec<PendingRequest>,
    questions: Vec<(PendingRequest, Bytes)>,
    /// Results that were not sent yet.
    outcomes: Arc<Mutex<VecDeque<RequestOutcome>>>,
    unanswered: usize,
    unanswered_bytes: usize,
    /// Handles with which requests that wait for locks are cancelled.
    waits: Vec<AbortHandle>,
}

/// The number and size of a request.
#[derive(Debug, Clone, Copy)]
struct PendingRequest {
    number: u32,
    bytes: usize,
}

/// The result of a request that is not sent yet.
#[derive(Debug)]
struct RequestOutcome(PendingRequest, Result<ResponseContent, Refused>);

#[derive(Debug)]
enum ResponseContent {
    /// The encoded [`ControlOutcome`] of a command.
    Answered(Bytes),
    /// A query, which can be evaluated from now on.
    Question(Bytes),
}

type OutcomeQueue = Arc<Mutex<VecDeque<RequestOutcome>>>;

fn lock(outcomes: &OutcomeQueue) -> MutexGuard<'_, VecDeque<RequestOutcome>> {
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn push_outcomes(outcomes: &OutcomeQueue, waiter: &Arc<Waiter>, came: impl Iterator<Item = RequestOutcome>) {
    lock(outcomes).extend(came);
    waiter.notify(CONTROLLED);
}

impl Session {
    pub(super) fn control(&mut self, asked: &wire::Control<'_>) {
        if let Err(refused) = self.take_control(asked) {
            self.refuse_control(asked.request, &refused);
        }
    }

    fn take_control(&mut self, asked: &wire::Control<'_>) -> Result<(), Refused> {
        if let Some(Err(refused)) = self.waited.take() {
            return Err(refused);
        }
        let (number, bytes) = (asked.request, asked.bytes.0.len());
        let request = PendingRequest { number, bytes };
        if self.control_requests.unanswered >= REQUESTS_MAX {
            return Err(Refused::limit("control_requests_max", REQUESTS_MAX as u64));
        }
        if self.control_requests.unanswered_bytes + bytes > REQUEST_BYTES_MAX {
            return Err(Refused::limit("control_request_bytes_max", REQUEST_BYTES_MAX as u64));
        }
        match asked.kind {
            ControlKind::Command => self.take_command(request, asked.bytes.0)?,
            ControlKind::Question | ControlKind::StaleQuestion => {
                let query =
                    ControlQuery::decode(asked.bytes.0).map_err(|error| protocol(error.to_string()))?;
                self.node.may_query(&query).map_err(|error| Refused::from(&error))?;
                let bytes = Bytes::copy_from_slice(asked.bytes.0);
                if asked.kind == ControlKind::Question {
                    self.control_requests.questions.push((request, bytes));
                } else {
                    lock(&self.control_requests.outcomes)
                        .push_back(RequestOutcome(request, Ok(ResponseContent::Question(bytes))));
                }
            }
        }
        self.control_requests.unanswered += 1;
        self.control_requests.unanswered_bytes += bytes;
        Ok(())
    }

    fn take_command(&mut self, request: PendingRequest, bytes: &[u8]) -> Result<(), Refused> {
        let command = ControlCommand::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        if let ControlCommand::Move { topic, node, .. } = command {
            return self.take_move(request, topic, node);
        }
        if let ControlCommand::Acquire { name, lease, value, wait: true } = command {
            return self.wait_for_lock(request, name.to_vec(), lease, value.to_vec());
        }
        self.admit_publish(1, bytes.len())?;
        let permitted = self.node.permit(&command, bytes, &mut self.control_requests.commands);
        permitted.map_err(|error| Refused::from(&error))?;
        self.control_requests.of_commands.push(request);
        Ok(())
    }

    /// Moves a topic if the client may create and delete it. This node chooses the new epoch.
    fn take_move(&mut self, request: PendingRequest, topic: &[u8], to: u64) -> Result<(), Refused> {
        let name = std::str::from_utf8(topic).map_err(|error| protocol(error.to_string()))?;
        let command = self.node.command_to_move(name, to).map_err(|error| Refused::from(&error))?;
        self.admit_publish(1, request.bytes)?;
        self.control_requests.commands.push_with(|out| command.encode(out));
        self.control_requests.of_commands.push(request);
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
        let waiting = tokio::spawn(async move {
            let held = node.acquire(&name, lease, &value).await;
            let content = held.map(|token| {
                let mut out = Vec::new();
                ControlOutcome::Done { reply: dunlin::state::ControlReply::Held { token } }.encode(&mut out);
                ResponseContent::Answered(out.into())
            });
            let outcome = RequestOutcome(request, content);
            push_outcomes(&outcomes, &waiter, std::iter::once(outcome));
        });
        self.control_requests.waits.retain(|wait| !wait.is_finished());
        self.control_requests.waits.push(waiting.abort_handle());
        Ok(())
    }

    fn cluster(&self) -> Result<Arc<Control>, Refused> {
        self.node.control().map(Arc::clone).map_err(|error| Refused::from(&error))
    }

    /// Proposes the collected commands to the cluster, and catches up for the collected queries.
    pub(super) fn ask_cluster(&mut self) {
        if self.control_requests.of_commands.is_empty() && self.control_requests.questions.is_empty() {
            return;
        }
        let commands = std::mem::take(&mut self.control_requests.commands);
        let of_commands = std::mem::take(&mut self.control_requests.of_commands);
        let questions = std::mem::take(&mut self.control_requests.questions);
        let control = match self.cluster() {
            Ok(control) => control,
            Err(refused) => {
                let requests =
                    of_commands.into_iter().chain(questions.into_iter().map(|(request, _)| request));
                let mut outcomes = lock(&self.control_requests.outcomes);
                outcomes.extend(requests.map(|request| RequestOutcome(request, Err(refused.clone()))));
                return;
            }
        };
        let (outcomes, waiter) = (&self.control_requests.outcomes, &self.waiter);
        if !of_commands.is_empty() {
            let (control, outcomes, waiter) =
                (Arc::clone(&control), Arc::clone(outcomes), Arc::clone(waiter));
            tokio::spawn(async move {
                let answers = control.propose_known(commands).await;
                push_outcomes(&outcomes, &waiter, each(of_commands, answers).into_iter());
            });
        }
        if !questions.is_empty() {
            let (outcomes, waiter) = (Arc::clone(outcomes), Arc::clone(waiter));
            tokio::spawn(async move {
                let caught_up = control.catch_up().await.map_err(|error| Refused::from(&error));
                let came = questions.into_iter().map(|(request, bytes)| {
                    RequestOutcome(request, caught_up.clone().map(|()| ResponseContent::Question(bytes)))
                });
                push_outcomes(&outcomes, &waiter, came);
            });
        }
    }

    /// Sends results as far as there is room in the output.
    pub(super) fn answer_control(&mut self) {
        while self.outbound.control.len() <= CONTROL_BYTES_MAX {
            let Some(RequestOutcome(request, content)) = lock(&self.control_requests.outcomes).pop_front()
            else {
                return;
            };
            self.control_requests.unanswered -= 1;
            self.control_requests.unanswered_bytes -= request.bytes;
            let said = content.and_then(|content| match content {
                ResponseContent::Answered(bytes) => self.say_answered(request.number, &bytes),
                ResponseContent::Question(bytes) => self.say_found(request.number, &bytes),
            });
            if let Err(refused) = said {
                self.refuse_control(request.number, &refused);
            }
        }
    }

    fn say_answered(&mut self, request: u32, bytes: &[u8]) -> Result<(), Refused> {
        // Decodes the result only if it is a refusal. Other results are sent unchanged.
        if matches!(bytes, [_, REFUSED, ..])
            && let Ok(ControlOutcome::Refused { refusal }) = ControlOutcome::decode(bytes)
        {
            return Err(Refused::from(&refusal));
        }
        self.outbound.push(FromNode::ControlResult(ControlResult { request, bytes: LongBytes(bytes) }));
        Ok(())
    }

    fn say_found(&mut self, request: u32, bytes: &[u8]) -> Result<(), Refused> {
        let query = ControlQuery::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        let found = self.cluster()?.with(|state| self.node.find_in(state, &query));
        let mut out = Vec::new();
        found.map_err(|error| Refused::from(&error))??.encode(&mut out);
        self.outbound.push(FromNode::ControlResult(ControlResult { request, bytes: LongBytes(&out) }));
        Ok(())
    }

    fn refuse_control(&mut self, request: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.push(FromNode::RequestRefused(RequestRefused { request, refusal }));
    }
}

impl ControlRequests {
    /// Whether all requests have their results, apart from those that wait for locks.
    pub(super) fn is_answered(&self) -> bool {
        self.unanswered == self.waits.iter().filter(|wait| !wait.is_finished()).count()
    }
}

impl Drop for ControlRequests {
    fn drop(&mut self) {
        self.waits.iter().for_each(AbortHandle::abort);
    }
}

/// The second byte of an encoded [`ControlOutcome`] that is a refusal.
const REFUSED: u8 = 2;

fn each(requests: Vec<PendingRequest>, answers: Result<Vec<Bytes>, ControlError>) -> Vec<RequestOutcome> {
    match answers {
        Ok(answers) => requests
            .into_iter()
            .zip(answers)
            .map(|(request, bytes)| RequestOutcome(request, Ok(ResponseContent::Answered(bytes))))
            .collect(),
        Err(error) => {
            let refused = Refused::from(&error);
            requests.into_iter().map(|request| RequestOutcome(request, Err(refused.clone()))).collect()
        }
    }
}
