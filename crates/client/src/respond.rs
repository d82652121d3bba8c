//! Answering requests.

use std::collections::HashMap;

use dunlin_topic::{Draft, Publish, PublishError};

use crate::client::Client;
use crate::publisher::{Publisher, PublisherOptions};

/// What every inbox's subjects begin with.
const INBOX: &str = "_INBOX.";

/// Sends replies to wherever requests ask for them.
///
/// It keeps one publisher for each inbox it has answered, up to `reply_publishers_max`: the first
/// answer to a requester costs no round trip, later ones not even a second message.
#[derive(Debug)]
pub struct Responder {
    client: Client,
    publishers: HashMap<String, Publisher>,
}

impl Client {
    /// Somebody who answers what a subscription brings.
    pub fn responder(&self) -> Responder {
        Responder { client: self.clone(), publishers: HashMap::new() }
    }
}

impl Responder {
    /// Sends a reply to `subject`, which a request named, and does not wait for an acknowledgement.
    pub fn reply<'a>(&mut self, subject: &str, draft: impl Into<Draft<'a>>) -> Result<(), PublishError> {
        let (topic, tail) = split_inbox(subject);
        if !self.publishers.contains_key(topic) {
            self.open(topic, tail)?;
        }
        let Some(publisher) = self.publishers.get_mut(topic) else { return Err(PublishError::Closed) };
        let mut draft = draft.into();
        draft.meta.subject_tail = tail;
        let sent = publisher.send(draft).and_then(|()| publisher.hand_over());
        if sent.is_err() {
            // Its requester is gone, most likely; an error told now was of a reply before.
            self.publishers.remove(topic);
        }
        sent
    }

    fn open(&mut self, topic: &str, tail: &str) -> Result<(), PublishError> {
        if self.publishers.len() >= self.client.shared.limits.reply_publishers_max {
            self.publishers.clear();
        }
        let quiet = PublisherOptions { quiet: true, identity: None };
        let publisher = if tail.is_empty() {
            self.client.publisher_with(topic, quiet)?
        } else {
            self.client.publisher_at_once(&format!("{topic}>"), quiet)
        };
        self.publishers.insert(topic.to_owned(), publisher);
        Ok(())
    }
}

/// The literal prefix of the inbox's topic, and the tail. Another subject is a topic's by itself.
fn split_inbox(subject: &str) -> (&str, &str) {
    let session = subject.strip_prefix(INBOX).and_then(|rest| rest.find('.'));
    match session {
        Some(at) => subject.split_at(INBOX.len() + at + 1),
        None => (subject, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbox_subject_is_split_after_its_session() {
        assert_eq!(split_inbox("_INBOX.2a.1.7"), ("_INBOX.2a.", "1.7"));
        assert_eq!(split_inbox("replies.here"), ("replies.here", ""));
    }
}
