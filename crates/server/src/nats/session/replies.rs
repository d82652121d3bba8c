//! Subjects that requests asked this client to reply to, where they are no inboxes by their first token. A reply for which nobody
//! waits any more must not leave a topic behind.
//!
//! Limit: [`REPLIES_MAX`] are remembered; then all are forgotten, and their replies are published as anything else.

use std::cell::RefCell;
use std::collections::HashSet;

use dunlin::Inbox;
use dunlin::topic::{Pattern, Subject};

use super::Session;
use super::publish::Full;

const REPLIES_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Replies(RefCell<HashSet<Box<str>>>);

impl Replies {
    /// A message with this reply subject is sent to the client.
    #[inline]
    pub(super) fn expect(&self, reply: Option<&str>) {
        if let Some(reply) = reply
            && Inbox::has_own_prefix(reply)
        {
            self.add(reply);
        }
    }

    fn add(&self, reply: &str) {
        let mut replies = self.0.borrow_mut();
        if replies.len() >= REPLIES_MAX {
            replies.clear();
        }
        replies.insert(reply.into());
    }

    fn has(&self, subject: &str) -> bool {
        self.0.borrow().contains(subject)
    }
}

impl Session {
    /// Whether this is a reply that nobody hears, and for which a topic would have to be made.
    pub(super) fn is_vain_reply(&mut self, subject: &[u8], from: usize) -> Result<bool, Full> {
        let text = std::str::from_utf8(subject).ok().filter(|text| self.replies.has(text));
        let Some(subject) = text.and_then(|text| Subject::parse(text).ok()) else { return Ok(false) };
        if self.node.knows_owner(subject) || self.node.may_publish(subject).is_err() {
            return Ok(false);
        }
        Ok(!self.is_heard(&Pattern::from(subject), from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_remembered_up_to_a_limit() {
        let replies = Replies::default();
        ["acme.reply.1", "_INBOX.a.1", "orders"].iter().for_each(|reply| replies.expect(Some(reply)));
        replies.expect(None);
        assert!(replies.has("acme.reply.1") && !replies.has("_INBOX.a.1") && !replies.has("orders"));
        (0..REPLIES_MAX).for_each(|number| replies.expect(Some(&format!("acme.many.{number}"))));
        assert!(!replies.has("acme.reply.1") && replies.0.borrow().len() <= REPLIES_MAX);
    }
}
