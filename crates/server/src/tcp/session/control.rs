//! Keys and values, leases and locks. Requests are collected while the read buffer is handled, and proposed to the
//! cluster together; results are sent when they arrive.
//!
//! Invariants:
//! - One read of the socket takes one proposal, and one notification of its result, however many commands it
//!   contains.
//! - A query is evaluated when there is room for its result, so that results take no memory while they wait.
//!
//! Limits: [`REQUESTS_MAX`] and [`REQUEST_BYTES_MAX`] without a response; one more is refused.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dunlin::raft::Commands;
use dunlin::state::{Answered, Command, Query};
use dunlin::topic::Waiter;
use dunlin::wire::{self, ControlKind, Controlled, FromNode, Long, RequestRefused};
use dunlin::{Control, ControlError, Refused};
use tokio::task::AbortHandle;

use super::outbound::protocol;
use super::{CONTROL_BYTES_MAX, Session};

/// The waiter token of results.
pub(super) const CONTROLLED: u32 = u32::MAX - 6;

/// Requests of a session without a response.
const REQUESTS_MAX: usize = 4_096;
/// Bytes of these requests.
const REQUEST_BYTES_MAX: usize = 32 << 20;

/// The control requests of a session.
#[derive(Debug, Default)]
pub(super) struct Asking {
    commands: Commands,
    of_commands: Vec<Request>,
    questions: Vec<(Request, Bytes)>,
    /// Results that are not sent yet.
    outcomes: Arc<Mutex<VecDeque<Outcome>>>,
    unanswered: usize,
    unanswered_bytes: usize,
    /// Requests that wait for locks.
    waits: Vec<AbortHandle>,
}

/// A request's number and size.
#[derive(Debug, Clone, Copy)]
struct Request {
    number: u32,
    bytes: usize,
}

/// The result of a request.
#[derive(Debug)]
struct Outcome(Request, Result<Content, Refused>);

#[derive(Debug)]
enum Content {
    /// The bytes of an [`Answered`].
    Answered(Bytes),
    /// The query may be evaluated now.
    Question(Bytes),
}

type Outcomes = Arc<Mutex<VecDeque<Outcome>>>;

fn lock(outcomes: &Outcomes) -> MutexGuard<'_, VecDeque<Outcome>> {
    outcomes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(outcomes: &Outcomes, waiter: &Arc<Waiter>, came: impl Iterator<Item = Outcome>) {
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
        let request = Request { number, bytes };
        if self.asking.unanswered >= REQUESTS_MAX {
            return Err(Refused::limit("control_requests_max", REQUESTS_MAX as u64));
        }
        if self.asking.unanswered_bytes + bytes > REQUEST_BYTES_MAX {
            return Err(Refused::limit("control_request_bytes_max", REQUEST_BYTES_MAX as u64));
        }
        match asked.kind {
            ControlKind::Command => self.take_command(request, asked.bytes.0)?,
            ControlKind::Question | ControlKind::StaleQuestion => {
                let query = Query::decode(asked.bytes.0).map_err(|error| protocol(error.to_string()))?;
                self.node.may_query(&query).map_err(|error| Refused::from(&error))?;
                let bytes = Bytes::copy_from_slice(asked.bytes.0);
                if asked.kind == ControlKind::Question {
                    self.asking.questions.push((request, bytes));
                } else {
                    lock(&self.asking.outcomes).push_back(Outcome(request, Ok(Content::Question(bytes))));
                }
            }
        }
        self.asking.unanswered += 1;
        self.asking.unanswered_bytes += bytes;
        Ok(())
    }

    fn take_command(&mut self, request: Request, bytes: &[u8]) -> Result<(), Refused> {
        let command = Command::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        if let Command::Move { topic, node, .. } = command {
            return self.take_move(request, topic, node);
        }
        if let Command::Acquire { name, lease, value, wait: true } = command {
            return self.wait_for_lock(request, name.to_vec(), lease, value.to_vec());
        }
        self.admit_publish(1, bytes.len())?;
        let permitted = self.node.permit(&command, bytes, &mut self.asking.commands);
        permitted.map_err(|error| Refused::from(&error))?;
        self.asking.of_commands.push(request);
        Ok(())
    }

    /// Moves a topic, if the client may create and delete it. The node chooses the epoch.
    fn take_move(&mut self, request: Request, topic: &[u8], to: u64) -> Result<(), Refused> {
        let name = std::str::from_utf8(topic).map_err(|error| protocol(error.to_string()))?;
        let command = self.node.command_to_move(name, to).map_err(|error| Refused::from(&error))?;
        self.admit_publish(1, request.bytes)?;
        self.asking.commands.push_with(|out| command.encode(out));
        self.asking.of_commands.push(request);
        Ok(())
    }

    fn wait_for_lock(
        &mut self,
        request: Request,
        name: Vec<u8>,
        lease: u64,
        value: Vec<u8>,
    ) -> Result<(), Refused> {
        let node = self.node.clone();
        let (outcomes, waiter) = (Arc::clone(&self.asking.outcomes), Arc::clone(&self.waiter));
        let waiting = tokio::spawn(async move {
            let held = node.acquire(&name, lease, &value).await;
            let content = held.map(|token| {
                let mut out = Vec::new();
                Answered::Done { reply: dunlin::state::Reply::Held { token } }.encode(&mut out);
                Content::Answered(out.into())
            });
            let outcome = Outcome(request, content);
            tell(&outcomes, &waiter, std::iter::once(outcome));
        });
        self.asking.waits.retain(|wait| !wait.is_finished());
        self.asking.waits.push(waiting.abort_handle());
        Ok(())
    }

    fn cluster(&self) -> Result<Arc<Control>, Refused> {
        self.node.control().map(Arc::clone).map_err(|error| Refused::from(&error))
    }

    /// Proposes the collected commands, and catches up for the collected queries.
    pub(super) fn ask_cluster(&mut self) {
        if self.asking.of_commands.is_empty() && self.asking.questions.is_empty() {
            return;
        }
        let commands = std::mem::take(&mut self.asking.commands);
        let of_commands = std::mem::take(&mut self.asking.of_commands);
        let questions = std::mem::take(&mut self.asking.questions);
        let control = match self.cluster() {
            Ok(control) => control,
            Err(refused) => {
                let requests =
                    of_commands.into_iter().chain(questions.into_iter().map(|(request, _)| request));
                let mut outcomes = lock(&self.asking.outcomes);
                outcomes.extend(requests.map(|request| Outcome(request, Err(refused.clone()))));
                return;
            }
        };
        let (outcomes, waiter) = (&self.asking.outcomes, &self.waiter);
        if !of_commands.is_empty() {
            let (control, outcomes, waiter) =
                (Arc::clone(&control), Arc::clone(outcomes), Arc::clone(waiter));
            tokio::spawn(async move {
                let answers = control.propose_known(commands).await;
                tell(&outcomes, &waiter, each(of_commands, answers).into_iter());
            });
        }
        if !questions.is_empty() {
            let (outcomes, waiter) = (Arc::clone(outcomes), Arc::clone(waiter));
            tokio::spawn(async move {
                let caught_up = control.catch_up().await.map_err(|error| Refused::from(&error));
                let came = questions.into_iter().map(|(request, bytes)| {
                    Outcome(request, caught_up.clone().map(|()| Content::Question(bytes)))
                });
                tell(&outcomes, &waiter, came);
            });
        }
    }

    /// Sends results, as far as there is room.
    pub(super) fn answer_control(&mut self) {
        while self.outbound.control.len() <= CONTROL_BYTES_MAX {
            let Some(Outcome(request, content)) = lock(&self.asking.outcomes).pop_front() else { return };
            self.asking.unanswered -= 1;
            self.asking.unanswered_bytes -= request.bytes;
            let said = content.and_then(|content| match content {
                Content::Answered(bytes) => self.say_answered(request.number, &bytes),
                Content::Question(bytes) => self.say_found(request.number, &bytes),
            });
            if let Err(refused) = said {
                self.refuse_control(request.number, &refused);
            }
        }
    }

    fn say_answered(&mut self, request: u32, bytes: &[u8]) -> Result<(), Refused> {
        // Only a refusal is decoded; any other result is sent as it is.
        if matches!(bytes, [_, REFUSED, ..])
            && let Ok(Answered::Refused { refusal }) = Answered::decode(bytes)
        {
            return Err(Refused::from(&refusal));
        }
        self.outbound.say(FromNode::Controlled(Controlled { request, bytes: Long(bytes) }));
        Ok(())
    }

    fn say_found(&mut self, request: u32, bytes: &[u8]) -> Result<(), Refused> {
        let query = Query::decode(bytes).map_err(|error| protocol(error.to_string()))?;
        let found = self.cluster()?.with(|state| self.node.find_in(state, &query));
        let mut out = Vec::new();
        found.map_err(|error| Refused::from(&error))??.encode(&mut out);
        self.outbound.say(FromNode::Controlled(Controlled { request, bytes: Long(&out) }));
        Ok(())
    }

    fn refuse_control(&mut self, request: u32, refused: &Refused) {
        let refusal = refused.as_wire();
        self.outbound.say(FromNode::RequestRefused(RequestRefused { request, refusal }));
    }
}

impl Asking {
    /// Whether all requests have their result, except those that wait for locks.
    pub(super) fn is_answered(&self) -> bool {
        self.unanswered == self.waits.iter().filter(|wait| !wait.is_finished()).count()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.waits.iter().for_each(AbortHandle::abort);
    }
}

/// The second byte of an [`Answered`] that refuses.
const REFUSED: u8 = 2;

fn each(requests: Vec<Request>, answers: Result<Vec<Bytes>, ControlError>) -> Vec<Outcome> {
    match answers {
        Ok(answers) => requests
            .into_iter()
            .zip(answers)
            .map(|(request, bytes)| Outcome(request, Ok(Content::Answered(bytes))))
            .collect(),
        Err(error) => {
            let refused = Refused::from(&error);
            requests.into_iter().map(|request| Outcome(request, Err(refused.clone()))).collect()
        }
    }
}
