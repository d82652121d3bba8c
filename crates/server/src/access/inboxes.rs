//! Whose inboxes are, where clients make up their names: whoever was given a name to answer to could read, too, what others
//! answer there.
//!
//! Limit: one entry for each inbox, of which a session has at most one for each subscription.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::{Access, Login, lock};

/// Users by inbox, and how many of their connections read it.
#[derive(Debug, Default)]
pub(super) struct Inboxes(Mutex<HashMap<Box<str>, (String, u32)>>);

/// A connection's hold on an inbox.
#[derive(Debug)]
pub(crate) struct InboxClaim {
    access: Arc<Access>,
    inbox: Box<str>,
}

impl Login {
    /// The inbox is the user's, or becomes so where it `is_new`; `None` where it is another's.
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
    /// Whose inbox of this pattern is, where clients made up its name.
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
