//! The inboxes of a connection. An inbox is a set of subjects for replies. It belongs to the connection that first
//! subscribed to one of the subjects, and ends with this connection's subscriptions.
//!
//! NATS clients choose the names of their inboxes: `_INBOX.<unique>`, or `_INBOX.<unique>.…` for many replies. All
//! subjects with the same first two tokens share one log, because a subject that is used only once must not become a
//! topic.
//!
//! Limit: one inbox for each subscription.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::topic::{INBOX_PREFIX, Pattern, Subject};
use dunlin::{Inbox, Node, TopicError};

use super::Session;
use super::publish::RetryFrom;
use super::subscription::{SEQUENCED, Subscription};
use crate::access::{InboxClaim, Login};

/// How long the session remembers that other nodes have no subscriber to the reply subjects of a subscription.
const NO_SUBSCRIBER_FOR: Duration = Duration::from_millis(100);

/// The inboxes of a connection, each with the number of subscriptions that use it.
#[derive(Debug, Default)]
pub(super) struct ConnectionInboxes(HashMap<Box<str>, OpenInbox>);

#[derive(Debug)]
struct OpenInbox {
    _inbox: Inbox,
    subscriptions: u32,
    _claim: Option<InboxClaim>,
}

impl ConnectionInboxes {
    /// Opens the inbox to which the pattern belongs, or counts one more subscription if the inbox is already open.
    /// Returns `false` if another user owns the inbox.
    pub(super) fn open(
        &mut self,
        node: &Node,
        pattern: &str,
        login: Option<&Arc<Login>>,
    ) -> Result<bool, TopicError> {
        if let Some(open) = self.0.get_mut(key(pattern)) {
            open.subscriptions += 1;
            return Ok(true);
        }
        let mut inbox = Inbox::of_client(node.clone(), key(pattern));
        // Another connection may have an inbox of the same name. The inbox then exists until both connections have
        // closed it.
        let is_new = match inbox.open_new() {
            Ok(is_new) => is_new,
            Err(TopicError::Exists(_) | TopicError::Overlaps(_)) => false,
            Err(error) => return Err(error),
        };
        let claim = login.map(|login| login.claim_inbox(key(pattern), is_new));
        if let Some(None) = claim {
            return Ok(false);
        }
        let open = OpenInbox { _inbox: inbox, subscriptions: 1, _claim: claim.flatten() };
        self.0.insert(key(pattern).into(), open);
        Ok(true)
    }

    /// Counts one subscription less, and closes the inbox if no subscription is left.
    pub(super) fn close(&mut self, pattern: &str) {
        if let Some(open) = self.0.get_mut(key(pattern)) {
            open.subscriptions -= 1;
            if open.subscriptions == 0 {
                self.0.remove(key(pattern));
            }
        }
    }
}

impl Session {
    /// Whether the subject belongs to an inbox of another user's connection at another node. Asks the other nodes,
    /// because this node knows only its own inboxes.
    pub(super) fn is_in_foreign_inbox(&mut self, subject: &str, from: usize) -> Result<bool, RetryFrom> {
        let subject = subject.strip_prefix(SEQUENCED).unwrap_or(subject);
        if !is_inbox(subject) || !is_single_inbox(subject) || self.inboxes.0.contains_key(key(subject)) {
            return Ok(false);
        }
        let all = if key(subject).ends_with('.') { ">" } else { "" };
        let Ok(inbox) = Pattern::parse(&format!("{}{all}", key(subject))) else { return Ok(false) };
        let is_foreign = self.is_inbox_of_another(&inbox, from)?;
        self.subscriber_queries.clear();
        Ok(is_foreign)
    }

    /// Opens an inbox for the reply to a request that is about to be published, so that no topic is created for the
    /// reply. Opens it only if no topic owns the reply subject and only clients of this node subscribe to it. The inbox
    /// does not own the reply subject.
    ///
    /// Limit: the session remembers for [`NO_SUBSCRIBER_FOR`] that other nodes have no subscriber.
    pub(super) fn open_reply_inbox(&mut self, reply: &[u8], from: usize) -> Result<(), RetryFrom> {
        let subject = std::str::from_utf8(reply).ok().and_then(|reply| Subject::parse(reply).ok());
        let Some((subject, patterns)) =
            subject.and_then(|subject| Some((subject, Inbox::reply_patterns(subject.as_str())?)))
        else {
            return Ok(());
        };
        if self.node.has_owner(subject) {
            return Ok(());
        }
        let receives_reply = |(_, subscription): &(&u32, &Subscription)| {
            subscription.queue.is_none()
                && patterns.iter().any(|pattern| pattern == subscription.pattern.as_str())
        };
        self.commands.add_scan(self.subscriptions.len());
        let Some((&number, subscription)) = self.subscriptions.iter().find(receives_reply) else {
            return Ok(());
        };
        let has_no_other_subscriber =
            subscription.no_subscriber_since.is_some_and(|since| since.elapsed() < NO_SUBSCRIBER_FOR);
        if self.node.ownership().is_some() && !has_no_other_subscriber {
            let pattern = subscription.pattern.clone();
            if self.has_reply_subscriber_elsewhere(&pattern, from)? {
                return Ok(());
            }
        }
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return Ok(()) };
        if !has_no_other_subscriber {
            subscription.no_subscriber_since = Some(Instant::now());
        }
        let mut inbox = subscription
            .reply_inbox
            .take()
            .unwrap_or_else(|| Inbox::of_pattern(self.node.clone(), subscription.pattern.as_str()));
        if inbox.open().is_ok() {
            inbox.accept_reply(subject);
            subscription.reply_inbox = Some(inbox);
        }
        Ok(())
    }
}

/// Whether a subject or pattern belongs to an inbox.
pub(super) fn is_inbox(subject: &str) -> bool {
    subject.starts_with(INBOX_PREFIX)
}

/// Whether the pattern matches only subjects of a single inbox.
pub(super) fn is_single_inbox(pattern: &str) -> bool {
    pattern.strip_prefix(INBOX_PREFIX).is_some_and(|rest| !rest.starts_with(['*', '>']))
}

/// The key of the inbox to which a subject belongs: the first two tokens, and the dot after them if more tokens follow.
pub(super) fn key(subject: &str) -> &str {
    let rest = &subject[INBOX_PREFIX.len()..];
    rest.find('.').map_or(subject, |at| &subject[..=INBOX_PREFIX.len() + at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nats_inbox_is_looked_up_by_its_first_two_tokens() {
        assert_eq!(key("_INBOX.a"), "_INBOX.a");
        assert_eq!(key("_INBOX.a.b.c"), "_INBOX.a.");
        assert_eq!(key("_INBOX.a.*"), "_INBOX.a.");
        assert!(
            is_single_inbox("_INBOX.a.*") && !is_single_inbox("_INBOX.*") && !is_single_inbox("_INBOX.>")
        );
    }
}
