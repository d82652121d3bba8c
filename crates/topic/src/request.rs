//! The replies to requests, and the reasons why a request has no reply. Requests from the same process and requests
//! over a connection share these types.

use std::time::Duration;

use dunlin_frame::format_duration;

use crate::event::Record;
use crate::publish::PublishError;
use crate::subject::{Pattern, Subject};
use crate::subscribe::SubscribeError;

/// The beginning of the subjects of all inboxes except reply inboxes. Requests name such a subject for their reply.
pub const INBOX_PREFIX: &str = "_INBOX.";

/// Returns an error unless a reply may go to `subject`: the subject of an inbox, or a subject that matches one of the
/// `allowed` patterns. Without this check, a request could make a service publish to a subject to which the requester
/// may not publish.
pub fn check_reply_subject(subject: &str, allowed: &[Pattern]) -> Result<(), PublishError> {
    let is_allowed = || {
        let subject = Subject::parse(subject);
        subject.is_ok_and(|subject| allowed.iter().any(|pattern| pattern.matches(subject)))
    };
    if subject.starts_with(INBOX_PREFIX) || is_allowed() {
        return Ok(());
    }
    let why = format!("the reply subject {subject:?} is not an inbox, and no allowed pattern matches it");
    Err(PublishError::Forbidden(why))
}

/// The reply to a request: its payload and headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The payload.
    pub payload: Vec<u8>,
    /// The headers.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// The reason why a request has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request was not published.
    #[error("{0}")]
    Publish(#[from] PublishError),
    /// The inbox, to which the reply would be sent, was closed or refused.
    #[error("{0}")]
    Inbox(#[from] SubscribeError),
    /// No subscriber reads the request's subject, so the request was not published.
    #[error("no subscriber on {0}: nothing was published")]
    NoResponder(String),
    /// No reply arrived in time.
    #[error("no reply within {}", format_duration(*.0))]
    TimedOut(Duration),
}

impl From<&Record<'_>> for Reply {
    fn from(record: &Record<'_>) -> Reply {
        let headers = record.frame.headers().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Reply { payload: record.payload().to_owned(), headers: headers.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_timed_out_request_shows_a_readable_timeout() {
        let text = |timeout| RequestError::TimedOut(timeout).to_string();
        assert_eq!(text(Duration::ZERO), "no reply within 0 ms");
        assert_eq!(text(Duration::from_nanos(1_500_000_321)), "no reply within 1.5 s");
    }

    #[test]
    fn replies_go_only_to_inboxes_and_allowed_subjects() {
        let allowed = [Pattern::parse("own.>").unwrap()];
        for (subject, may) in [
            ("_INBOX.a.b", true),
            ("own.inbox", true),
            ("admin.cmd", false),
            ("_INBOXES.a", false),
            ("a b", false),
        ] {
            assert_eq!(check_reply_subject(subject, &allowed).is_ok(), may, "{subject}");
        }
        assert!(matches!(check_reply_subject("own.inbox", &[]), Err(PublishError::Forbidden(_))));
    }
}
