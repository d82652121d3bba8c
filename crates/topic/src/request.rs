//! The replies to requests, and the reasons why a request has no reply. Requests from the same process and requests
//! over a connection share these types.

use std::time::Duration;

use crate::event::Record;
use crate::publish::PublishError;
use crate::subscribe::SubscribeError;

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
    #[error("no reply within {0:?}")]
    TimedOut(Duration),
}

impl From<&Record<'_>> for Reply {
    fn from(record: &Record<'_>) -> Reply {
        let headers = record.frame.headers().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Reply { payload: record.payload().to_owned(), headers: headers.collect() }
    }
}
