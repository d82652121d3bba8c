//! Inboxes: subjects that belong to the connection which first subscribed to them, and end with its subscriptions.
//!
//! NATS clients make up their inboxes: `_INBOX.<unique>`, or `_INBOX.<unique>.…` for many answers. All of the second kind
//! that begin alike are one log here: subjects that are used once must not become topics of their own.
//!
//! Limit: one for each subscription.

use std::collections::HashMap;

use std::sync::Arc;

use dunlin::{Inbox, Node, TopicError};

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
        let is_new = match inbox.open() {
            Ok(_) => true,
            // It is another connection's, which may share it.
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
    fn what_has_the_same_first_two_tokens_and_more_is_one_inbox() {
        assert_eq!(key("_INBOX.a"), "_INBOX.a");
        assert_eq!(key("_INBOX.a.b.c"), "_INBOX.a.");
        assert_eq!(key("_INBOX.a.*"), "_INBOX.a.");
        assert!(
            names_its_owner("_INBOX.a.*") && !names_its_owner("_INBOX.*") && !names_its_owner("_INBOX.>")
        );
    }
}
