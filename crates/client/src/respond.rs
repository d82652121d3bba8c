//! Sends replies to requests that a subscriber has received.

use std::collections::HashMap;

use dunlin_topic::{Draft, INBOX_PREFIX, Pattern, Publish, PublishError, check_reply_subject};

use crate::client::Client;
use crate::publisher::{Publisher, PublisherOptions};

/// A handle that sends replies to requests that a subscriber has received.
///
/// A responder keeps one publisher for each inbox, at most `reply_publishers_max`. The first reply to an inbox does not
/// wait for the node, and each later reply is a single message.
#[derive(Debug)]
pub struct Responder {
    client: Client,
    publishers: HashMap<String, Publisher>,
}

impl Client {
    /// Creates a handle that sends replies to requests.
    pub fn responder(&self) -> Responder {
        Responder { client: self.clone(), publishers: HashMap::new() }
    }
}

impl Responder {
    /// Sends a reply to `subject`, the reply subject of a request, and does not wait for an acknowledgement. If the
    /// node has refused an earlier reply to the same requester, this reply is sent nevertheless, and the call fails
    /// with the error of the earlier one.
    ///
    /// A subject that is not an inbox is refused with [`PublishError::Forbidden`]: the request could have named any
    /// subject to which this client may publish.
    pub fn reply<'a>(&mut self, subject: &str, draft: impl Into<Draft<'a>>) -> Result<(), PublishError> {
        self.reply_within(&[], subject, draft)
    }

    /// Like [`reply`](Responder::reply), but also sends replies to subjects that match one of the `allowed` patterns.
    pub fn reply_within<'a>(
        &mut self,
        allowed: &[Pattern],
        subject: &str,
        draft: impl Into<Draft<'a>>,
    ) -> Result<(), PublishError> {
        check_reply_subject(subject, allowed)?;
        let (topic, tail) = split_inbox(subject);
        let earlier = self.publishers.get_mut(topic).map_or(Ok(()), Publisher::check_failure);
        if earlier.is_err() {
            // The node refused an earlier reply, most likely because the requester has disconnected.
            self.publishers.remove(topic);
        }
        if !self.publishers.contains_key(topic) {
            self.open(topic, tail)?;
        }
        let Some(publisher) = self.publishers.get_mut(topic) else { return Err(PublishError::Closed) };
        let mut draft = draft.into();
        draft.meta.subject_tail = tail;
        // `send` usually only adds the reply to a batch. Without a connection, the write of the batch then fails, which
        // `check_failure` reports.
        let sent = publisher
            .send(draft)
            .and_then(|()| publisher.send_batches())
            .and_then(|()| publisher.check_failure());
        if sent.is_err() {
            self.publishers.remove(topic);
        }
        sent.and(earlier)
    }

    fn open(&mut self, topic: &str, tail: &str) -> Result<(), PublishError> {
        if self.publishers.len() >= self.client.shared.limits.reply_publishers_max {
            self.publishers.clear();
        }
        let quiet = PublisherOptions { quiet: true, identity: None };
        let publisher = if tail.is_empty() {
            self.client.publisher_with(topic, quiet)?
        } else {
            self.client.publisher_nowait(&format!("{topic}>"), quiet)
        };
        self.publishers.insert(topic.to_owned(), publisher);
        Ok(())
    }
}

/// Splits the subject of a reply to an inbox into the literal prefix of the inbox's topic, and the tail. Any other
/// subject is returned whole, with an empty tail.
fn split_inbox(subject: &str) -> (&str, &str) {
    let session = subject.strip_prefix(INBOX_PREFIX).and_then(|rest| rest.find('.'));
    match session {
        Some(at) => subject.split_at(INBOX_PREFIX.len() + at + 1),
        None => (subject, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbox_subject_is_split_after_its_session_token() {
        assert_eq!(split_inbox("_INBOX.2a.1.7"), ("_INBOX.2a.", "1.7"));
        assert_eq!(split_inbox("replies.here"), ("replies.here", ""));
    }
}
