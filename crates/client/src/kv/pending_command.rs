//! Commands about keys, leases and locks that were sent and have no response yet.

use std::time::{Duration, Instant};

use dunlin_control::{ControlCommand, ControlOutcome, ControlReply};
use dunlin_wire::{
    Control, ControlKind, ErrorCode, FromClient, FromNode, HEADER_BYTES, MessageKind, U32PrefixedBytes,
};

use super::{Kv, KvError};
use crate::follow::lock;
use crate::pending_request::{PendingRequest, REPEAT_PAUSE, repeat_while_lost};
use crate::refusal::RefusedError;
use crate::topics::CallError;

/// The largest number of bytes that a message with a command has besides the command itself.
const HEAD_BYTES: usize = HEADER_BYTES + 32;

/// A command about keys, leases or locks that was sent and has no response yet. Several commands may be in flight. If
/// they arrive together, the node handles them in one step.
#[derive(Debug)]
#[must_use = "a command that is not waited for may fail unnoticed"]
pub struct PendingCommand {
    kv: Kv,
    request: PendingRequest,
}

impl PendingCommand {
    /// Whether the response has arrived.
    pub fn is_answered(&self) -> bool {
        self.request.is_answered()
    }

    /// Waits for the response.
    pub fn wait(self) -> Result<ControlReply, KvError> {
        let PendingCommand { kv, request } = self;
        let bytes = request.wait(Some(Instant::now() + kv.response_timeout()))?;
        kv.reply(&bytes)
    }

    /// Async form of [`wait`](Self::wait).
    #[cfg(feature = "tokio")]
    pub async fn answered(self) -> Result<ControlReply, KvError> {
        let PendingCommand { kv, request } = self;
        let bytes = request.answered().await?;
        kv.reply(&bytes)
    }
}

impl Kv {
    /// Sends a command as soon as there is a connection. Does not wait for the response.
    pub fn begin(&self, command: &ControlCommand<'_>) -> Result<PendingCommand, KvError> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        Ok(PendingCommand { kv: self.clone(), request: self.send(ControlKind::Command, &bytes)? })
    }

    /// Sends a command and ignores the response. Does nothing while there is no connection.
    pub(super) fn send_unconfirmed(&self, command: &ControlCommand<'_>) {
        let is_up = lock(&self.shared.session).is_up;
        if is_up {
            let _ = self.begin(command);
        }
    }

    pub(super) fn send(&self, kind: ControlKind, bytes: &[u8]) -> Result<PendingRequest, CallError> {
        self.send_until(kind, bytes, Instant::now() + self.response_timeout())
    }

    /// Sends a request. If there is no connection, waits for one until the time `until`.
    fn send_until(
        &self,
        kind: ControlKind,
        bytes: &[u8],
        until: Instant,
    ) -> Result<PendingRequest, CallError> {
        // A node that receives a larger message closes the connection, so that all commands on this connection would
        // lose their responses.
        let (size, size_max) =
            (bytes.len() + HEAD_BYTES, dunlin_wire::DecoderLimits::default().run_bytes_max);
        if size > size_max {
            let (numbers, text) = ([size as u64, size_max as u64, 0], "run_bytes_max".to_owned());
            return Err(CallError::Refused(RefusedError { code: ErrorCode::KeyTooLarge, numbers, text }));
        }
        let control =
            |request| FromClient::Control(Control { request, kind, bytes: U32PrefixedBytes(bytes) });
        let request = self.shared.send_request_until(until, control)?;
        self.shared.check_version(MessageKind::Control)?;
        Ok(request)
    }

    /// Sends a request until the node responds, for at most `patience`. The request must be one whose repetition has no
    /// further effect.
    pub(super) fn retry_until_answered(
        &self,
        kind: ControlKind,
        bytes: &[u8],
        patience: Duration,
    ) -> Result<Vec<u8>, KvError> {
        let until = Instant::now() + patience;
        let answer = repeat_while_lost(until, KvError::is_lost, || {
            Ok(self.send_until(kind, bytes, until)?.wait(Some(until))?)
        })?;
        self.content(&answer).map(<[u8]>::to_vec)
    }

    /// Like [`retry_until_answered`](Self::retry_until_answered), for a command that waits at the node. Before each
    /// wait, calls `next_deadline`, which returns the time at which the wait ends. If `next_deadline` fails, this call
    /// fails too.
    pub(super) fn retry_while(
        &self,
        bytes: &[u8],
        next_deadline: impl Fn() -> Result<Instant, KvError>,
    ) -> Result<ControlReply, KvError> {
        loop {
            let waited = match self.send(ControlKind::Command, bytes) {
                Ok(request) => {
                    while !request.wait_until(next_deadline()?) {}
                    request.wait(Some(Instant::now()))
                }
                Err(error) => Err(error),
            };
            match waited.map_err(KvError::from) {
                // Send the command again. If an earlier attempt already waits for the lock, the attempt keeps its place
                // in the queue.
                Err(error) if error.is_lost() || error.lacks_leader() => {
                    next_deadline()?;
                    std::thread::sleep(REPEAT_PAUSE);
                }
                Err(error) => return Err(error),
                Ok(answer) => return self.reply(&answer),
            }
        }
    }

    pub(super) fn reply(&self, message: &[u8]) -> Result<ControlReply, KvError> {
        match ControlOutcome::decode(self.content(message)?)? {
            ControlOutcome::Done { reply } => Ok(reply),
            ControlOutcome::Refused { .. } => Err(KvError::unexpected_response()),
        }
    }

    pub(super) fn content<'b>(&self, message: &'b [u8]) -> Result<&'b [u8], KvError> {
        match self.shared.decode_response(message) {
            Some(FromNode::ControlResult(controlled)) => Ok(controlled.bytes.0),
            _ => Err(KvError::unexpected_response()),
        }
    }
}
