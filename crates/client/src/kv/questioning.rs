//! Questions on their way.

use std::time::Instant;

use dunlin_control::{Answer, Query};

use super::{Kv, KvError};
use crate::asked::Asked;

/// A question that was sent. Many may be on their way at once; those that are sent together are answered from one state.
#[derive(Debug)]
#[must_use = "nobody waits for the answer"]
pub struct Questioning {
    kv: Kv,
    asked: Asked,
}

impl Questioning {
    /// Waits for the answer.
    pub fn wait(self) -> Result<Answer, KvError> {
        let Questioning { kv, asked } = self;
        let bytes = asked.wait(Some(Instant::now() + kv.patience()))?;
        Ok(Answer::decode(kv.content(&bytes)?)?)
    }

    /// The same for tasks.
    #[cfg(feature = "tokio")]
    pub async fn answered(self) -> Result<Answer, KvError> {
        let Questioning { kv, asked } = self;
        let bytes = asked.answered().await?;
        Ok(Answer::decode(kv.content(&bytes)?)?)
    }
}

impl Kv {
    /// Sends a question, once there is a connection, and does not wait for the answer. It is not asked again where the
    /// connection breaks.
    pub fn begin_question(&self, query: &Query<'_>) -> Result<Questioning, KvError> {
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        Ok(Questioning { kv: self.clone(), asked: self.send(self.questions, &bytes)? })
    }
}
