//! Remembers the owners of inboxes whose names clients choose. A user who learns the name of another user's inbox must
//! not read the replies in that inbox.
//!
//! Limit: one entry per inbox; a session has at most one per subscription.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{Access, Login, lock};

/// For each inbox, its user, and the number of this user's connections that read the inbox.
#[derive(Debug, Default)]
pub(super) struct InboxUsers(Mutex<HashMap<Box<str>, (String, u32)>>);

/// A connection's use of an inbox, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct InboxClaim {
    access: Arc<Access>,
    inbox: Box<str>,
}

impl Login {
    /// Registers the user as a reader of an inbox that is new or already the user's; `None` if the inbox belongs to
    /// another user.
    pub(crate) fn claim_inbox(&self, inbox: &str, is_new: bool) -> Option<InboxClaim> {
        let name = self.account().name();
        let mut inboxes = lock(&self.access().inboxes.0);
        match inboxes.get_mut(inbox) {
            Some((owner, count)) if owner == name => *count += 1,
            None if is_new => drop(inboxes.insert(inbox.into(), (name.to_owned(), 1))),
            _ => return None,
        }
        Some(InboxClaim { access: Arc::clone(self.access()), inbox: inbox.into() })
    }
}

impl Access {
    /// The user of the inbox with this pattern, if a client chose its name.
    pub(crate) fn user_of_inbox(&self, pattern: &str) -> Option<String> {
        let inbox = pattern.strip_suffix('>').unwrap_or(pattern);
        lock(&self.inboxes.0).get(inbox).map(|(user, _)| user.clone())
    }
}

impl Drop for InboxClaim {
    fn drop(&mut self) {
        let mut inboxes = lock(&self.access.inboxes.0);
        if let Some((_, count)) = inboxes.get_mut(&self.inbox) {
            *count -= 1;
            if *count == 0 {
                inboxes.remove(&self.inbox);
            }
        }
    }
}
