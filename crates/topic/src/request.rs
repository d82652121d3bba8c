//! Requests: what an answer is, and why there is none, in process and remote.

use std::time::Duration;

use crate::event::Record;
use crate::publish::PublishError;
use crate::subscribe::SubscribeError;

/// An answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Its content.
    pub payload: Vec<u8>,
    /// Its headers.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request was not published.
    #[error("{0}")]
    Publish(#[from] PublishError),
    /// The inbox is gone, or was refused.
    #[error("{0}")]
    Inbox(#[from] SubscribeError),
    /// Nobody would hear it, so it was not published.
    #[error("nobody answers {0}: nothing was published")]
    NoResponder(String),
    /// Nobody answered in time.
    #[error("no reply within {0:?}")]
    TimedOut(Duration),
}

impl From<&Record<'_>> for Reply {
    fn from(record: &Record<'_>) -> Reply {
        let headers = record.frame.headers().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Reply { payload: record.payload().to_owned(), headers: headers.collect() }
    }
}
