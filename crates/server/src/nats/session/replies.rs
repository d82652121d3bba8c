//! Remembers the reply subjects of requests that were delivered to this client, if they do not begin with `_INBOX`. The
//! session recognizes replies by these subjects. No topic is created for a reply whose requester no longer waits.
//!
//! A record that the client publishes to any other subject is not a reply. A topic is created for it, even if a request
//! to another client had this reply subject.
//!
//! Limit: a session remembers [`REPLIES_MAX`] subjects. At this number, it forgets all of them. From then on, any
//! record of the client may be a reply.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;

use dunlin::Inbox;
use dunlin::topic::{Pattern, Subject, Topic};

use super::Session;
use super::publish::RetryFrom;

const REPLIES_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct ReplySubjectSet {
    subjects: RefCell<HashSet<Box<str>>>,
    has_evicted: Cell<bool>,
}

impl ReplySubjectSet {
    /// Remembers the reply subject of a message that is sent to the client.
    #[inline]
    pub(super) fn remember(&self, reply: Option<&str>) {
        if let Some(reply) = reply
            && Inbox::has_client_prefix(reply)
        {
            self.add(reply);
        }
    }

    fn add(&self, reply: &str) {
        let mut subjects = self.subjects.borrow_mut();
        if subjects.len() >= REPLIES_MAX {
            subjects.clear();
            self.has_evicted.set(true);
        }
        subjects.insert(reply.into());
    }

    fn contains(&self, subject: &str) -> bool {
        self.subjects.borrow().contains(subject)
    }

    /// Whether this may be the reply subject of a request that was delivered to this client.
    pub(super) fn may_contain(&self, subject: &str) -> bool {
        self.contains(subject) || self.has_evicted.get() && Inbox::has_client_prefix(subject)
    }
}

impl Session {
    /// Whether the record is a reply for which no requester waits and a topic would have to be created.
    pub(super) fn is_reply_without_requester(
        &mut self,
        subject: &[u8],
        from: usize,
    ) -> Result<bool, RetryFrom> {
        let text = std::str::from_utf8(subject).ok().filter(|text| self.replies.contains(text));
        let Some(subject) = text.and_then(|text| Subject::parse(text).ok()) else { return Ok(false) };
        if self.node.has_owner(subject)
            || self.node.reply_inbox(subject).is_some()
            || self.node.may_publish(subject).is_err()
        {
            return Ok(false);
        }
        Ok(!self.has_subscriber(&Pattern::from(subject), from)?)
    }

    /// Finds the inbox that must receive a reply. `None` if there is no inbox, or if a subscriber at another node must
    /// also receive the reply. With `None`, the reply is published like any other record.
    pub(super) fn find_reply_inbox(
        &mut self,
        subject: &[u8],
        from: usize,
    ) -> Result<Option<Arc<Topic>>, RetryFrom> {
        let text = std::str::from_utf8(subject).ok().filter(|text| self.replies.may_contain(text));
        let Some(subject) = text.and_then(|text| Subject::parse(text).ok()) else { return Ok(None) };
        if self.node.has_owner(subject) || self.node.may_publish(subject).is_err() {
            return Ok(None);
        }
        if let Some(inbox) = self.node.reply_inbox(subject) {
            // The record may be an ordinary record instead of a reply, so subscribers at other nodes must also receive
            // it.
            let is_here = !inbox.logs()[0].is_mirror();
            let has_subscriber = is_here
                && !self.replies.contains(subject.as_str())
                && self.has_reply_subscriber_elsewhere(&Pattern::from(subject), from)?;
            return Ok(Some(inbox).filter(|_| !has_subscriber));
        }
        // If the query finds an inbox at another node, this node remembers the inbox, and the next line finds it.
        let has_subscriber = self.has_subscriber(&Pattern::from(subject), from)?;
        Ok(self.node.reply_inbox(subject).filter(|_| has_subscriber))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_subjects_of_a_session_are_remembered_up_to_a_limit() {
        let replies = ReplySubjectSet::default();
        ["acme.reply.1", "_INBOX.a.1", "orders"].iter().for_each(|reply| replies.remember(Some(reply)));
        replies.remember(None);
        assert!(replies.may_contain("acme.reply.1") && !replies.may_contain("acme.reply.2"));
        assert!(
            replies.contains("acme.reply.1")
                && !replies.contains("_INBOX.a.1")
                && !replies.contains("orders")
        );
        (0..REPLIES_MAX).for_each(|number| replies.remember(Some(&format!("acme.many.{number}"))));
        assert!(!replies.contains("acme.reply.1") && replies.subjects.borrow().len() <= REPLIES_MAX);
        assert!(replies.may_contain("acme.reply.1"), "it was forgotten");
    }
}
