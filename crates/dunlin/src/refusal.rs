//! A refusal tells a client why a request failed. All protocols report it as a code, three numbers and a text.

use dunlin_topic::{FrameError, MemoryBudgetError, PublishError, SubscribeError};
use dunlin_wire::{CODES, ErrorCode, Refusal};

use crate::error::TopicError;

/// The refusal of a request, in the form that all protocols share: an error code, the numbers that belong to the code,
/// and a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The code of the error.
    pub code: ErrorCode,
    /// The numbers that belong to the code. The table of errors ([`dunlin_wire::CODES`]) describes them.
    pub numbers: [u64; 3],
    /// A text for people. For some codes it is a name, as the table of errors says.
    pub text: String,
}

impl Refused {
    /// Creates a refusal without numbers.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Refused {
        Refused { code, numbers: [0; 3], text: text.into() }
    }

    /// Creates a refusal because the limit with this name is reached.
    pub fn limit(name: &str, value: u64) -> Refused {
        Refused { numbers: [value, 0, 0], ..Refused::new(ErrorCode::Limit, name) }
    }

    /// The refusal in the form in which the wire protocol encodes it.
    pub fn as_wire(&self) -> Refusal<'_> {
        Refusal { code: self.code, numbers: self.numbers, text: &self.text }
    }

    /// The refusal in one line: the name of the code, a colon, and the text. The numbers are left out.
    pub(crate) fn to_line(&self) -> String {
        let name = self.code.row().map_or("UNKNOWN", |row| row.name);
        format!("{name}: {}", self.text)
    }

    /// Parses a line of [`to_line`](Refused::to_line). Returns `None` if the line does not begin with the name of a
    /// code.
    pub(crate) fn parse_line(text: &str) -> Option<Refused> {
        let (name, text) = text.split_once(": ")?;
        let row = CODES.iter().find(|row| row.name == name)?;
        Some(Refused::new(row.code, text))
    }

    fn numbers(code: ErrorCode, numbers: [u64; 3]) -> Refused {
        Refused { code, numbers, text: String::new() }
    }
}

impl From<&FrameError> for Refused {
    fn from(error: &FrameError) -> Refused {
        match *error {
            FrameError::TooLarge { bytes, bytes_max } => {
                Refused::numbers(ErrorCode::RecordTooLarge, [bytes as u64, bytes_max as u64, 0])
            }
            other => Refused::new(ErrorCode::BadFrame, other.to_string()),
        }
    }
}

impl From<MemoryBudgetError> for Refused {
    fn from(MemoryBudgetError { requested, used, limit }: MemoryBudgetError) -> Refused {
        Refused::numbers(ErrorCode::BudgetSpent, [requested, used, limit])
    }
}

impl From<&PublishError> for Refused {
    fn from(error: &PublishError) -> Refused {
        use ErrorCode as Code;
        match error {
            PublishError::Frame(error) => error.into(),
            PublishError::RecordTooLarge { bytes, bytes_max } => {
                Refused::numbers(Code::RecordTooLarge, [*bytes as u64, *bytes_max as u64, 0])
            }
            PublishError::Batch(what) => Refused::new(Code::Batch, *what),
            PublishError::SeqMoved { expected, last_seq } => {
                Refused::numbers(Code::SeqMoved, [*expected, *last_seq, 0])
            }
            PublishError::DuplicateForgotten { producer_seq, remembered_from } => {
                Refused::numbers(Code::DuplicateForgotten, [*producer_seq, *remembered_from, 0])
            }
            PublishError::ProducerGap { producer_seq, last } => {
                Refused::numbers(Code::ProducerGap, [*producer_seq, *last, 0])
            }
            PublishError::ProducerFenced { epoch, current } => {
                Refused::numbers(Code::ProducerFenced, [u64::from(*epoch), u64::from(*current), 0])
            }
            PublishError::Full { subscriber, needed, waited } => Refused {
                numbers: [*needed, waited.as_nanos() as u64, 0],
                ..Refused::new(Code::Full, subscriber.as_str())
            },
            PublishError::BudgetSpent { requested, used, limit } => {
                Refused::numbers(Code::BudgetSpent, [*requested, *used, *limit])
            }
            PublishError::OwnerBehind { unanswered_bytes, waited } => {
                Refused::numbers(Code::OwnerBehind, [*unanswered_bytes, waited.as_nanos() as u64, 0])
            }
            PublishError::OwnerAway(why) => Refused::new(Code::OwnerAway, why.as_str()),
            PublishError::Unknown(why) => Refused::new(Code::OutcomeUnknown, why.as_str()),
            PublishError::DiskBehind { unstored_bytes, waited } => {
                Refused::numbers(Code::DiskBehind, [*unstored_bytes, waited.as_nanos() as u64, 0])
            }
            PublishError::DiskFull(why) => Refused::new(Code::DiskFull, why.as_str()),
            PublishError::DiskFailed(why) => Refused::new(Code::DiskFailed, why.as_str()),
            PublishError::Reducer { record: 0, why } => Refused::new(Code::Reducer, why.to_string()),
            PublishError::Reducer { record, why } => {
                let numbers = [u64::from(*record), 0, 0];
                Refused {
                    numbers,
                    ..Refused::new(Code::Reducer, format!("record {record} of the batch: {why}"))
                }
            }
            PublishError::StateLost(topic) => Refused::new(Code::StateLost, topic.as_str()),
            PublishError::NoTopic(subject) => Refused::new(Code::NoTopic, subject.as_str()),
            PublishError::Closed => Refused::new(Code::Closed, ""),
            PublishError::Forbidden(what) => Refused::new(Code::Forbidden, what.as_str()),
            PublishError::LeftOut { why, .. } => Refused { text: error.to_string(), ..Refused::from(&**why) },
            PublishError::Refused(text) => {
                Refused::parse_line(text).unwrap_or_else(|| Refused::new(Code::Internal, error.to_string()))
            }
            other => Refused::new(Code::Internal, other.to_string()),
        }
    }
}

impl From<&SubscribeError> for Refused {
    fn from(error: &SubscribeError) -> Refused {
        use ErrorCode as Code;
        match error {
            SubscribeError::Subject(error) => Refused::new(Code::Subject, error.to_string()),
            SubscribeError::NoTopic(subject) => Refused::new(Code::NoTopic, subject.as_str()),
            SubscribeError::ManyLogs { pattern, logs } => {
                Refused { numbers: [*logs as u64, 0, 0], ..Refused::new(Code::ManyLogs, pattern.as_str()) }
            }
            SubscribeError::Ahead { requested, last } => {
                Refused::numbers(Code::Ahead, [u64::from(last.epoch), last.seq, requested.seq])
            }
            SubscribeError::NoState { topic, why } => Refused::new(Code::NoState, format!("{topic} {why}")),
            SubscribeError::Lost => Refused::new(Code::Lost, ""),
            SubscribeError::Limit { limit, value } => Refused::limit(limit, *value),
            SubscribeError::Closed => Refused::new(Code::Closed, ""),
            SubscribeError::Forbidden(what) => Refused::new(Code::Forbidden, what.as_str()),
            SubscribeError::OwnerAway(why) => Refused::new(Code::OwnerAway, why.as_str()),
            SubscribeError::Refused(text) => {
                Refused::parse_line(text).unwrap_or_else(|| Refused::new(Code::Internal, error.to_string()))
            }
            other => Refused::new(Code::Internal, other.to_string()),
        }
    }
}

impl From<&TopicError> for Refused {
    fn from(error: &TopicError) -> Refused {
        use ErrorCode as Code;
        match error {
            TopicError::Name(error) => Refused::new(Code::Subject, error.to_string()),
            TopicError::Config(error) => Refused::new(Code::TopicConfig, error.to_string()),
            TopicError::Exists(name) => Refused::new(Code::TopicExists, name.as_str()),
            TopicError::Overlaps(name) => Refused::new(Code::PatternOverlaps, name.as_str()),
            TopicError::Unknown(name) => Refused::new(Code::NoTopic, name.as_str()),
            TopicError::Reserved(_) => Refused::new(Code::Subject, error.to_string()),
            TopicError::NoDataDir | TopicError::NoDeadLetterTopic(_) => {
                Refused::new(Code::TopicConfig, error.to_string())
            }
            TopicError::Elsewhere { node, why } => {
                Refused { numbers: [*node, 0, 0], ..Refused::new(Code::Elsewhere, why.as_str()) }
            }
            TopicError::NoCluster(_) => Refused::new(Code::NoCluster, error.to_string()),
            TopicError::Cluster(_) | TopicError::HandingOver(_) => {
                Refused::new(Code::OwnerAway, error.to_string())
            }
            TopicError::Disk(why) => Refused::new(Code::DiskFailed, why.as_str()),
            TopicError::DiskFull(why) => Refused::new(Code::DiskFull, why.as_str()),
            TopicError::OpenFiles { limit, why } => Refused::limit(why, *limit),
            TopicError::Record(error) => error.as_ref().into(),
            TopicError::Limit { limit, value } => Refused::limit(limit, *value),
            TopicError::Forbidden { .. } => Refused::new(Code::Forbidden, error.to_string()),
        }
    }
}
