//! Refusals of requests by the node, and their conversion to the errors of the publish and subscribe traits.

use std::time::Duration;

use dunlin_topic::{Position, PublishError, ReducerError, SubscribeError};
use dunlin_wire::{ErrorCode, Refusal, RetryAdvice};

/// The possible causes of the error code `COMMAND_UNKNOWN`.
pub(crate) const COMMAND_UNKNOWN_CAUSES: &str =
    "the leader changed, the command took too long, or a response between nodes was lost";

/// The error for a request that the node refused, with the node's error code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}{}", with_colon(&self.detail()))]
pub struct RefusedError {
    /// The error code. `dunlin errors` explains what each code means and what to do.
    pub code: ErrorCode,
    /// Numbers whose meaning depends on the error code.
    pub numbers: [u64; 3],
    /// A text for people. With some codes, it is the name of a limit or of another thing instead.
    pub text: String,
}

fn with_colon(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

impl RefusedError {
    pub(crate) fn new(refusal: &Refusal<'_>) -> RefusedError {
        RefusedError { code: refusal.code, numbers: refusal.numbers, text: refusal.text.to_owned() }
    }

    /// Returns the refusal's text. If the text is the name of a limit, adds the limit and the value that exceeded it.
    pub fn detail(&self) -> String {
        Refusal { code: self.code, numbers: self.numbers, text: &self.text }.detail()
    }

    /// Whether the same request can succeed when it is repeated.
    pub fn retry(&self) -> RetryAdvice {
        self.code.row().map_or(RetryAdvice::No, |row| row.retry)
    }
}

pub(crate) fn publish_error(refusal: &Refusal<'_>) -> PublishError {
    let [a, b, c] = refusal.numbers;
    let text = || refusal.text.to_owned();
    match refusal.code {
        ErrorCode::RecordTooLarge => {
            PublishError::RecordTooLarge { bytes: a as usize, bytes_max: b as usize }
        }
        ErrorCode::Batch => {
            PublishError::Batch("send the node a smaller batch, with records of one partition only")
        }
        ErrorCode::SeqMoved => PublishError::SeqMoved { expected: a, last_seq: b },
        ErrorCode::DuplicateForgotten => {
            PublishError::DuplicateForgotten { producer_seq: a, remembered_from: b }
        }
        ErrorCode::ProducerGap => PublishError::ProducerGap { producer_seq: a, last: b },
        ErrorCode::ProducerFenced => PublishError::ProducerFenced { epoch: a as u32, current: b as u32 },
        ErrorCode::Full => {
            PublishError::Full { subscriber: text(), needed: a, waited: Duration::from_nanos(b) }
        }
        ErrorCode::DiskBehind => {
            PublishError::DiskBehind { unstored_bytes: a, waited: Duration::from_nanos(b) }
        }
        ErrorCode::OwnerBehind => {
            PublishError::OwnerBehind { unanswered_bytes: a, waited: Duration::from_nanos(b) }
        }
        ErrorCode::OwnerAway => PublishError::OwnerAway(text()),
        ErrorCode::OutcomeUnknown => PublishError::Unknown(text()),
        ErrorCode::DiskFull => PublishError::DiskFull(text()),
        ErrorCode::DiskFailed => PublishError::DiskFailed(text()),
        ErrorCode::BudgetSpent => PublishError::BudgetSpent { requested: a, used: b, limit: c },
        ErrorCode::Reducer => {
            let named = format!("record {a} of the batch: ");
            let why = ReducerError(refusal.text.strip_prefix(&named).unwrap_or(refusal.text).to_owned());
            PublishError::Reducer { record: a as u32, why }
        }
        ErrorCode::StateLost => PublishError::StateLost(text()),
        ErrorCode::NoTopic => PublishError::NoTopic(text()),
        ErrorCode::Closed | ErrorCode::ShuttingDown => PublishError::Closed,
        ErrorCode::Forbidden => PublishError::Forbidden(text()),
        ErrorCode::RateLimit => PublishError::Refused(format!(
            "{}: the limit is {b} per second; try again in {a} ms",
            RefusedError::new(refusal)
        )),
        _ => PublishError::Refused(RefusedError::new(refusal).to_string()),
    }
}

pub(crate) fn subscribe_error(refusal: &Refusal<'_>, pattern: &str) -> SubscribeError {
    let [a, b, c] = refusal.numbers;
    match refusal.code {
        ErrorCode::NoTopic => SubscribeError::NoTopic(pattern.to_owned()),
        ErrorCode::ManyLogs => SubscribeError::ManyLogs { pattern: pattern.to_owned(), logs: a as usize },
        ErrorCode::Ahead => {
            let last = Position { epoch: a as u32, seq: b };
            SubscribeError::Ahead { requested: Position { epoch: a as u32, seq: c }, last }
        }
        ErrorCode::Lost => SubscribeError::Lost,
        ErrorCode::Ended | ErrorCode::Closed => SubscribeError::Closed,
        ErrorCode::Forbidden => SubscribeError::Forbidden(refusal.text.to_owned()),
        _ => SubscribeError::Refused(RefusedError::new(refusal).to_string()),
    }
}
