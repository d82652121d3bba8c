//! Inboxes: subjects that belong to the connection which first subscribed to them, and end with its subscriptions.
//!
//! NATS clients make up their inboxes: `_INBOX.<unique>`, or `_INBOX.<unique>.…` for many answers. All of the second kind
//! that begin alike are one log here: subjects that are used once must not become topics of their own.
//!
//! Limit: one for each subscription.

use std::collections::HashMap;

use std::sync::Arc;

use dunlin::topic::Pattern;
use dunlin::{Inbox, Node, TopicError};

use super::Session;
use super::publish::Full;
use super::subscription::{SEQUENCED, Subscription};
use crate::access::{InboxClaim, Login};

/// The inboxes of one connection, and how many subscriptions need each.
#[derive(Debug, Default)]
pub(super) struct Inboxes(HashMap<Box<str>, Open>);

#[derive(Debug)]
struct Open {
    _inbox: Inbox,
    subscriptions: u32,
    _claim: Option<InboxClaim>,
}

impl Inboxes {
    /// Makes the inbox that the pattern lies in, unless it is there; `false` where it is another user's.
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
        // Where another connection has it, too, it stays until both have left it.
        let is_new = match inbox.open_new() {
            Ok(is_new) => is_new,
            Err(TopicError::Exists(_) | TopicError::Overlaps(_)) => false,
            Err(error) => return Err(error),
        };
        let claim = login.map(|login| login.claim_inbox(key(pattern), is_new));
        if let Some(None) = claim {
            return Ok(false);
        }
        let open = Open { _inbox: inbox, subscriptions: 1, _claim: claim.flatten() };
        self.0.insert(key(pattern).into(), open);
        Ok(true)
    }

    /// A subscription that was in it has ended.
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
    /// Whether the subject lies in an inbox that another user has at another node. This node knows only its own.
    pub(super) fn is_of_foreign_inbox(&mut self, subject: &str, from: usize) -> Result<bool, Full> {
        let subject = subject.strip_prefix(SEQUENCED).unwrap_or(subject);
        if !is_inbox(subject) || !names_its_owner(subject) || self.inboxes.0.contains_key(key(subject)) {
            return Ok(false);
        }
        let all = if key(subject).ends_with('.') { ">" } else { "" };
        let Ok(inbox) = Pattern::parse(&format!("{}{all}", key(subject))) else { return Ok(false) };
        let is_foreign = self.is_inbox_of_another(&inbox, from)?;
        self.hearing.clear();
        Ok(is_foreign)
    }

    /// A request is about to be published. Where its answer comes to subjects that have no topic, and that this client alone
    /// subscribes to in the way of an inbox, they are one: no topic stays behind for each answer.
    ///
    /// In a cluster the inbox is of this node alone, and the others find it when something is published to it. It is none where a
    /// client of another node subscribes to its subjects, too.
    pub(super) fn open_for_answer(&mut self, reply: &[u8], from: usize) -> Result<(), Full> {
        let reply = std::str::from_utf8(reply).ok();
        let Some(patterns) = reply.and_then(Inbox::patterns_of) else { return Ok(()) };
        let takes = |(_, of): &(&u32, &Subscription)| {
            of.answers.is_none()
                && of.queue.is_none()
                && patterns.iter().any(|one| one == of.pattern.as_str())
        };
        let Some((&number, subscription)) = self.subscriptions.iter().find(takes) else { return Ok(()) };
        // It reads something already, or would: then the subjects have topics.
        if !subscription.channels.is_empty() {
            return Ok(());
        }
        let pattern = subscription.pattern.clone();
        if self.node.ownership().is_some() && self.is_heard_elsewhere(&pattern, from)? {
            return Ok(());
        }
        let Some(subscription) = self.subscriptions.get_mut(&number) else { return Ok(()) };
        let name = format!("of-{:x}-{number:x}", self.id);
        let mut inbox = Inbox::of_pattern(self.node.clone(), name, subscription.pattern.as_str());
        if inbox.open().is_ok() {
            subscription.answers = Some(inbox);
        }
        Ok(())
    }
}

/// Whether subject or pattern is an inbox.
pub(super) fn is_inbox(subject: &str) -> bool {
    subject.starts_with(PREFIX)
}

/// Whether it says whose inbox.
pub(super) fn names_its_owner(pattern: &str) -> bool {
    pattern.strip_prefix(PREFIX).is_some_and(|rest| !rest.starts_with(['*', '>']))
}

const PREFIX: &str = "_INBOX.";

/// What an inbox's subjects have in common: the first two tokens, and the dot behind them if there are more.
pub(super) fn key(subject: &str) -> &str {
    let rest = &subject[PREFIX.len()..];
    rest.find('.').map_or(subject, |at| &subject[..=PREFIX.len() + at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nats_inbox_is_keyed_by_its_first_two_tokens() {
        assert_eq!(key("_INBOX.a"), "_INBOX.a");
        assert_eq!(key("_INBOX.a.b.c"), "_INBOX.a.");
        assert_eq!(key("_INBOX.a.*"), "_INBOX.a.");
        assert!(
            names_its_owner("_INBOX.a.*") && !names_its_owner("_INBOX.*") && !names_its_owner("_INBOX.>")
        );
    }
}
