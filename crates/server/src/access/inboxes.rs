//! Records which user owns an inbox whose name a client chose. Another user who learns the inbox's name must not read
//! the replies.
//!
//! Limit: one entry for each inbox. A session can add at most one inbox for each of its subscriptions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{Access, Login, lock};

/// For each inbox, the user who owns it, and how many of the user's connections read it.
#[derive(Debug, Default)]
pub(super) struct InboxUsers(Mutex<HashMap<Box<str>, (String, u32)>>);

/// One connection's use of an inbox. Dropping the claim ends the use.
#[derive(Debug)]
pub(crate) struct InboxClaim {
    access: Arc<Access>,
    inbox: Box<str>,
}

impl Login {
    /// Registers a connection of this user as a reader of the inbox. The inbox must belong to this user or, if
    /// `is_new`, to nobody; otherwise returns `None`.
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
    /// Returns the user who owns the inbox that this pattern selects; `None` if no client chose this inbox's name.
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
