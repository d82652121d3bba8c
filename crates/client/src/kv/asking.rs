//! Commands and questions on their way.

use std::time::{Duration, Instant};

use dunlin_control::{Answered, Command, Reply};
use dunlin_wire::{Control, ControlKind, ErrorCode, FromClient, FromNode, HEADER_BYTES, Kind, Long};

use super::{Kv, KvError};
use crate::asked::Asked;
use crate::follow::lock;
use crate::refusal::Refused;
use crate::topics::AskError;

/// Between two tries of what may be asked twice.
const PAUSE: Duration = Duration::from_millis(20);
/// Of a message with a command, at most: the protocol's header, the command's number, kind and length, and what fills it up.
const HEAD_BYTES: usize = HEADER_BYTES + 32;

/// A command that was sent. Many may be on their way at once; what is sent together the node proposes together.
#[derive(Debug)]
#[must_use = "a command whose answer nobody waits for may fail in silence"]
pub struct Asking {
    kv: Kv,
    asked: Asked,
}

impl Asking {
    /// Whether the answer is there.
    pub fn is_answered(&self) -> bool {
        self.asked.is_answered()
    }

    /// Waits for what came of it.
    pub fn wait(self) -> Result<Reply, KvError> {
        let Asking { kv, asked } = self;
        let bytes = asked.wait(Some(Instant::now() + kv.patience()))?;
        kv.reply(&bytes)
    }

    /// The same for tasks.
    #[cfg(feature = "tokio")]
    pub async fn answered(self) -> Result<Reply, KvError> {
        let Asking { kv, asked } = self;
        let bytes = asked.answered().await?;
        kv.reply(&bytes)
    }
}

impl Kv {
    /// Sends a command, once there is a connection, and does not wait for what comes of it.
    pub fn begin(&self, command: &Command<'_>) -> Result<Asking, KvError> {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        Ok(Asking { kv: self.clone(), asked: self.send(ControlKind::Command, &bytes)? })
    }

    /// Sends a command whose outcome nobody waits for, if there is a connection.
    pub(super) fn say(&self, command: &Command<'_>) {
        let is_up = lock(&self.shared.session).up;
        if is_up {
            let _ = self.begin(command);
        }
    }

    pub(super) fn send(&self, kind: ControlKind, bytes: &[u8]) -> Result<Asked, AskError> {
        // The node would end the connection, and nobody would know what came of all that is on its way.
        let (size, size_max) = (bytes.len() + HEAD_BYTES, dunlin_wire::Limits::default().run_bytes_max);
        if size > size_max {
            let (numbers, text) = ([size as u64, size_max as u64, 0], "run_bytes_max".to_owned());
            return Err(AskError::Refused(Refused { code: ErrorCode::KeyTooLarge, numbers, text }));
        }
        let control = |request| FromClient::Control(Control { request, kind, bytes: Long(bytes) });
        let asked = self.shared.begin_asking(control)?;
        self.shared.check_version(Kind::Control)?;
        Ok(asked)
    }

    /// Asks what does no harm when it is asked twice, until it is answered or so much time has passed.
    pub(super) fn again_and_again(
        &self,
        kind: ControlKind,
        bytes: &[u8],
        patience: Duration,
    ) -> Result<Vec<u8>, KvError> {
        let until = Instant::now() + patience;
        loop {
            let waited = self.send(kind, bytes).and_then(|asked| asked.wait(Some(until)));
            match waited.map_err(KvError::from) {
                Err(error) if error.is_lost() && Instant::now() + PAUSE < until => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
                Ok(answer) => return self.content(&answer).map(<[u8]>::to_vec),
            }
        }
    }

    /// The same for what is answered in its own time, as long as `goes_on` allows it.
    pub(super) fn however_long(
        &self,
        bytes: &[u8],
        goes_on: impl Fn() -> Result<Instant, KvError>,
    ) -> Result<Reply, KvError> {
        loop {
            let waited = match self.send(ControlKind::Command, bytes) {
                Ok(asked) => {
                    while !asked.wait_a_while(goes_on()?) {}
                    asked.wait(Some(Instant::now()))
                }
                Err(error) => Err(error),
            };
            match waited.map_err(KvError::from) {
                Err(error) if error.is_lost() => {
                    goes_on()?;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
                Ok(answer) => return self.reply(&answer),
            }
        }
    }

    pub(super) fn reply(&self, message: &[u8]) -> Result<Reply, KvError> {
        match Answered::decode(self.content(message)?)? {
            Answered::Done { reply } => Ok(reply),
            Answered::Refused { .. } => Err(KvError::odd()),
        }
    }

    pub(super) fn content<'b>(&self, message: &'b [u8]) -> Result<&'b [u8], KvError> {
        match self.shared.read_answer(message) {
            Some(FromNode::Controlled(controlled)) => Ok(controlled.bytes.0),
            _ => Err(KvError::odd()),
        }
    }
}
