//! Commands and questions on their way.

use std::time::{Duration, Instant};

use dunlin_control::{Answered, Command, Reply};
use dunlin_wire::{Control, ControlKind, FromClient, FromNode, Kind, Long};

use super::{Kv, KvError};
use crate::asked::Asked;
use crate::topics::AskError;

/// Between two tries of what may be asked twice.
const PAUSE: Duration = Duration::from_millis(20);

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

    pub(super) fn send(&self, kind: ControlKind, bytes: &[u8]) -> Result<Asked, AskError> {
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
        patience: Option<Duration>,
    ) -> Result<Vec<u8>, KvError> {
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            let waited = self.send(kind, bytes).and_then(|asked| asked.wait(until));
            match waited.map_err(KvError::from) {
                Err(KvError::Unknown(_) | KvError::Away(_))
                    if until.is_none_or(|until| Instant::now() + PAUSE < until) =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
                Ok(answer) => return self.content(&answer).map(<[u8]>::to_vec),
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
