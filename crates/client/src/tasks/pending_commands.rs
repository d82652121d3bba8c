//! Commands and queries about tasks that were sent and have no response yet.

use std::time::Instant;

use dunlin_tasks::{CommandReply, TaskCommand};
use dunlin_wire::{
    ErrorCode, FromClient, FromNode, HEADER_BYTES, MessageKind, TaskCommandResult, Tasks as Message,
    TasksKind, U32PrefixedBytes,
};

use super::{Tasks, TasksError};
use crate::pending_request::{PendingRequest, repeat_while_lost};
use crate::refusal::RefusedError;
use crate::topics::CallError;

/// The largest number of bytes that a message with commands or with a query has besides these.
const HEAD_BYTES: usize = HEADER_BYTES + 32;

/// Commands about tasks that were sent together and have no response yet. Several such groups may be in flight. If they
/// arrive together, the node handles them in one step.
#[derive(Debug)]
#[must_use = "commands that are not waited for may fail unnoticed"]
pub struct PendingTaskCommands {
    tasks: Tasks,
    request: PendingRequest,
}

impl PendingTaskCommands {
    /// Whether the responses have arrived.
    pub fn is_answered(&self) -> bool {
        self.request.is_answered()
    }

    /// Waits for the response to each command.
    pub fn wait(self) -> Result<Vec<Result<CommandReply, RefusedError>>, TasksError> {
        let PendingTaskCommands { tasks, request } = self;
        let bytes = request.wait(Some(Instant::now() + tasks.response_timeout()))?;
        decode_responses(tasks.content(&bytes)?)
    }

    /// Async form of [`wait`](Self::wait).
    #[cfg(feature = "tokio")]
    pub async fn answered(self) -> Result<Vec<Result<CommandReply, RefusedError>>, TasksError> {
        let PendingTaskCommands { tasks, request } = self;
        let bytes = request.answered().await?;
        decode_responses(tasks.content(&bytes)?)
    }
}

impl Tasks {
    /// Sends commands as soon as there is a connection. Does not wait for the responses. The cluster carries out the
    /// commands in order.
    pub fn begin(&self, commands: &[TaskCommand<'_>]) -> Result<PendingTaskCommands, TasksError> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| push_command(&mut bytes, command));
        let request = self.send(TasksKind::Commands, &bytes, Instant::now() + self.response_timeout())?;
        Ok(PendingTaskCommands { tasks: self.clone(), request })
    }

    /// Sends a request. If there is no connection, waits for one until the time `until`.
    fn send(&self, kind: TasksKind, bytes: &[u8], until: Instant) -> Result<PendingRequest, CallError> {
        if let Some(refused) = refuse_too_long(bytes) {
            return Err(CallError::Refused(refused));
        }
        let message = |request| FromClient::Tasks(Message { request, kind, bytes: U32PrefixedBytes(bytes) });
        let request = self.shared.send_request_until(until, message)?;
        self.shared.check_version(MessageKind::Tasks)?;
        Ok(request)
    }

    /// Sends a request until the node responds, for at most the response timeout. The request must be one whose
    /// repetition has no further effect.
    pub(super) fn retry_until_answered(&self, kind: TasksKind, bytes: &[u8]) -> Result<Vec<u8>, TasksError> {
        let until = Instant::now() + self.response_timeout();
        let answer = repeat_while_lost(until, TasksError::is_lost, || {
            Ok(self.send(kind, bytes, until)?.wait(Some(until))?)
        })?;
        self.content(&answer).map(<[u8]>::to_vec)
    }

    pub(super) fn content<'b>(&self, message: &'b [u8]) -> Result<&'b [u8], TasksError> {
        match self.shared.decode_response(message) {
            Some(FromNode::TasksResult(result)) => Ok(result.bytes.0),
            _ => Err(TasksError::unexpected_response()),
        }
    }
}

/// Returns a refusal if the request is too large for a message, otherwise `None`. A node that receives a larger message
/// closes the connection, so that all other requests would lose their responses.
pub(super) fn refuse_too_long(bytes: &[u8]) -> Option<RefusedError> {
    let (size, size_max) = (bytes.len() + HEAD_BYTES, dunlin_wire::DecoderLimits::default().run_bytes_max);
    let refused = || {
        let (numbers, text) = ([size as u64, size_max as u64, 0], "run_bytes_max".to_owned());
        RefusedError { code: ErrorCode::TaskTooLarge, numbers, text }
    };
    (size > size_max).then(refused)
}

/// The number of bytes of the length field before each command.
pub(super) const LENGTH_BYTES: usize = 4;

/// Appends the length of a command, and then the command.
pub(super) fn push_command(bytes: &mut Vec<u8>, command: &TaskCommand<'_>) {
    let at = bytes.len();
    bytes.extend_from_slice(&[0; LENGTH_BYTES]);
    command.encode(bytes);
    let len = (bytes.len() - at - LENGTH_BYTES) as u32;
    bytes[at..at + LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
}

/// Decodes the response to each command.
pub(super) fn decode_responses(bytes: &[u8]) -> Result<Vec<Result<CommandReply, RefusedError>>, TasksError> {
    let read = |answer| {
        Ok(match answer {
            Ok(TaskCommandResult::Done(reply)) => Ok(CommandReply::decode(reply)?),
            Ok(TaskCommandResult::Refused(refusal)) => Err(RefusedError::new(&refusal)),
            Err(_) => return Err(TasksError::unexpected_response()),
        })
    };
    TaskCommandResult::read_all(bytes).map(read).collect()
}
