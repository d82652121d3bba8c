//! Converts the arguments of calls from Python to records that can be published.

use dunlin_frame::RecordMeta;
use dunlin_topic::{Draft, Payload};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arguments;
use crate::content::{self, PayloadContent};

/// The arguments of a publish call besides the payload.
#[derive(Default)]
pub struct PublishOptions<'py> {
    pub key: Option<Bound<'py, PyAny>>,
    pub headers: Option<Bound<'py, PyAny>>,
    pub subject: Option<String>,
    pub reply: Option<String>,
    pub event_time_ns: Option<Bound<'py, PyAny>>,
    pub expires_ns: Option<Bound<'py, PyAny>>,
}

/// A record that Python publishes: its payload and its optional fields.
pub struct OutgoingRecord {
    payload: PayloadContent,
    extras: Option<Box<DraftExtras>>,
}

/// The optional fields of a record, which most records do not have.
struct DraftExtras {
    key: Option<PayloadContent>,
    headers: Vec<(String, Vec<u8>)>,
    tail: String,
    reply: Option<String>,
    event_time_ns: Option<u64>,
    expires_ns: Option<u64>,
}

impl OutgoingRecord {
    pub fn from_payload(payload: &Bound<'_, PyAny>) -> PyResult<OutgoingRecord> {
        Ok(OutgoingRecord { payload: PayloadContent::of(payload)?, extras: None })
    }

    /// Makes a record. `prefix` is the part of the publisher's pattern before the first wildcard; `None` if the
    /// publisher has a single subject.
    pub fn of(
        payload: &Bound<'_, PyAny>,
        options: PublishOptions<'_>,
        prefix: Option<&str>,
    ) -> PyResult<OutgoingRecord> {
        let tail = match (&options.subject, prefix) {
            (None, None) => String::new(),
            (None, Some(_)) => {
                return Err(PyValueError::new_err(
                    "a publisher to a pattern needs the subject of each record",
                ));
            }
            (Some(subject), prefix) => {
                let tail = prefix.and_then(|prefix| subject.strip_prefix(prefix));
                tail.filter(|tail| !tail.is_empty()).map(str::to_owned).ok_or_else(|| {
                    PyValueError::new_err(format!(
                        "subject {subject:?} does not match the publisher's pattern"
                    ))
                })?
            }
        };
        let extras = DraftExtras {
            key: options
                .key
                .as_ref()
                .map(|key| PayloadContent::named(key, || "a key".to_owned()))
                .transpose()?,
            headers: options.headers.as_ref().map(content::headers).transpose()?.unwrap_or_default(),
            tail,
            reply: options.reply,
            event_time_ns: arguments::optional_u64("event_time_ns", options.event_time_ns.as_ref())?,
            expires_ns: arguments::optional_u64("expires_ns", options.expires_ns.as_ref())?,
        };
        Ok(OutgoingRecord { payload: PayloadContent::of(payload)?, extras: Some(Box::new(extras)) })
    }

    pub fn payload(&self) -> &[u8] {
        self.payload.as_slice()
    }

    /// Calls `publish` with the record as a draft.
    pub fn with_draft<R>(&self, publish: impl FnOnce(Draft<'_>) -> R) -> R {
        let Some(extras) = &self.extras else { return publish(Draft::from(self.payload.as_slice())) };
        let headers: Vec<(&str, &[u8])> =
            extras.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let meta = RecordMeta {
            event_time_ns: extras.event_time_ns,
            expires_ns: extras.expires_ns,
            subject_tail: &extras.tail,
            key: extras.key.as_ref().map(PayloadContent::as_slice),
            reply: extras.reply.as_deref(),
            headers: &headers,
        };
        publish(Draft { meta, payload: Payload::Copied(self.payload.as_slice()) })
    }
}

/// Returns the part of `subject` before the first wildcard; `None` if `subject` has no wildcard.
pub fn prefix_of_pattern(subject: &str) -> Option<String> {
    let is_wildcard = |token: &str| token == "*" || token == ">";
    let literal =
        subject.split('.').take_while(|token| !is_wildcard(token)).map(|token| format!("{token}.")).collect();
    subject.split('.').any(is_wildcard).then_some(literal)
}
